"""The job of a task: what submission decided, and what dispatch works by. Written and read here and nowhere else.

It is stored as JSON with its version `v`, since a task may outlive the release that accepted it:

- a record of an earlier version is read, and what it lacks has a default that means the same;
- a record of a later one raises NewerJob: in a rolling upgrade its reader gives the task back, untouched.

So a new field comes with a default, and `VERSION` grows only when a reader that ignored the change would do wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter

from deployments.contract.job import Adapter
from serve_app.requests.plan import Plan

VERSION: Final = 1


class NewerJob(Exception):
    """The record is of a later release; its reader must leave it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Plan):
    """A completed plan, with object keys of what was sent: `references`, `mask`, `control`, `image_prompt` and
    `start_video`. `warnings` is what the client was told at submission, and is told again beside the result.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    references: tuple[str, ...] = ()
    mask: str | None = None
    control: str | None = None
    image_prompt: str | None = None
    start_video: str | None = None
    adapter: Adapter | None = None
    safety_tolerance: int = 0
    safety_ceilings: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def encode(self) -> str:
        """The record, as JSON."""
        return json.dumps({"v": VERSION, **_JOB.dump_python(self, mode="json")})

    @classmethod
    def decode(cls, record: str) -> Job:
        """The job of a record. Raises NewerJob, or ValueError for what is no record at all."""
        fields: dict[str, Any] = json.loads(record)
        version = fields.pop("v")
        if version > VERSION:
            raise NewerJob(f"a job of version {version}; this release reads up to {VERSION}")
        return _JOB.validate_python(fields)


_JOB: Final = TypeAdapter(Job)
