"""What became of one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, TypeAlias

from serve_app.load.request import Request
from serve_app.load.shape import Shape, Size

End: TypeAlias = Literal["served", "refused", "failed", "lost", "interrupted"]
"""`served`: a result that can be used. `refused`: the server said at once that it won't (4xx, 503). `failed`: anything
else that is no result. `lost`: accepted, and never seen to end. `interrupted`: the run ended before it did."""


@dataclass(slots=True)
class Outcome:
    """Times are seconds after the start of the run; `started` and `ended` by the server's clock."""

    number: int
    endpoint: str
    shape: Shape
    tenant: str
    intended: float
    """When it was to be sent. All times to a result count from here, so a generator that falls behind hides nothing."""
    sent: float | None = None
    acknowledged: float | None = None
    """When the server had said that it takes the task; None where it did not, or answers with the result alone."""
    started: float | None = None
    ended: float | None = None
    final: float | None = None
    """When the client first knew how it ended."""
    end: End = "interrupted"
    reason: str = ""
    """Why it was not served: `HTTP 429`, `ConnectError`, `Content Moderated`, `unusable answer: …`."""
    polls: int = 0
    poll_errors: int = 0
    objective: float | None = None
    """Seconds within which the result was to come."""
    warm_up: bool = False
    """Whether it is left out of the figures."""

    @classmethod
    def of(cls, request: Request) -> Self:
        return cls(request.number, request.endpoint, request.shape, request.tenant, request.moment)

    @property
    def served(self) -> bool:
        return self.end == "served"

    @property
    def time_to_result(self) -> float | None:
        """Of those that were served."""
        return self.final - self.intended if self.served and self.final is not None else None

    @property
    def good(self) -> bool:
        """Served within the objective; where there is none, served."""
        took = self.time_to_result
        return took is not None and (self.objective is None or took <= self.objective)

    @property
    def kind(self) -> str:
        return f"{self.endpoint}, {self.shape}"

    def as_json(self) -> dict[str, Any]:
        fields = asdict(self)
        shape = fields.pop("shape")
        fields["size"] = str(self.shape.size) if self.shape.size else None
        fields |= {name: shape[name] for name in ("steps", "references", "seconds", "tuned")}
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in fields.items()}

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError for what is none."""
        rest = dict(fields)
        size = rest.pop("size")
        shape = Shape(
            None if size is None else Size.parsed(size),
            **{name: rest.pop(name) for name in ("steps", "references", "seconds", "tuned")},
        )
        return cls(shape=shape, **rest)
