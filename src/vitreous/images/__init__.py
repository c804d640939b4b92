"""Pictures in a fixed order, with labels, masks and boxes: `ImageSet.open(source)`. docs/images.md shows how."""

from vitreous.images.imageset import ImageSet as ImageSet
from vitreous.images.imageset import Picture as Picture
