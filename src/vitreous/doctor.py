"""What this machine has, what is missing, and how to get it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from typing import Any

from vitreous.provenance import machine, versions

#: Package that is looked for -> (what it is for, how to get it).
OPTIONAL = {
    "nilearn": ("surfaces of the brain", "pip install 'vitreous[brain]'"),
    "open_clip": ("labels from OpenCLIP's towers", "pip install 'vitreous[labels]'"),
    "captum": ("other classifiers for concept vectors", "pip install 'vitreous[concepts]'"),
    "ISAT": ("object masks by MobileSAM", "pip install 'vitreous[masks]'"),
    "ray": ("work on a cluster", "pip install 'vitreous[ray]'"),
    "s3fs": ("stores on object storage", "pip install 'vitreous[cloud]'"),
    "h5py": ("MATLAB files of version 7.3", "pip install h5py"),
    "datasets": ("data sets of Hugging Face", "pip install datasets"),
}


@dataclass(frozen=True)
class Check:
    """`state` is "ok", "missing" (something optional) or "wrong" (something will not work)."""

    what: str
    state: str
    found: str
    remedy: str = ""


def examine_machine() -> list[Check]:
    """Versions, devices, bundled weights, extras. Nothing is fetched, and no file is written."""
    return [*_packages(), *_devices(), *_room(), *_extras()]


def as_rows(checks: list[Check]) -> list[dict[str, Any]]:
    return [asdict(check) for check in checks]


def _packages() -> list[Check]:
    found = []
    for name, version in versions().items():
        wrong = version is None or (name == "python" and sys.version_info < (3, 11))
        remedy = "" if not wrong else "Python 3.11 or newer" if name == "python" else f"pip install {name}"
        found.append(Check(name, "wrong" if wrong else "ok", version or "not installed", remedy))
    return found


def _devices() -> list[Check]:
    try:
        import torch
    except ImportError:
        return [Check("devices", "wrong", "PyTorch cannot be imported", "pip install torch")]
    cpu = [Check("cpu", "ok", f"{os.cpu_count()} cores"), _threads(torch.get_num_threads())]
    if torch.cuda.is_available():
        return [*cpu, *(Check(f"cuda:{k}", "ok", _card(torch, k)) for k in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        return [*cpu, Check("mps", "ok", "Apple GPU")]
    return [
        *cpu,
        Check("gpu", "missing", "none that PyTorch can use", "everything works without; large models are slow"),
    ]


def _threads(count: int) -> Check:
    """Threads of one product wait for each other by spinning: where other processes have the cores, they crawl."""
    asked = os.environ.get("OMP_NUM_THREADS")
    found = f"PyTorch uses {count}; OMP_NUM_THREADS is {asked or 'not set'}"
    shared = "OMP_NUM_THREADS=1 where others use the cores too: threads that wait for each other crawl there"
    return Check("threads", "ok", found, shared if count > 1 else "")


def _card(torch: Any, number: int) -> str:
    about = torch.cuda.get_device_properties(number)
    return f"{about.name}, {about.total_memory / 2**30:.0f} GiB"


def _room() -> list[Check]:
    free = shutil.disk_usage(".").free / 2**30
    disk = Check("disk here", "ok" if free > 2 else "wrong", f"{free:.0f} GiB free", "" if free > 2 else "make room")
    return [
        Check("system", "ok", str(machine()["system"])),
        disk,
        _weights(),
    ]


def _weights() -> Check:
    from importlib.resources import files

    from vitreous.models.bundled import BUNDLED

    folder = files("vitreous.models") / "weights_bundled"
    lost = [name for name in BUNDLED if not (folder / f"{name}.safetensors").is_file()]
    if lost:
        return Check("bundled models", "wrong", f"no weights of {', '.join(lost)}", "install vitreous again")
    return Check("bundled models", "ok", ", ".join(BUNDLED))


def _extras() -> list[Check]:
    found = []
    for name, (why, remedy) in OPTIONAL.items():
        there = importlib.util.find_spec(name) is not None
        found.append(Check(name, "ok" if there else "missing", why, "" if there else remedy))
    return found
