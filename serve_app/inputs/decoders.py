"""Pool of decoder processes, shared fairly between organizations."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from io import BufferedReader, BufferedWriter
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

from serve_app.inputs.images import InputImage, InvalidFile, check_length
from serve_app.inputs.settings import IMAGES, ImageLimits

T = TypeVar("T")


class FairThreadPool:
    """Thread pool that serves waiting owners in turn, each with at most `per_owner` threads. For one event loop."""

    def __init__(self, threads: int, per_owner: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads
        self._per_owner = per_owner
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting calls by owner; the owner served last comes last."""

    async def run(self, owner: str, work: Callable[[], T]) -> T:
        """Returns the result of `work`. Its thread counts as busy until it ends, even if this call is cancelled."""
        loop = asyncio.get_running_loop()
        await self._acquire(owner)
        running = self._threads.submit(work)

        def on_done(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._release, owner)

        running.add_done_callback(on_done)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Does not wait for running work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _acquire(self, owner: str) -> None:
        call = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(call)
        self._assign()
        try:
            await call
        except asyncio.CancelledError:
            if not call.cancelled():  # it got a thread a moment ago
                self._release(owner)
            raise

    def _release(self, owner: str) -> None:
        self._free += 1
        self._busy -= Counter((owner,))
        self._assign()

    def _assign(self) -> None:
        """Assigns free threads to waiting owners in turn."""
        while self._free:
            owner = next((each for each in self._waiting if self._busy[each] < self._per_owner), None)
            if owner is None:
                return
            calls = self._waiting.pop(owner)
            while calls and calls[0].cancelled():
                calls.popleft()
            if calls:
                self._free -= 1
                self._busy[owner] += 1
                calls.popleft().set_result(None)
            if calls:
                self._waiting[owner] = calls


Encoding: TypeAlias = Literal["file", "text", "base64"]

MEMORY: Final = 1024 * 2**20
"""Bytes of address space of one process: several times the need of the largest image."""
_CLOCK_PER_CPU: Final = 15
"""Seconds on the clock per second of CPU time: other processes may keep the processors busy."""
_CHUNK: Final = 2**20
"""Characters or bytes of one write. Other threads run between writes."""


class _DecoderLost(Exception):
    """The process ended before it answered. `by_limit`: because of the file's limits."""

    def __init__(self, by_limit: bool) -> None:
        super().__init__()
        self.by_limit = by_limit


class Decoders:
    """Starts processes on demand and replaces those that die. For one event loop."""

    def __init__(self, processes: int | None) -> None:
        """An owner has at most half of the processes at a time. None stands for 2 to 4, by the number of CPUs."""
        processes = processes or max(2, min(4, len(os.sched_getaffinity(0)) - 1))
        self._threads = FairThreadPool(processes, max(1, processes // 2), "decoders")
        self._idle: list[_Process] = []
        self._closed = False

    async def image(self, file: str | bytes, owner: str, limits: ImageLimits) -> InputImage:
        """Decodes an image: bytes of a file, or text that is base64 or a `data:` URI. Raises InvalidFile."""
        reply, data = await self._decode("text" if isinstance(file, str) else "file", file, owner, limits)
        return InputImage(data, reply["width"], reply["height"], reply["has_alpha"])

    async def base64(self, text: str, owner: str, max_bytes: int) -> bytes:
        """Decodes base64 or a `data:` URI. Raises InvalidFile."""
        return (await self._decode("base64", text, owner, replace(IMAGES, max_bytes=max_bytes)))[1]

    def close(self) -> None:
        self._closed = True
        self._threads.close()
        while self._idle:
            self._idle.pop().close()

    async def _decode(
        self, encoding: Encoding, file: str | bytes, owner: str, limits: ImageLimits
    ) -> tuple[dict[str, Any], bytes]:
        return await self._threads.run(owner, lambda: self._call_process(encoding, file, limits))

    def _call_process(self, encoding: Encoding, file: str | bytes, limits: ImageLimits) -> tuple[dict[str, Any], bytes]:
        """Calls an idle or a new process, and another one if that was lost through no fault of the file."""
        if isinstance(file, str):
            check_length(len(file), limits.max_bytes)
            if not file.isascii():
                raise InvalidFile("not valid base64")
        for is_last in (False, True):
            process = self._idle.pop() if self._idle else _Process()
            try:
                reply, body = process.call(encoding, file, limits)
            except _DecoderLost as failure:
                process.close()
                if is_last or failure.by_limit:
                    raise InvalidFile("the file takes too much work to decode") from None
                continue
            self._idle.append(process)
            if self._closed:
                self.close()
            if "refused" in reply:
                raise InvalidFile(reply["refused"])
            return reply, body
        raise AssertionError


class _Process:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "serve_app.inputs.decoder_process", str(MEMORY)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def call(self, encoding: Encoding, file: str | bytes, limits: ImageLimits) -> tuple[dict[str, Any], bytes]:
        """Raises _DecoderLost."""
        image_limits = {"max_bytes": limits.max_bytes, "max_pixels": limits.max_pixels, "cpu_s": limits.cpu_s}
        request = {"encoding": encoding, "size": len(file), **image_limits}
        timed_out = threading.Event()

        def kill() -> None:
            timed_out.set()
            self._process.kill()

        timer = threading.Timer(_CLOCK_PER_CPU * limits.cpu_s, kill)
        timer.daemon = True
        timer.start()
        try:
            stdin, stdout = cast(BufferedWriter, self._process.stdin), cast(BufferedReader, self._process.stdout)
            stdin.write(json.dumps(request).encode() + b"\n")
            for start in range(0, len(file), _CHUNK):
                chunk = file[start : start + _CHUNK]
                stdin.write(chunk.encode() if isinstance(chunk, str) else chunk)
            stdin.flush()
            reply = json.loads(stdout.readline())
            body = stdout.read(reply["size"])
            if len(body) < reply["size"]:
                raise EOFError
        except (OSError, EOFError, ValueError):
            code = self._process.wait()
            raise _DecoderLost(by_limit=timed_out.is_set() or code == -signal.SIGXCPU) from None
        finally:
            timer.cancel()
        return reply, body

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()  # unlike `stdin.close()`, it ignores the error of unsent bytes
