"""Servers in the form of OpenAI's: a request for a picture is answered with the picture."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

import httpx2

from serve_app.load.adapters.answers import check_status, object_of, unusable
from serve_app.load.clock import Clock
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request
from serve_app.load.target import Target

_PATH: Final = "/v1/images/generations"
_LOOKED_AT: Final = 64
"""Characters of base64 that tell the kind of a file."""
_MAGIC: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF")


class OpenAIImages:
    def __init__(self, target: Target) -> None:
        self._target = target
        # Base URLs of these servers are often written with the version.
        self._path = _PATH.removeprefix("/v1") if target.base_url.rstrip("/").endswith("/v1") else _PATH

    def prepare(self, request: Request) -> None:
        if request.shape.references:
            raise ValueError(f"{request.endpoint}: references can't be sent to {_PATH}")
        if request.shape.seconds is not None:
            raise ValueError(f"{request.endpoint}: {_PATH} makes no videos (seconds)")

    async def carry(self, http: httpx2.AsyncClient, request: Request, outcome: Outcome, clock: Clock) -> None:
        headers = {"content-type": "application/json"}
        if key := self._target.keys.get(request.tenant):
            headers["authorization"] = f"Bearer {key}"
        data = json.dumps(_body(request)).encode()
        outcome.sent = clock.now()
        answer = await http.post(self._path, content=data, headers=headers, timeout=self._target.limit)
        arrived = clock.now()
        check_status(answer)
        _check_picture(object_of(answer))
        outcome.final = arrived


def _body(request: Request) -> dict[str, Any]:
    shape = request.shape
    body: dict[str, Any] = {"model": request.endpoint, "prompt": request.prompt, "n": 1, "seed": request.seed}
    if shape.size:
        body["size"] = str(shape.size)
    if shape.steps is not None:
        body["num_inference_steps"] = shape.steps
    return body | dict(request.body)


def _check_picture(told: dict[str, Any]) -> None:
    match told.get("data"):
        case [{"b64_json": str(picture)}]:
            if not _is_picture(picture):
                raise unusable("b64_json is no picture")
        case [{"url": str(link)}] if link:
            return
        case _:
            raise unusable("data has not one picture")


def _is_picture(text: str) -> bool:
    try:
        return base64.b64decode(text[:_LOOKED_AT]).startswith(_MAGIC)
    except binascii.Error:
        return False
