"""Client of a ComfyUI server: runs jobs as prompts of one workflow.

The task's id is the prompt's id. A prompt is looked up before it is submitted, as ComfyUI runs the same id twice. Its
queue and history decide; the socket only tells the same sooner, and reports the progress of nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import struct
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import websockets

from deployments.backend import JobError, OutOfMemory
from deployments.contract.events import for_clients
from deployments.contract.job import Adapter, GenerationJob
from deployments.contract.model import EngineConfig
from deployments.contract.request import Scalar
from deployments.contract.workflow import ObjectInfo, Place, Workflow
from deployments.proxies import proxy_for
from deployments.remote_engine.client import (
    EngineBusy,
    EngineLost,
    EngineRefused,
    Files,
    JobStatus,
    PreviewImage,
    parse_answer,
    read_answer,
    translate_errors,
)

_CONNECT_S, _ANSWER_S = 5.0, 30.0
_LOOK_S: Final = 2.0
"""Seconds after which queue and history are read even if the socket is silent."""
_RECONNECT_S: Final = 1.0
_INTERRUPT_S: Final = 30.0
"""Seconds in which a node that looks for interruptions notices one."""
_OUTPUT_LISTS: Final = ("images", "gifs", "video", "videos", "audio")
"""Lists of files in the outputs of a node. ComfyUI lists videos under `images`, VideoHelperSuite under `gifs`."""
_PREVIEW_WITH_METADATA: Final = 4
_FEATURES: Final = json.dumps({"type": "feature_flags", "data": {"supports_preview_metadata": True}})
_OWN_FOLDER: Final = "gen-serve"
"""Folder for this service's files in ComfyUI's folders."""


class NodeTimes:
    """Usual seconds of each node of a workflow, by which its progress is weighted."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def learn(self, node: str, seconds: float) -> None:
        self._seconds[node] = 0.8 * self._seconds.get(node, seconds) + 0.2 * seconds

    def share(self, nodes: Mapping[str, float]) -> float:
        """Returns the share of the work that is done, from the share of each node."""
        usual = sum(self._seconds.values()) / len(self._seconds) if self._seconds else 1.0
        weights = {node: self._seconds.get(node, usual) for node in nodes}
        total = sum(weights.values())
        return sum(weights[node] * share for node, share in nodes.items()) / total if total else 0.0


@dataclass
class _Run:
    """State of a prompt, as far as the socket has told it."""

    shares: dict[str, float]
    """Share of each node that is done."""
    times: NodeTimes
    node: str | None = None
    node_since: float = 0.0
    share: float = 0.0
    """Largest share so far: two samplers in a row must not let it fall."""
    step: tuple[int, int] = (0, 0)
    preview: PreviewImage | None = None
    looked_at: float = 0.0
    """Time at which queue or history were read, in seconds of the monotonic clock."""
    heard_at: float = field(default_factory=time.monotonic)
    interrupted_at: float | None = None
    ended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def enter(self, node: str | None) -> None:
        now = time.monotonic()
        if self.node is not None:
            self.shares[self.node] = 1.0
            self.times.learn(self.node, now - self.node_since)
        self.node, self.node_since = node, now

    def update(self) -> None:
        self.share = max(self.share, self.times.share(self.shares))
        self.heard_at = time.monotonic()
        self.changed.set()


