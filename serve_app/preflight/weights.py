"""Whether a node has the models' weights, and GPUs large enough for them. Nothing is fetched or loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from huggingface_hub.constants import HF_HUB_OFFLINE

from serve_app.preflight.finding import Finding, fine, refused, unusual
from serve_app.weights.wanted import Wanted

_WEIGHTS: Final = (".safetensors", ".bin", ".onnx", ".pt", ".pth")
_GIB: Final = 2**30
_WHAT: Final = "weights"
_FETCH: Final = "gen-serve weights fetch"


def look(wanted: Sequence[Wanted], where: str) -> Iterator[Finding]:
    """On this machine."""
    here = gpus()
    missing, whole = set(), bool(wanted)
    for each in wanted:
        place = each.place()
        if place is None:
            missing.add(each.checkpoint)
            whole = False
        elif not place.exists() or not os.access(place, os.R_OK):
            yield refused(_WHAT, where, f"{each.who}: {each.checkpoint} can't be read", "put it there, readable")
            whole = False
        elif here and each.gpus and (size := _size(place)) > (room := min(here) * each.gpus):
            told = f"{each.who}: {size / _GIB:.0f} GiB of weights, {room / _GIB:.0f} GiB of a GPU"
            yield unusual("GPU memory", where, told, "a larger GPU, or a larger num_gpus in its actor")
    if missing:
        names = ", ".join(sorted(missing))
        if HF_HUB_OFFLINE:
            yield refused(_WHAT, where, f"not here, and HF_HUB_OFFLINE is set: {names}", _FETCH)
        else:
            yield unusual(_WHAT, where, f"not here yet: {names}", f"{_FETCH}; else the first replica of each does")
    if whole:
        yield fine(_WHAT, where, "all here")
    if here:
        yield fine("GPU memory", where, f"{len(here)} of {min(here) / _GIB:.0f} GiB at least")


def _size(folder: Path) -> int:
    """Of the weights in it; links lead into the hub's cache."""
    files: Iterable[Path] = (folder,) if folder.is_file() else folder.rglob("*")
    return sum(file.stat().st_size for file in files if file.suffix in _WEIGHTS and file.is_file())


def gpus() -> list[int]:
    """The memory of each, in bytes; empty where there are none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    asked = [tool, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=5, check=True).stdout
        return [int(line) * 2**20 for line in told.split() if line.strip()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
