"""The pool of decoder processes, with fair turns between organizations."""

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

from serve_app.inputs.images import InputImage, Unreadable, check_length
from serve_app.inputs.settings import IMAGES, ImageLimits

T = TypeVar("T")


class FairThreads:
    """Owners who wait for a thread take turns, and none has more than `per_owner` at a time. For one event loop."""

    def __init__(self, threads: int, per_owner: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads
        self._per_owner = per_owner
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Whoever had a turn last is last."""

    async def run(self, owner: str, work: Callable[[], T]) -> T:
        """What `work` comes to. Its thread counts as taken until it ends, also where nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        await self._turn(owner)
        running = self._threads.submit(work)

        def on_done(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and with it every wait
                loop.call_soon_threadsafe(self._end, owner)

        running.add_done_callback(on_done)
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """Waits for no work that is under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, owner: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._forget(owner, turn)
            else:
                self._end(owner)
            raise

    def _end(self, owner: str) -> None:
        self._free += 1
        self._busy -= Counter((owner,))
        self._give()

    def _give(self) -> None:
        """Every free thread to an owner who waits and has none too many, in turn."""
        while self._free:
            owner = next((each for each in self._waiting if self._busy[each] < self._per_owner), None)
            if owner is None:
                return
            turns = self._waiting.pop(owner)
            turn = turns.popleft()
            if turns:
                self._waiting[owner] = turns
            if not turn.cancelled():
                self._free -= 1
                self._busy[owner] += 1
                turn.set_result(None)

    def _forget(self, owner: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(owner)
        if turns and turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[owner]


Work: TypeAlias = Literal["file", "text", "base64"]

MEMORY: Final = 1024 * 2**20
"""Bytes of address space of one process: several times what the largest image takes."""
_PATIENCE: Final = 15
"""So many times a file's seconds of a processor it may take on the clock, where others keep the processors busy."""


_PIECE: Final = 2**20
"""Characters or bytes that are written at once, so that other threads have their turns in between."""


class _DecoderGone(Exception):
    """The process is gone before it answered; `by_limit`: for what it was given to do."""

    def __init__(self, by_limit: bool) -> None:
        super().__init__()
        self.by_limit = by_limit


class Decoders:
    """They start when they are needed first, and one that took too much is replaced. For one event loop."""

    def __init__(self, processes: int | None) -> None:
        """One owner has at most half of them at a time, and at least one. None: one less than there are processors, and
        2 to 4."""
        processes = processes or max(2, min(4, len(os.sched_getaffinity(0)) - 1))
        self._threads = FairThreads(processes, max(1, processes // 2), "decoders")
        self._idle: list[_Process] = []
        self._closed = False

    async def image(self, file: str | bytes, owner: str, limits: ImageLimits) -> InputImage:
        """The image in a file, or in text as base64 or a `data:` URI. Raises Unreadable."""
        reply, data = await self._decode("text" if isinstance(file, str) else "file", file, owner, limits)
        return InputImage(data, reply["width"], reply["height"], reply["has_alpha"])

    async def base64(self, text: str, owner: str, max_bytes: int) -> bytes:
        """The file in base64 or a `data:` URI. Raises Unreadable."""
        return (await self._decode("base64", text, owner, replace(IMAGES, max_bytes=max_bytes)))[1]

    def close(self) -> None:
        self._closed = True
        self._threads.close()
        while self._idle:
            self._idle.pop().close()

    async def _decode(
        self, work: Work, file: str | bytes, owner: str, limits: ImageLimits
    ) -> tuple[dict[str, Any], bytes]:
        reply, body = await self._threads.run(owner, lambda: self._answer(work, file, limits))
        if "refused" in reply:
            raise Unreadable(reply["refused"])
        return reply, body

    def _answer(self, work: Work, file: str | bytes, limits: ImageLimits) -> tuple[dict[str, Any], bytes]:
        """Of a process that is idle, or a new one. A second try where one was lost through no fault of the file."""
        if isinstance(file, str):
            check_length(len(file), limits.max_bytes)
            if not file.isascii():
                raise Unreadable("not valid base64")
        for last in (False, True):
            process = self._idle.pop() if self._idle else _Process()
            try:
                answer = process.ask(work, file, limits)
            except _DecoderGone as failure:
                process.close()
                if last or failure.by_limit:
                    return {"refused": "the file takes too much work to decode"}, b""
            else:
                self._idle.append(process)
                if self._closed:
                    self.close()
                return answer
        raise AssertionError


class _Process:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "serve_app.inputs.decoder_process", str(MEMORY)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, work: Work, file: str | bytes, limits: ImageLimits) -> tuple[dict[str, Any], bytes]:
        """Raises _DecoderGone."""
        image_limits = {"max_bytes": limits.max_bytes, "max_pixels": limits.max_pixels, "cpu_s": limits.cpu_s}
        request = {"work": work, "size": len(file), **image_limits}
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        clock = threading.Timer(_PATIENCE * limits.cpu_s, end)
        clock.daemon = True
        clock.start()
        try:
            stdin, stdout = cast(BufferedWriter, self._process.stdin), cast(BufferedReader, self._process.stdout)
            stdin.write(json.dumps(request).encode() + b"\n")
            for start in range(0, len(file), _PIECE):
                piece = file[start : start + _PIECE]
                stdin.write(piece.encode() if isinstance(piece, str) else piece)
            stdin.flush()
            reply = json.loads(stdout.readline())
            body = stdout.read(reply["size"])
            if len(body) < reply["size"]:
                raise EOFError
        except (OSError, EOFError, ValueError):
            code = self._process.wait()
            raise _DecoderGone(by_limit=late.is_set() or code == -signal.SIGXCPU) from None
        finally:
            clock.cancel()
        return reply, body

    def close(self) -> None:
        self._process.kill()
        # Closing what it read from may fail, where something was still on its way.
        self._process.communicate()
