"""Checks an uploaded adapter against its base: `python -m deployments.adapters.check CHECKPOINT FILE [REVISION]`.

Prints one line of JSON, `{"rank": …, "layers": …}` or `{"error": "…"}` with a reason fit for the client. A process of
its own, so that the service around the models needs no torch; it reads the base's configuration, not its weights.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import diffusers
import torch
from torch import nn

from deployments.adapters.weights import AdapterError, read_weights
from deployments.checkpoint_files import single_file


def check(checkpoint: str, file: Path, revision: str | None = None) -> dict[str, int | str]:
    try:
        weights = read_weights(file.read_bytes(), _outline(checkpoint, revision))
    except AdapterError as error:
        return {"error": str(error)}
    return {"rank": weights.rank, "layers": len(weights.layers)}


def _outline(checkpoint: str, revision: str | None) -> nn.Module:
    """The checkpoint's transformer without weights."""
    config = json.loads(single_file(checkpoint, "transformer/config.json", revision).read_text())
    with torch.device("meta"):
        return getattr(diffusers, config["_class_name"]).from_config(config)


if __name__ == "__main__":
    checkpoint, file, *revision = sys.argv[1:]
    print(json.dumps(check(checkpoint, Path(file), revision[0] if revision else None)))
