"""From a subject and a set of samples to a store: `record`."""

from vitreous.recording.loop import record as record
