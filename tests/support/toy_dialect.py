"""A server of the dialect that knows one endpoint, for judging the judge: every fault breaks known sentences."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import io
import time
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

KEY: Final = "gen_toy"
_FIELDS: Final = {
    "prompt": str,
    "images": list,
    "aspect_ratio": str,
    "resolution": str,
    "width": int,
    "height": int,
    "seed": int,
    "safety_tolerance": int,
    "output_format": str,
    "steps": int,
    "webhook_url": str,
    "webhook_secret": str,
    "user": str,
}
_BOUNDS: Final = {
    "width": (64, 6256),
    "height": (64, 6256),
    "seed": (0, 2**32 - 1),
    "steps": (1, 16),
    "safety_tolerance": (0, 7),
}
_LIFE: Final = ("Pending", "Generating", "Generating", "Ready")
"""What a task is at one poll after the other."""
_RETRY_S: Final = 0.1


@dataclass
class _Task:
    id: str
    body: dict[str, Any]
    polls: int = 0
    cancelled: bool = False
    told: bool = False
    created: float = field(default_factory=time.time)

    @property
    def size(self) -> tuple[int, int]:
        return self.body.get("width") or 1024, self.body.get("height") or 1024


class ToyDialect:
    def __init__(self, fault: str = "") -> None:
        """`fault` is one of those that the methods below ask for."""
        self._fault = fault
        self._tasks: dict[str, _Task] = {}
        self._repeated: dict[str, tuple[Any, dict[str, Any]]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self.app = Starlette(
            routes=[
                Route("/v1/gen-3-image-klein", self._submit, methods=["POST"]),
                Route("/v1/get_result", self._poll),
                Route("/v1/files/{id}", self._file),
                Route("/v1/tasks/{id}", self._cancel, methods=["DELETE"]),
            ],
            exception_handlers={404: lambda request, problem: JSONResponse({"detail": "Not Found"}, 404)},
        )

    # Submitting

    async def _submit(self, request: Request) -> Response:
        key = request.headers.get("x-key")
        if key != KEY and self._fault != "open to all":
            invalid = " - Invalid Authentication" if key else ""
            return JSONResponse({"detail": f"Not authenticated{invalid}"}, 403)
        try:
            body = await request.json()
        except ValueError:
            body = None
        if entries := self._problems(body):
            return JSONResponse({"detail": entries}, 422)
        assert isinstance(body, dict)
        again = request.headers.get("idempotency-key", "")
        if again in self._repeated and self._fault != "forgets keys":
            earlier, reply = self._repeated[again]
            if earlier == body:
                return JSONResponse(reply)
            return JSONResponse({"detail": [_entry("header", "the key had another body")]}, 422)
        reply = self._accept(request, body)
        if again:
            self._repeated[again] = body, reply
        return JSONResponse(reply)

    def _accept(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        task = _Task(f"task-{len(self._tasks)}" if self._fault == "plain ids" else str(uuid.uuid4()), body)
        self._tasks[task.id] = task
        origin = "" if self._fault == "relative addresses" else str(request.base_url).rstrip("/")
        width, height = task.size
        reply = {
            "id": task.id,
            "polling_url": f"{origin}/v1/get_result?id={task.id}",
            "cost": 1.0,
            "input_mp": 0.0,
            "output_mp": round(width * height / (1e6 if self._fault == "round megapixels" else 2**20), 2),
        }
        if self._fault == "no cost":
            del reply["cost"]
        if body.get("webhook_url"):
            reply |= {"status": "Pending", "webhook_url": body["webhook_url"]}
        return reply

    def _problems(self, body: Any) -> list[dict[str, Any]]:
        if not isinstance(body, dict):
            return [_entry("body", "no JSON object")]
        found = [] if isinstance(body.get("prompt"), str) else [_entry("prompt", "missing")]
        for name, value in body.items():
            low, high = _BOUNDS.get(name, (0, 0))
            if name not in _FIELDS:
                found.append(_entry(name, "not known", "extra_forbidden"))
            elif value is not None and (type(value) is not _FIELDS[name] or value == ""):
                shown = value if self._fault == "echoes" else "value"
                found.append(_entry(name, f"{shown} is of a wrong type"))
            elif high and value is not None and not low <= value <= self._most(name, high):
                found.append(_entry(name, f"{low} to {high}"))
        if (body.get("width") is None) != (body.get("height") is None):
            found.append(_entry("width" if body.get("width") is None else "height", "missing"))
        if self._fault == "numbers in loc":
            return [entry | {"loc": [0, *entry["loc"]]} for entry in found]
        return found[:1] if self._fault == "one problem at a time" else found

    def _most(self, name: str, most: int) -> int:
        return 10 * most if (self._fault, name) == ("too many steps", "steps") else most

    # Results

    async def _poll(self, request: Request) -> Response:
        if "id" not in request.query_params:
            return JSONResponse({"detail": [_entry("id", "missing")]}, 422)
        task = self._tasks.get(request.query_params["id"])
        if task is None:
            empty = dict.fromkeys(("result", "progress", "details", "preview"))
            unknown = {"id": request.query_params["id"], "status": "Task not found", **empty}
            return JSONResponse(unknown, 200 if self._fault == "finds everything" else 404)
        task.polls += 1
        if "wait" in request.query_params:
            task.polls = len(_LIFE)
        shown = self._shown(task, str(request.base_url))
        if shown["status"] == "Ready" and task.body.get("webhook_url") and not task.told:
            task.told = True
            told = shown | ({"status": "Generating"} if self._fault == "tells of progress" else {})
            call = asyncio.create_task(self._tell(task, told))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        tag = f'"{hashlib.sha256(repr(shown).encode()).hexdigest()}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304)
        waiting = {} if shown["status"] in ("Ready", "Error") else {"Retry-After": "1"}
        return JSONResponse(shown, headers={"ETag": tag, **waiting})

    def _shown(self, task: _Task, base: str) -> dict[str, Any]:
        step = min(task.polls, len(_LIFE)) - 1
        status = "Error" if task.cancelled else _LIFE[step]
        progress = [0.0, 0.6, 0.4 if self._fault == "falls back" else 0.8, 1.0][step]
        body: dict[str, Any] = {
            "id": task.id,
            "status": "SUCCESS" if (self._fault, status) == ("old statuses", "Ready") else status,
            "result": None,
            "progress": progress,
            "details": None,
            "preview": None,
        }
        if status == "Ready":
            times = {"start_time": task.created, "end_time": task.created + 1, "duration": 1.0}
            link = f"{base}v1/files/{task.id}?sig=x"
            result = {"sample": link, "prompt": task.body["prompt"], "seed": task.body.get("seed") or 1, **times}
            body |= {"result": result, "cost": 1.0}
        return body

    async def _file(self, request: Request) -> Response:
        if "sig" not in request.query_params:
            return JSONResponse({"detail": "no signature"}, 403)
        task, file = self._tasks[request.path_params["id"]], io.BytesIO()
        size = (8, 8) if self._fault == "small pictures" else task.size
        Image.new("RGB", size).save(file, task.body.get("output_format") or "jpeg")
        headers, data = {"Access-Control-Allow-Origin": "*"}, file.getvalue()
        if request.headers.get("range") == "bytes=0-3" and self._fault != "no ranges":
            return Response(data[:4], 206, headers)
        return Response(data, 200, headers, media_type="image/jpeg")

    async def _cancel(self, request: Request) -> Response:
        self._tasks[request.path_params["id"]].cancelled = True
        return JSONResponse({})

    # Webhooks

    async def _tell(self, task: _Task, shown: dict[str, Any]) -> None:
        data = JSONResponse(shown).body
        secret = task.body.get("webhook_secret") or ""
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            for _ in range(3):
                headers = self._signatures(task.id, bytes(data), secret) if secret else {}
                response = await client.post(
                    task.body["webhook_url"], content=bytes(data), headers={"webhook-id": task.id, **headers}
                )
                if response.is_success or self._fault == "gives up":
                    return
                await asyncio.sleep(_RETRY_S)

    def _signatures(self, task_id: str, body: bytes, secret: str) -> dict[str, str]:
        decoded = secret.startswith("whsec_") and self._fault != "literal secrets"
        key = base64.b64decode(secret.removeprefix("whsec_")) if decoded else secret.encode()
        at = str(int(time.time()))
        signed = b"" if self._fault == "signs nothing" else f"{task_id}.{at}.".encode() + body
        signature = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
        return {
            "webhook-timestamp": at,
            "webhook-signature": f"v1,{signature}",
            "x-webhook-signature": f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}",
        }


def _entry(name: str, message: str, kind: str = "value_error") -> dict[str, Any]:
    return {"loc": ["body", name], "msg": message, "type": kind}
