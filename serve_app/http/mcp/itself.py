"""The service as its own client: tools send what any program would, so that all that holds for requests holds for them.

Requests go to the app in this process, with the credentials that came with the tool's call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self

import httpx2
from fastapi import FastAPI
from starlette.requests import Request

from serve_app.http.origin import public_base

_PASSED_ON: Final = ("authorization", "x-key", "x-project", "user-agent")
_POLL_S: Final = 1.0
"""How long a look at a task waits for it to end: so often its progress is told."""


class Refused(Exception):
    """What the service says no to. Its text is fit for the caller."""


class Itself:
    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http

    @classmethod
    @asynccontextmanager
    async def called_by(cls, app: FastAPI, request: Request) -> AsyncIterator[Self]:
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        base = public_base(request, app.state.services.settings.service)
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url=base, headers=headers, timeout=None) as http:
            yield cls(http)

    async def submit(self, endpoint: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The submission's answer. Raises Refused."""
        return await self._call("POST", f"/v1/{endpoint}", json=dict(body))

    async def look(self, task_id: str) -> dict[str, Any]:
        """The task as it is, as soon as it has ended or in a second. Raises Refused where there is none."""
        return await self._call("GET", "/v1/get_result", params={"id": task_id, "wait": _POLL_S})

    async def cancel(self, task_id: str) -> dict[str, Any]:
        return await self._call("DELETE", f"/v1/tasks/{task_id}")

    async def credits(self) -> float:
        """What is left."""
        return (await self._call("GET", "/v1/credits"))["credits"]

    async def _call(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        response = await self._http.request(method, path, **options)
        body = response.json()
        if response.is_success:
            return body
        raise Refused(_told(body))


def _told(body: Mapping[str, Any]) -> str:
    """What is wrong, with the fields at fault."""
    detail = body.get("detail", body.get("status"))
    if isinstance(detail, str):
        return detail
    return "; ".join(f"{'.'.join(map(str, entry['loc'][1:]))}: {entry['msg']}" for entry in detail)
