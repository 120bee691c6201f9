"""Fixtures: a fake hub with repositories, and profiles with checkpoints from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.model_hub import (
    MAIN,
    PIPELINE,
    REWRITER,
    Hub,
    Profile,
    Profiles,
    Repository,
    pipeline_files,
    read_files,
    running,
)

from deployments.contract.model import BUNDLED


@pytest.fixture
def hub() -> Iterator[Hub]:
    rewriter = read_files(BUNDLED / "rewriter", **{"pytorch_model.bin": b"the same once more"})
    network = {"onnx/model.onnx": b"graph", "onnx/model.onnx_data": b"weights", "onnx/model_fp16.onnx": b"half"}
    with running() as hub:
        for name, files in ((PIPELINE, pipeline_files()), (REWRITER, rewriter), ("owner/network", network)):
            hub.repositories[name] = Repository({MAIN: files})
        yield hub


@pytest.fixture
def profile(hub: Hub, tmp_path: Path) -> Profiles:
    """Creates profiles with the given models in the catalog and nothing else to load."""
    others = ("HF_", "GEN_", "TRANSFORMERS_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state")}

    def make(queues: dict[str, Any], *, rewriter: str | None = None, **settings: Any) -> Profile:
        content: dict[str, Any] = {"models": queues, "endpoints": {}}
        content |= {"rewriter": {"checkpoint": rewriter}} if rewriter else {}
        catalog = tmp_path / "catalog.yaml"
        catalog.write_text(json.dumps(content))
        return Profile(tmp_path, environment, {"data_dir": str(tmp_path / "data"), "catalog": str(catalog), **settings})

    return make
