"""The decoder process: `python -m serve_app.inputs.decoder_process MEMORY` decodes clients' files.

It reads requests from its input and writes replies to its output, until its input ends. Each is a line of JSON, whose
`size` is the number of bytes that follow it. The process writes no file and has MEMORY bytes of address space. The
kernel kills it if a file takes more than `cpu_s` seconds of CPU time.

    {"encoding": "file" | "text" | "base64", "max_bytes", "max_pixels", "cpu_s", "size"} and the file or text
    {"width", "height", "has_alpha", "size"} and the image; for "base64" {"size"} and the file
    {"refused": reason, "size": 0}
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from typing import Any, BinaryIO

from serve_app.inputs.images import InputImage, InvalidFile, decode_base64, decode_image, read_image
from serve_app.inputs.settings import ImageLimits


def main() -> None:
    _confine(int(sys.argv[1]))
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        request = json.loads(line)
        _reply(target, request, source.read(request["size"]))
        del request


def _confine(memory: int) -> None:
    # The processes that answer requests have precedence.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    for name, limit in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(name, (limit, limit))


def _reply(target: BinaryIO, request: dict[str, Any], data: bytes) -> None:
    limits = ImageLimits(max_bytes=request["max_bytes"], max_pixels=request["max_pixels"], cpu_s=request["cpu_s"])
    _limit_cpu(limits.cpu_s)
    reply: dict[str, Any] = {}
    body = b""
    try:
        decoded = _decode(request["encoding"], data, limits)
    except InvalidFile as problem:
        reply = {"refused": str(problem)}
    else:
        if isinstance(decoded, InputImage):
            reply = {"width": decoded.width, "height": decoded.height, "has_alpha": decoded.has_alpha}
            body = decoded.data
        else:
            body = decoded
    target.write(json.dumps(reply | {"size": len(body)}).encode() + b"\n")
    target.write(body)
    target.flush()


def _decode(encoding: str, data: bytes, limits: ImageLimits) -> InputImage | bytes:
    if encoding == "base64":
        return decode_base64(data, limits.max_bytes)
    return read_image(data, limits) if encoding == "file" else decode_image(data, limits)


def _limit_cpu(seconds: int) -> None:
    """Allows `seconds` of CPU time more. RLIMIT_CPU counts from the start of the process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(usage.ru_utime + usage.ru_stime) + seconds, hard))


if __name__ == "__main__":
    main()
