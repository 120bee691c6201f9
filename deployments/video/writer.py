"""The video writer: encodes frames and sound to H.264 and AAC in mp4, by ffmpeg."""

from __future__ import annotations

import re
import subprocess
import tempfile
import wave
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from deployments.contract.request import FPS

_PREFIX: Final = re.compile(r"^\[[^\]]*\] *")
"""Component of ffmpeg and its memory address, before an error."""
MAX_SAMPLES: Final = 32
"""Frames of a video that moderation sees at most."""
FRAME_SIDE: Final = 512
"""Longest side of these frames in pixels."""


class VideoFileError(Exception):
    """A video or sound can't be read or written. The text has no paths."""


def command(*arguments: str) -> list[str]:
    """Returns a command line of ffmpeg that reads no terminal, prints only errors and stops at the first."""
    # Imported here, as it is large and models of images run without it.
    from imageio_ffmpeg import get_ffmpeg_exe

    return [get_ffmpeg_exe(), "-nostdin", "-hide_banner", "-y", "-v", "error", "-xerror", *arguments]


def first_error(stderr: IO[bytes], *files: Path) -> str:
    """Returns ffmpeg's first line in `stderr` without the names of `files`; empty without one."""
    stderr.seek(0)
    line = stderr.readline().decode(errors="replace").strip()
    while _PREFIX.match(line):
        line = _PREFIX.sub("", line)
    for file in files:
        line = line.replace(str(file), "the file")
    return line


Samples: TypeAlias = NDArray[np.float32]

CHANNELS: Final = 2
_MAX_INT16: Final = 32767


@dataclass(frozen=True, eq=False)
class Audio:
    """Stereo sound: `samples`, (2, n), are left and right in -1 to 1, `rate` is samples per second and channel."""

    samples: Samples
    rate: int

    def __post_init__(self) -> None:
        """Accepts one channel, (n,) or (1, n), for both. Clips values, and replaces NaN by silence."""
        samples = np.atleast_2d(np.asarray(self.samples, np.float32))
        if samples.ndim != 2 or samples.shape[0] not in (1, CHANNELS) or self.rate < 1:
            raise ValueError(f"no sound of one or two channels: {self.samples.shape} at {self.rate} Hz")
        samples = np.broadcast_to(samples, (CHANNELS, samples.shape[1]))
        object.__setattr__(self, "samples", np.nan_to_num(samples.clip(-1, 1)))

    @property
    def seconds(self) -> float:
        return self.samples.shape[1] / self.rate

    @classmethod
    def silence(cls, seconds: float, rate: int) -> Audio:
        return cls(np.zeros(round(seconds * rate), np.float32), rate)

    def fit(self, seconds: float) -> Audio:
        """Cuts or pads with silence to `round(seconds * rate)` samples."""
        length = round(seconds * self.rate)
        samples = self.samples[:, :length]
        return Audio(np.pad(samples, ((0, 0), (0, length - samples.shape[1]))), self.rate)

    def concat(self, other: Audio) -> Audio:
        """Appends `other`. Raises ValueError for another rate."""
        if other.rate != self.rate:
            raise ValueError(f"sounds of {self.rate} and {other.rate} Hz can't be joined")
        return Audio(np.concatenate((self.samples, other.samples), axis=1), self.rate)

    def resample(self, rate: int) -> Audio:
        """Keeps the duration to within a sample. Raises VideoFileError."""
        if rate == self.rate:
            return self
        raw = ("-f", "f32le", "-ac", str(CHANNELS), "-ar")
        done = subprocess.run(
            command(*raw, str(self.rate), "-i", "pipe:0", *raw, str(rate), "pipe:1"),
            input=np.ascontiguousarray(self.samples.T).tobytes(),
            capture_output=True,
        )
        if done.returncode:
            raise VideoFileError(f"the sound can't be resampled to {rate} Hz")
        return audio_from_f32le(done.stdout, rate).fit(self.seconds)

    def save(self, file: Path) -> None:
        """Writes a 16-bit WAV file."""
        with wave.open(str(file), "wb") as output:
            output.setnchannels(CHANNELS)
            output.setsampwidth(2)
            output.setframerate(self.rate)
            output.writeframes((self.samples.T * _MAX_INT16).round().astype("<i2").tobytes())


def audio_from_f32le(data: bytes, rate: int) -> Audio:
    """Reads ffmpeg's `f32le`: 32-bit floats, left and right alternating."""
    return Audio(np.frombuffer(data, "<f4").reshape(-1, CHANNELS).T, rate)


AUDIO_RATE: Final = 48_000

_QUALITY: Final = "20"
"""Constant rate factor of x264 with hardly visible losses."""
_AUDIO_BITS: Final = "160k"
_SECONDS_BETWEEN_KEYFRAMES: Final = 2
_FINISH_S: Final = 300.0
"""Seconds to encode the rest of the pipe and to move the index to the front."""


def frame_indices(count: int, fps: int = FPS) -> list[int]:
    """Returns which of `count` frames moderation sees: first, last and one per second, or MAX_SAMPLES evenly."""
    step = max(fps, (count - 1) / (MAX_SAMPLES - 1))
    return sorted({min(round(step * index), count - 1) for index in range(MAX_SAMPLES)})


