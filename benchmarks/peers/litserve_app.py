"""LitServe with batching: requests wait for their image and are drawn in batches.

It follows LitServe's guide to batching (`max_batch_size`, `batch_timeout`, `predict` of a list), and its examples of
image generation, which answer with the image. Dead workers restart (`restart_workers`), and requests wait without a
limit (`timeout=False`), as its reference says for slow models.
"""

from __future__ import annotations

import os

import litserve  # pyright: ignore[reportMissingImports]: only the peers' environment has it
from fastapi.responses import Response

from benchmarks.peers.request import PID, PeerRequest, PeerSettings
from benchmarks.peers.stock import StockPipeline


class LitServeImages(litserve.LitAPI):
    def setup(self, device: str) -> None:
        settings = PeerSettings.from_environment()
        self._pipeline = StockPipeline(settings.checkpoint, int(settings.threads))

    def decode_request(self, request) -> PeerRequest:
        # LitServe passes the body's JSON to an untyped parameter, and takes a postponed type for query parameters.
        return PeerRequest(**request)

    def batch(self, inputs: list[PeerRequest]) -> list[PeerRequest]:
        return list(inputs)

    def predict(self, x: list[PeerRequest]) -> list[bytes]:
        return self._pipeline.draw_batch(x)

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        return output

    def encode_response(self, output) -> Response:
        return Response(output, media_type="image/jpeg", headers={PID: str(os.getpid())})


def main() -> None:
    settings = PeerSettings.from_environment()
    images = LitServeImages(max_batch_size=int(settings.max_batch), batch_timeout=0.01, api_path="/images")
    server = litserve.LitServer(images, accelerator="cpu", timeout=False, restart_workers=True)
    server.run(host="127.0.0.1", port=int(settings.port), generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()
