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

from deployments.contract.job import Adapter, OutputFormat

VERSION: Final = 2
"""Records without `v` are of version 0, which has the same fields as 1; `warnings` came with 2."""
_WITHOUT_WARNINGS: Final = 1


class NewerJob(Exception):
    """The record is of a later release; its reader must leave it alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClip:
    """What only videos have: `seconds` of new ones are made. The others are as in the contract's Clip."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    seconds: int
    sound: bool
    times: tuple[float, ...] = ()
    draft: bool = False
    enhance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Sizes in pixels. Without `width` and `height` dispatch chooses the ratio by the prompt, on `area` pixels.

    `references`, `mask`, `control`, `image_prompt` and `start_video` are object keys. `guidance`, `guidance_interval`,
    `canny` and `transparent` are as in GenerationJob. `rewrite` has a rewriter enrich the prompt first. A `structured`
    prompt may end with a layout; any other is plain text to its end. `warnings` is what the client was told when it
    submitted this, and is told again beside the result.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    prompt: str
    seed: int
    steps: int
    output_format: OutputFormat
    area: int
    width: int | None = None
    height: int | None = None
    guidance: float | None = None
    guidance_interval: float | None = None
    canny: tuple[int, int] | None = None
    transparent: bool = False
    rewrite: bool = False
    structured: bool = False
    clip: JobClip | None = None
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
        """The record, as JSON: of the earliest version that has all that it says."""
        fields = _JOB.dump_python(self, mode="json")
        if self.warnings:
            return json.dumps({"v": VERSION, **fields})
        del fields["warnings"]
        return json.dumps({"v": _WITHOUT_WARNINGS, **fields})

    @classmethod
    def decode(cls, record: str) -> Job:
        """The job of a record. Raises NewerJob, or ValueError for what is no record at all."""
        fields: dict[str, Any] = json.loads(record)
        version = fields.pop("v", 0)
        if version > VERSION:
            raise NewerJob(f"a job of version {version}; this release reads up to {VERSION}")
        return _JOB.validate_python(fields)


_JOB: Final = TypeAdapter(Job)
