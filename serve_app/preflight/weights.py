"""Whether a node has the models' weights, and GPUs large enough for them. Nothing is fetched or loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from huggingface_hub.constants import HF_HUB_CACHE, HF_HUB_OFFLINE
from huggingface_hub.file_download import repo_folder_name

from deployments.contract.checkpoint import place_of
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.preflight.finding import Finding, fine, refused, unusual

_SIMULATED: Final = "simulated/"
_WEIGHTS: Final = (".safetensors", ".bin", ".onnx", ".pt", ".pth")
_GIB: Final = 2**30
_WHAT: Final = "weights"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a replica of one lane loads, and the share of GPUs that it asks Ray for."""

    lane: str
    checkpoint: str
    revision: str | None
    gpus: float


def wanted(settings: Settings, catalog: Catalog) -> tuple[Wanted, ...]:
    """Of every lane that reads weights."""
    found = []
    for name, model in catalog.models.items():
        chosen = settings.model(name)
        checkpoint = chosen.checkpoint or model.checkpoint
        if checkpoint and not checkpoint.startswith(_SIMULATED) and chosen.checkpoint != "":
            revision = None if chosen.checkpoint else model.revision
            found.append(Wanted(name, checkpoint, revision, float(chosen.actor.get("num_gpus", 0))))
    return tuple(found)


def look(models: Sequence[Wanted], where: str) -> Iterator[Finding]:
    """On this machine."""
    gpus = _gpus()
    missing, whole = [], bool(models)
    for model in models:
        folder = _folder(model)
        if folder is None:
            missing.append(model)
            whole = False
        elif not folder.exists() or not os.access(folder, os.R_OK):
            yield refused(_WHAT, where, f"{model.lane}: {model.checkpoint} can't be read", "put it there, readable")
            whole = False
        elif gpus and model.gpus and (size := _size(folder)) > (room := min(gpus) * model.gpus):
            told = f"{model.lane}: {size / _GIB:.0f} GiB of weights, {room / _GIB:.0f} GiB of a GPU"
            yield unusual("GPU memory", where, told, f"a larger GPU, or a larger num_gpus in models.{model.lane}.actor")
    if missing:
        names = ", ".join(sorted(model.checkpoint for model in missing))
        if HF_HUB_OFFLINE:
            yield refused(_WHAT, where, f"not here, and HF_HUB_OFFLINE is set: {names}", "bring them into HF_HOME")
        else:
            yield unusual(_WHAT, where, f"not here yet: {names}", "the first replica of each fetches them, for minutes")
    if whole:
        yield fine(_WHAT, where, "all here")
    if gpus:
        yield fine("GPU memory", where, f"{len(gpus)} of {min(gpus) / _GIB:.0f} GiB at least")


def _folder(model: Wanted) -> Path | None:
    """Where its files are; None where the model hub has to give them."""
    if (place := place_of(model.checkpoint)) is not None:
        return place
    if Path(model.checkpoint).is_absolute():
        return Path(model.checkpoint)
    owner_and_name = "/".join(model.checkpoint.split("/")[:2])
    cached = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=owner_and_name, repo_type="model")
    reference = cached / "refs" / (model.revision or "main")
    commit = reference.read_text().strip() if reference.is_file() else model.revision or ""
    snapshot = cached / "snapshots" / commit
    return snapshot if commit and snapshot.is_dir() else None


def _size(folder: Path) -> int:
    """Of the weights in it; links lead into the hub's cache."""
    files: Iterable[Path] = (folder,) if folder.is_file() else folder.rglob("*")
    return sum(file.stat().st_size for file in files if file.suffix in _WEIGHTS and file.is_file())


def _gpus() -> list[int]:
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
