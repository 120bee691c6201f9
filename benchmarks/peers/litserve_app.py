"""LitServe with batching on: requests wait for their image, and are drawn as many at a time as there are.

After LitServe's guide to batching (`max_batch_size`, `batch_timeout`, `predict` of a list), with the image as the
answer as in its examples of image generation. Workers that died are started again (`restart_workers`), and requests
may wait as long as they must (`timeout=False`), as its reference says for slow models.
"""

from __future__ import annotations

import os

import litserve  # pyright: ignore[reportMissingImports]: only the peers' environment has it
from fastapi.responses import Response

from benchmarks.peers.request import PID, PeerSettings, Request
from benchmarks.peers.stock import StockPipeline


class Images(litserve.LitAPI):
    def setup(self, device: str) -> None:
        settings = PeerSettings.from_environment()
        self._pipeline = StockPipeline(settings.checkpoint, int(settings.threads))

    def decode_request(self, request) -> Request:
        """Without a type LitServe hands over the JSON of the body; postponed ones it takes for query parameters."""
        return Request(**request)

    def batch(self, inputs: list[Request]) -> list[Request]:
        return list(inputs)

    def predict(self, x: list[Request]) -> list[bytes]:
        return self._pipeline.draw_batch(x)

    def unbatch(self, output: list[bytes]) -> list[bytes]:
        return output

    def encode_response(self, output) -> Response:
        return Response(output, media_type="image/jpeg", headers={PID: str(os.getpid())})


def main() -> None:
    settings = PeerSettings.from_environment()
    images = Images(max_batch_size=int(settings.max_batch), batch_timeout=0.01, api_path="/images")
    server = litserve.LitServer(images, accelerator="cpu", timeout=False, restart_workers=True)
    server.run(host="127.0.0.1", port=int(settings.port), generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()
