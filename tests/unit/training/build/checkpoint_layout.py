"""What a trained checkpoint and a freshly built one must have in common: everything but the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from safetensors import safe_open

Layout: TypeAlias = dict[str, object]


def files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in files(folder).values())


def layout(folder: Path) -> Layout:
    """Per file, its text, or the names, shapes and types of its tensors.

    Of tokenizers only that they are there: their ids stay what they were when training began.
    """
    return {name: _content(name, path) for name, path in files(folder).items()}


def _content(name: str, path: Path) -> object:
    if name.endswith(".safetensors"):
        with safe_open(path, framework="pt") as tensors:
            slices = {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118  # no mapping
            return {key: (tuple(part.get_shape()), part.get_dtype()) for key, part in slices.items()}
    return None if name.endswith("tokenizer.json") else path.read_text()