def fit_size(width: int, height: int) -> tuple[int, int]:
    """Returns width and height within FRAME_SIDE."""
    scale = min(1.0, FRAME_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def shrink(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns a copy of (height, width, channels) within FRAME_SIDE."""
    # Imported here, as readers of videos don't need it.
    import cv2

    size = fit_size(frame.shape[1], frame.shape[0])
    return np.array(cv2.resize(frame, size, interpolation=cv2.INTER_AREA), np.uint8)


class VideoWriter:
    """Writes a video to `path`. `write` waits while ffmpeg is behind, so that few frames are in memory.

    Only `close` completes a video: one that is discarded or garbage-collected is stopped and removed.
    """

    def __init__(
        self,
        path: Path,
        *,
        rendered: tuple[int, int],
        size: tuple[int, int],
        frames: int,
        audio: Audio | None,
        fps: int = FPS,
        threads: int | None = None,
    ) -> None:
        """`rendered` and `size` are width and height of the frames given, and of the video (even numbers).

        `audio` is cut or padded with silence to the length of `frames`; None for no sound track.
        """
        if frames < 1 or any(side % 2 for side in size):
            raise ValueError(f"no video: {frames} frames of {size[0]}x{size[1]}")
        self._shape = (rendered[1], rendered[0], 3)
        self._frames = frames
        self._frame_count = 0
        self._sampled = frame_indices(frames, fps)
        self.samples: list[NDArray[np.uint8]] = []
        """Small copies of the frames written so far that moderation sees."""
        self._path = path
        wav = path.with_name(f"{path.name}.wav")
        if audio is not None:
            audio.fit(frames / fps).save(wav)
        # A file, as a pipe would fill up without a reader.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the video
        self._process = subprocess.Popen(
            _encode_command(path, rendered, size, None if audio is None else wav, fps, threads),
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
        """Appends frames, (F, H, W, 3). Raises VideoFileError if ffmpeg failed or there are too many."""
        if frames.dtype != np.uint8 or frames.shape[1:] != self._shape:
            raise ValueError(f"frames are uint8 of {self._shape}, not {frames.dtype} of {frames.shape[1:]}")
        if not self._undo.alive:
            raise VideoFileError("the video is no longer being written")
        self._frame_count += len(frames)
        if self._frame_count > self._frames:
            self.discard()
            raise VideoFileError(f"the video has more than the {self._frames} frames it was to have")
        written = self._frame_count - len(frames)
        self.samples += [shrink(frames[n - written]) for n in self._sampled if written <= n < self._frame_count]
        try:
            for frame in frames:
                remaining = np.ascontiguousarray(frame).reshape(-1).data
                while remaining:
                    remaining = remaining[self._pipe.write(remaining) :]
        except (OSError, ValueError):  # ffmpeg or `discard` closed the pipe
            raise self._failure() from None

    def close(self) -> None:
        """Completes the file. Raises VideoFileError, and removes the file, if it is not as requested."""
        if not self._undo.alive:
            raise VideoFileError("the video is no longer being written")
        if self._frame_count != self._frames:
            self.discard()
            raise VideoFileError(f"the video has {self._frame_count} frames instead of {self._frames}")
        self._pipe.close()
        try:
            failed = self._process.wait(_FINISH_S) != 0
        except subprocess.TimeoutExpired:
            failed = True
        if failed:
            raise self._failure()
        if self._undo.detach() is None:
            raise VideoFileError("the video was discarded")
        self._stderr.close()
        self._wav.unlink(missing_ok=True)

    def discard(self) -> None:
        """Ends ffmpeg and removes the file, unless the video was closed. Thread-safe."""
        self._undo()

    def _failure(self) -> VideoFileError:
        if not self._undo.alive:
            return VideoFileError("the video was discarded")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # it closes its pipe before it prints the reason
        reason = ""
        with suppress(ValueError):  # discarded meanwhile
            reason = first_error(self._stderr, self._path, self._wav)
        self.discard()
        return VideoFileError(f"the video can't be written: {reason or 'ffmpeg gave up'}")


def _encode_command(
    path: Path, rendered: tuple[int, int], size: tuple[int, int], wav: Path | None, fps: int, threads: int | None
) -> list[str]:
    width, height = rendered
    frames = ["-f", "rawvideo", "-pixel_format", "rgb24", "-video_size", f"{width}x{height}", "-framerate", str(fps)]
    colours = "out_color_matrix=bt709:out_range=tv"
    tags = "setparams=colorspace=bt709:color_primaries=bt709:color_trc=bt709:range=tv"
    scale_filter = f"scale={size[0]}:{size[1]}:flags=bicubic+accurate_rnd+full_chroma_inp:{colours},setsar=1"
    video = ["-map", "0:v", "-vf", f"{scale_filter},format=yuv420p,{tags}", "-c:v", "libx264", "-preset", "veryfast"]
    video += ["-crf", _QUALITY, "-g", str(fps * _SECONDS_BETWEEN_KEYFRAMES)]
    if threads is not None:
        video += ["-threads", str(threads), "-filter_threads", str(threads)]
    audio_options = ["-map", "1:a", "-c:a", "aac", "-b:a", _AUDIO_BITS, "-ar", str(AUDIO_RATE), "-ac", "2"]
    inputs = [*frames, "-i", "pipe:0"] if wav is None else [*frames, "-i", "pipe:0", "-f", "wav", "-i", str(wav)]
    output = [*video, *(audio_options if wav else ()), "-movflags", "+faststart", "-f", "mp4", str(path)]
    return command(*inputs, *output)


def _undo(process: subprocess.Popen[bytes], pipe: IO[bytes], stderr: IO[bytes], files: tuple[Path, ...]) -> None:
    process.kill()
    process.wait()
    with suppress(OSError):
        pipe.close()
    stderr.close()
    for file in files:
        file.unlink(missing_ok=True)
