"""Client of an inference server: sends jobs in OpenAI's format and interprets the answers."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import httpx2
from PIL import Image

from deployments.backend import JobError, OutOfMemory
from deployments.contract.events import for_clients
from deployments.contract.job import GenerationJob
from deployments.contract.model import EngineConfig
from deployments.images import open_image
from deployments.proxies import proxy_for

_HEALTH: Final = {"vllm-omni": "/health", "sglang": "/health", "gen-serve": "/healthz"}
_CONNECT_S, _ANSWER_S = 5.0, 30.0
_REFUSALS: Final = (400, 413, 415, 422)
_BLOCKED: Final = ("moderation_blocked", "content_policy_violation")
_BUSY: Final = (408, 425, 429, 503, 504)
_OUT_OF_MEMORY: Final = re.compile(r"out of memory|OutOfMemory|\bOOM\b", re.IGNORECASE)

Files = Mapping[str, bytes]
"""A job's input files by object key."""


class EngineLost(Exception):
    """The engine is gone, or does not know the job any more. The job is not at fault."""


class EngineBusy(Exception):
    """The engine accepts no job now."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class VideoStatus:
    """Progress of a video at the engine."""

    state: Literal["waiting", "running", "completed"]
    progress: float
    """Share from 0 to 1; 0 if the engine reports none."""


class EngineClient:
    """Calls one engine. Every method raises EngineLost, EngineBusy, JobError, OutOfMemory, or RuntimeError for
    others."""

    def __init__(self, config: EngineConfig, url: str) -> None:
        self.url = url
        self._config = config
        self._names = config.names
        # No read timeout: a synchronous image is answered when it is done, and health checks find engines that hang.
        proxy = proxy_for(url)
        self._http = httpx2.AsyncClient(
            base_url=url, timeout=httpx2.Timeout(None, connect=_CONNECT_S), trust_env=False, proxy=proxy
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def is_healthy(self) -> bool:
        try:
            answer = await self._http.get(_HEALTH[self._config.kind], timeout=_CONNECT_S)
        except httpx2.HTTPError:
            return False
        return answer.status_code == 200

    async def image(self, job: GenerationJob, files: Files) -> Image.Image:
        """Returns the engine's image in RGB. Closing the connection cancels it."""
        fields = self._fields(job) | {
            "n": 1,
            "size": f"{job.request.width}x{job.request.height}",
            "response_format": "b64_json",
        }
        if job.inputs.references:
            uploads = [("image", _upload(files[key])) for key in job.inputs.references]
            if job.inputs.mask is not None and (name := self._names.get("mask")):
                if self._config.kind == "vllm-omni":
                    fields[name] = "data:image/png;base64," + base64.b64encode(files[job.inputs.mask]).decode()
                else:
                    uploads.append((name, _upload(_alpha_mask(files[job.inputs.mask]))))
            answer = await self._post("/v1/images/edits", job, data=_form(fields), files=uploads)
        else:
            answer = await self._post("/v1/images/generations", job, json=fields)
        try:
            return open_image(base64.b64decode(answer["data"][0]["b64_json"], validate=True))
        except (KeyError, IndexError, TypeError, ValueError, JobError) as error:
            raise RuntimeError(f"the engine's answer holds no image: {error}") from None

    async def create_video(self, job: GenerationJob, files: Files) -> str:
        """Starts a video. Returns the engine's id for it."""
        assert job.request.video is not None
        values = {
            "frames": job.request.video.frames,
            "fps": job.request.video.fps,
            "seconds": job.request.video.frames // job.request.video.fps,
        }
        fields = self._fields(job) | {"size": f"{job.request.width}x{job.request.height}"} | self._named(values)
        if job.request.video.audio:
            fields |= self._named({"audio": True})
        if job.inputs.references:
            uploads = [("input_reference", _upload(files[job.inputs.references[0]]))]
            answer = await self._post("/v1/videos", job, data=_form(fields), files=uploads)
        elif self._config.kind == "sglang":  # its form requires a file
            answer = await self._post("/v1/videos", job, json=fields)
        else:
            answer = await self._post("/v1/videos", job, files=[(k, (None, v)) for k, v in _form(fields).items()])
        if not isinstance(answer.get("id"), str):
            raise RuntimeError("the engine's answer has no id")
        return answer["id"]

    async def video(self, video_id: str) -> VideoStatus:
        with _translate_errors():
            response = await self._http.get(f"/v1/videos/{video_id}", headers=self._headers(), timeout=_ANSWER_S)
            answer = _read(response)
        status, progress = answer.get("status"), answer.get("progress")
        share = min(float(progress) / 100, 1.0) if isinstance(progress, (int, float)) else 0.0
        match status:
            case "queued":
                return VideoStatus("waiting", 0.0)
            case "in_progress":
                return VideoStatus("running", share)
            case "completed":
                return VideoStatus("completed", 1.0)
            case _:
                error = answer.get("error")
                if isinstance(error, dict) and error.get("code") in _BLOCKED:
                    raise JobError(f"the model refuses this request: {for_clients(_message(error))}")
                raise _failure(_message(error) or f"its status is {status}")

    async def download(self, video_id: str, file: Path) -> None:
        """Writes the video's content to `file`."""
        with _translate_errors(), file.open("wb") as out:
            path = f"/v1/videos/{video_id}/content"
            async with self._http.stream(
                "GET", path, headers=self._headers(), timeout=_ANSWER_S, follow_redirects=True
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    _read(response)
                async for chunk in response.aiter_bytes():
                    out.write(chunk)

    async def delete(self, video_id: str) -> None:
        """Aborts the video if the engine can, and deletes it."""
        with _translate_errors():
            await self._http.delete(f"/v1/videos/{video_id}", headers=self._headers(), timeout=_ANSWER_S)

    def _fields(self, job: GenerationJob) -> dict[str, Any]:
        """Returns the fields that images and videos share."""
        values = {
            "seed": job.request.seed,
            "steps": job.request.steps,
            "guidance": job.request.guidance,
            "negative_prompt": job.request.negative_prompt or None,
            "strength": job.request.strength,
        }
        model = {"model": self._config.model} if self._config.model else {}
        return {"prompt": job.request.prompt} | model | self._named(values) | self._config.kwargs

    def _named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {self._names[name]: v for name, v in values.items() if v is not None and name in self._names}

    def _headers(self, job: GenerationJob | None = None) -> dict[str, str]:
        headers = {}
        if self._config.api_key_file is not None:
            headers["Authorization"] = f"Bearer {self._config.api_key_file.read_text().strip()}"
        if job is not None:  # an engine that supports the header gives another attempt the job of the first
            headers["Idempotency-Key"] = job.id
        return headers

    async def _post(self, path: str, job: GenerationJob, **body: Any) -> dict[str, Any]:
        with _translate_errors():
            return _read(await self._http.post(path, headers=self._headers(job), **body))


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout):
        raise EngineBusy(1.0) from None  # nothing was sent: the engine may be starting, or another takes the job
    except httpx2.TransportError as error:
        raise EngineLost(f"{type(error).__name__}: {error}") from None


