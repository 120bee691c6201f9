"""Frames, as they come, and sound to an mp4: H.264 and AAC, which every browser plays."""

from __future__ import annotations

import subprocess
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from deployments.contract.clip import FPS
from deployments.video.ffmpeg import VideoError, command, complaint
from deployments.video.sound import Sound

SOUND_RATE: Final = 48_000

_QUALITY: Final = "20"
"""x264's constant rate factor: hardly to be told from the frames."""
_SOUND_BITS: Final = "160k"
_SECONDS_BETWEEN_KEYFRAMES: Final = 2
_FINISH_S: Final = 300.0
"""To encode what is still in the pipe and to move the index to the front."""


class ClipWriter:
    """Writes `path`. Only frames under way are in memory: `write` waits while ffmpeg is behind.

    Only a clip that was closed is there for good: one that is discarded, or that nobody holds any more, is stopped and
    removed.
    """

    def __init__(
        self,
        path: Path,
        *,
        rendered: tuple[int, int],
        size: tuple[int, int],
        frames: int,
        sound: Sound | None,
        threads: int | None = None,
    ) -> None:
        """`rendered` and `size` are width and height: of the frames it is given, and of the clip (even numbers).

        `sound` is cut or followed by silence to be as long as `frames`; without it the clip has no sound track.
        """
        if frames < 1 or any(side % 2 for side in size):
            raise ValueError(f"no clip: {frames} frames of {size[0]}x{size[1]}")
        self._shape = (rendered[1], rendered[0], 3)
        self._frames = frames
        self._written = 0
        self._path = path
        wav = path.with_name(f"{path.name}.wav")
        if sound is not None:
            sound.fitted(frames / FPS).save(wav)
        # A file never fills up like a pipe would, so nobody has to read it meanwhile.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the clip
        self._process = subprocess.Popen(
            _encoding(path, rendered, size, None if sound is None else wav, threads),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
        )
        assert self._process.stdin is not None
        self._pipe = self._process.stdin
        self._wav = wav
        self._undo = weakref.finalize(self, _undo, self._process, self._pipe, self._stderr, (path, wav))

    def write(self, frames: NDArray[np.uint8]) -> None:
        """The next frames, (F, H, W, 3). Raises VideoError when ffmpeg has given up or there are too many."""
        if frames.dtype != np.uint8 or frames.shape[1:] != self._shape:
            raise ValueError(f"frames are uint8 of {self._shape}, not {frames.dtype} of {frames.shape[1:]}")
        if not self._undo.alive:
            raise VideoError("the video is no longer being written")
        self._written += len(frames)
        if self._written > self._frames:
            self.discard()
            raise VideoError(f"the video has more than the {self._frames} frames it was to have")
        try:
            for frame in frames:
                left = np.ascontiguousarray(frame).reshape(-1).data
                while left:
                    left = left[self._pipe.write(left) :]
        except (OSError, ValueError):  # a pipe that ffmpeg closed, or that was closed by `discard` meanwhile
            raise self._failure() from None

    def close(self) -> None:
        """Returns when the file is complete. Raises VideoError when it isn't what was asked for; then it's gone."""
        if not self._undo.alive:
            raise VideoError("the video is no longer being written")
        if self._written != self._frames:
            self.discard()
            raise VideoError(f"the video has {self._written} frames instead of {self._frames}")
        self._pipe.close()
        try:
            failed = self._process.wait(_FINISH_S) != 0
        except subprocess.TimeoutExpired:
            failed = True
        if failed:
            raise self._failure()
        if self._undo.detach() is None:
            raise VideoError("the video was discarded")
        self._stderr.close()
        self._wav.unlink(missing_ok=True)

    def discard(self) -> None:
        """Ends ffmpeg and removes the file, unless the clip was closed. Any thread may call it, any number of times."""
        self._undo()

    def _failure(self) -> VideoError:
        if not self._undo.alive:
            return VideoError("the video was discarded")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # it closes its pipe before it has said why
        reason = ""
        with suppress(ValueError):  # discarded meanwhile
            reason = complaint(self._stderr, self._path, self._wav)
        self.discard()
        return VideoError(f"the video can't be written: {reason or 'ffmpeg gave up'}")


def _encoding(
    path: Path, rendered: tuple[int, int], size: tuple[int, int], wav: Path | None, threads: int | None
) -> list[str]:
    width, height = rendered
    frames = ["-f", "rawvideo", "-pixel_format", "rgb24", "-video_size", f"{width}x{height}", "-framerate", str(FPS)]
    colours = "out_color_matrix=bt709:out_range=tv"
    tags = "setparams=colorspace=bt709:color_primaries=bt709:color_trc=bt709:range=tv"
    scaled = f"scale={size[0]}:{size[1]}:flags=bicubic+accurate_rnd+full_chroma_inp:{colours},setsar=1"
    picture = ["-map", "0:v", "-vf", f"{scaled},format=yuv420p,{tags}", "-c:v", "libx264", "-preset", "veryfast"]
    picture += ["-crf", _QUALITY, "-g", str(FPS * _SECONDS_BETWEEN_KEYFRAMES)]
    if threads is not None:
        picture += ["-threads", str(threads), "-filter_threads", str(threads)]
    heard = ["-map", "1:a", "-c:a", "aac", "-b:a", _SOUND_BITS, "-ar", str(SOUND_RATE), "-ac", "2"]
    inputs = [*frames, "-i", "pipe:0"] if wav is None else [*frames, "-i", "pipe:0", "-f", "wav", "-i", str(wav)]
    output = [*picture, *(heard if wav else ()), "-movflags", "+faststart", "-f", "mp4", str(path)]
    return command(*inputs, *output)


def _undo(process: subprocess.Popen[bytes], pipe: IO[bytes], stderr: IO[bytes], files: tuple[Path, ...]) -> None:
    process.kill()
    process.wait()
    with suppress(OSError):
        pipe.close()
    stderr.close()
    for file in files:
        file.unlink(missing_ok=True)
