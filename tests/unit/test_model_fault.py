"""The reason why a model can't be loaded, from its replica through Serve's status to clients."""

from __future__ import annotations

from typing import Any

import pytest

from deployments import replica as model_replica
from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import ModelSpec
from deployments.contract.model_fault import LoadFailed, ModelFault
from deployments.replica import MediaModel
from serve_app.ray_internals import _count

SERVE_SAYS = (
    "A replica failed to start with exception. Retrying 2 more time(s). Error:\nTraceback (most recent call last):\n"
    '  File "/opt/serve/replica.py", line 1, in initialize\n{error}\n'
)


def deployment(message: str, state: str = "STARTING", target: int = 1) -> dict[str, Any]:
    return {"deployment_config": {}, "replicas": [{"state": state}], "target_num_replicas": target, "message": message}


async def failure(error: Exception, monkeypatch: pytest.MonkeyPatch, checkpoint: str = "any") -> LoadFailed:
    def refuse(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(model_replica, "build_engine", refuse)
    monkeypatch.setattr(model_replica, "_LOAD_RETRY_S", 0.0)
    with pytest.raises(LoadFailed) as raised:
        await MediaModel.__init__(
            MediaModel.__new__(MediaModel), ModelSpec(checkpoint=checkpoint, objects_url="memory:///")
        )
    return raised.value


async def test_checkpoint_error_reaches_the_fault_through_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    error = await failure(CheckpointError("/models/mine has no unet\nmore"), monkeypatch)
    message = SERVE_SAYS.format(error=f"{type(error).__name__}: {error}")
    assert _count(deployment(message)).fault == ModelFault(
        "/models/mine has no unet", "the model can't be loaded: … has no unet"
    )


@pytest.mark.parametrize(
    "place", ["https://user:tok3n@mirror.corp/acme/models", "../models/secret/x", "models/private/x", "acme/secret-xl"]
)
async def test_clients_see_no_places(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error = await failure(CheckpointError(f"{place} has no unet, nor has 'my folder'"), monkeypatch, "my folder")
    fault = _count(deployment(SERVE_SAYS.format(error=error))).fault
    assert fault is not None
    assert fault.reason.startswith(place)
    assert fault.for_clients == "the model can't be loaded: … has no unet, nor has '…'"


async def test_unexpected_error_is_named_by_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    error = await failure(RuntimeError("CUDA out of memory"), monkeypatch)
    fault = _count(deployment(SERVE_SAYS.format(error=error))).fault
    assert fault is not None
    assert fault.reason == "RuntimeError: CUDA out of memory"


def test_dead_process_has_a_general_message_for_clients() -> None:
    fault = _count(deployment(SERVE_SAYS.format(error="ActorDiedError: secret"))).fault
    assert fault == ModelFault("ActorDiedError: secret", "the model can't be started")


@pytest.mark.parametrize(
    "details",
    [
        deployment(SERVE_SAYS.format(error="x"), state="RUNNING"),
        deployment(SERVE_SAYS.format(error="x"), target=0),
        deployment(""),
        deployment("Upscaling from 1 to 2 replicas."),
    ],
    ids=["running", "no replica wanted", "no message", "other message"],
)
def test_deployment_without_failed_start_has_no_fault(details: dict[str, Any]) -> None:
    assert _count(details).fault is None
