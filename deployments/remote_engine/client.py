"""Client of an inference server: sends jobs in OpenAI's format and interprets the answers."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

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
_NO_ACCESS: Final = (401, 402, 403)
_QUOTA: Final = "insufficient_quota"
_VALIDATION: Final = re.compile(r"\d+ validation errors?( for \w+)?:?\s")
_VALIDATION_MESSAGE: Final = re.compile(r"'msg': (['\"])(.+?)\1|\n\s+(.+?) \[type=")
_DELETE_TRIES, _DELETE_PAUSE_S = 4, 1.0
_OUT_OF_MEMORY: Final = re.compile(r"out of memory|OutOfMemory|\bOOM\b", re.IGNORECASE)

Files = Mapping[str, bytes]
"""A job's input files by object key."""


class EngineLost(Exception):
    """The engine is gone, or does not know the job any more. The job is not at fault."""


class EngineRefused(Exception):
    """The engine refuses every job until an operator does something, as for a wrong API key or spent credits."""


class EngineBusy(Exception):
    """The engine accepts no job now."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class PreviewImage:
    """A preview after `step` of `steps`, as a JPEG or PNG file."""

    data: bytes
    step: int
    steps: int


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Progress of an asynchronous job at the engine."""

    state: Literal["waiting", "running", "completed"]
    progress: float = 0.0
    """Share from 0 to 1; 0 if the engine reports none."""
    url: str | None = None
    """Address of a completed video that the engine moved elsewhere."""
    preview: PreviewImage | None = None
    """A preview that no earlier status had."""


class JobClient(Protocol):
    """Client of the asynchronous jobs of one engine.

    Every method raises EngineLost, EngineBusy, EngineRefused, JobError, OutOfMemory, or RuntimeError for others.
    """

    url: str

    async def close(self) -> None: ...

    async def is_healthy(self) -> bool: ...

    async def check_access(self) -> None:
        """Raises EngineRefused if the engine accepts neither this service's key nor, for lack of credits, its jobs."""
        ...

    async def create(self, job: GenerationJob, files: Files, job_id: str | None) -> str:
        """Starts the job. Returns the engine's id for it. `job_id`: that of an earlier attempt, which is joined."""
        ...

    async def status(self, job_id: str) -> JobStatus: ...

    async def changed(self, job_id: str, timeout_s: float) -> None:
        """Waits until the status may have changed, at most `timeout_s`."""
        ...

    async def download(self, job_id: str, status: JobStatus, folder: Path) -> list[Path]:
        """Writes the results of a completed job to `folder` and returns their paths."""
        ...

    async def delete(self, job_id: str) -> None:
        """Aborts the job if the engine can, and deletes its record."""
        ...


