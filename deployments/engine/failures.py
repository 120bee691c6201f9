"""How a request ends that can't be done."""

from __future__ import annotations

import logging
from dataclasses import replace

from deployments.contract.events import Failed, Interrupted
from deployments.engine.backend import JobError, NotFinite, OutOfMemory, TextEncoderUnavailable, Unavailable
from deployments.engine.health import Health
from deployments.engine.request_handle import RequestHandle

log = logging.getLogger(__name__)

NO_MEMORY = Failed("not enough memory for this picture: ask for a smaller size or fewer references")
NO_ROOM = Interrupted("the model has no memory for this request at the moment", blame=False)
BROKEN = Interrupted("the model could not process this request", blame=True)
NOTHING_USABLE = Interrupted("the model made nothing usable of this request", blame=True)
DEVICE_BROKEN = Interrupted("the device that the model runs on failed", blame=False)
STORAGE_UNREACHABLE = Interrupted("the service's storage is out of reach", blame=False, counts=False)
TEXT_ENCODER_UNREACHABLE = Interrupted("the service's text encoder is out of reach", blame=False, counts=False)
DEADLINE_PASSED = Failed("the deadline passed before the picture was done")


def hopeless(needed_s: float, left_s: float) -> Failed:
    """How a job ends that can't be done in the time left."""
    return Failed(
        f"this can't be done before its deadline: it would take {_told(needed_s)} more, and {_told(left_s)} are left; "
        "fewer steps or a smaller size take less"
    )


def fail(handle: RequestHandle, error: Exception, health: Health) -> None:
    """Ends the one request that `error` belongs to."""
    blame, fits = True, health.has_fitted(handle.job)
    if not isinstance(error, (JobError, OutOfMemory, Unavailable)):
        blame = health.faulted()
        log.error("job %s failed", handle.job.id, exc_info=error)
    handle.end(failure_event(error, blame=blame, fits=fits))


def failure_event(error: Exception, *, blame: bool, fits: bool = False) -> Failed | Interrupted:
    """How a job ends here that failed alone with `error`.

    An error that nobody foresaw may be this worker's and not the job's, so another attempt decides. `blame` says
    whether it speaks against the job: not when the model has done nothing well since it last failed. Memory that ran
    out is no fault of a job that `fits`, as one of its size was done before, nor where other processes hold some.
    """
    match error:
        case JobError():
            return Failed(str(error))
        case OutOfMemory(crowded=crowded):
            return NO_ROOM if crowded or fits else NO_MEMORY
        case TextEncoderUnavailable():
            return TEXT_ENCODER_UNREACHABLE
        case Unavailable():
            return STORAGE_UNREACHABLE
        case NotFinite():
            return replace(NOTHING_USABLE, blame=blame)
        case _:
            return replace(BROKEN, blame=blame)


def _told(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 180 else f"{seconds:.0f} seconds"
