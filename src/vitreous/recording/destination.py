"""Where a recording goes: a folder, or an address on object storage with a folder on this machine in front of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from vitreous.errors import StoreError
from vitreous.places import Bucket, file_hash, is_remote
from vitreous.provenance import json_bytes, read_status, replace_file
from vitreous.recording.writing import write_manifest
from vitreous.store.manifest import MANIFEST, Manifest, Shard, read_manifest

SPARE = 1.05  # free space that is asked for, as a share of what will be written


@dataclass(frozen=True)
class Destination:
    """With a bucket a shard is written into `folder`, sent there, and then deleted here: the folder stays small."""

    folder: Path
    bucket: Bucket | None

    @classmethod
    def at(cls, out: str | Path) -> Destination:
        if is_remote(out):
            bucket = Bucket(str(out).rstrip("/"))
            return cls(bucket.cache / "write", bucket)
        return cls(Path(out), None)

    @property
    def address(self) -> str:
        return str(self.bucket or self.folder)

    def begun(self, resume: bool) -> Manifest | None:
        """The manifest of what is there already, without shards whose files are gone or cut short."""
        if self.bucket is not None:
            there = self._is_store(self.bucket, resume)
        else:
            there = (self.folder / MANIFEST).exists()
        if not there:
            return None
        manifest = read_manifest(self.bucket or self.folder)
        return replace(manifest, shards=tuple(s for s in manifest.shards if self._size(s.file) == s.bytes))

    def _is_store(self, bucket: Bucket, resume: bool) -> bool:
        found = bucket.names()
        if found and MANIFEST not in found:
            raise StoreError(
                f"{bucket} is not empty and not a store",
                given=found[:5],
                accepted="a new or empty folder, or a store to go on with",
            )
        if found and not resume:
            raise StoreError(f"{bucket} already holds a store and resume=False", remedy="record into another folder")
        return bool(found)

    def _size(self, name: str) -> int | None:
        if self.bucket is not None:
            return self.bucket.size(name)
        path = self.folder / name
        return path.stat().st_size if path.is_file() else None

    def has(self, manifest: Manifest, name: str) -> bool:
        """Whether a file beside the shards is there as the manifest says."""
        entry = manifest.files[name]
        if self.bucket is not None:
            return self.bucket.size(name) == entry["bytes"]
        path = self.folder / name
        return path.is_file() and file_hash(path) == entry["sha256"]

    def finished(self, manifest: Manifest) -> bool:
        """Whether a run has ended here and left everything; one killed at the very end is run again to tidy up."""
        there = all(self.has(manifest, name) for name in manifest.files)
        return manifest.complete and there and read_status(self.folder) == "done"

    def refuse_full_disk(self, manifest: Manifest, missing: list[int], described: str) -> None:
        lengths = [manifest.layout(number)[2] for number in missing]
        need = int(SPARE * (max(lengths, default=0) if self.bucket else sum(lengths)))
        if need > (free := shutil.disk_usage(self.folder).free):
            raise StoreError(
                f"the disk is too small: {size_text(need)} are needed at {self.folder} for {described}",
                given=f"{size_text(free)} free",
                remedy='fewer sites, fewer tokens (tokens=16), a smaller dtype ("float16"), or another disk',
            )

    # -- writing

    def write(self, name: str, data: bytes) -> None:
        """A small file, in one step."""
        if self.bucket is not None:
            self.bucket.write(name, data)
        else:
            replace_file(self.folder / name, data)

    def keep(self, shard: Shard, manifest: Manifest) -> None:
        """A shard that is whole, and the manifest that lists it."""
        self.send(shard)
        self.note(manifest)

    def send(self, shard: Shard) -> None:
        if self.bucket is not None:
            self.bucket.upload(shard.file, self.folder / shard.file)
            (self.folder / shard.file).unlink()

    def note(self, manifest: Manifest) -> None:
        if self.bucket is not None:
            self.bucket.write(MANIFEST, json_bytes(manifest.as_json()))
        write_manifest(self.folder, manifest)


def size_text(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
