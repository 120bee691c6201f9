"""Payloads of tasks: the resolved request and its inputs. The store never reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter

from deployments.contract.job import Adapter, InputKeys
from deployments.contract.moderation import Tolerance
from deployments.contract.request import FPS, ResolvedRequest
from serve_app.inputs.geometry import DEFAULT_RATIO, RATIOS, size_within, video_size
from serve_app.schemas.layout import parse_layout

VERSION: Final = 2


class NewerPayload(Exception):
    """A later release wrote the payload; this one must leave its task alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPayload:
    """A resolved request with its inputs, and the moderation that applies to it.

    The result repeats the submission's `warnings`. An attempt that resolved the open fields stores the payload
    anew with `is_moderated`, and later attempts use it unchanged.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    request: ResolvedRequest
    inputs: InputKeys = field(default_factory=InputKeys)
    adapter: Adapter | None = None
    safety: Tolerance = field(default_factory=lambda: Tolerance(0))
    warnings: tuple[str, ...] = ()
    is_moderated: bool = False

    def encode(self) -> str:
        return f'{{"v":{VERSION},{_PAYLOAD.dump_json(self, exclude_defaults=True).decode()[1:]}'

    @classmethod
    def decode(cls, record: str) -> TaskPayload:
        """Raises NewerPayload, or ValueError for a text that is no payload."""
        fields: Any = json.loads(record)
        if not isinstance(fields, dict) or "v" not in fields:
            raise ValueError("the record has no version")
        version = fields.pop("v")
        if version > VERSION:
            raise NewerPayload(f"a payload of version {version}; this release reads up to {VERSION}")
        return _PAYLOAD.validate_python(_from_version_1(fields) if version == 1 else fields)


_PAYLOAD: Final = TypeAdapter(TaskPayload)


def _from_version_1(job: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the flat record of 0.2. Goes with 0.4: by then, `tasks.retention_s` of its tasks is over."""
    request: dict[str, Any] = {
        name: value
        for name, value in job.items()
        if name in ResolvedRequest.__slots__ and name not in ("width", "height", "video")
    }
    inputs = {name: job[name] for name in InputKeys.__slots__ if job.get(name)}
    video = job.get("video")
    if video:
        fps = video.get("fps", FPS)
        request["video"] = {
            "frames": video["seconds"] * fps,
            "fps": fps,
            **{name: video[name] for name in ("audio", "times", "draft") if name in video},
        }
        if video.get("enhance"):
            inputs["draft"] = video["enhance"]
    if job.get("structured"):
        request["layout"] = parse_layout(job["prompt"])
    width, height = job.get("width"), job.get("height")
    request["open_ratio"] = width is None
    if width is None:
        ratio = RATIOS[DEFAULT_RATIO]
        size = (
            video_size(ratio, job["area"], draft=video.get("draft", False))
            if video
            else size_within(ratio, job["area"])
        )
        width, height = size
    safety = {"level": job.get("safety_tolerance", 0), "ceilings": job.get("safety_ceilings", {})}
    own = {name: job[name] for name in ("adapter", "warnings") if name in job}
    return own | {"request": request | {"width": width, "height": height}, "inputs": inputs, "safety": safety}
