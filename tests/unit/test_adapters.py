"""Data sets of torchvision and Hugging Face."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys

import numpy as np
import pytest
from picture_files import pixels, png, some, write
from PIL import Image

from vitreous.errors import ImageError
from vitreous.images import ImageSet


def test_torchvision_image_folder(tmp_path):
    from torch.utils.data import Subset
    from torchvision.datasets import ImageFolder

    write(tmp_path, {f"{c}/{k}.png": png(x) for c in "ab" for k, x in enumerate(some(3))})
    theirs = ImageFolder(str(tmp_path))
    images = ImageSet.from_dataset(theirs)
    assert images.classes == ("a", "b")
    assert images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert (images.name, images.ids[5]) == ("ImageFolder", "000005")
    assert all((pixels(p) == np.asarray(theirs[k][0])).all() for k, p in enumerate(images))
    part = ImageSet.open(Subset(theirs, [5, 0]))
    assert part.labels.tolist() == [1, 0]
    assert part.classes == ("a", "b")
    turned = ImageFolder(str(tmp_path), target_transform=lambda k: 1 - k)
    assert ImageSet.open(turned).labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert pickle.loads(pickle.dumps(images)).fingerprint == images.fingerprint


def torch_set(items):
    from torch.utils.data import Dataset

    class Items(Dataset):
        def __len__(self):
            return len(items)

        def __getitem__(self, k):
            return items[k]

    return Items()


def test_other_map_style_sets():
    array = some(3)
    pictures = [Image.fromarray(x) for x in array]
    assert ImageSet.open(torch_set(pictures)).labels is None
    assert ImageSet.open(torch_set(list(zip(array, [2, 0, 1], strict=True)))).labels.tolist() == [2, 0, 1]
    keyed = torch_set([{"x": p, "y": np.int64(k)} for k, p in enumerate(pictures)])
    assert ImageSet.from_dataset(keyed, image="x", label="y").labels.tolist() == [0, 1, 2]
    assert ImageSet.from_dataset(keyed, image="x").labels is None
    with pytest.raises(ImageError, match="an item has no such part") as caught:
        ImageSet.from_dataset(keyed, image="z")[0]
    assert "accepted: x, y" in str(caught.value)


def test_a_target_that_is_a_picture_is_the_mask():
    labels = np.arange(192, dtype=np.uint8).reshape(12, 16)
    mask = Image.fromarray(labels)
    mask.putpalette(bytes(range(256)) * 3)
    images = ImageSet.open(torch_set([(Image.fromarray(some(1)[0]), mask)]))
    assert images.labels is None
    assert (images[0].mask == labels).all()


def test_sets_that_cannot_be_used_say_why():
    import torch
    from torch.utils.data import IterableDataset

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(())

    with pytest.raises(ImageError, match="no fixed order"):
        ImageSet.open(Stream())
    with pytest.raises(ImageError, match="item 0 is not a picture") as caught:
        ImageSet.open(torch_set([(torch.zeros(3, 4, 4), 0)]))[0]
    assert "without transform=" in str(caught.value)
    with pytest.raises(ImageError, match="a target is not a whole number") as caught:
        ImageSet.open(torch_set([(Image.fromarray(some(1)[0]), "cat")]))
    assert "['str']" in str(caught.value)


@pytest.fixture(scope="module")
def hugging():
    return pytest.importorskip("datasets")


def hugging_set(hugging, **columns):
    kinds = {name: kind for name, (kind, _) in columns.items()}
    return hugging.Dataset.from_dict({n: v for n, (_, v) in columns.items()}, features=hugging.Features(kinds))


def test_hugging_face_sets(hugging, tmp_path):
    array = some(3)
    labels = hugging.ClassLabel(names=["cat", "dog"])
    data = [{"bytes": png(x), "path": None} for x in array]
    theirs = hugging_set(
        hugging, picture=(hugging.Image(), data), kind=(labels, [1, 0, 1]), n=(hugging.Value("int64"), [5, 6, 7])
    )
    images = ImageSet.open(theirs)
    assert images.classes == ("cat", "dog")
    assert images.labels.tolist() == [1, 0, 1]
    assert all((pixels(p) == x).all() for p, x in zip(images, array, strict=True))
    assert ImageSet.from_dataset(theirs, label="n").labels.tolist() == [5, 6, 7]
    assert pickle.loads(pickle.dumps(images)).fingerprint == images.fingerprint
    turned = theirs.with_transform(lambda rows: {"nothing": [0] * len(rows["n"])})
    assert ImageSet.open(turned).fingerprint == images.fingerprint, "the set's own transform is not applied"
    write(tmp_path, {"a.png": png(array[0])})
    by_path = hugging_set(hugging, image=(hugging.Image(), [str(tmp_path / "a.png")]))
    assert (pixels(ImageSet.open(by_path)[0]) == array[0]).all()
    assert ImageSet.open(by_path).labels is None


def test_hugging_face_pictures_follow_our_rules_for_files(hugging):
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(some(1)[0]).save(out, "PNG", exif=exif)
    rows = [{"bytes": out.getvalue(), "path": None}, {"bytes": b"junk", "path": None}]
    images = ImageSet.open(hugging_set(hugging, image=(hugging.Image(), rows)))
    assert images[0].image.size == (12, 16)
    with pytest.raises(ImageError, match="not a picture") as caught:
        images[1]
    assert "row 1, column 'image'" in str(caught.value)


def test_hugging_face_sets_that_cannot_be_used_say_why(hugging):
    data = [{"bytes": png(some(1)[0]), "path": None}]
    two = hugging_set(hugging, a=(hugging.Image(), data), b=(hugging.Image(), data))
    with pytest.raises(ImageError, match="several columns could be the image") as caught:
        ImageSet.open(two)
    assert "accepted: a, b" in str(caught.value)
    assert len(ImageSet.open(two, image="b")) == 1
    with pytest.raises(ImageError, match="no such column"):
        ImageSet.open(two, image="c")
    with pytest.raises(ImageError, match="no column holds pictures"):
        ImageSet.open(hugging_set(hugging, n=(hugging.Value("int64"), [1])))
    with pytest.raises(ImageError, match="several splits") as caught:
        ImageSet.open(hugging.DatasetDict(train=two))
    assert "accepted: train" in str(caught.value)
    unlabelled = hugging_set(hugging, a=(hugging.Image(), data), y=(hugging.ClassLabel(names=["x"]), [-1]))
    assert ImageSet.open(unlabelled).labels is None


def test_importing_does_not_import_other_libraries():
    code = "import sys, vitreous.images; print({'torch', 'datasets', 'PIL.Image', 'tqdm'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "set()"
