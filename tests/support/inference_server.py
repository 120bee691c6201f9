"""A fake inference server with the APIs of vLLM-Omni 0.30 and SGLang-Diffusion 0.5, without a model.

`python -m support.inference_server PORT KIND SECONDS` runs it with jobs of that many seconds. `serving` runs it in a
test's process, which can set its `faults`. It keeps jobs in memory, as the real ones do.
"""

from __future__ import annotations

import asyncio
import base64
import io
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.video.writer import AUDIO_RATE, Audio, VideoWriter
from serve_app.launcher.embedded_redis import free_port


@dataclass
class Video:
    fields: dict[str, Any]
    task: asyncio.Task[None]
    status: str = "queued"
    progress: int = 0
    url: str | None = None
    deletions: int = 0


@dataclass
class InferenceServer:
    kind: str
    seconds: float = 0.0
    healthy: bool = True
    faults: deque[Response] = field(default_factory=deque)
    """Responses to the next requests, in place of its own."""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Path and fields of each request; a file's field is (name, size)."""
    videos: dict[str, Video] = field(default_factory=dict)
    aborted: list[str] = field(default_factory=list)
    audio: bool = True
    access: Response | None = None
    """Response to requests for models and credits, in place of a success."""
    failure: Response | None = None
    """Response to polls of a failed video: vLLM-Omni answers with the status of the failure. Makes videos fail."""
    moves_videos: bool = False
    """Videos are moved to a storage of the server's, as SGLang does."""
    progress_steps: bool = False
    """The server reports progress of videos, as SGLang does since 0.5.23."""
    url: str = ""

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/healthz" if self.kind == "gen-serve" else "/health", self.health),
                Route("/requests", self.list_requests),
                Route("/v1/models", self.list_models),
                Route("/v1/credits", self.list_models),
                Route("/storage/{id}", self.get_content),
                Route("/v1/images/generations", self.generate, methods=["POST"]),
                Route("/v1/images/edits", self.generate, methods=["POST"]),
                Route("/v1/videos", self.create_video, methods=["POST"]),
                Route("/v1/videos/{id}", self.get_video),
                Route("/v1/videos/{id}", self.delete_video, methods=["DELETE"]),
                Route("/v1/videos/{id}/content", self.get_content),
            ]
        )

    async def health(self, request: Request) -> Response:
        return Response(status_code=200 if self.healthy else 503)

    async def list_models(self, request: Request) -> Response:
        return self.access or JSONResponse({"data": [], "credits": 1.0})

    async def list_requests(self, request: Request) -> Response:
        return JSONResponse([path for path, _ in self.requests])

    async def generate(self, request: Request) -> Response:
        fields = await self._fields(request)
        if self.faults:
            return self.faults.popleft()
        if too_long := [name for name, value in fields.items() if isinstance(value, str) and len(value) > 2**20]:
            return JSONResponse({"detail": f"Part exceeded maximum size of 1024KB: {too_long[0]}"}, 400)
        if request.url.path.endswith("/edits") and not fields.get("image"):
            return JSONResponse({"detail": "Field 'image' or 'url' is required"}, 422)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.aborted.append(fields["prompt"])
            raise
        width, height = map(int, fields["size"].split("x"))
        shade = np.random.default_rng(int(fields.get("seed", 0))).integers(0, 256, 3, dtype=np.uint8)
        file = io.BytesIO()
        is_png = self.kind != "sglang" or fields.get("output_format") == "png"
        Image.fromarray(np.tile(shade, (height, width, 1))).save(file, "PNG" if is_png else "JPEG")
        image = {"b64_json": base64.b64encode(file.getvalue()).decode(), "url": None, "revised_prompt": None}
        return JSONResponse({"created": 1701234567, "data": [image]})

    async def create_video(self, request: Request) -> Response:
        fields = await self._fields(request)
        if self.faults:
            return self.faults.popleft()
        is_form = request.headers["content-type"].startswith("multipart/form-data")
        if self.kind == "sglang" and is_form and "input_reference" not in fields:
            return JSONResponse({"detail": "input_reference file is required"}, 400)
        if self.kind == "vllm-omni" and not is_form:
            return JSONResponse({"detail": [{"loc": ["body", "prompt"], "msg": "field required"}]}, 422)
        video_id = f"video-{len(self.videos)}"
        self.videos[video_id] = Video(fields, asyncio.create_task(self._make(video_id)))
        return JSONResponse({"id": video_id, "object": "video", "status": "queued", "progress": 0})

    async def get_video(self, request: Request) -> Response:
        video = self.videos.get(video_id := request.path_params["id"])
        if video is None:
            return JSONResponse({"detail": "Video not found"}, 404)
        if self.failure is not None:
            return self.failure
        status = {"id": video_id, "status": video.status, "progress": video.progress}
        return JSONResponse(status | ({"url": video.url} if video.url else {}))

    async def delete_video(self, request: Request) -> Response:
        video = self.videos.get(video_id := request.path_params["id"])
        if video is None:
            return JSONResponse({"detail": "Video not found"}, 404)
        video.deletions += 1
        if self.kind == "vllm-omni" and video.status == "in_progress" and video.deletions == 1:
            video.task.cancel()
            return JSONResponse({"detail": "Cancellation in progress"}, 409)
        del self.videos[video_id]
        if video.status != "completed":
            video.task.cancel()
            self.aborted.append(video_id)
        return JSONResponse({"id": video_id, "object": "video.deleted", "deleted": True})

    async def get_content(self, request: Request) -> Response:
        video = self.videos.get(request.path_params["id"])
        if video is None or video.status != "completed":
            return JSONResponse({"detail": "Generation is still in-progress"}, 404)
        if self.faults:
            return self.faults.popleft()
        if video.url is not None and request.url.path.endswith("/content"):
            return JSONResponse({"detail": f"Video has been uploaded to cloud storage: {video.url}"}, 400)
        data = await asyncio.to_thread(video_file, int(video.fields.get("num_frames", 8)), audio=self.audio)
        return Response(data, media_type="video/mp4")

    async def _make(self, video_id: str) -> None:
        for tenth in range(1, 11):
            await asyncio.sleep(self.seconds / 10)
            video = self.videos[video_id]
            video.status = "in_progress"
            video.progress = 10 * tenth if self.kind == "gen-serve" or self.progress_steps else 0
        if self.moves_videos:
            self.videos[video_id].url = f"{self.url}/storage/{video_id}"
        self.videos[video_id].status = "completed"

    async def _fields(self, request: Request) -> dict[str, Any]:
        if request.headers["content-type"].startswith("multipart/form-data"):
            fields: dict[str, Any] = {}
            async with request.form() as form:
                for name, value in form.multi_items():
                    if isinstance(value, str):
                        fields[name] = value
                    else:
                        fields.setdefault(name, []).append((value.filename, value.size))
        else:
            fields = await request.json()
        self.requests.append((request.url.path, fields))
        return fields


def video_file(frames: int, *, audio: bool) -> bytes:
    """Returns a small black video."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "video.mp4"
        sound = Audio(np.zeros((2, 0), np.float32), AUDIO_RATE) if audio else None
        writer = VideoWriter(file, rendered=(16, 16), size=(64, 36), frames=frames, audio=sound, threads=1)
        writer.write(np.zeros((frames, 16, 16, 3), np.uint8))
        writer.close()
        return file.read_bytes()


@asynccontextmanager
async def serving(server: InferenceServer) -> AsyncIterator[InferenceServer]:
    """Runs the server in this event loop, at `server.url`."""
    port = int(server.url.rpartition(":")[2]) if server.url else free_port()
    runner = uvicorn.Server(uvicorn.Config(server.app, port=port, log_level="critical", timeout_graceful_shutdown=0))
    task = asyncio.create_task(runner.serve())
    while not runner.started:
        await asyncio.sleep(0.01)
    server.url = f"http://127.0.0.1:{port}"
    try:
        yield server
    finally:
        runner.should_exit = runner.force_exit = True
        await task


if __name__ == "__main__":
    uvicorn.run(InferenceServer(sys.argv[2], float(sys.argv[3])).app, port=int(sys.argv[1]), log_level="warning")
