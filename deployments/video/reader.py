"""The video reader: frames and sound of mp4-family files, including untrusted ones from clients.

Every call is one run of ffmpeg that opens no other file or address, has limited time, and fails if anything can't be
decoded. Frames are as viewers show them: upright, with square pixels, 24 per second from the start of the file,
whatever its own rate, so that all functions count alike.
"""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from deployments.contract.request import FPS
from deployments.video.writer import (
    AUDIO_RATE,
    CHANNELS,
    Audio,
    VideoFileError,
    audio_from_f32le,
    command,
    first_error,
    fit_size,
    frame_indices,
)

Frames: TypeAlias = NDArray[np.uint8]
"""RGB, (F, H, W, 3)."""
Frame: TypeAlias = NDArray[np.uint8]
"""RGB, (H, W, 3)."""

MAX_VIDEO_S: Final = 120.0
"""Seconds after which videos and sounds are cut off."""

_MAX_PIXELS: Final = 4096 * 4096
"""Pixels of a frame in the file."""
_MAX_ALLOCATION: Final = 512 * 2**20
"""Bytes of a single allocation, as small files may claim huge tables."""
_DECODERS: Final = (
    "h264,hevc,av1,libdav1d,libaom-av1,vp9,mpeg4,mjpeg,prores,aac,mp3,mp3float,opus,libopus,vorbis,alac,flac,ac3,eac3,"
    "pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be"
)
"""Codecs of cameras, browsers and editors. The many others of ffmpeg are rarely used and rarely tested by attackers."""
_PLAIN_REASONS: Final = (
    (re.compile(r"moov atom not found"), "it is no mp4 file, or its index is missing"),
    (re.compile(r"Stream map '.*' matches no streams"), "it has no images"),
    (re.compile(r"Codec \((\w+)\) not on whitelist"), r"videos in \1 are not supported"),
    (re.compile(r"Picture size (\w+) exceeds"), r"a frame of \1 pixels is too large"),
)
"""Clearer texts for ffmpeg's errors about files that people do send. For broken files ffmpeg's own texts are best."""
_MAX_ADDRESSES: Final = 4 * 2**30
"""Bytes of address space of one run."""
_HDR: Final = re.compile(rb"Video: .*(arib-std-b67|smpte2084)")
"""Transfer functions HLG, which phones use, and PQ."""
_TONE_MAPPED: Final = (
    "zscale=t=linear:npl=203,format=gbrpf32le,zscale=p=bt709,tonemap=mobius:desat=0,zscale=t=bt709:m=bt709:r=tv"
)
"""Filter to the range and colours of BT.709. White is 203 candelas (ITU-R BT.2408)."""
_FIRST_FRAME_S: Final = 60
_CPU_SECONDS: Final = 300
"""Processor seconds of one run, which don't pass while the machine is busy or the caller takes no frames."""


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """A video as read by `frames`."""

    width: int
    height: int
    frames: int
    has_audio: bool

    @property
    def seconds(self) -> float:
        return self.frames / FPS


def probe(path: Path, *, max_s: float = MAX_VIDEO_S, timeout_s: float | None = None) -> VideoInfo:
    """Decodes image and sound to their ends, as headers may lie. Raises VideoFileError.

    Of a video longer than `max_s`, one frame more is counted, which tells it from a shorter one.
    """
    max_frames = round(max_s * FPS) + 1
    streams = ["-map", "0:V:0", "-map", "0:a:0?", "-vf", _fps_filter(FPS)]
    limits = ["-frames:v", str(max_frames), "-t", str(max_s + 1), "-fps_mode", "passthrough", "-f", "framecrc"]
    report = _output(path, *streams, *limits, timeout_s=timeout_s).decode(errors="replace")
    size = re.search(r"^#dimensions 0: (\d+)x(\d+)", report, re.MULTILINE)
    frames = len(re.findall(r"^0,", report, re.MULTILINE))
    if size is None or not frames:
        raise VideoFileError("the video has no frames")
    narrow = re.search(r"^#sar 0: (\d+)/(\d+)", report, re.MULTILINE)
    across, down = (int(narrow[1]), int(narrow[2])) if narrow is not None else (1, 1)
    return VideoInfo(
        width=round(int(size[1]) * across / down) if across and down else int(size[1]),
        height=int(size[2]),
        frames=frames,
        has_audio=re.search(r"^1,", report, re.MULTILINE) is not None,
    )


