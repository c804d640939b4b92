"""A static site of one run or several: opened from the file system, it needs no server and nothing from outside."""

from vitreous.site.write import write_site as write_site
