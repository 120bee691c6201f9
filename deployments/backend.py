"""The `Backend` protocol: what the step engine drives, and the errors it may raise. Production models implement it, and
virtual ones in tests.

A job goes through `fetch`, `encode`, its steps, and `finish`, whose result stores what was made. Each of `encode`,
`step` and `finish` has a thread of its own: calls of different names may run beside each other, but never two of one.
`preview` is called between steps. An `encode` of one job or a `finish` that ran out of memory is called once more, with
no step beside it. What waits for others is left to many threads: `fetch`, and what `finish` and `preview` return.

Every call may raise DeviceBroken. None is made after that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output


class JobError(Exception):
    """The job itself is at fault; its text is fit for the client. Ends that job alone."""


class ContentFlagged(JobError):
    """The model's own safety checker withholds the result."""

    def __init__(self) -> None:
        super().__init__("the model's safety checker withheld the result")


class Unavailable(Exception):
    """Something the job needs is out of reach: the object store, say. No fault of the job; another attempt may do."""


class TextEncoderUnavailable(Unavailable):
    """Where models share one, in another process."""


class NotFinite(Exception):
    """What came out holds numbers that are none (NaN, infinity). The model's fault, or the job's: nothing is stored."""


class DeviceBroken(Exception):
    """The device failed, and nothing more can run on it in this process. No fault of the job."""


class OutOfMemory(Exception):
    """The batch did not fit. Nothing was changed; the same states may be stepped in smaller batches.

    `others_hold_memory`: other processes hold memory of the device, without which it might have fitted."""

    def __init__(self, text: str = "", *, others_hold_memory: bool = False) -> None:
        super().__init__(text)
        self.others_hold_memory = others_hold_memory


class StateLike(Protocol):
    """One image between two denoising steps."""

    @property
    def job(self) -> GenerationJob: ...
    @property
    def key(self) -> Hashable:
        """States of equal key can take a step together."""
        ...

    @property
    def tokens(self) -> int:
        """What the cost of a step goes by: tokens of a transformer, or whatever else there is the more of the larger a
        image is. At least 1."""
        ...

    @property
    def done_steps(self) -> int: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def steps_alike(self) -> int:
        """Steps left of the present key that cost what the next one does."""
        ...


S = TypeVar("S", bound=StateLike)
P = TypeVar("P")
"""What a backend makes of a job before it is encoded: the job with all that it needs from elsewhere."""


class Backend(Protocol[P, S]):
    @property
    def setup(self) -> Mapping[str, str]:
        """How the model runs here, for operators: device, precision, ..."""
        ...

    def counts(self) -> Mapping[str, float]:
        """What it counts of its own, by the names of `contract/counts.py`; each only grows. From any thread."""
        ...

    def fetch(self, job: GenerationJob) -> P:
        """Gets what the job names: images, weights. From any thread. Raises JobError, Unavailable."""
        ...

    def encode(self, fetched: Sequence[P]) -> list[S | JobError]:
        """One state per job, in order; a job that cannot be done gets its JobError and the others go on.

        Raises OutOfMemory, and is then called again with fewer jobs.
        """
        ...

    def step(self, states: Sequence[S]) -> None:
        """Advances every state by one step, all of one key; all or nothing. Raises OutOfMemory.

        Returns when the work is done, not when it is queued on a device: its time is what the batch limits rest on.
        """
        ...

    def finish(self, state: S) -> Callable[[], Output]:
        """Decodes the image of a state whose steps are all done. What is returned stores it: from any thread, raising
        Unavailable.

        Raises JobError, NotFinite, OutOfMemory.
        """
        ...

    def preview(self, state: S) -> Callable[[], Preview] | None:
        """A small image of the state as it is, or None where the family makes none. What is returned stores it: from
        any thread, raising Unavailable."""
        ...


S_contra = TypeVar("S_contra", bound=StateLike, contravariant=True)
P_contra = TypeVar("P_contra", contravariant=True)


class BatchCall(Protocol):
    """Stands for jobs that a backend encoded together: they take every step together."""

    @property
    def kind(self) -> Hashable: ...
    @property
    def failed(self) -> bool:
        """Tells whether the call can't go on. A step of one of its jobs makes a call for that job alone."""
        ...


class StaticBatching(Protocol[P_contra, S_contra]):
    """Describes the batches of a backend whose batches can't grow. Jobs of one kind can share a call."""

    @property
    def interleaves(self) -> bool:
        """Tells whether calls may take turns between steps."""
        ...

    @property
    def current_call(self) -> BatchCall | None:
        """Returns the call that must end before another takes a step, where calls take no turns."""
        ...

    def call_of(self, state: S_contra) -> BatchCall: ...
    def kind_of(self, prepared: P_contra) -> Hashable | None:
        """Returns None for a job that has a call of its own."""
        ...
