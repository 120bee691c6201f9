"""A hub with some repositories, and profiles whose checkpoints are in it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hub_profile import NETWORK, PIPELINE, REWRITER, Profile, Profiles, pipeline
from support.model_hub import MAIN, Hub, Repository, running

from deployments.contract.model import BUNDLED


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as hub:
        hub.repositories[PIPELINE] = Repository({MAIN: pipeline()})
        rewriter = Repository.of(BUNDLED / "rewriter", **{"pytorch_model.bin": b"the same once more"})
        hub.repositories[REWRITER] = Repository({MAIN: rewriter})
        network = {"onnx/model.onnx": b"graph", "onnx/model.onnx_data": b"weights", "onnx/model_fp16.onnx": b"half"}
        hub.repositories[NETWORK.rpartition("/onnx/")[0]] = Repository({MAIN: network})
        yield hub


@pytest.fixture
def profile(hub: Hub, tmp_path: Path) -> Profiles:
    """With these models in the catalog, and settings; without anything else to load."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "GEN_", "TRANSFORMERS_"))}
    environment = kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hub"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }

    def made(lanes: dict[str, Any], *, rewriter: str | None = None, **settings: Any) -> Profile:
        catalog = tmp_path / "catalog.yaml"
        known: dict[str, Any] = {"models": lanes, "endpoints": {}}
        if rewriter is not None:
            known["rewriter"] = {"checkpoint": rewriter}
        catalog.write_text(json.dumps(known))
        return Profile(tmp_path, environment, {"data_dir": str(tmp_path / "data"), "catalog": str(catalog), **settings})

    return made
