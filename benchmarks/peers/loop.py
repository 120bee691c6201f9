"""The stock pipeline in a loop, picture after picture: what a script does, and the yardstick for all others.

The documented call of a diffusers pipeline, its picture encoded and written to a file. Lines of requests come in, lines
of facts go out, in the same order.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.peers.answer import facts, request_of
from benchmarks.peers.settings import PeerSettings
from benchmarks.peers.stock import StockPipeline, save


def serve(settings: PeerSettings) -> None:
    pipeline = StockPipeline(settings.checkpoint, settings.threads)
    print("loaded", flush=True)
    for number, line in enumerate(sys.stdin):
        picture = pipeline.draw(request_of(json.loads(line)))
        path = save(picture, Path(settings.folder), str(number))
        print(json.dumps(facts(picture) | {"path": str(path)}), flush=True)


if __name__ == "__main__":
    serve(PeerSettings.of_environment())
