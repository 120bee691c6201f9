"""A fake ComfyUI that behaves as release 0.3.54 does where a client can see it, without models.

`python -m support.comfy_server PORT FOLDER STEP_SECONDS` runs it; `serving` runs it in a test's process. It keeps its
queue and history in memory and its files in a folder, as the real one does.
"""

from __future__ import annotations

import asyncio
import io
import json
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from serve_app.launcher.embedded_redis import free_port

OBJECT_INFO: dict[str, Any] = {
    "EmptyLatentImage": {
        "input": {
            "required": {
                "width": ["INT", {"default": 512, "min": 16, "max": 16384, "step": 8}],
                "height": ["INT", {"default": 512, "min": 16, "max": 16384, "step": 8}],
                "batch_size": ["INT", {"default": 1, "min": 1, "max": 4096}],
            }
        }
    },
    "CLIPTextEncode": {"input": {"required": {"text": ["STRING", {"multiline": True}], "clip": ["CLIP"]}}},
    "CheckpointLoaderSimple": {
        "input": {"required": {"ckpt_name": [["tiny.safetensors", "v1-5-pruned-emaonly-fp16.safetensors"]]}}
    },
    "KSampler": {
        "input": {
            "required": {
                "seed": ["INT", {"default": 0, "min": 0, "max": 2**64 - 1}],
                "steps": ["INT", {"default": 20, "min": 1, "max": 10000}],
                "cfg": ["FLOAT", {"default": 8.0, "min": 0.0, "max": 100.0}],
                "sampler_name": [["euler", "dpmpp_2m"]],
                "model": ["MODEL"],
                "positive": ["CONDITIONING"],
                "negative": ["CONDITIONING"],
                "latent_image": ["LATENT"],
            }
        }
    },
    "VAEDecode": {"input": {"required": {"samples": ["LATENT"], "vae": ["VAE"]}}},
    "LoadImage": {"input": {"required": {"image": [["example.png"], {"image_upload": True}]}}},
    "ImageInvert": {"input": {"required": {"image": ["IMAGE"]}}},
    "SaveImage": {"input": {"required": {"images": ["IMAGE"], "filename_prefix": ["STRING", {}]}}, "output_node": True},
}


class _Interrupted(Exception):
    pass


@dataclass
class Prompt:
    id: str
    graph: dict[str, Any]
    client_id: str | None


