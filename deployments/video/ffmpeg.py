"""How ffmpeg is called, and what is said when it fails."""

from __future__ import annotations

import re
from pathlib import Path
from typing import IO, Final

_SPEAKER: Final = re.compile(r"^\[[^\]]*\] *")
"""Which part of ffmpeg complains, and its address in memory."""


class VideoError(Exception):
    """A video or sound that can't be read or written. The message is plain text without paths."""


def command(*arguments: str) -> list[str]:
    """ffmpeg, which reads no terminal, says only what went wrong and stops at the first thing that did."""
    # Large, and of no use to models of pictures: they run without it.
    from imageio_ffmpeg import get_ffmpeg_exe

    return [get_ffmpeg_exe(), "-nostdin", "-hide_banner", "-y", "-v", "error", "-xerror", *arguments]


def complaint(stderr: IO[bytes], *files: Path) -> str:
    """The first line that ffmpeg wrote to `stderr`, without the names of `files`; empty where it was silent."""
    stderr.seek(0)
    first = stderr.readline().decode(errors="replace").strip()
    while _SPEAKER.match(first):
        first = _SPEAKER.sub("", first)
    for file in files:
        first = first.replace(str(file), "the file")
    return first
