"""The pages of a run, served with its models alive: `vitreous explore RUN`."""

from vitreous.explorer.server import explore as explore
