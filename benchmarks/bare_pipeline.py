"""The stock diffusers pipeline, one picture after the other: what a script would do. Encodes and writes each file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.bare_process import BareProcess, Making, Request, serve
from benchmarks.peers.request import Request as Asked
from benchmarks.work import Work


def bare_pipeline(checkpoint: str, threads: int) -> BareProcess:
    return BareProcess(__name__, checkpoint, threads)


def load(checkpoint: str, threads: int, _: Path) -> Making:
    from benchmarks.peers.stock import StockPipeline, save

    pipeline = StockPipeline(checkpoint, threads)

    def make(requests: Sequence[Request], folder: Path) -> tuple[list[Path], list[Work]]:
        pictures = [pipeline.draw(_asked(request)) for request in requests]
        files = [save(picture, folder, str(number)) for number, picture in enumerate(pictures)]
        return files, [picture.work for picture in pictures]

    return make


def _asked(request: Request) -> Asked:
    return Asked(request["prompt"], request["width"], request["height"], request["steps"], request["seed"])


if __name__ == "__main__":
    serve(load)
