"""The video reader: frames and sound of mp4-family files, including those of clients, which are not trusted.

Every call is one run of ffmpeg that opens no other file or address, takes no more time than it is given, and fails when
anything can't be decoded. Frames come as viewers see them: upright, with square pixels, 24 a second from the moment the
file begins, whatever its own pace; so what one function counts the others give.
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
from deployments.video.writer import AUDIO_RATE, CHANNELS, Audio, VideoError, audio_from_f32le, command, complaint

Frames: TypeAlias = NDArray[np.uint8]
"""(F, H, W, 3), RGB."""

LONGEST_S: Final = 120.0
"""Of longer videos and sounds the rest is not read."""

_MOST_PIXELS: Final = 4096 * 4096
"""Of a frame in the file."""
_MOST_MEMORY: Final = 512 * 2**20
"""Of a single allocation, in bytes: tables in small files may claim to be huge."""
_DECODERS: Final = (
    "h264,hevc,av1,libdav1d,libaom-av1,vp9,mpeg4,mjpeg,prores,aac,mp3,mp3float,opus,libopus,vorbis,alac,flac,ac3,eac3,"
    "pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be"
)
"""What cameras, browsers and editors write. The many others of ffmpeg are rarely used and rarely attacked in public."""
_PLAIN_REASONS: Final = (
    (re.compile(r"moov atom not found"), "it is no mp4 file, or its index is missing"),
    (re.compile(r"Stream map '.*' matches no streams"), "it has no images"),
    (re.compile(r"Codec \((\w+)\) not on whitelist"), r"videos in \1 are not supported"),
    (re.compile(r"Picture size (\w+) exceeds"), r"a frame of \1 pixels is too large"),
)
"""For what ffmpeg says of files that people do send. Of broken ones it says best itself what is broken."""
_MOST_ADDRESSES: Final = 4 * 2**30
"""Of one run altogether, in bytes."""
_HDR: Final = re.compile(rb"Video: .*(arib-std-b67|smpte2084)")
"""The transfer functions HLG, as phones film, and PQ."""
_TONE_MAPPED: Final = (
    "zscale=t=linear:npl=203,format=gbrpf32le,zscale=p=bt709,tonemap=mobius:desat=0,zscale=t=bt709:m=bt709:r=tv"
)
"""To the range and the colours of BT.709. 203 candelas are white there (ITU-R BT.2408)."""
_FIRST_FRAME_S: Final = 60
_CPU_SECONDS: Final = 300
"""For one run. Unlike time on the clock it passes neither while the machine is busy nor while nobody takes frames."""


@dataclass(frozen=True, slots=True)
class VideoInfo:
    """A video as `frames` would give it: `seconds` are those of its frames, whatever its sound's."""

    width: int
    height: int
    frames: int
    has_audio: bool

    @property
    def seconds(self) -> float:
        return self.frames / FPS


def probe(path: Path, *, longest_s: float = LONGEST_S, timeout_s: float | None = None) -> VideoInfo:
    """Decodes image and sound to their ends, as headers may lie. Raises VideoError.

    Longer videos than `longest_s` are read for a frame more than that, so that they can be told from others.
    """
    most = round(longest_s * FPS) + 1
    streams = [
        "-map",
        "0:V:0",
        "-map",
        "0:a:0?",
        "-vf",
        _fps_filter(FPS),
        "-frames:v",
        str(most),
        "-t",
        str(longest_s + 1),
    ]
    output_options = ["-fps_mode", "passthrough", "-f", "framecrc"]
    report = _output(path, *streams, *output_options, timeout_s=timeout_s).decode(errors="replace")
    size = re.search(r"^#dimensions 0: (\d+)x(\d+)", report, re.MULTILINE)
    frames = len(re.findall(r"^0,", report, re.MULTILINE))
    if size is None or not frames:
        raise VideoError("the video has no frames")
    narrow = re.search(r"^#sar 0: (\d+)/(\d+)", report, re.MULTILINE)
    across, down = (int(narrow[1]), int(narrow[2])) if narrow is not None else (1, 1)
    return VideoInfo(
        width=round(int(size[1]) * across / down) if across and down else int(size[1]),
        height=int(size[2]),
        frames=frames,
        has_audio=re.search(r"^1,", report, re.MULTILINE) is not None,
    )


