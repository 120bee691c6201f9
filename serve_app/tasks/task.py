"""A task: one accepted request on its way to exactly one outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

from deployments.contract.events import Preview
from serve_app.encryption import AtRest
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
"""Statuses that may follow each status. A lost worker leads back to `Pending`; the next lease counts a new attempt.
`Pending` may end at once: by moderation, cancellation, a deadline, or a result that came after the lease was lost."""


class WebhookDestination(NamedTuple):
    """An origin, as one organization calls it. It is slow or down as a whole."""

    origin: str
    """Scheme, host and port; their keyed hash where settings seal what clients wrote."""
    organization: str

    def encode(self) -> str:
        """Returns the id of the destination in the outbox: a JSON array, which `outbox.lua` decodes."""
        # The space lets senders of 0.2, which run beside this release during an upgrade, parse it.
        return json.dumps(self)

    @classmethod
    def decode(cls, text: str) -> WebhookDestination:
        if not text.startswith("["):  # written by 0.2; goes after 0.3
            return cls(*text.split(" "))
        return cls(*json.loads(text))


@dataclass(frozen=True, slots=True)
class Webhook:
    """Destination of a task's webhook."""

    url: str
    """Empty if the key that sealed it is gone."""
    destination: str
    """Scheme, host and port of the URL; once stored, an encoded WebhookDestination."""
    base: str
    """The service's own origin, as the submission reached it. Links begin with it."""
    secret: str = field(default="", repr=False)
    """Encrypted; empty for unsigned webhooks."""

    def sealed(self, at_rest: AtRest, organization: str) -> Webhook:
        """Returns the webhook as it is stored."""
        destination = WebhookDestination(at_rest.name(self.destination), organization)
        return replace(self, url=at_rest.seal(self.url), destination=destination.encode())

    def to_fields(self) -> dict[str, str]:
        """Returns the fields of a task's hash."""
        return {f"webhook_{name}": value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """The arguments of a submission."""

    id: str
    project: str
    organization: str = "default"
    queue: str
    endpoint: str
    payload: TaskPayload
    reply: str
    """JSON of the submission's answer; a repeated request gets it again."""
    price: int = 0
    """Milli-credits held until the task ends."""
    weight: float = 1.0
    """The project's share of the queue against others; the store clamps it to the bounds of `accounts/projects.py`."""
    key_id: str = ""
    user: str = ""
    webhook: Webhook | None = None
    idempotency_key: str = ""
    body_hash: str = ""
    traceparent: str = ""
    """Traceparent of the submission's span; empty without tracing."""
    needs: str = ""
    """Id of the ended task whose objects this one needs; they are kept until it ends."""


@dataclass(frozen=True, slots=True)
class AcceptedTask:
    """The answer to a submission that was not rejected."""

    reply: str
    created: bool
    """False if `reply` is that of an earlier request."""
    requests_left: int | None = None
    """Requests that the key may send right now; None for a repeat."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One attempt at a task, held by one dispatcher until it expires. Times are in epoch seconds of one clock."""

    id: str
    attempt: int
    exclusive: bool
    created: float
    """Time of the submission."""
    payload: str
    """The encoded TaskPayload; empty if the key that sealed it is gone."""
    project: str = ""
    traceparent: str = ""
    leased_at: float = 0.0
    remaining_s: float | None = None
    """Seconds from lease to deadline; None before the first start of work."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task as stored. Times are in epoch seconds, None if not reached; `cost` is in milli-credits once settled."""

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
    payload: str = ""
    """The encoded TaskPayload of the submission; empty if the key that sealed it is gone."""
    webhook: Webhook | None = None
    traceparent: str = ""
    work: float = 1.0
    """Compute units, `ResolvedRequest.work`."""
    shared: str = ""
    """Token of links to its page; empty if it is not shared."""

    def read_payload(self) -> TaskPayload | None:
        """Returns None if the key that sealed the payload is gone, or if a later release wrote it."""
        try:
            return TaskPayload.decode(self.payload) if self.payload else None
        except (NewerPayload, ValueError):
            return None

    @property
    def prompt(self) -> str | None:
        """The prompt as sent; None if the payload can't be read."""
        payload = self.read_payload()
        return None if payload is None else payload.request.prompt


def from_record(raw: Mapping[str, str]) -> Task:
    """Returns the task of a hash."""

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
        # The last written progress may be lower.
        progress=1.0 if raw["status"] == Status.READY else float(raw["progress"]) if "progress" in raw else None,
        preview=Preview(**json.loads(raw["preview"])) if "preview" in raw else None,
        result=GenerationResult.decode(raw["result"]) if "result" in raw else None,
        details=json.loads(raw["details"]) if "details" in raw else None,
        cost=int(raw["cost"]) if "cost" in raw else None,
        payload=raw.get("job", ""),
        webhook=_webhook(raw) if "webhook_url" in raw else None,
        traceparent=raw.get("traceparent", ""),
        work=float(raw.get("work", 1)),
        shared=raw.get("shared", ""),
    )


def _webhook(raw: Mapping[str, str]) -> Webhook:
    return Webhook(**{part.name: raw.get(f"webhook_{part.name}", "") for part in fields(Webhook)})
