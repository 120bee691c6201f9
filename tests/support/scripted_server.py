"""A server that treats requests as a script says, for tests of clients and load generators."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from support.images import image_file

Act: TypeAlias = Literal["serve", "refuse", "break", "fail", "moderate", "no id", "no json", "no result", "forget"]


class ScriptedServer:
    """Answers submissions by `acts`, in turn, in the dialect and OpenAI's images. A task ends at its second poll."""

    def __init__(self, *acts: Act) -> None:
        self.acts: Sequence[Act] = acts or ("serve",)
        self.bodies: list[dict[str, Any]] = []
        """Bodies of all submissions, in order."""
        self.headers: list[dict[str, str]] = []
        """Headers of all submissions, in order."""
        self.poll_headers: list[dict[str, str]] = []
        self._polls: dict[str, int] = {}
        self.app = Starlette(
            routes=[
                Route("/v1/images/generations", self._image, methods=["POST"]),
                Route("/v1/get_result", self._result),
                Route("/v1/{endpoint:path}", self._submit, methods=["POST"]),
            ]
        )

    async def _record_request(self, request: Request) -> tuple[int, Act]:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        number = len(self.bodies) - 1
        return number, self.acts[number % len(self.acts)]

    async def _submit(self, request: Request) -> Response:
        number, act = await self._record_request(request)
        if (error := _error(act)) is not None:
            return error
        body = {"id": str(number), "polling_url": str(request.url_for("_result").include_query_params(id=number))}
        return JSONResponse({"detail": "lost it"} if act == "no id" else body)

    async def _result(self, request: Request) -> Response:
        self.poll_headers.append(dict(request.headers))
        number = request.query_params["id"]
        act = self.acts[int(number) % len(self.acts)]
        self._polls[number] = self._polls.get(number, 0) + 1
        if self._polls[number] < 2 or act == "forget":
            return JSONResponse({"id": number, "status": "Pending", "result": None})
        status = {"fail": "Error", "moderate": "Content Moderated"}.get(act, "Ready")
        now = time.time()
        result = {"sample": "https://example.com/a.png", "start_time": now - 0.02, "end_time": now}
        ready = status == "Ready" and act != "no result"
        return JSONResponse({"id": number, "status": status, "result": result if ready else None})

    async def _image(self, request: Request) -> Response:
        _, act = await self._record_request(request)
        if (error := _error(act)) is not None:
            return error
        file = b"no image" if act == "no result" else image_file()
        data = [] if act == "no id" else [{"b64_json": base64.b64encode(file).decode()}]
        return JSONResponse({"created": int(time.time()), "data": data})


def _error(act: Act) -> Response | None:
    match act:
        case "refuse":
            return JSONResponse({"detail": "too many"}, status_code=429, headers={"retry-after": "1"})
        case "break":
            return JSONResponse({"detail": "broken"}, status_code=500)
        case "no json":
            return PlainTextResponse("<html>all is well</html>")
        case _:
            return None
