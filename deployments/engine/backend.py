"""What the engine's loop drives: a model in production, a virtual clock in tests.

A backend is used from the engine's own threads only: `encode`, `step` and `preview` from the loop thread, never two of
them at once, and `finish` from the finishing thread beside them. A `finish` that ran out of memory is called once more,
from the loop thread, so that no step runs beside it.

Every call may raise DeviceBroken. None is made after that.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, TypeVar

from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output


class JobError(Exception):
    """The job itself is at fault; its text is fit for the client. Ends that job alone."""


class Unavailable(Exception):
    """Something the job needs is out of reach: the object store, say. No fault of the job; another attempt may do."""


class NotFinite(Exception):
    """What came out holds numbers that are none (NaN, infinity). The model's fault, or the job's: nothing is stored."""


class DeviceBroken(Exception):
    """The device failed, and nothing more can run on it in this process. No fault of the job."""


class OutOfMemory(Exception):
    """The batch did not fit. Nothing was changed; the same states may be stepped in smaller batches."""


class StateLike(Protocol):
    """One picture between two denoising steps."""

    @property
    def job(self) -> GenerationJob: ...
    @property
    def key(self) -> Hashable:
        """States of equal key can take a step together."""
        ...

    @property
    def done_steps(self) -> int: ...
    @property
    def total_steps(self) -> int: ...


S = TypeVar("S", bound=StateLike)


class Backend(Protocol[S]):
    def encode(self, jobs: Sequence[GenerationJob]) -> list[S | JobError]:
        """One state per job, in order; a job that cannot be done gets its JobError and the others go on.

        Raises OutOfMemory, and is then called again with fewer jobs; Unavailable, likewise.
        """
        ...

    def step(self, states: Sequence[S]) -> None:
        """Advances every state by one step, all of one key; all or nothing. Raises OutOfMemory.

        Returns when the work is done, not when it is queued on a device: its time is what the batch limits rest on.
        """
        ...

    def finish(self, state: S) -> Output:
        """Decodes, encodes and stores the picture of a state whose steps are all done.

        Raises JobError, NotFinite, OutOfMemory, Unavailable.
        """
        ...

    def preview(self, state: S) -> Preview | None:
        """Stores a small picture of the state as it is, or None where the family makes none."""
        ...
