"""Pictures in folders and zips."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from picture_files import pixels, png, some, write, write_zip

from vitreous.errors import ImageError, SettingsError
from vitreous.images import ImageSet
from vitreous.images.sources import natural


def test_a_folder_of_class_folders(tmp_path):
    array = some(6)
    names = ["cat/10.png", "cat/2.png", "dog/1.jpeg", "bird/x.PNG", "cat/.hidden.png", "cat/notes.txt"]
    write(tmp_path, {name: png(array[k % 6]) for k, name in enumerate(names)})
    images = ImageSet.from_folder(tmp_path)
    assert images.ids == ("bird/x.PNG", "cat/2.png", "cat/10.png", "dog/1.jpeg")
    assert images.classes == ("bird", "cat", "dog")
    assert images.labels.tolist() == [0, 1, 1, 2]
    assert images.name == tmp_path.name
    assert (pixels(images["cat/10.png"]) == array[0]).all()
    assert images["cat/10.png"].about == {"file": "cat/10.png"}


def test_labels_agree_with_torchvisions_image_folder(tmp_path):
    from torchvision.datasets import ImageFolder

    write(tmp_path, {f"{c}/a.png": png(some(1)[0]) for c in ("10", "9", "1", "Zebra", "apple")})
    images, theirs = ImageSet.from_folder(tmp_path), ImageFolder(str(tmp_path))
    assert list(images.classes) == theirs.classes
    expected = {Path(path).relative_to(tmp_path).as_posix(): label for path, label in theirs.samples}
    assert dict(zip(images.ids, images.labels.tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    "names",
    [["b.png", "a.png"], ["only/a.png", "only/b.png"], ["a.png", "x/b.png", "y/c.png"], ["t/x/1.png", "v/x/1.png"]],
)
def test_layouts_that_are_not_clear_give_no_labels(tmp_path, names):
    write(tmp_path, {name: png(some(1)[0]) for name in names})
    images = ImageSet.from_folder(tmp_path)
    assert (images.labels, images.classes) == (None, None)
    assert sorted(images.ids) == sorted(names)


def test_labels_can_be_asked_for_or_not(tmp_path):
    write(tmp_path, {f"{c}/in/a.png": png(some(1)[0]) for c in "ab"})
    assert ImageSet.from_folder(tmp_path, labels="folders").labels.tolist() == [0, 1]
    assert ImageSet.from_folder(tmp_path, labels="none").labels is None
    write(tmp_path, {"flat.png": png(some(1)[0])})
    with pytest.raises(ImageError, match="outside of the class folders") as caught:
        ImageSet.from_folder(tmp_path, labels="folders")
    assert "'flat.png'" in str(caught.value)
    with pytest.raises(ImageError, match="unknown way to get labels"):
        ImageSet.from_folder(tmp_path, labels="folder")
    assert ImageSet.from_folder(tmp_path, recursive=False).ids == ("flat.png",)


@given(st.lists(st.text("ab01/", min_size=1, max_size=8).filter(lambda s: "/" not in (s[0], s[-1])), unique=True))
def test_the_natural_order_is_total_and_does_not_depend_on_the_input_order(names):
    assert sorted(names, key=natural) == sorted(reversed(names), key=natural)


def test_the_natural_order_counts():
    names = ["img1", "img01", "img2", "img10", "img10b", "b", "7"]
    assert sorted(reversed(names), key=natural) == ["7", "b", "img01", "img1", "img2", "img10", "img10b"]
    assert sorted(["²", "1", "a"], key=natural) == ["1", "a", "²"]


def test_hidden_files_and_side_cars_are_passed_over_and_other_files_named(tmp_path):
    files = {name: png(some(1)[0]) for name in ("a.png", ".b.png", ".git/c.png", "__MACOSX/d.png")}
    files |= dict.fromkeys(["readme.md", "LICENSE", "labels.csv", "x.npz", "Thumbs.db", "boxes.xml", "README"], b"text")
    write(tmp_path, files)
    assert ImageSet.from_folder(tmp_path).ids == ("a.png",)
    write(tmp_path, {"holiday.heic": b"?", "raw/no_ending": b"?"})
    with pytest.raises(ImageError, match="2 files are neither pictures nor side-cars") as caught:
        ImageSet.from_folder(tmp_path)
    assert "['holiday.heic', 'raw/no_ending']" in str(caught.value)
    images = ImageSet.from_folder(tmp_path, on_error="skip")
    assert images.ids == ("a.png",)
    assert images.skipped == tuple((n, "not named like a picture") for n in ("holiday.heic", "raw/no_ending"))


def test_linked_folders_are_followed_once(tmp_path):
    write(tmp_path / "real", {"a.png": png(some(1)[0])})
    root = tmp_path / "root"
    root.mkdir()
    (root / "linked").symlink_to(tmp_path / "real")
    (root / "loop").symlink_to(root)
    assert ImageSet.from_folder(root).ids == ("linked/a.png",)


def test_a_folder_is_only_listed(tmp_path):
    write(tmp_path, {"a.png": b"", "b.png": b"not a picture"})
    assert len(ImageSet.from_folder(tmp_path)) == 2


DAMAGED = {
    "empty.png": (b"", "an empty file (0 bytes)"),
    "html.jpg": (b"<html>", "not a picture in a format that is read"),
    "short.png": (png(some(1, 64, 64)[0])[:5000], "a truncated or damaged picture"),
}


def test_damaged_pictures_are_named_when_they_are_opened(tmp_path):
    write(tmp_path, {name: data for name, (data, _) in DAMAGED.items()} | {"fine.png": png(some(1)[0])})
    images = ImageSet.from_folder(tmp_path)
    assert pixels(images["fine.png"]).shape == (12, 16, 3)
    for name, (_, reason) in DAMAGED.items():
        with pytest.raises(ImageError) as caught:
            images[name]
        assert reason in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "zip", "list"])
def test_damaged_pictures_are_skipped_and_listed(tmp_path, kind):
    files = {f"{c}/{n}": d for c in "ab" for n, (d, _) in DAMAGED.items()} | {"b/fine.png": png(some(1)[0])}
    if kind == "zip":
        images = ImageSet.open(write_zip(tmp_path / "x.zip", files), on_error="skip")
    elif kind == "folder":
        images = ImageSet.open(write(tmp_path, files), on_error="skip")
    else:
        images = ImageSet.open([write(tmp_path, files) / name for name in sorted(files)], on_error="skip")
    assert images.ids == ("b/fine.png",)
    if kind != "list":
        assert images.classes == ("a", "b"), "a class keeps its number although all of its pictures are damaged"
        assert images.labels.tolist() == [1]
    assert sorted(name for name, _ in images.skipped) == sorted(set(files) - {"b/fine.png"})
    assert all(reason.startswith(DAMAGED[name[2:]][1]) for name, reason in images.skipped)
    assert "6 skipped" in repr(images)


def test_files_that_vanish_are_named(tmp_path):
    images = ImageSet.open(write(tmp_path, {"a.png": png(some(1)[0])}))
    (tmp_path / "a.png").unlink()
    with pytest.raises(ImageError, match=r"cannot be read \(No such file or directory\)"):
        images[0]


def test_paths_that_do_not_exist_show_what_does(tmp_path):
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    with pytest.raises(ImageError, match="no such folder") as caught:
        ImageSet.from_folder(tmp_path / "image" / "train")
    assert "'image'" in str(caught.value)
    assert "nearest:  images" in str(caught.value)
    with pytest.raises(ImageError, match="no such file or folder"):
        ImageSet.open(str(tmp_path / "nothing.zip"))


def test_empty_folders_and_zips_are_refused(tmp_path):
    with pytest.raises(ImageError, match="no pictures in here"):
        ImageSet.from_folder(tmp_path)
    with pytest.raises(ImageError, match="no pictures in here"):
        ImageSet.from_zip(write_zip(tmp_path / "x.zip", {"a.txt": b""}))
    with pytest.raises(SettingsError, match="unknown on_error"):
        ImageSet.from_folder(write(tmp_path / "p", {"a.png": b""}), on_error="ignore")


def test_a_file_is_not_a_folder(tmp_path):
    write(tmp_path, {"a.png": png(some(1)[0])})
    with pytest.raises(ImageError, match="not a folder"):
        ImageSet.from_folder(tmp_path / "a.png")


def test_a_zip_reads_like_the_folder(tmp_path):
    files = {f"{c}/{k}.png": png(x) for c in "ab" for k, x in enumerate(some(12))}
    files |= {"__MACOSX/a/._1.png": b"x", "README": b"x"}
    folder, archive = ImageSet.open(write(tmp_path / "f", files)), ImageSet.open(write_zip(tmp_path / "f.zip", files))
    assert archive.ids == folder.ids
    assert archive.ids[:3] == ("a/0.png", "a/1.png", "a/2.png")
    assert archive.ids[10] == "a/10.png"
    assert (archive.labels == folder.labels).all()
    assert all((pixels(x) == pixels(y)).all() for x, y in zip(archive, folder, strict=True))


def test_a_zip_with_a_prefix(tmp_path):
    files = {"images/a.png": png(some(1)[0]), "labels/a.png": png(some(1)[0]), "index.csv": b""}
    path = write_zip(tmp_path / "x.zip", files)
    images = ImageSet.from_zip(path, prefix="images/")
    assert images.ids == ("a.png",)
    assert (pixels(images[0]) == some(1)[0]).all()
    with pytest.raises(ImageError, match="nothing in the zip starts with this prefix") as caught:
        ImageSet.from_zip(path, prefix="image_s/")
    assert "nearest:  images/" in str(caught.value)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zips_that_cannot_be_read_are_named(tmp_path):
    write(tmp_path, {"broken.zip": b"PK\x03\x04 nothing"})
    with pytest.raises(ImageError, match="not a zip that can be read"):
        ImageSet.from_zip(tmp_path / "broken.zip")
    twice = tmp_path / "twice.zip"
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("a.png", b"1")
        archive.writestr("a.png", b"2")
    with pytest.raises(ImageError, match="two pictures have the same id") as caught:
        ImageSet.from_zip(twice)
    assert "'a.png'" in str(caught.value)


def test_damage_inside_a_zip_is_named(tmp_path):
    path = write_zip(tmp_path / "x.zip", {"a.png": png(some(1, 40, 40)[0])})
    data = bytearray(path.read_bytes())
    data[500] ^= 255
    path.write_bytes(bytes(data))
    with pytest.raises(ImageError, match="damaged or locked entry of a zip") as caught:
        ImageSet.open(path)[0]
    assert "x.zip!a.png" in str(caught.value)
