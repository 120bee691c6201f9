"""Checks of checkpoints on this machine: they are here, readable and complete, and fit a replica's share of a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from huggingface_hub.constants import HF_HUB_OFFLINE

from deployments.contract.checkpoint_layout import INDEXES, SAFETENSORS, file_problem, find_problem, load_index
from deployments.contract.hub_files import CheckpointKind
from serve_app.cluster.checkpoints import RequiredCheckpoint
from serve_app.cluster.checks.gpu import find_gpus
from serve_app.cluster.checks.result import CheckResult

_WEIGHTS: Final = "weights"
_GPU_MEMORY: Final = "GPU memory"
_FETCH: Final = "gen-serve weights fetch"
_SUFFIXES: Final = (".safetensors", ".bin", ".onnx", ".pt", ".pth")
_GIB: Final = 2**30


def check_weights(checkpoints: Sequence[RequiredCheckpoint]) -> Iterator[CheckResult]:
    gpus = find_gpus()
    missing, refused = set[str](), False
    for each in checkpoints:
        path = each.path()
        if path is None:
            missing.add(each.checkpoint)
        elif result := _check_files(each, path):
            refused = True
            yield result
        elif result := _check_size(each, path, min(gpus, default=0)):
            yield result
    if missing and HF_HUB_OFFLINE:
        yield CheckResult.refused(
            _WEIGHTS, f"not here, and HF_HUB_OFFLINE is set: {', '.join(sorted(missing))}", _FETCH
        )
    elif missing:
        remedy = f"{_FETCH}; else the first replica of each fetches it"
        yield CheckResult.warning(_WEIGHTS, f"not here yet: {', '.join(sorted(missing))}", remedy)
    elif checkpoints and not refused:
        yield CheckResult.fine(_WEIGHTS, "all here")
    if gpus:
        yield CheckResult.fine(_GPU_MEMORY, f"{len(gpus)} of {min(gpus) / _GIB:.0f} GiB at least")


def _check_files(checkpoint: RequiredCheckpoint, path: Path) -> CheckResult | None:
    name = f"{checkpoint.loaded_by}: {checkpoint.checkpoint}"
    if not path.exists() or not os.access(path, os.R_OK):
        why = "" if path.exists() else ": there is no such file or folder"
        return CheckResult.refused(_WEIGHTS, f"{name} can't be read{why}", "put it there, readable")
    if problem := _find_problem(checkpoint, path):
        remedy = "a folder as diffusers saves it, with model_index.json and each component, or one .safetensors file"
        return CheckResult.refused(_WEIGHTS, f"{name}: {problem}", remedy)
    if checkpoint.infers_configs and HF_HUB_OFFLINE:
        message = (
            f"{checkpoint.loaded_by}: HF_HUB_OFFLINE is set, and {checkpoint.checkpoint} has no configuration here"
        )
        return CheckResult.refused(
            _WEIGHTS, message, "set config_from to a folder, or to a repository that was fetched"
        )
    return None


def _find_problem(checkpoint: RequiredCheckpoint, path: Path) -> str | None:
    """Returns why replicas can't load the files of a checkpoint; None if they can."""
    match checkpoint.kind:
        case CheckpointKind.PIPELINE:
            return find_problem(path, checkpoint.weights)
        case CheckpointKind.CONFIGS if load_index(path) is None:
            return f"it has no readable {INDEXES[1]}"
        case CheckpointKind.NETWORK if checkpoint.checkpoint.endswith(SAFETENSORS):
            return file_problem(path)
        case _:
            return None


def _check_size(checkpoint: RequiredCheckpoint, path: Path, gpu_bytes: int) -> CheckResult | None:
    share = gpu_bytes * checkpoint.gpus
    if not share:
        return None
    # Links lead into the hub's cache.
    size = sum(file.stat().st_size for file in checkpoint.local_files(path) if file.suffix in _SUFFIXES)
    if size <= share:
        return None
    message = f"{checkpoint.loaded_by}: {size / _GIB:.0f} GiB of weights, {share / _GIB:.0f} GiB of a GPU"
    return CheckResult.warning(_GPU_MEMORY, message, "use a larger GPU, or a larger num_gpus")
