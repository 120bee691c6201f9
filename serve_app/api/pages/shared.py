"""The page of a shared result, for holders of a link from `POST /v1/tasks/{task_id}/links`."""

from __future__ import annotations

import time
from html import escape
from string import Template
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from deployments.contract.job import media_type
from serve_app.api.hosts import public_base
from serve_app.api.pages import HEADERS, message_page, read_page
from serve_app.api.services import Deps
from serve_app.tasks.task import Status

router = APIRouter(include_in_schema=False)

_PAGE: Final = Template(read_page("shared.html"))
_TITLE_CHARS, _PROMPT_CHARS = 100, 2000
"""Characters of a prompt in the title, and in the link to the playground."""
_FILE_LINK_S: Final = 3600.0
"""Maximum lifetime of the file's link, which can't be revoked, in seconds."""
_HEADERS: Final = HEADERS | {"Cache-Control": "private, no-cache", "X-Robots-Tag": "noindex"}
_EXPIRED: Final = message_page(
    "This link no longer works", "It has expired or was revoked. Ask the sender for a new one.", status=403
)


@router.get("/s/{task_id}/{token}")
async def show_shared(
    request: Request,
    services: Deps,
    task_id: Annotated[str, Path(max_length=64)],
    token: Annotated[str, Path(max_length=64)],
    se: str = "",
    sig: str = "",
) -> HTMLResponse:
    now = time.time()
    if not services.links.verify(f"{task_id}/{token}", se, sig, now, "SHARE"):
        return _EXPIRED
    task = await services.tasks.store.reads.get(task_id)
    if task is not None and task.shared != token:
        return _EXPIRED
    if task is None or task.status is not Status.READY or task.result is None:
        return message_page("This result has been deleted", "Ask the sender of the link for a new one.", 404)
    base = public_base(request, services.settings.service)
    key, prompt = task.result.key, task.prompt or ""
    url = escape(
        await services.tasks.serializer.link(key, base, min(max(int(se) - now, 1.0), _FILE_LINK_S), exact=True)
    )
    title = escape(prompt if len(prompt) <= _TITLE_CHARS else f"{prompt[:_TITLE_CHARS]}…") or "A result"
    is_video = media_type(key).startswith("video/")
    picture = f'<video src="{url}" controls loop></video>' if is_video else f'<img src="{url}" alt="{title}">'
    return HTMLResponse(
        _PAGE.substitute(
            title=title,
            url=url,
            kind="video" if is_video else "image",
            result=picture,
            prompt=escape(prompt),
            endpoint=escape(task.endpoint),
            like=escape(urlencode({"endpoint": task.endpoint, "prompt": prompt[:_PROMPT_CHARS]})),
        ),
        headers=_HEADERS,
    )
