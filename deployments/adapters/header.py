"""The header of a safetensors file: read before anything else, since it says how much work the rest is.

Needs no torch, so that what is hostile is refused before that is imported.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, Final

MOST_BYTES: Final = 8 * 2**20
"""Some tools note every caption of their training in it; those of the tensors take some hundred kilobytes."""
MOST_TENSORS: Final = 20_000
_NAME_SHOWN: Final = 100


class AdapterError(ValueError):
    """A file is no adapter of this base. Its text says why, fit for the client."""


def read_header(file: BinaryIO) -> dict[str, Any]:
    """What stands in front of the tensors, by their names. Raises AdapterError."""
    length = int.from_bytes(file.read(8), "little")
    if length > MOST_BYTES:
        raise AdapterError(f"not a safetensors file, or its header is longer than {MOST_BYTES // 2**20} MiB")
    try:
        header = json.loads(file.read(length))
    except (ValueError, RecursionError) as error:
        raise AdapterError("not a safetensors file") from error
    if not isinstance(header, dict):
        raise AdapterError("not a safetensors file")
    if len(header) > MOST_TENSORS:
        raise AdapterError(f"it holds more than {MOST_TENSORS} tensors")
    return header


def shown(name: str) -> str:
    """The name of a tensor or a layer, as far as it can be told."""
    return name if len(name) <= _NAME_SHOWN else f"{name[:_NAME_SHOWN]}…"