def frames(path: Path, size: tuple[int, int], *, fps: int = FPS, chunk: int = 16) -> Iterator[Frames]:
    """Yields all frames in order, up to `chunk` at a time. Raises VideoFileError, possibly after some frames.

    Scales them to cover `size`, (width, height), and crops both sides equally.
    """
    width, height = size
    graph = f"{_fps_filter(fps)},{_crop_and_scale(width, height)}" + (f",{_TONE_MAPPED}" if _is_hdr(path) else "")
    filters = ["-vf", graph, "-frames:v", str(round(MAX_VIDEO_S * fps))]
    arguments = ["-map", "0:V:0", *filters, "-fps_mode", "passthrough", "-pix_fmt", "rgb24", "-f", "rawvideo"]
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(_read_command(path, *arguments), stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        _confine(process)
        pipe = cast(BufferedReader, process.stdout)
        try:
            is_empty = True
            while len(piece := _next(pipe, (chunk, height, width, 3))):
                is_empty = False
                yield piece
            if process.wait() or is_empty:
                raise _read_error(stderr, path)
        finally:
            process.kill()  # the caller may stop before the end


def samples(path: Path, info: VideoInfo) -> list[Frame]:
    """Returns the frames that moderation sees, small. Raises VideoFileError."""
    indices, size = frame_indices(info.frames), fit_size(info.width, info.height)
    return [frame[0] for index, frame in enumerate(frames(path, size, chunk=1)) if index in indices]


def last_frames(path: Path, size: tuple[int, int], count: int) -> Frames:
    """Returns the last `count` frames, or all if there are fewer. Raises VideoFileError."""
    tail: deque[Frames] = deque(maxlen=count)
    for piece in frames(path, size):
        tail.extend(piece)
    return np.stack(tail)


def audio(path: Path, rate: int = AUDIO_RATE) -> Audio | None:
    """Returns the sound from the start of the file; None without a sound track. Raises VideoFileError."""
    tracks = ["-map", "0:a:0?", "-map", "0:V:0?", "-c", "copy", "-frames:a", "1", "-frames:v", "1", "-f", "framecrc"]
    report = _output(path, *tracks).decode(errors="replace")
    track = re.search(r"^#media_type (\d): audio", report, re.MULTILINE)
    if track is None:
        return None
    # Read as mono, as ffmpeg would lower the volume when it converts one channel to two.
    single = re.search(rf"^#channel_layout_name {track[1]}: mono", report, re.MULTILINE) is not None
    whole = ["-map", "0:a:0", "-af", "aresample=async=1:first_pts=0", "-t", str(MAX_VIDEO_S), "-ar", str(rate)]
    data = _output(path, *whole, "-ac", "1" if single else str(CHANNELS), "-f", "f32le")
    return Audio(np.frombuffer(data, "<f4"), rate) if single else audio_from_f32le(data, rate)


def _fps_filter(fps: int) -> str:
    """Returns a filter that counts from the start of the file, like the sound, even if the first frame comes later."""
    return f"fps={fps}:start_time=0"


def _is_hdr(path: Path) -> bool:
    """Returns whether the file declares an HDR transfer function."""
    first = ["-map", "0:V:0", "-frames:v", "1", "-v", "info", "-f", "null"]
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(_read_command(path, *first), stdout=subprocess.DEVNULL, stderr=stderr) as process,
    ):
        _confine(process)
        try:
            process.wait(_FIRST_FRAME_S)
        except subprocess.TimeoutExpired:
            process.kill()
        stderr.seek(0)
        return _HDR.search(stderr.read()) is not None


def _crop_and_scale(width: int, height: int) -> str:
    """Returns filters that crop before they enlarge, as a narrow image would become huge. `sar`: pixels may be
    narrow."""
    aspect = f"{width}/{height}"
    cut = f"crop=w='min(iw,max(1,ih*{aspect}/sar))':h='min(ih,max(1,iw*sar/({aspect})))':exact=1"
    return f"{cut},scale={width}:{height}:flags=bicubic+accurate_rnd+full_chroma_int,setsar=1"


def _read_command(path: Path, *arguments: str) -> list[str]:
    limits = ["-timelimit", str(_CPU_SECONDS), "-max_alloc", str(_MAX_ALLOCATION), "-filter_threads", "2"]
    strict = ["-err_detect", "explode", "-threads", "2", "-max_pixels", str(_MAX_PIXELS)]
    # Drops frames of another size than the first, at which counting would start over.
    strict += ["-codec_whitelist", _DECODERS, "-drop_changed", "1"]
    # The format is explicit, as a playlist in disguise would make ffmpeg open other files and addresses.
    source = ["-protocol_whitelist", "file,pipe", "-f", "mov", "-i", f"file:{path}"]
    return command(*limits, *strict, *source, *arguments, "pipe:1")


def _output(path: Path, *arguments: str, timeout_s: float | None = None) -> bytes:
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(_read_command(path, *arguments), stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        _confine(process)
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise VideoFileError(f"the video can't be read in {timeout_s:g} s") from None
        finally:
            process.kill()
        if process.returncode:
            raise _read_error(stderr, path)
    return output


def _confine(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # it has ended
        resource.prlimit(process.pid, resource.RLIMIT_AS, (_MAX_ADDRESSES, _MAX_ADDRESSES))


def _next(pipe: BufferedReader, shape: tuple[int, int, int, int]) -> Frames:
    """Returns whole frames, as many as `shape` holds, or fewer at the end."""
    piece = np.empty(shape, np.uint8)
    whole, remaining = divmod(pipe.readinto(piece.reshape(-1).data), piece[0].size)
    if remaining:
        raise VideoFileError("the video breaks off within a frame")
    return piece[:whole]


def _read_error(stderr: IO[bytes], path: Path) -> VideoFileError:
    reason = first_error(stderr, Path(f"file:{path}"), path)
    for pattern, plain in _PLAIN_REASONS:
        if (match := pattern.search(reason)) is not None:
            reason = match.expand(plain)
    return VideoFileError(f"no video that can be read to its end: {reason or 'ffmpeg gave up'}")
