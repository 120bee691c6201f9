"""The decoder process: `python -m serve_app.inputs.decoder_process MEMORY` decodes clients' files.

It reads requests from its input and writes replies to its output, until its input ends. Each is a line of JSON, which
tells under `size` how many bytes follow it. It writes no file, has MEMORY bytes of address space, and for each file so
many seconds of a processor as the request says; then the kernel ends it.

    {"work": "file" | "text" | "base64", "max_bytes", "max_pixels", "cpu_s", "size"} and the file, or the text it is in
    {"width", "height", "has_alpha", "size"} and the image; of "base64" {"size"} and the file
    {"refused": why, "size": 0}
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from typing import Any, BinaryIO

from serve_app.inputs.images import InputImage, Unreadable, decode_base64, decode_image, read_image
from serve_app.inputs.settings import ImageLimits


def main() -> None:
    _confine(int(sys.argv[1]))
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        request = json.loads(line)
        _reply(target, request, source.read(request["size"]))
        del request


def _confine(memory: int) -> None:
    # What answers requests goes first: no client waits for another's images.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    for limit, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (most, most))


def _reply(target: BinaryIO, request: dict[str, Any], data: bytes) -> None:
    limits = ImageLimits(max_bytes=request["max_bytes"], max_pixels=request["max_pixels"], cpu_s=request["cpu_s"])
    _give_time(limits.cpu_s)
    reply: dict[str, Any] = {}
    body = b""
    try:
        done = _done(request["work"], data, limits)
    except Unreadable as problem:
        reply = {"refused": str(problem)}
    else:
        if isinstance(done, InputImage):
            reply = {"width": done.width, "height": done.height, "has_alpha": done.has_alpha}
            body = done.data
        else:
            body = done
    target.write(json.dumps(reply | {"size": len(body)}).encode() + b"\n")
    target.write(body)
    target.flush()


def _done(work: str, data: bytes, limits: ImageLimits) -> InputImage | bytes:
    if work == "base64":
        return decode_base64(data, limits.max_bytes)
    return read_image(data, limits) if work == "file" else decode_image(data, limits)


def _give_time(seconds: int) -> None:
    """The limit counts from the start of the process: it moves on with every file."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(usage.ru_utime + usage.ru_stime) + seconds, hard))


if __name__ == "__main__":
    main()