@dataclass
class ComfyServer:
    folder: Path
    step_s: float = 0.0
    """Seconds of a sampler's step."""
    targeted_interrupt: bool = True
    """False: /interrupt stops whatever runs, as before 0.3.57."""
    error: tuple[str, str] | None = None
    """Type and message of the exception that the sampler raises."""
    dies_at: str | None = None
    """Node at which the worker thread dies; HTTP goes on."""
    takes_ids: bool = True
    """False: prompts get ids of the server's, as in old releases."""
    silent: bool = False
    """No message is sent over sockets."""
    url: str = ""
    submitted: list[Prompt] = field(default_factory=list)
    """All prompts that were accepted."""
    waiting: list[Prompt] = field(default_factory=list)
    running: Prompt | None = None
    history: dict[str, Any] = field(default_factory=dict)
    sockets: dict[str, WebSocket] = field(default_factory=dict)
    _interrupt: bool = False
    _cache: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Output of each output node by its inputs: equal prompts execute nothing and name the old files."""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/system_stats", self._stats),
                Route("/object_info", self._object_info),
                Route("/prompt", self._submit, methods=["POST"]),
                Route("/queue", self._list_queue),
                Route("/queue", self._delete, methods=["POST"]),
                Route("/interrupt", self._stop, methods=["POST"]),
                Route("/history", self._forget, methods=["POST"]),
                Route("/history/{id}", self._read_history),
                Route("/upload/image", self._upload, methods=["POST"]),
                Route("/view", self._view),
                WebSocketRoute("/ws", self._listen),
            ]
        )

    async def _stats(self, request: Request) -> Response:
        return JSONResponse({"system": {"comfyui_version": "0.3.54"}, "devices": []})

    async def _object_info(self, request: Request) -> Response:
        return JSONResponse(OBJECT_INFO)

    async def _submit(self, request: Request) -> Response:
        body = await request.json()
        graph, errors = body["prompt"], {}
        for node, each in graph.items():
            if found := list(self._problems(each)):
                errors[node] = {"errors": found, "dependent_outputs": [], "class_type": each["class_type"]}
        outputs = [node for node, each in graph.items() if each["class_type"].startswith("Save")]
        broken = [node for node in outputs if errors.keys() & self._sources(graph, node)]
        if errors and len(broken) == len(outputs):
            error = {"type": "prompt_outputs_failed_validation", "message": "Prompt outputs failed validation"}
            return JSONResponse({"error": error, "node_errors": errors}, 400)
        prompt = Prompt(body["prompt_id"] if self.takes_ids else str(len(self.submitted)), graph, body.get("client_id"))
        self.submitted.append(prompt)
        self.waiting.append(prompt)
        self._wake.set()
        return JSONResponse({"prompt_id": prompt.id, "number": len(self.submitted), "node_errors": errors})

    def _problems(self, node: dict[str, Any]) -> Any:
        declared = OBJECT_INFO.get(node["class_type"], {"input": {"required": {}}})["input"]["required"]
        for name, (kind, *options) in declared.items():
            value = node["inputs"].get(name)
            if isinstance(value, list):
                continue
            limits = options[0] if options else {}
            extra = {"extra_info": {"input_name": name, "input_config": [kind, limits], "received_value": value}}
            if kind in ("INT", "FLOAT") and value > limits.get("max", value):
                message = f"Value {value} bigger than max of {limits['max']}"
                yield {"type": "value_bigger_than_max", "message": message, "details": name} | extra
            if isinstance(kind, list) and value not in kind and not str(value).endswith("[temp]"):
                yield {
                    "type": "value_not_in_list",
                    "message": "Value not in list",
                    "details": f"{name}: '{value}'",
                } | extra

    def _sources(self, graph: dict[str, Any], node: str) -> set[str]:
        found = {node}
        for value in graph[node]["inputs"].values():
            if isinstance(value, list):
                found |= self._sources(graph, value[0])
        return found

    async def _list_queue(self, request: Request) -> Response:
        rows = [[[0, each.id, each.graph, {}, []] for each in group] for group in (self._now(), self.waiting)]
        return JSONResponse({"queue_running": rows[0], "queue_pending": rows[1]})

    def _now(self) -> list[Prompt]:
        return [self.running] if self.running else []

    async def _delete(self, request: Request) -> Response:
        ids = (await request.json())["delete"]
        self.waiting = [each for each in self.waiting if each.id not in ids]
        return Response()

    async def _stop(self, request: Request) -> Response:
        body = await request.body()
        target = json.loads(body).get("prompt_id") if body and self.targeted_interrupt else None
        if self.running is not None and target in (None, self.running.id):
            self._interrupt = True
        return Response()

    async def _forget(self, request: Request) -> Response:
        for each in (await request.json())["delete"]:
            self.history.pop(each, None)
        return Response()

    async def _read_history(self, request: Request) -> Response:
        prompt_id = request.path_params["id"]
        return JSONResponse({prompt_id: self.history[prompt_id]} if prompt_id in self.history else {})

    async def _upload(self, request: Request) -> Response:
        async with request.form() as form:
            file, folder = form["image"], self.folder / str(form.get("type", "input"))
            assert not isinstance(file, str)
            assert file.filename is not None
            folder.mkdir(exist_ok=True, parents=True)
            (folder / file.filename).write_bytes(await file.read())
            return JSONResponse({"name": file.filename, "subfolder": "", "type": form.get("type", "input")})

    async def _view(self, request: Request) -> Response:
        query = request.query_params
        path = self.folder / query["type"] / query.get("subfolder", "") / query["filename"]
        return FileResponse(path) if path.is_file() else Response(status_code=404)

    async def _listen(self, socket: WebSocket) -> None:
        await socket.accept()
        client_id = socket.query_params["clientId"]
        self.sockets[client_id] = socket
        with suppress(WebSocketDisconnect):
            while True:
                await socket.receive_text()
        self.sockets.pop(client_id, None)

    async def _send(self, prompt: Prompt, name: str, **data: Any) -> None:
        await self._send_raw(prompt, json.dumps({"type": name, "data": {"prompt_id": prompt.id, **data}}))

    async def _send_raw(self, prompt: Prompt, message: str | bytes) -> None:
        socket = self.sockets.get(prompt.client_id or "")
        if socket is None or self.silent:
            return
        with suppress(RuntimeError, WebSocketDisconnect):
            await (socket.send_bytes(message) if isinstance(message, bytes) else socket.send_text(message))

    async def work(self) -> None:
        """Runs the prompts one after the other, as the worker thread does."""
        while True:
            while not self.waiting:
                self._wake.clear()
                await self._wake.wait()
            self.running, self._interrupt = self.waiting.pop(0), False
            prompt = self.running
            outputs: dict[str, Any] = {}
            messages: list[Any] = [["execution_start", {"prompt_id": prompt.id}]]
            await self._send(prompt, "execution_start")
            try:
                await self._execute(prompt, outputs)
            except _Interrupted:
                messages.append(["execution_interrupted", {"prompt_id": prompt.id}])
                await self._send(prompt, "execution_interrupted")
            except ValueError:
                assert self.error is not None
                details = {"node_id": "3", "node_type": "KSampler", "traceback": ["File /secret/nodes.py"]}
                details |= {"exception_type": self.error[0], "exception_message": self.error[1]}
                messages.append(["execution_error", details])
                await self._send(prompt, "execution_error", **details)
            else:
                messages.append(["execution_success", {"prompt_id": prompt.id}])
                await self._send(prompt, "execution_success")
            completed = messages[-1][0] == "execution_success"
            status = {"status_str": "success" if completed else "error", "completed": completed, "messages": messages}
            self.history[prompt.id] = {"outputs": outputs, "status": status}
            self.running = None
            await self._send(prompt, "executing", node=None)

    async def _execute(self, prompt: Prompt, outputs: dict[str, Any]) -> None:
        keys = {node: json.dumps(each, sort_keys=True) for node, each in prompt.graph.items()}
        key = json.dumps(keys, sort_keys=True)
        if key in self._cache:
            await self._send(prompt, "execution_cached", nodes=list(prompt.graph))
            outputs |= self._cache[key]
            return
        await self._send(prompt, "execution_cached", nodes=[])
        for node, each in sorted(prompt.graph.items()):
            await self._send(prompt, "executing", node=node)
            if self.dies_at == node:
                await asyncio.Event().wait()
            if each["class_type"] == "KSampler":
                await self._sample(prompt, node, each["inputs"]["steps"])
            elif each["class_type"].startswith("Save"):
                outputs[node] = self._save(prompt, each["inputs"]["filename_prefix"])
        self._cache[key] = dict(outputs)

    async def _sample(self, prompt: Prompt, node: str, steps: int) -> None:
        for step in range(1, steps + 1):
            await asyncio.sleep(self.step_s)
            if self._interrupt:
                raise _Interrupted
            if self.error is not None:
                raise ValueError
            await self._send(prompt, "progress", node=node, value=step, max=steps)
            metadata = json.dumps({"prompt_id": prompt.id, "node_id": node}).encode()
            await self._send_raw(
                prompt, struct.pack(">II", 4, len(metadata)) + metadata + _image(32, 32, 0, {}, "JPEG")
            )

    def _save(self, prompt: Prompt, prefix: str) -> dict[str, Any]:
        sampler = next((each["inputs"] for each in prompt.graph.values() if "seed" in each["inputs"]), {"seed": 0})
        size = next((each["inputs"] for each in prompt.graph.values() if "width" in each["inputs"]), {})
        subfolder, _, stem = prefix.rpartition("/")
        folder = self.folder / "output" / subfolder
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for number in range(size.get("batch_size", 1)):
            name = f"{stem}_{len(list(folder.iterdir())):05}_.png"
            metadata = {"prompt": json.dumps(prompt.graph)}
            data = _image(size.get("width", 64), size.get("height", 64), sampler["seed"] + number, metadata, "PNG")
            (folder / name).write_bytes(data)
            files.append({"filename": name, "subfolder": subfolder, "type": "output"})
        return {"images": files}


def _image(width: int, height: int, seed: int, metadata: dict[str, str], image_format: str) -> bytes:
    shade = np.random.default_rng(seed).integers(0, 256, 3, dtype=np.uint8)
    text, file = PngInfo(), io.BytesIO()
    for name, value in metadata.items():
        text.add_text(name, value)
    options = {"pnginfo": text} if image_format == "PNG" else {}
    Image.fromarray(np.tile(shade, (height, width, 1))).save(file, image_format, **options)
    return file.getvalue()


@asynccontextmanager
async def serving_comfy(server: ComfyServer) -> AsyncIterator[ComfyServer]:
    """Runs the server in this event loop, at `server.url`."""
    port = int(server.url.rpartition(":")[2]) if server.url else free_port()
    config = uvicorn.Config(server.app, port=port, log_level="critical", timeout_graceful_shutdown=0)
    runner, worker = uvicorn.Server(config), asyncio.create_task(server.work())
    task = asyncio.create_task(runner.serve())
    while not runner.started:
        await asyncio.sleep(0.01)
    server.url = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        worker.cancel()
        runner.should_exit = runner.force_exit = True
        await task


async def _main(port: str, folder: str, step_s: str) -> None:
    async with serving_comfy(ComfyServer(Path(folder), float(step_s), url=f"http://127.0.0.1:{port}")):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
