"""What onnxruntime says when it has no memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException

from deployments import onnx_session
from deployments.checkpoint_files import CheckpointError
from deployments.engine.backend import OutOfMemory
from deployments.onnx_session import Graph, opened

FULL = "BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1048576"


class Session:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name="x", shape=[1, 3, "h", "w"], type="tensor(float)")]

    def run(self, *of: Any) -> None:
        raise self._error


@pytest.mark.parametrize("kind", [Fail, RuntimeException, RuntimeError])
def test_a_run_without_memory_is_told_apart(kind: type[Exception]) -> None:
    picture = np.zeros((1, 3, 8, 8), np.float32)
    with pytest.raises(OutOfMemory):
        Graph("network", Session(kind(FULL))).run(picture)
    with pytest.raises(kind, match="else"):
        Graph("network", Session(kind("something else"))).run(picture)


@pytest.mark.parametrize(("told", "raised"), [(FULL, OutOfMemory), ("no such operator", CheckpointError)])
def test_a_network_that_has_no_room_now_is_no_broken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, raised: type[Exception]
) -> None:
    def full(*of: Any, **how: Any) -> None:
        raise Fail(told)

    monkeypatch.setattr(onnx_session, "network_file", lambda checkpoint, revision: tmp_path / "x.onnx")
    monkeypatch.setattr(onnxruntime, "InferenceSession", full)
    with pytest.raises(raised):
        opened("x.onnx", device="cpu")
