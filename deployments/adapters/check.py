"""Checks an uploaded tuned model against its base: `python -m deployments.adapters.check CHECKPOINT FILE [REVISION]`.

Prints one line of JSON, `{"rank": …, "layers": …}` or `{"error": "…"}` with a reason fit for the client. A process of
its own, so that the service around the models needs no torch; it reads the base's configuration, not its weights.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import diffusers
import torch
from huggingface_hub import hf_hub_download
from torch import nn

from deployments.adapters.store import AdapterError, read
from deployments.checkpoints import BUNDLED


def check(checkpoint: str, file: Path, revision: str | None = None) -> dict[str, int | str]:
    try:
        tuned = read(file.read_bytes(), _outline(checkpoint, revision))
    except AdapterError as error:
        return {"error": str(error)}
    return {"rank": tuned.rank, "layers": len(tuned.layers)}


def _outline(checkpoint: str, revision: str | None) -> nn.Module:
    """The checkpoint's transformer without weights."""
    config = json.loads(_config_file(checkpoint, revision).read_text())
    with torch.device("meta"):
        return getattr(diffusers, config["_class_name"]).from_config(config)


def _config_file(checkpoint: str, revision: str | None) -> Path:
    name = "transformer/config.json"
    if checkpoint.startswith("bundled/"):
        return BUNDLED / checkpoint.removeprefix("bundled/") / name
    if Path(checkpoint).is_dir():
        return Path(checkpoint) / name
    return Path(hf_hub_download(checkpoint, name, revision=revision))


if __name__ == "__main__":
    checkpoint, file, *revision = sys.argv[1:]
    print(json.dumps(check(checkpoint, Path(file), revision[0] if revision else None)))
