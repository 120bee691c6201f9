"""Serializes tasks for clients: the body of polls and webhooks, with signed links."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from deployments.contract.job import media_type
from deployments.contract.objects import ObjectStore
from serve_app.inputs.links import LinkSigner
from serve_app.tasks.result import GenerationResult
from serve_app.tasks.task import Status, Task

Vocabulary = Literal["full", "basic"]
_BASIC = {Status.REASONING, Status.GENERATING}
_PUBLIC = ("prompt", "seed", "start_time", "end_time", "duration")
"""Fields of a result that clients see beside links."""


@dataclass(frozen=True, slots=True)
class ResultSerializer:
    """Serializes tasks into the contract's result body."""

    objects: ObjectStore
    links: LinkSigner
    image_life_s: float
    """Seconds that a signed link to an image is valid."""
    video_life_s: float = 3600.0
    """Seconds that a signed link to a video or to a draft's latents is valid."""

    async def body(self, task: Task, base: str, vocabulary: Vocabulary = "full") -> dict[str, Any]:
        """Returns the body with freshly signed links on the origin `base`."""
        status = Status.PENDING if vocabulary == "basic" and task.status in _BASIC else task.status
        body: dict[str, Any] = {
            "id": task.id,
            "status": status.value,
            "result": None,
            "progress": task.progress,
            "details": task.details,
            "preview": None,
        }
        if task.status is Status.READY and task.result is not None:
            body["result"] = await self._result(task.result, base)
        if task.preview is not None and not task.status.terminal:
            link = await self._link(task.preview.key, base)
            body["preview"] = {"sample": link, "step": task.preview.step, "steps": task.preview.steps}
        if task.cost is not None:
            body["cost"] = task.cost / 1000
        return body

    async def thumbnail(self, task: Task, base: str) -> str | None:
        """Returns a link to a small image of the result, or to the preview of an unfinished task; None without one."""
        if task.status is Status.READY:
            key = task.result.thumbnail if task.result else None
        else:
            key = task.preview.key if task.preview and not task.status.terminal else None
        return None if key is None else await self._link(key, base)

    async def _result(self, result: GenerationResult, base: str) -> dict[str, Any]:
        view: dict[str, Any] = {"sample": await self._link(result.key, base)}
        if result.more:
            view["samples"] = [await self._link(key, base) for key in (result.key, *result.more)]
        if result.draft is not None:
            view["draft_cache"] = await self._link(result.draft.key, base)
        return view | {name: getattr(result, name) for name in _PUBLIC}

    async def _link(self, key: str, base: str) -> str:
        is_image = media_type(key).startswith("image/")
        return await self.link(key, base, self.image_life_s if is_image else self.video_life_s)

    async def link(self, key: str, base: str, life_s: float, *, exact: bool = False) -> str:
        """Returns a link that opens the object for `life_s` seconds, or somewhat longer unless `exact`."""
        if self.objects.can_sign:
            return await self.objects.sign(key, timedelta(seconds=life_s))
        return base + self.links.sign(key, life_s, time.time(), exact=exact)


def encode_body(body: dict[str, Any]) -> bytes:
    """Returns the bytes of polling answers and webhooks alike."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def not_found(task_id: str) -> dict[str, Any]:
    empty = dict.fromkeys(("result", "progress", "details", "preview"))
    return {"id": task_id, "status": Status.NOT_FOUND.value, **empty}
