"""The `Backend` protocol: the calls that the step engine makes, and the errors they may raise.

A job goes through `fetch`, `encode`, its steps, and `finish`, which returns a function that stores the result.
`encode`, `step` and `finish` have one thread each: different calls run concurrently, two of one name never. `preview`
is called between steps. A `finish`, or an `encode` of one job, that runs out of memory is called once more while no
step runs. Many threads call `fetch` and what `finish` and `preview` return, as these wait for the network.

Every call may raise DeviceBroken, and none is made after it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from deployments.contract.events import Preview
from deployments.contract.job import GenerationJob, Output


class JobError(Exception):
    """The job is at fault, and ends alone. The text is shown to the client."""


class ContentFlagged(JobError):
    """The model's own safety checker withholds the result."""

    def __init__(self) -> None:
        super().__init__("the model's safety checker withheld the result")


class Unavailable(Exception):
    """Something outside the model can't be reached, such as the object store. Another attempt may succeed."""


class TextEncoderUnavailable(Unavailable):
    """The text encoder that models share runs in another process and can't be reached."""


class NotFinite(Exception):
    """The output contains NaN or infinity, because of the model or the job. Nothing is stored."""


class DeviceBroken(Exception):
    """The device failed, and nothing more can run on it in this process. The job is not at fault."""


class OutOfMemory(Exception):
    """The batch did not fit. States are unchanged and may be stepped in smaller batches.

    `shared_gpu_memory`: other processes hold memory of the device, without which the batch might have fitted."""

    def __init__(self, text: str = "", *, shared_gpu_memory: bool = False) -> None:
        super().__init__(text)
        self.shared_gpu_memory = shared_gpu_memory


class StateLike(Protocol):
    """One image between two denoising steps."""

    @property
    def job(self) -> GenerationJob: ...
    @property
    def key(self) -> Hashable:
        """States with equal keys can take a step together."""
        ...

    @property
    def tokens(self) -> int:
        """Size of the image, at least 1, by which the cost of a step grows: tokens of a transformer, say."""
        ...

    @property
    def done_steps(self) -> int: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def steps_alike(self) -> int:
        """Remaining steps with the present key, which cost as much as the next one."""
        ...


S = TypeVar("S", bound=StateLike)
P = TypeVar("P")
"""A fetched job: the job and its inputs."""


class Backend(Protocol[P, S]):
    @property
    def setup(self) -> Mapping[str, str]:
        """Facts about the running model for operators: device, precision, ..."""
        ...

    def counts(self) -> Mapping[str, float]:
        """Returns counters by the names of `contract/counts.py`, which only grow. Thread-safe."""
        ...

    def fetch(self, job: GenerationJob) -> P:
        """Fetches what the job refers to: images, weights. Thread-safe. Raises JobError, Unavailable."""
        ...

    def encode(self, fetched: Sequence[P]) -> list[S | JobError]:
        """Returns one state per job, in order, or the JobError of a job that is at fault.

        Raises OutOfMemory; the engine then calls it with fewer jobs.
        """
        ...

    def step(self, states: Sequence[S]) -> None:
        """Advances all states by one step, or none. They have one key. Raises OutOfMemory.

        Returns when the device is done, as batch sizes follow from the duration of this call.
        """
        ...

    def finish(self, state: S) -> Callable[[], Output]:
        """Decodes a state whose steps are done, and returns a thread-safe function that stores the result, or raises
        Unavailable.

        Raises JobError, NotFinite, OutOfMemory.
        """
        ...

    def preview(self, state: S) -> Callable[[], Preview] | None:
        """Returns a thread-safe function that stores a small image of the present state, or raises Unavailable. None
        where the family makes no previews."""
        ...


S_contra = TypeVar("S_contra", bound=StateLike, contravariant=True)
P_contra = TypeVar("P_contra", contravariant=True)


class BatchCall(Protocol):
    """Jobs that were encoded together and take every step together."""

    @property
    def key(self) -> Hashable: ...
    @property
    def failed(self) -> bool:
        """True when the call can't go on; the next step of each of its jobs makes a call for that job alone."""
        ...


class StaticBatching(Protocol[P_contra, S_contra]):
    """The calls of a backend whose batches can't grow. Jobs with equal call keys can share a call."""

    @property
    def interleaves(self) -> bool:
        """True when calls may alternate between steps."""
        ...

    @property
    def current_call(self) -> BatchCall | None:
        """The call that must end before another takes a step; None where calls alternate."""
        ...

    def get_call(self, state: S_contra) -> BatchCall: ...
    def call_key(self, prepared: P_contra) -> Hashable | None:
        """Returns None for a job that can't share a call."""
        ...
