"""Processes that decode what clients sent (`decoder.py`), as many at a time as there are, in fair turns."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from io import BufferedReader, BufferedWriter
from typing import Any, Final, Literal, TypeAlias, cast

from serve_app.media.data_uri import Unreadable, check_length
from serve_app.media.decoding import InputPicture
from serve_app.media.fair_threads import FairThreads
from serve_app.media.limits import PICTURES, PictureLimits

Work: TypeAlias = Literal["file", "text", "base64"]

MEMORY: Final = 1024 * 2**20
"""Bytes of address space of one process: several times what the largest picture takes."""
_PATIENCE: Final = 6
"""So many times a file's seconds of a processor it may take on the clock, where others keep the processors busy."""


class _Ended(Exception):
    """The process is gone before it answered; `by_limit`: for what it was given to do."""

    def __init__(self, by_limit: bool) -> None:
        super().__init__()
        self.by_limit = by_limit


class Decoders:
    """They start when they are needed first, and one that took too much is replaced. For one event loop."""

    def __init__(self, processes: int) -> None:
        """One owner has at most half of them at a time, and at least one."""
        self._threads = FairThreads(processes, max(1, processes // 2), "decoders")
        self._idle: list[_Process] = []
        self._closed = False

    async def picture(self, sent: str | bytes, owner: str, limits: PictureLimits) -> InputPicture:
        """The picture in a file, or in text as base64 or a `data:` URI. Raises Unreadable."""
        told, data = await self._decode("text" if isinstance(sent, str) else "file", sent, owner, limits)
        return InputPicture(data, told["width"], told["height"], told["has_alpha"])

    async def base64(self, text: str, owner: str, max_bytes: int) -> bytes:
        """The file in base64 or a `data:` URI. Raises Unreadable."""
        return (await self._decode("base64", text, owner, replace(PICTURES, max_bytes=max_bytes)))[1]

    def close(self) -> None:
        self._closed = True
        self._threads.close()
        while self._idle:
            self._idle.pop().close()

    async def _decode(
        self, work: Work, sent: str | bytes, owner: str, limits: PictureLimits
    ) -> tuple[dict[str, Any], bytes]:
        told, decoded = await self._threads.run(owner, lambda: self._answer(work, sent, limits))
        if "refused" in told:
            raise Unreadable(told["refused"])
        return told, decoded

    def _answer(self, work: Work, sent: str | bytes, limits: PictureLimits) -> tuple[dict[str, Any], bytes]:
        """Of a process that is idle, or a new one. A second try where one was lost through no fault of the file."""
        data = _ascii(sent, limits.max_bytes) if isinstance(sent, str) else sent
        for last in (False, True):
            process = self._idle.pop() if self._idle else _Process()
            try:
                answer = process.ask(work, data, limits)
            except _Ended as ended:
                process.close()
                if last or ended.by_limit:
                    return {"refused": "the file takes too much work to decode"}, b""
            else:
                self._idle.append(process)
                if self._closed:
                    self.close()
                return answer
        raise AssertionError


class _Process:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "serve_app.media.decoder", str(MEMORY)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, work: Work, data: bytes, limits: PictureLimits) -> tuple[dict[str, Any], bytes]:
        """Raises _Ended."""
        bounds = {"max_bytes": limits.max_bytes, "max_pixels": limits.max_pixels, "cpu_s": limits.cpu_s}
        request = {"work": work, "size": len(data), **bounds}
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        clock = threading.Timer(_PATIENCE * limits.cpu_s, end)
        clock.daemon = True
        clock.start()
        try:
            to, of = cast(BufferedWriter, self._process.stdin), cast(BufferedReader, self._process.stdout)
            to.write(json.dumps(request).encode() + b"\n")
            to.write(data)
            to.flush()
            told = json.loads(of.readline())
            decoded = of.read(told["size"])
            if len(decoded) < told["size"]:
                raise EOFError
        except (OSError, EOFError, ValueError):
            code = self._process.wait()
            raise _Ended(by_limit=late.is_set() or code == -signal.SIGXCPU) from None
        finally:
            clock.cancel()
        return told, decoded

    def close(self) -> None:
        self._process.kill()
        # Closing what it read from may fail, where something was still on its way.
        self._process.communicate()


def _ascii(text: str, max_bytes: int) -> bytes:
    check_length(len(text), max_bytes)
    if not text.isascii():
        raise Unreadable("not valid base64")
    return text.encode()