class ComfyClient:
    """Calls one server. Every method raises as those of EngineClient do."""

    def __init__(self, config: EngineConfig, workflow: Workflow, url: str, times: NodeTimes) -> None:
        self.url = url
        self._config = config
        self._times = times
        self._workflow = workflow
        self._output_nodes = [workflow.find_node(name) for name in config.outputs]
        self._client_id = uuid.uuid4().hex
        self._runs: dict[str, _Run] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._listener: asyncio.Task[None] | None = None
        self._stalled: str | None = None
        """Prompt whose node no longer answers; the server is unhealthy while it runs."""
        proxy = proxy_for(url)
        timeout = httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S)
        self._http = httpx2.AsyncClient(base_url=url, timeout=timeout, trust_env=False, proxy=proxy)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait({self._listener})
        await self._http.aclose()

    async def is_healthy(self) -> bool:
        try:
            answer = await self._http.get("/system_stats", timeout=_CONNECT_S)
            if self._stalled is not None and self._stalled not in (await self._queue())[0]:
                self._stalled = None
        except (httpx2.HTTPError, EngineLost, EngineBusy, RuntimeError):
            return False
        return answer.status_code == 200 and self._stalled is None

    async def check_access(self) -> None:
        """ComfyUI has no authentication, but may lack what the workflow needs."""
        with translate_errors():
            info = ObjectInfo(read_answer(await self._http.get("/object_info")))
        if problems := self._workflow.problems(info):
            raise EngineRefused("; ".join(problems))

    async def create(self, job: GenerationJob, files: Files, job_id: str | None) -> str:
        """Queues the job, unless an earlier attempt did and it has not failed."""
        if self._listener is None or self._listener.done():
            self._listener = asyncio.create_task(self._listen())
        async with self._locks[job.id]:
            run = self._runs[job.id] = _Run(dict.fromkeys(self._workflow.graph, 0.0), self._times)
            running, waiting = await self._queue()
            entry = await self._history(job.id)
            if job.id in (*running, *waiting) or (entry is not None and entry["status"]["completed"]):
                run.heard_at = math.inf  # its messages go to the client that submitted it, so silence says nothing
                return job.id
            await self._post("/history", {"delete": [job.id]})  # else its failure would count for this attempt
            graph = self._workflow.fill(await self._values(job, files), f"{_OWN_FOLDER}/{job.id}-{job.attempt}")
            body = {"prompt": graph, "prompt_id": job.id, "client_id": self._client_id}
            with translate_errors():
                response = await self._http.post("/prompt", json=body)
            answer = parse_answer(response)
            errors = answer.get("node_errors") if isinstance(answer, dict) else None
            if errors or response.status_code == 400:
                # One output of several can be refused while the others run.
                await self.delete(job.id)
                raise self._refusal(job, errors or {}, answer)
            if (own_id := read_answer(response).get("prompt_id")) != job.id:
                await self._post("/queue", {"delete": [own_id]})
                await self._post("/interrupt", {"prompt_id": own_id})
                raise EngineRefused("this ComfyUI does not take the ids of prompts: install a newer one")
            run.heard_at = time.monotonic()
            return job.id

    async def changed(self, job_id: str, timeout_s: float) -> None:
        run = self._runs[job_id]
        # wait_for of Python 3.11 loses a cancellation that comes together with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await run.changed.wait()
        run.changed.clear()

    async def status(self, job_id: str) -> JobStatus:
        run = self._runs[job_id]
        now = time.monotonic()
        if run.node is not None and not run.ended and now - run.looked_at < _LOOK_S:
            return self._running(run)
        run.looked_at = now
        if await self._is_completed(job_id):
            return JobStatus("completed", 1.0)
        running, waiting = await self._queue()
        if job_id in waiting:
            run.heard_at = max(run.heard_at, now)
            return JobStatus("waiting")
        if job_id not in running:
            if await self._is_completed(job_id):  # it ended between the two looks
                return JobStatus("completed", 1.0)
            raise EngineLost("ComfyUI does not know the prompt")
        await self._check_stall(job_id, run, now)
        return self._running(run)

    def _running(self, run: _Run) -> JobStatus:
        preview, run.preview = run.preview, None
        return JobStatus("running", run.share, preview=preview)

    async def _check_stall(self, prompt_id: str, run: _Run, now: float) -> None:
        """Interrupts a prompt that has been silent for too long. Raises EngineLost if that does not help."""
        if run.interrupted_at is not None:
            if now - run.interrupted_at > _INTERRUPT_S:
                self._stalled = prompt_id
                raise EngineLost("a node of the workflow does not answer")
        elif now - run.heard_at > self._config.stall_s:
            run.interrupted_at = now
            await self._post("/interrupt", {"prompt_id": prompt_id})

    async def download(self, job_id: str, status: JobStatus, folder: Path) -> list[Path]:
        """Files come in the order of the output nodes."""
        entry = await self._history(job_id)
        if entry is None:
            raise EngineLost("ComfyUI does not know the prompt")
        files = list[Path]()
        for number, output in enumerate(self._output_files(entry["outputs"])):
            file = folder / f"{number}{Path(output['filename']).suffix.lower()}"
            names = {name: output.get(name, "") for name in ("filename", "subfolder", "type")}
            with translate_errors():
                async with self._http.stream("GET", "/view", params=names) as response:
                    if response.status_code != 200:
                        raise RuntimeError(f"an output of the workflow is gone: {names['filename']}")
                    with file.open("wb") as out:
                        async for chunk in response.aiter_bytes():
                            out.write(chunk)
            files.append(file)
        if not files:
            raise RuntimeError("the workflow wrote no file")
        return files

    def _output_files(self, outputs: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
        """Yields the files of the output nodes; without any in the settings, all that were not previews."""
        for node in self._output_nodes or sorted(outputs):
            for name in _OUTPUT_LISTS:
                for output in outputs.get(node, {}).get(name, ()):
                    if self._output_nodes or output.get("type") == "output":
                        yield output

    async def delete(self, job_id: str) -> None:
        self._runs.pop(job_id, None)
        await self._post("/queue", {"delete": [job_id]})
        give_up_at = time.monotonic() + self._config.stall_s
        # Servers before 0.3.57 interrupt whatever runs, so only this prompt's turn counts.
        while job_id in (await self._queue())[0]:
            await self._post("/interrupt", {"prompt_id": job_id})
            if time.monotonic() > give_up_at:
                self._stalled = job_id
                break
            await asyncio.sleep(_LOOK_S)
        await self._post("/history", {"delete": [job_id]})

    async def _values(self, job: GenerationJob, files: Files) -> dict[Place, Scalar]:
        """Returns the job's values by place. Uploads its files."""
        values: dict[Place, Scalar] = {}
        for placement in job.request.placements:
            value = placement.value_in(job.request)
            if placement.adapter is not None and job.adapter is not None:
                is_file = placement.adapter == "file"
                value = await self._install(job.adapter, files) if is_file else job.adapter.strength
            elif placement.is_file:
                key = dict(job.inputs.files)[placement.name]
                value = await self._upload(f"{job.id}-{placement.name}{Path(key).suffix}", files[key])
            if value is not None:
                values |= {self._workflow.find_place(text): value for text in placement.places}
        return values

    async def _install(self, adapter: Adapter, files: Files) -> str:
        """Writes the adapter to ComfyUI's folder, unless it is there. Returns its name for a node."""
        assert self._config.lora_dir is not None
        name = Path(_OWN_FOLDER, f"{adapter.id}.safetensors")
        path = self._config.lora_dir / name
        if not path.exists():
            part = path.with_suffix(f".{uuid.uuid4().hex}")
            path.parent.mkdir(exist_ok=True)
            await asyncio.to_thread(part.write_bytes, files[adapter.key])
            part.replace(path)
        return str(name)

    async def _upload(self, name: str, data: bytes) -> str:
        with translate_errors():
            form = {"type": "temp", "overwrite": "true"}
            read_answer(await self._http.post("/upload/image", files={"image": (name, data)}, data=form))
        return f"{name} [temp]"

    def _refusal(self, job: GenerationJob, node_errors: Mapping[str, Any], answer: Any) -> Exception:
        """Returns JobError for a value of the job, and EngineRefused for the workflow's own."""
        names = {
            self._workflow.find_place(place): placement.name
            for placement in job.request.placements
            for place in placement.places
        }
        problem = ""
        for node, each in node_errors.items():
            for error in each.get("errors", ()):
                input_name = str((error.get("extra_info") or {}).get("input_name"))
                if (name := names.get(Place(node, input_name))) is not None:
                    # Ranges are in the message, options in the details, which else are the input's name.
                    reason = error["message"] if error.get("details") in (None, "", input_name) else error["details"]
                    return JobError(f"{name}: {for_clients(str(reason))}")
                problem = problem or f"node {node}: {error.get('message')}: {error.get('details')}"
        error = answer.get("error") if isinstance(answer, dict) else None
        return EngineRefused(f"the workflow is not valid here: {problem or error}")

    async def _queue(self) -> tuple[list[str], list[str]]:
        """Returns the ids of running and of waiting prompts."""
        with translate_errors():
            answer = read_answer(await self._http.get("/queue"))
        return [each[1] for each in answer["queue_running"]], [each[1] for each in answer["queue_pending"]]

    async def _history(self, prompt_id: str) -> dict[str, Any] | None:
        """Returns the record of an ended prompt; None while it runs and for an unknown one."""
        with translate_errors():
            return read_answer(await self._http.get(f"/history/{prompt_id}")).get(prompt_id)

    async def _is_completed(self, prompt_id: str) -> bool:
        entry = await self._history(prompt_id)
        if entry is None:
            return False
        messages = entry["status"]["messages"]
        name, details = messages[-1] if messages else ("execution_success", {})
        if name == "execution_success":
            return True
        if name == "execution_interrupted":
            raise EngineLost("the prompt was interrupted")
        error_type, message = str(details.get("exception_type")), str(details.get("exception_message", name)).strip()
        if "OutOfMemory" in error_type or "out of memory" in message:
            raise OutOfMemory(message)
        raise RuntimeError(f"node {details.get('node_id')} ({details.get('node_type')}) raised {error_type}: {message}")

    async def _post(self, path: str, body: Mapping[str, Any]) -> None:
        with translate_errors():
            await self._http.post(path, json=body)

    async def _listen(self) -> None:
        """Reads the server's messages, and connects again when the socket closes."""
        url = f"ws{self.url.removeprefix('http')}/ws?clientId={self._client_id}"
        while True:
            with contextlib.suppress(OSError, websockets.WebSocketException, TimeoutError):
                async with websockets.connect(
                    url, max_size=None, open_timeout=_CONNECT_S, proxy=proxy_for(self.url)
                ) as socket:
                    await socket.send(_FEATURES)
                    async for message in socket:
                        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, struct.error):
                            self._read_preview(message) if isinstance(message, bytes) else self._read_event(message)
            await asyncio.sleep(_RECONNECT_S)

    def _read_event(self, message: str) -> None:
        event = json.loads(message)
        details = event.get("data") or {}
        run = self._runs.get(details.get("prompt_id", ""))
        if run is None:
            return
        match event["type"]:
            case "execution_cached":
                run.shares |= dict.fromkeys(details["nodes"], 1.0)
            case "executing":
                run.enter(details["node"])
                run.ended = details["node"] is None
            case "progress":
                run.step = int(details["value"]), int(details["max"])
                run.shares[details.get("node") or run.node or ""] = run.step[0] / max(run.step[1], 1)
            case "execution_success" | "execution_error" | "execution_interrupted":
                run.ended = True
        run.update()

    def _read_preview(self, message: bytes) -> None:
        """Reads a preview of servers that tell which prompt it belongs to."""
        message_type, length = struct.unpack(">II", message[:8])
        if message_type != _PREVIEW_WITH_METADATA:
            return
        metadata = json.loads(message[8 : 8 + length])
        if run := self._runs.get(metadata.get("prompt_id")):
            run.preview = PreviewImage(message[8 + length :], *run.step)
            run.update()
