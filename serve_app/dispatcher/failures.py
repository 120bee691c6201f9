"""Failures of an attempt: how each kind of error gives its task back."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from grpc import StatusCode
from grpc.aio import AioRpcError
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RequestCancelledError

from deployments.contract.events import Interrupted
from serve_app.moderation.gate import DispatcherDraining
from serve_app.tasks.payload import NewerPayload
from serve_app.tasks.scripts import ReleaseCause
from serve_app.tasks.task import Lease

logger = logging.getLogger(__name__)

_PAUSE_S: Final = 1.0
"""Pause before a task is given back whose next attempt would most likely end the same way, if it came at once."""
_MAX_PAUSES: Final = 10
"""Limit of a pause that grows with the attempt's number, as a multiple. The first ones are short: a broken replica is
soon replaced."""


class LeaseLost(Exception):
    """The task has ended or belongs to another attempt."""


class ReplicaLost(Exception):
    """The stream stalled, or ended without an outcome."""


class ReplicaBusy(Exception):
    """No replica began with the job in time."""


class AttemptInterrupted(Exception):
    """The replica gave the attempt up, for the reason of its last event."""

    def __init__(self, event: Interrupted) -> None:
        super().__init__(event.reason)
        self.event = event


@dataclass(frozen=True, slots=True)
class Decision:
    """Gives a task back after `pause_s`, counted by its `cause`. Its client reads the `reason` if that ends it."""

    cause: ReleaseCause
    pause_s: float = 0.0
    reason: str = ""


REQUEUE: Final = Decision(ReleaseCause.REQUEUE)


def classify(error: BaseException, lease: Lease, *, has_started: bool) -> Decision:
    """Decides how the error gives the task back; `has_started`: the model had begun with it."""
    pause_s = _PAUSE_S * min(lease.attempt, _MAX_PAUSES)
    match error:
        case ReplicaBusy() | RequestCancelledError() | DispatcherDraining():
            return REQUEUE
        case AttemptInterrupted(event=Interrupted(blame=True, reason=reason)):
            # The engine ruled out every other cause, so it counts as a crash that the task suffered alone.
            return Decision(ReleaseCause.CRASH_ALONE, reason=reason)
        case AttemptInterrupted(event=Interrupted(counts=True, reason=reason)):
            # A refusal before the start never counts: a broken replica refuses every job.
            cause = ReleaseCause.INTERRUPTION if has_started else ReleaseCause.REQUEUE
            return Decision(cause, pause_s, reason)
        case AttemptInterrupted() | NewerPayload() | BackPressureError() | DeploymentUnavailableError():
            return Decision(ReleaseCause.REQUEUE, _PAUSE_S)
        case AioRpcError() if error.code() is StatusCode.UNKNOWN:
            # Serve answers so when a replica, being of another release, can't unpickle the job.
            return Decision(ReleaseCause.REQUEUE, pause_s)
        case RayActorError() | RayTaskError() | ReplicaLost():
            is_alone = lease.exclusive and has_started
            return Decision(ReleaseCause.CRASH_ALONE if is_alone else ReleaseCause.CRASH)
        case _:
            logger.error("attempting %s failed", lease.id, exc_info=error)
            return Decision(ReleaseCause.CRASH)