def _read(response: httpx2.Response) -> dict[str, Any]:
    """Returns the JSON object of a successful response."""
    status = response.status_code
    if status == 404:
        raise EngineLost("the engine does not know the job")
    if status in _BUSY:
        after = response.headers.get("Retry-After", "")
        raise EngineBusy(min(float(after), 60.0) if after.isdigit() else 1.0)
    try:
        answer = response.json()
    except ValueError:
        answer = None
    if status in _REFUSALS:
        raise JobError(f"the model refuses this request: {for_clients(_message(answer)) or f'HTTP status {status}'}")
    if not response.is_success:
        raise _failure(_message(answer) or f"HTTP status {status}")
    if not isinstance(answer, dict):
        raise RuntimeError("the engine's answer is no JSON object")
    return answer


def _message(answer: Any) -> str:
    """Returns the message of an error in the formats of OpenAI, FastAPI and vLLM; empty without one."""
    if isinstance(answer, dict):
        for name in ("error", "message", "detail", "msg"):
            if message := _message(answer.get(name)):
                return message
    if isinstance(answer, list):
        return "; ".join(filter(None, map(_message, answer)))
    return answer if isinstance(answer, str) else ""


def _failure(message: str) -> Exception:
    if _OUT_OF_MEMORY.search(message):
        return OutOfMemory(message)
    return RuntimeError(f"the engine failed: {message}")


def _form(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns form fields, with structures as JSON."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}


def _upload(data: bytes) -> tuple[str, bytes, str]:
    with Image.open(io.BytesIO(data)) as image:
        image_format = (image.format or "png").lower()
    return f"image.{image_format}", data, f"image/{image_format}"


def _alpha_mask(data: bytes) -> bytes:
    """Converts a mask to OpenAI's format: transparent where to repaint."""
    white = open_image(data).convert("L")
    mask = Image.new("RGBA", white.size)
    mask.putalpha(white.point([255 - level for level in range(256)]))
    out = io.BytesIO()
    mask.save(out, "PNG")
    return out.getvalue()
