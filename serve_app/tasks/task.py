"""A task: one accepted request on its way to exactly one outcome."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from deployments.contract.events import Preview
from serve_app.tasks.payload import NewerPayload, TaskPayload
from serve_app.tasks.result import GenerationResult


class Status(StrEnum):
    """The contract's vocabulary. `NOT_FOUND` is an answer only, no task ever has it."""

    PENDING = "Pending"
    REASONING = "Reasoning"
    GENERATING = "Generating"
    READY = "Ready"
    ERROR = "Error"
    REQUEST_MODERATED = "Request Moderated"
    CONTENT_MODERATED = "Content Moderated"
    NOT_FOUND = "Task not found"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({Status.READY, Status.ERROR, Status.REQUEST_MODERATED, Status.CONTENT_MODERATED})

TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.REASONING, Status.GENERATING}) | TERMINAL,
    Status.REASONING: frozenset({Status.PENDING, Status.GENERATING}) | TERMINAL,
    Status.GENERATING: frozenset({Status.PENDING}) | TERMINAL,
    **dict.fromkeys(TERMINAL, frozenset[Status]()),
}
"""Which status may follow which. The way back to `Pending` is a lost worker: the next lease counts a new attempt.
`Pending` may end at once: by moderation, cancellation, a deadline, or a result that came after the lease was lost."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """Whom to tell of a task's end."""

    url: str
    """Empty where the key that it was sealed with is gone."""
    destination: str
    """Scheme, host and port of the URL: what is slow or down as one. Once stored, what stands for them, and behind a
    space the organization that calls it."""
    base: str
    """The service's own address, as the submission reached it: what links begin with."""
    secret: str = field(default="", repr=False)
    """Encrypted; empty: unsigned."""

    def to_fields(self) -> dict[str, str]:
        """As they stand in a task's hash."""
        return {f"webhook_{name}": value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class NewTask:
    """What submission writes. Money in milli-credits, `work` in compute units (megapixel-steps), times in ms."""

    id: str
    project: str
    queue: str
    endpoint: str
    job: str
    """The encoded TaskPayload."""
    work: float
    reply: str
    """JSON of the submission's answer, repeated to a client that repeats its request."""
    organization: str = "default"
    price: int = 0
    """Held until the task ends."""
    key_id: str = ""
    user: str = ""
    webhook: Webhook | None = None
    idempotency_key: str = ""
    body_hash: str = ""
    weight: float = 1.0
    """The project's share of the queue against others; the store holds it in the bounds of `accounts/projects.py`."""
    traceparent: str = ""
    """Of the submission's span; empty where nothing is traced."""
    needs: str = ""
    """Id of the ended task whose objects it is made of: they stay for as long as this one may take."""

    def __post_init__(self) -> None:
        if not 0 < self.work < math.inf:
            raise ValueError(f"work must be finite and positive, not {self.work}")


@dataclass(frozen=True, slots=True)
class AcceptedTask:
    """A submission that was taken."""

    reply: str
    created: bool
    """False for the repeat of an earlier request, whose reply it is."""
    requests_remaining: int | None = None
    """How many more its key may send right now; None for a repeat."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One attempt at a task, held by one dispatcher until its lease runs out."""

    id: str
    attempt: int
    exclusive: bool
    created: float
    """Epoch seconds of the submission."""
    job: str
    """Empty where the key that it was sealed with is gone."""
    project: str = ""
    traceparent: str = ""
    """As in NewTask."""
    began: float = 0.0
    """Epoch seconds of the lease, by the clock that `created` is by."""
    remaining_s: float | None = None
    """From the lease to the deadline; None where no work began yet, which sets it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task as stored. Times in epoch seconds, None when not reached; `cost` in milli-credits once settled."""

    id: str
    project: str
    queue: str
    endpoint: str
    status: Status
    attempt: int
    crashes: int
    created: float
    started: float | None = None
    finished: float | None = None
    progress: float | None = None
    preview: Preview | None = None
    result: GenerationResult | None = None
    details: dict[str, Any] | None = None
    cost: int | None = None
    job: str = ""
    """As in Lease."""
    webhook: Webhook | None = None
    traceparent: str = ""
    """As in NewTask."""
    work: float = 1.0
    """As in NewTask."""
    shared: str = ""
    """The token of links to its page; empty where it is not shared."""

    def read_payload(self) -> TaskPayload | None:
        """Returns None where the payload can't be read: the key that sealed it is gone, or a later release wrote it."""
        try:
            return TaskPayload.decode(self.job) if self.job else None
        except (NewerPayload, ValueError):
            return None

    @property
    def prompt(self) -> str | None:
        """The prompt as the client sent it; None as `read_payload`."""
        payload = self.read_payload()
        return None if payload is None else payload.request.prompt


def from_record(raw: Mapping[str, str]) -> Task:
    """A task's hash, as a task."""

    def seconds(name: str) -> float | None:
        return int(raw[name]) / 1000 if name in raw else None

    return Task(
        id=raw["id"],
        project=raw["project"],
        queue=raw["queue"],
        endpoint=raw["endpoint"],
        status=Status(raw["status"]),
        attempt=int(raw["attempt"]),
        crashes=int(raw["crashes"]),
        created=int(raw["created"]) / 1000,
        started=seconds("started"),
        finished=seconds("finished"),
        # What a worker told last of it may be less.
        progress=1.0 if raw["status"] == Status.READY else float(raw["progress"]) if "progress" in raw else None,
        preview=Preview(**json.loads(raw["preview"])) if "preview" in raw else None,
        result=GenerationResult.decode(raw["result"]) if "result" in raw else None,
        details=json.loads(raw["details"]) if "details" in raw else None,
        cost=int(raw["cost"]) if "cost" in raw else None,
        job=raw.get("job", ""),
        webhook=_webhook(raw) if "webhook_url" in raw else None,
        traceparent=raw.get("traceparent", ""),
        work=float(raw.get("work", 1)),
        shared=raw.get("shared", ""),
    )


def _webhook(raw: Mapping[str, str]) -> Webhook:
    return Webhook(**{part.name: raw.get(f"webhook_{part.name}", "") for part in fields(Webhook)})
