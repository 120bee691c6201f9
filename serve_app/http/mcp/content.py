"""What a task came to, as a model that called a tool can take it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from gen_serve_client.types import TaskResult
from mcp_types import ContentBlock, ImageContent, ResourceLink, TextContent

from deployments.contract.media_type import media_type
from serve_app.http.services import Services
from serve_app.tasks.task import Status

_LARGEST: Final = 2**20
"""Bytes of a picture that is shown as it is; of a larger one, its thumbnail."""
_TOLD: Final = ("id", "status", "progress", "cost", "details")
_TOLD_OF_RESULTS: Final = ("seed", "duration", "prompt")
"""Of a result, beside its file."""


def text(told: object) -> TextContent:
    return TextContent(type="text", text=told if isinstance(told, str) else json.dumps(told, ensure_ascii=False))


async def of_task(services: Services, task: TaskResult) -> list[ContentBlock]:
    """How it stands, and, once it is ready, the picture or the video's link."""
    body = cast(Mapping[str, Any], task)
    told = {name: body[name] for name in _TOLD if body.get(name) is not None}
    result = body.get("result")
    if not result:
        return [text(told)]
    told |= {name: result[name] for name in _TOLD_OF_RESULTS if name in result}
    return [text(told), *await _picture(services, body["id"]), _link(result["sample"])]


async def _picture(services: Services, task_id: str) -> list[ContentBlock]:
    task = await services.tasks.get(task_id)
    stored = task.result if task is not None and task.status is Status.READY else None
    if not stored:
        return []
    for key in (stored["key"], stored.get("thumbnail")):
        if key and media_type(key).startswith("image/"):
            with suppress(FileNotFoundError):  # no longer kept
                data = await services.objects.get(key)
                if len(data) <= _LARGEST:
                    return [ImageContent(type="image", data=base64.b64encode(data).decode(), mime_type=media_type(key))]
    return []


def _link(url: str) -> ResourceLink:
    name = url.partition("?")[0].rpartition("/")[2]
    return ResourceLink(type="resource_link", uri=url, name=name, mime_type=media_type(name))
