"""Ray Serve with `@serve.batch`: requests wait for their image and are drawn in batches.

It follows Ray Serve's guide to dynamic request batching and its tutorial for Stable Diffusion, which answers with the
image. The method draws in a thread, so that the next batch gathers meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import ray
from ray import serve
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from benchmarks.peers.request import PID, PeerRequest, PeerSettings
from benchmarks.peers.stock import StockPipeline

settings = PeerSettings.from_environment()


@serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus": 1})
class RayServeImages:
    def __init__(self) -> None:
        self._pipeline = StockPipeline(settings.checkpoint, int(settings.threads))

    @serve.batch(max_batch_size=int(settings.max_batch), batch_wait_timeout_s=0.01)
    async def draw(self, requests: list[PeerRequest]) -> list[bytes]:
        return await asyncio.to_thread(self._pipeline.draw_batch, requests)

    async def __call__(self, request: HttpRequest) -> Response:
        jpeg: Any = await self.draw(PeerRequest(**await request.json()))  # pyright: ignore[reportArgumentType]: one of a list
        return Response(jpeg, media_type="image/jpeg", headers={PID: str(os.getpid())})


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(settings.port)})
    serve.run(RayServeImages.bind(), name="images")  # pyright: ignore[reportAttributeAccessIssue]: made by the decorator
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