class EngineClient:
    """Calls one engine with OpenAI's routes. `image` raises as the methods of JobClient do, whose jobs are videos."""

    def __init__(self, config: EngineConfig, url: str, folder: Path | None = None) -> None:
        """`folder`: that of an engine which this replica runs."""
        self.url = url
        self._key_file = config.api_key_file
        if self._key_file is not None and folder is not None:
            self._key_file = Path(str(self._key_file).replace("{folder}", str(folder)))
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

    async def check_access(self) -> None:
        path = "/v1/credits" if self._config.kind == "gen-serve" else "/v1/models"
        with translate_errors():
            response = await self._http.get(path, headers=self._headers(), timeout=_ANSWER_S)
        answer = parse_answer(response)
        if response.status_code in _NO_ACCESS:
            raise EngineRefused(f"HTTP status {response.status_code}: {_message(answer)}")
        if isinstance(answer, dict) and answer.get("credits") is not None and answer["credits"] <= 0:
            raise EngineRefused("no credits are left")

    def is_aborted(self, job: GenerationJob) -> bool:
        """Returns whether the engine stops working on this image when the connection closes."""
        return self._config.kind == "gen-serve" or (self._config.kind == "vllm-omni" and not job.inputs.references)

    async def image(self, job: GenerationJob, files: Files) -> Image.Image:
        """Returns the engine's image in RGB. Closing the connection cancels it, if `is_aborted`."""
        fields = self._fields(job) | {
            "n": 1,
            "size": f"{job.request.width}x{job.request.height}",
            "response_format": "b64_json",
            "output_format": "png",  # SGLang's default is JPEG
        }
        if job.inputs.references:
            uploads = [("image", _upload(files[key])) for key in job.inputs.references]
            if job.inputs.mask is not None and (name := self._names.get("mask")):
                mask = files[job.inputs.mask]
                uploads.append((name, _upload(mask if self._config.kind == "vllm-omni" else _alpha_mask(mask))))
            answer = await self._post("/v1/images/edits", job, data=_form(fields), files=uploads)
        else:
            answer = await self._post("/v1/images/generations", job, json=fields)
        try:
            return open_image(base64.b64decode(answer["data"][0]["b64_json"], validate=True))
        except (KeyError, IndexError, TypeError, ValueError, JobError) as error:
            raise RuntimeError(f"the engine's answer holds no image: {error}") from None

    async def create(self, job: GenerationJob, files: Files, job_id: str | None) -> str:
        if job_id is not None:
            return job_id
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

    async def changed(self, job_id: str, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)

    async def status(self, job_id: str) -> JobStatus:
        with translate_errors():
            response = await self._http.get(f"/v1/videos/{job_id}", headers=self._headers(), timeout=_ANSWER_S)
            answer = parse_answer(response)
            # vLLM-Omni answers with the HTTP status of the failure.
            if not (isinstance(answer, dict) and answer.get("status") == "failed"):
                answer = read_answer(response)
        status, progress = answer.get("status"), answer.get("progress")
        share = min(float(progress) / 100, 1.0) if isinstance(progress, (int, float)) else 0.0
        match status:
            case "queued":
                return JobStatus("waiting")
            case "in_progress":
                return JobStatus("running", share)
            case "completed":
                urls = answer.get("urls") or [answer.get("url")]
                return JobStatus("completed", 1.0, urls[0])
            case _:
                error = answer.get("error")
                if isinstance(error, dict) and error.get("code") in _BLOCKED:
                    raise JobError(f"the model refuses this request: {for_clients(_message(error))}")
                raise _failure(_message(error) or f"its status is {status}")

    async def download(self, job_id: str, status: JobStatus, folder: Path) -> list[Path]:
        file = folder / "video.mp4"
        if status.url is None:
            with translate_errors():
                await self._download(self._http, f"/v1/videos/{job_id}/content", self._headers(), file)
            return [file]
        async with httpx2.AsyncClient(trust_env=False, proxy=proxy_for(status.url)) as http:
            try:
                await self._download(http, status.url, {}, file)
            except httpx2.TransportError as error:
                raise RuntimeError(f"the video can't be fetched from its storage: {type(error).__name__}") from None
        return [file]

    async def _download(self, http: httpx2.AsyncClient, url: str, headers: Mapping[str, str], file: Path) -> None:
        async with http.stream("GET", url, headers=headers, timeout=_ANSWER_S, follow_redirects=True) as response:
            if response.status_code != 200:
                await response.aread()
                try:
                    read_answer(response)
                except JobError as error:  # the job was accepted long ago
                    raise RuntimeError(str(error)) from None
            with file.open("wb") as out:
                async for chunk in response.aiter_bytes():
                    out.write(chunk)

    async def delete(self, job_id: str) -> None:
        for _ in range(_DELETE_TRIES):
            with translate_errors():
                path = f"/v1/videos/{job_id}"
                response = await self._http.delete(path, headers=self._headers(), timeout=_ANSWER_S)
            if response.status_code != 409:  # vLLM-Omni: the cancellation is in progress
                return
            await asyncio.sleep(_DELETE_PAUSE_S)

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
        if self._key_file is not None:
            headers["Authorization"] = f"Bearer {self._key_file.read_text().strip()}"
        if job is not None:  # an engine that supports the header gives another attempt the job of the first
            headers["Idempotency-Key"] = job.id
        return headers

    async def _post(self, path: str, job: GenerationJob, **body: Any) -> dict[str, Any]:
        with translate_errors():
            return read_answer(await self._http.post(path, headers=self._headers(job), **body))


@contextmanager
def translate_errors() -> Iterator[None]:
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout):
        raise EngineBusy(1.0) from None  # nothing was sent: the engine may be starting, or another takes the job
    except httpx2.TransportError as error:
        raise EngineLost(f"{type(error).__name__}: {error}") from None


def parse_answer(response: httpx2.Response) -> Any:
    """Returns the response's JSON; None for anything else."""
    try:
        return response.json()
    except ValueError:
        return None


def read_answer(response: httpx2.Response) -> dict[str, Any]:
    """Returns the JSON object of a successful response."""
    status, answer = response.status_code, parse_answer(response)
    if status == 404 and response.request.method != "POST":
        raise EngineLost("the engine does not know the job")
    is_busy = status in _BUSY
    if is_busy and not _is_final(response, answer):
        after = response.headers.get("Retry-After", "")
        raise EngineBusy(min(float(after), 60.0) if after.isdigit() else 1.0)
    if is_busy or status in _NO_ACCESS or status == 404:
        raise EngineRefused(f"HTTP status {status}: {_message(answer)}")
    if status in _REFUSALS:
        raise JobError(f"the model refuses this request: {for_clients(_refusal(answer)) or f'HTTP status {status}'}")
    if not response.is_success:
        raise _failure(_message(answer) or f"HTTP status {status}")
    if not isinstance(answer, dict):
        raise RuntimeError("the engine's answer is no JSON object")
    return answer


def _is_final(response: httpx2.Response, answer: Any) -> bool:
    """Returns whether the engine says that asking again does not help."""
    error = answer.get("error") if isinstance(answer, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code == _QUOTA or response.headers.get("x-should-retry") == "false"


def _refusal(answer: Any) -> str:
    """Returns the message of a refused job, with the field that is at fault. vLLM repeats pydantic's text."""
    message = _message(answer)
    if not _VALIDATION.match(message):
        return message
    error = answer.get("error") if isinstance(answer, dict) else None
    param = error.get("param") if isinstance(error, dict) else None
    found = _VALIDATION_MESSAGE.search(message)
    reason = next(filter(None, found.group(2, 3))) if found else message.partition("\n")[2].strip()
    field = str(param or message.partition("\n")[2].partition("\n")[0]).strip().removeprefix("body.")
    return f"{field}: {reason}"


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
