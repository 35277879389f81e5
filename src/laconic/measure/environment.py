"""Hardware, versions and commit of a measurement; no names of hosts or folders, since rows are published."""

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

import laconic
from laconic._version import __version__

MEASURED = ("src", "pyproject.toml", ":(glob)benchmarks/**/*.py")
"""Files of a checkout that can change a measurement."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Machine, versions, commit and date of a run.

    gpu, n_gpus, cuda, triton  of a run on a GPU; None on a CPU
    commit  of the checkout that laconic was imported from, "+dirty" if its sources have changes; None elsewhere. Can
            be given for sources that were copied without their history
    """

    cpu: str
    n_cores: int
    n_threads: int
    system: str
    gpu: str | None
    n_gpus: int | None
    cuda: str | None
    python: str
    torch: str
    triton: str | None
    numba: str
    numpy: str
    laconic: str
    commit: str | None
    date: str

    @classmethod
    def here(cls, given: str | None = None, device: str = "cpu") -> "Environment":
        """This machine now, with the commit `given`, if any."""
        gpu = None if device == "cpu" else torch.cuda.get_device_name(device)
        return cls(
            cpu=cpu_model(),
            n_cores=n_cores(),
            n_threads=torch.get_num_threads(),
            system=f"{platform.system()} {platform.machine()}",
            gpu=gpu,
            n_gpus=torch.cuda.device_count() if gpu else None,
            cuda=torch.version.cuda if gpu else None,
            triton=version("triton") if gpu else None,
            python=platform.python_version(),
            **{name: version(name) for name in ("torch", "numba", "numpy")},
            laconic=__version__,
            commit=given or commit(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_model() -> str:
    """The processor's model name where the system tells it, else its architecture."""
    info = Path("/proc/cpuinfo")
    told = re.search(r"^model name\s*:\s*(\S.*)", info.read_text(errors="replace"), re.M) if info.exists() else None
    return told[1].strip() if told else platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the checkout that laconic was imported from, or None where it was installed."""
    package = Path(laconic.__file__).resolve().parent
    top = _git(package, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() / "src" / "laconic" != package:
        return None
    head = _git(package, "rev-parse", "HEAD")
    changed = _git(Path(top), "status", "--porcelain", "--", *MEASURED)
    return f"{head}+dirty" if head and changed else head


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command; None if git is missing or fails."""
    command = [shutil.which("git") or "", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
