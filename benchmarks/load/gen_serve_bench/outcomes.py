"""Outcomes of requests, as the processes of the generator record them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from gen_serve_bench.workload import Shape

End: TypeAlias = Literal["served", "refused", "failed", "lost", "interrupted"]
"""End of a request. `served`: with a usable result. `refused`: rejected on submission (4xx, 503). `failed`: any other
end without a result. `lost`: accepted, but with no end seen. `interrupted`: unfinished when the run ended."""


@dataclass(slots=True)
class Outcome:
    """Outcome of a request. Times are seconds after the run's start; `started` and `ended` come from the server."""

    number: int
    endpoint: str
    shape: Shape
    tenant: str
    intended: float
    """Scheduled time. Latencies count from here, so that a generator that falls behind hides nothing."""
    task_id: str | None = None
    sent: float | None = None
    acknowledged: float | None = None
    """Time at which the server had accepted the task; None if it did not, or answered with the result."""
    started: float | None = None
    ended: float | None = None
    final: float | None = None
    """Time at which the client saw the end."""
    end: End = "interrupted"
    reason: str = ""
    """Reason for an end without a result: `HTTP 429`, `ConnectError`, `Content Moderated`, `unusable answer: …`."""
    polls: int = 0
    poll_errors: int = 0
    objective: float | None = None
    """Seconds from `intended` in which the result should arrive."""
    warm_up: bool = False
    """True if the figures leave it out."""

    @property
    def served(self) -> bool:
        return self.end == "served"

    @property
    def time_to_result(self) -> float | None:
        return self.final - self.intended if self.served and self.final is not None else None

    @property
    def good(self) -> bool:
        """True if it was served within its objective, if any."""
        latency = self.time_to_result
        return latency is not None and (self.objective is None or latency <= self.objective)

    @property
    def kind(self) -> str:
        return f"{self.endpoint}, {self.shape}"

    def as_row(self) -> dict[str, Any]:
        fields = asdict(self)
        shape = fields.pop("shape")
        fields |= shape | {"size": str(self.shape.size) if self.shape.size else None}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in fields.items()}


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """Load of a generator process while it sent requests; it idles while the last results arrive."""

    cpu: float
    """Share of one core."""
    loop_lag: Sequence[float]
    """Samples of the event loop's lateness in seconds."""


@dataclass(slots=True)
class GeneratorRun:
    """Outcomes of a whole run, in the order of their requests, with the load of each process."""

    started: float
    """Epoch seconds."""
    outcomes: list[Outcome] = field(default_factory=list)
    worker_stats: list[WorkerStats] = field(default_factory=list)
    interrupted: float | None = None
    """Seconds from the start to the interruption; None if the run was not interrupted."""