def frames(path: Path, size: tuple[int, int], *, fps: int = FPS, chunk: int = 16) -> Iterator[Frames]:
    """All frames in order, at most `chunk` at a time. Raises VideoError, maybe after frames.

    Each covers `size`, width and height; what stands out over it is cut off on both sides alike.
    """
    width, height = size
    graph = f"{_fps_filter(fps)},{_crop_and_scale(width, height)}" + (f",{_TONE_MAPPED}" if _is_hdr(path) else "")
    filters = ["-vf", graph, "-frames:v", str(round(LONGEST_S * fps))]
    arguments = ["-map", "0:V:0", *filters, "-fps_mode", "passthrough", "-pix_fmt", "rgb24", "-f", "rawvideo"]
    with (
        tempfile.TemporaryFile() as stderr,
        subprocess.Popen(_read_command(path, *arguments), stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        _confine(process)
        pipe = cast(BufferedReader, process.stdout)
        try:
            began = False
            while len(piece := _next(pipe, (chunk, height, width, 3))):
                began = True
                yield piece
            if process.wait() or not began:
                raise _read_error(stderr, path)
        finally:
            process.kill()  # where nobody wants the rest


def last_frames(path: Path, size: tuple[int, int], count: int) -> Frames:
    """The last `count` frames, or all where there are fewer; see `frames`."""
    tail: deque[Frames] = deque(maxlen=count)
    for piece in frames(path, size):
        tail.extend(piece)
    return np.stack(tail)


def audio(path: Path, rate: int = AUDIO_RATE) -> Audio | None:
    """What is heard from the moment the file begins, None where there is no sound track. Raises VideoError."""
    tracks = ["-map", "0:a:0?", "-map", "0:V:0?", "-c", "copy", "-frames:a", "1", "-frames:v", "1", "-f", "framecrc"]
    report = _output(path, *tracks).decode(errors="replace")
    track = re.search(r"^#media_type (\d): audio", report, re.MULTILINE)
    if track is None:
        return None
    # ffmpeg would make one channel quieter on its way to two.
    single = re.search(rf"^#channel_layout_name {track[1]}: mono", report, re.MULTILINE) is not None
    whole = ["-map", "0:a:0", "-af", "aresample=async=1:first_pts=0", "-t", str(LONGEST_S), "-ar", str(rate)]
    data = _output(path, *whole, "-ac", "1" if single else str(CHANNELS), "-f", "f32le")
    return Audio(np.frombuffer(data, "<f4"), rate) if single else audio_from_f32le(data, rate)


def _fps_filter(fps: int) -> str:
    """From the file's begin, which the sound shares, though the first frame may come later."""
    return f"fps={fps}:start_time=0"


def _is_hdr(path: Path) -> bool:
    """As the file says."""
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
    """Cut before it is enlarged: a narrow image would become a huge one. Pixels may be narrow, too: `sar`."""
    aspect = f"{width}/{height}"
    cut = f"crop=w='min(iw,max(1,ih*{aspect}/sar))':h='min(ih,max(1,iw*sar/({aspect})))':exact=1"
    return f"{cut},scale={width}:{height}:flags=bicubic+accurate_rnd+full_chroma_int,setsar=1"


def _read_command(path: Path, *arguments: str) -> list[str]:
    limits = ["-timelimit", str(_CPU_SECONDS), "-max_alloc", str(_MOST_MEMORY), "-filter_threads", "2"]
    strict = ["-err_detect", "explode", "-threads", "2", "-max_pixels", str(_MOST_PIXELS)]
    # Frames of another size than the first are left out: with them counting would begin anew.
    strict += ["-codec_whitelist", _DECODERS, "-drop_changed", "1"]
    # Named outright, for a playlist in disguise would make ffmpeg open other files and addresses.
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
            raise VideoError(f"the video can't be read in {timeout_s:g} s") from None
        finally:
            process.kill()
        if process.returncode:
            raise _read_error(stderr, path)
    return output


def _confine(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # it is done already
        resource.prlimit(process.pid, resource.RLIMIT_AS, (_MOST_ADDRESSES, _MOST_ADDRESSES))


def _next(pipe: BufferedReader, shape: tuple[int, int, int, int]) -> Frames:
    """As many whole frames as `shape` has room for, fewer at the end."""
    piece = np.empty(shape, np.uint8)
    whole, rest = divmod(pipe.readinto(piece.reshape(-1).data), piece[0].size)
    if rest:
        raise VideoError("the video breaks off within a frame")
    return piece[:whole]


def _read_error(stderr: IO[bytes], path: Path) -> VideoError:
    reason = complaint(stderr, Path(f"file:{path}"), path)
    for pattern, plain in _PLAIN_REASONS:
        if (match := pattern.search(reason)) is not None:
            reason = match.expand(plain)
    return VideoError(f"no video that can be read to its end: {reason or 'ffmpeg gave up'}")
