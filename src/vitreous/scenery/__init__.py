"""Our own pictures: textured objects on textured backgrounds, with the whole truth about them.

Made for planted-truth experiments: every pixel's owner and every object's shape, colour, texture, size and depth are
known. `scenes` makes a set of pictures, `render_scene` one scene alone, wherever and in whatever order it is wanted.
"""

from vitreous.scenery.gallery import scenes
from vitreous.scenery.scene import ATTRIBUTES, Scene, SceneObject, render_scene, vocabulary

__all__ = ["ATTRIBUTES", "Scene", "SceneObject", "render_scene", "scenes", "vocabulary"]
