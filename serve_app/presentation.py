"""How a task looks to the outside: the body that polling answers and webhooks carry."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Literal

from serve_app.services import Services
from serve_app.tasks.task import Status, Task

Vocabulary = Literal["full", "basic"]
_BASIC = {Status.REASONING, Status.GENERATING}


async def present(services: Services, task: Task, base: str, vocabulary: Vocabulary = "full") -> dict[str, Any]:
    """The contract's result body, links freshly signed, on the origin `base`."""
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
        link = await _link(services, task.result["key"], base)
        body["result"] = {"sample": link, **{k: v for k, v in task.result.items() if k != "key" and v is not None}}
        body["progress"] = 1.0
    if task.preview is not None and not task.status.terminal:
        link = await _link(services, task.preview["key"], base)
        body["preview"] = {"sample": link, "step": task.preview["step"], "steps": task.preview["steps"]}
    if task.cost is not None:
        body["cost"] = task.cost / 1000
    return body


def not_found(task_id: str) -> dict[str, Any]:
    empty = dict.fromkeys(("result", "progress", "details", "preview"))
    return {"id": task_id, "status": Status.NOT_FOUND.value, **empty}


async def vocabulary_for(services: Services, task: Task, user_agent: str) -> Vocabulary:
    if any(client in user_agent for client in services.settings.service.basic_status_clients):
        return "basic"
    return (await services.projects.get(task.project)).statuses


async def _link(services: Services, key: str, base: str) -> str:
    life = services.settings.links.image_life_s
    if services.objects.can_sign:
        return await services.objects.sign(key, timedelta(seconds=life))
    return base + services.links.sign(key, life, time.time())
