"""The table of failures: each kind of error gives its task back in its own way."""

from __future__ import annotations

from typing import Any, cast

import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata
from ray.exceptions import ActorUnavailableError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError
from support.attempts import AttemptScene

from deployments.contract.events import Interrupted
from deployments.engine.requests import DEVICE_BROKEN
from serve_app.dispatcher.failures import AttemptInterrupted, Decision, ReplicaBusy, ReplicaLost, classify
from serve_app.moderation.gate import DispatcherDraining
from serve_app.tasks.payload import NewerPayload
from serve_app.tasks.scripts import ReleaseCause
from serve_app.tasks.task import Lease

REQUEUE, INTERRUPTION = ReleaseCause.REQUEUE, ReleaseCause.INTERRUPTION
CRASH, ALONE = ReleaseCause.CRASH, ReleaseCause.CRASH_ALONE


def remote(error: Exception) -> Exception:
    """Returns the error as Ray raises it in the caller."""
    return RayTaskError("generate", "traceback", error).as_instanceof_cause()


def rpc_error(code: StatusCode) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata(), "Unexpected <class 'TypeError'>")


DECISIONS: dict[str, tuple[Exception, *tuple[Decision, ...]]] = {
    "no start": (ReplicaBusy(), Decision(REQUEUE), Decision(REQUEUE)),
    "cancelled call": (RequestCancelledError("x"), Decision(REQUEUE), Decision(REQUEUE)),
    "draining": (DispatcherDraining(), Decision(REQUEUE), Decision(REQUEUE)),
    "later release's record": (NewerPayload(), Decision(REQUEUE, 1.0), Decision(REQUEUE, 1.0)),
    "full replicas": (BackPressureError(num_queued_requests=1, max_queued_requests=1), Decision(REQUEUE, 1.0)),
    "no replica": (DeploymentUnavailableError(cast(Any, "d")), Decision(REQUEUE, 1.0)),
    "unreadable job": (rpc_error(StatusCode.UNKNOWN), Decision(REQUEUE, 3.0)),
    "other RPC error": (rpc_error(StatusCode.RESOURCE_EXHAUSTED), Decision(CRASH), Decision(CRASH)),
    "shared fault": (AttemptInterrupted(Interrupted("away", blame=False, counts=False)), Decision(REQUEUE, 1.0)),
    "broken device": (
        AttemptInterrupted(DEVICE_BROKEN),
        Decision(REQUEUE, 3.0, DEVICE_BROKEN.reason),
        Decision(INTERRUPTION, 3.0, DEVICE_BROKEN.reason),
    ),
    "blamed job": (AttemptInterrupted(Interrupted("bad", blame=True)), Decision(ALONE, reason="bad")),
    "dead replica": (ActorUnavailableError("gone", None), Decision(CRASH), Decision(ALONE)),
    "lost stream": (ReplicaLost(), Decision(CRASH), Decision(ALONE)),
    "replica's error": (remote(ValueError("x")), Decision(CRASH), Decision(ALONE)),
    "replica's timeout": (remote(TimeoutError()), Decision(CRASH), Decision(ALONE)),
    "own bug": (AttributeError("x"), Decision(CRASH), Decision(CRASH)),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_decision_on_the_third_attempt_alone_before_and_after_start(name: str) -> None:
    error, *decisions = DECISIONS[name]
    lease = Lease("t", 3, exclusive=True, created=0.0, payload="")
    both = [classify(error, lease, has_started=has_started) for has_started in (False, True)]
    assert both == (decisions if len(decisions) == 2 else 2 * decisions)


@pytest.mark.parametrize("error", [ReplicaLost(), remote(ValueError("x"))])
def test_crash_beside_other_tasks_is_no_crash_alone(error: Exception) -> None:
    lease = Lease("t", 3, exclusive=False, created=0.0, payload="")
    assert classify(error, lease, has_started=True).cause is CRASH


@pytest.mark.parametrize("attempt", [1, 10, 1000])
def test_pause_grows_with_the_attempts_up_to_ten_seconds(attempt: int) -> None:
    lease = Lease("t", attempt, exclusive=False, created=0.0, payload="")
    decision = classify(AttemptInterrupted(DEVICE_BROKEN), lease, has_started=True)
    assert decision.pause_s == min(attempt, 10)


@pytest.mark.parametrize("error", [TimeoutError(), remote(TimeoutError())], ids=["plain", "Ray's"])
async def test_timeout_raised_by_a_replica_is_a_crash(error: Exception) -> None:
    scene = AttemptScene()
    scene.model.last = error
    await scene.attempt().run()
    assert scene.store.releases == [CRASH]
