"""Files that a workflow wrote: stored as they are, without their metadata, which has the whole workflow."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, ImageSequence, UnidentifiedImageError

from deployments.contract.job import UNKNOWN, GenerationJob, Output, media_type
from deployments.contract.request import ImageFormat
from deployments.outputs import Outputs
from deployments.video import reader
from deployments.video.writer import VideoFileError, command, frame_indices

_PNG_HEADER: Final = 8
_PNG_CHUNKS: Final = (
    b"IHDR",
    b"PLTE",
    b"IDAT",
    b"IEND",
    b"tRNS",
    b"gAMA",
    b"cHRM",
    b"sRGB",
    b"iCCP",
    b"acTL",
    b"fcTL",
    b"fdAT",
)
_WEBP_METADATA: Final = (b"EXIF", b"XMP ")
_WEBP_FLAGS: Final = 0x0C
"""Bits of VP8X that announce metadata."""
_FORMATS: Final[dict[str, ImageFormat]] = {"PNG": "png", "JPEG": "jpeg", "WEBP": "webp"}


def store_workflow_results(outputs: Outputs, job: GenerationJob, files: Sequence[Path]) -> Output:
    """Stores all results; the others are `more` of the first. Raises RuntimeError for a file that can't be read."""
    first, *more = [_store(outputs, job, file, number) for number, file in enumerate(files, 1)]
    return replace(first, more=tuple(more))


def _store(outputs: Outputs, job: GenerationJob, file: Path, number: int) -> Output:
    content_type = media_type(file.name)
    try:
        if content_type.startswith("image/"):
            return _store_image(outputs, job, file, number)
        if content_type == UNKNOWN:
            raise RuntimeError(f"the workflow wrote a {file.suffix} file, which this service does not serve")
        clean = _remux(file, file.with_name(f"clean-{file.name}"))
        if not content_type.startswith("video/"):
            return outputs.store_file(job, clean, file.suffix, (), number)
        readable = clean if file.suffix == ".mp4" else _remux(clean, clean.with_suffix(".mp4"), "-an")
        info = reader.probe(readable)
        output = outputs.store_file(job, clean, file.suffix, reader.samples(readable, info), number)
        return replace(output, width=info.width, height=info.height)
    except (
        OSError,
        UnidentifiedImageError,
        VideoFileError,
        struct.error,
        IndexError,
        subprocess.CalledProcessError,
    ) as error:
        raise RuntimeError(f"a result of the workflow can't be read: {type(error).__name__}: {error}") from None


def _store_image(outputs: Outputs, job: GenerationJob, file: Path, number: int) -> Output:
    with Image.open(file) as image:
        file_format = _FORMATS.get(image.format or "")
        if (count := getattr(image, "n_frames", 1)) > 1:
            indices = frame_indices(count, fps=1)
            frames = [
                frame.convert("RGB") for index, frame in enumerate(ImageSequence.Iterator(image)) if index in indices
            ]
            file.write_bytes(_clean(file.read_bytes(), file_format))
            samples = [np.asarray(frame, np.uint8) for frame in frames]
            return outputs.store_file(job, file, file.suffix, samples, number)
        has_alpha = "A" in image.getbands() or "transparency" in image.info
        pixels = np.asarray(image.convert("RGBA" if has_alpha else "RGB"), np.uint8)
    asked = job.request.output_format
    if file_format is not None and asked in ("original", file_format):
        return outputs.store_image(job, pixels, number, (_clean(file.read_bytes(), file_format), file_format))
    if asked in ("original", "jpeg") and has_alpha:
        job = replace(job, request=replace(job.request, output_format="png"))
    elif asked == "original":
        job = replace(job, request=replace(job.request, output_format="webp"))
    return outputs.store_image(job, pixels, number)


def _remux(file: Path, target: Path, *options: str) -> Path:
    """Writes the streams without metadata to `target`, and returns it."""
    arguments = ("-i", str(file), "-map", "0", "-map_metadata", "-1", "-c", "copy", *options, str(target))
    subprocess.run(command(*arguments), check=True, capture_output=True)
    return target


def _clean(data: bytes, file_format: ImageFormat | None) -> bytes:
    """Returns the file without text, EXIF and comments. Pixels stay as they are."""
    match file_format:
        case "png":
            kept = [chunk for name, chunk in _png_chunks(data) if name in _PNG_CHUNKS]
            return data[:_PNG_HEADER] + b"".join(kept)
        case "webp":
            kept = b"".join(chunk for name, chunk in _webp_chunks(data) if name not in _WEBP_METADATA)
            return b"RIFF" + struct.pack("<I", len(kept) + 4) + b"WEBP" + kept
        case "jpeg":
            return b"".join(_jpeg_segments(data))
    return b"".join(_gif_blocks(data)) if data.startswith(b"GIF8") else data


def _gif_blocks(data: bytes) -> Iterator[bytes]:
    """Yields the file without comments and extensions of applications, except that of the loop."""

    def colours(flags: int) -> int:
        return 3 << (flags & 7) + 1 if flags & 0x80 else 0

    at = 13 + colours(data[10])
    yield data[:at]
    while data[at] != 0x3B:
        start = at
        is_image = data[at] == 0x2C
        at += 11 + colours(data[at + 9]) if is_image else 2
        while data[at]:
            at += data[at] + 1
        at += 1
        label = data[start + 1]
        is_kept = label != 0xFE and (label != 0xFF or data[start + 3 : start + 14] == b"NETSCAPE2.0")
        if is_image or is_kept:
            yield data[start:at]
    yield b"\x3b"


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = _PNG_HEADER
    while at + 12 <= len(data):
        length, name = struct.unpack(">I4s", data[at : at + 8])
        yield name, data[at : at + 12 + length]
        at += 12 + length


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 12
    while at + 8 <= len(data):
        name, length = struct.unpack("<4sI", data[at : at + 8])
        end = at + 8 + length + length % 2
        chunk = data[at:end]
        if name == b"VP8X":
            chunk = chunk[:8] + bytes([chunk[8] & ~_WEBP_FLAGS]) + chunk[9:]
        yield name, chunk
        at = end


def _jpeg_segments(data: bytes) -> Iterator[bytes]:
    """Yields the file up to the scan without APP1 to APP15, except colour profiles (APP2), and without comments."""
    yield data[:2]
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        end = at + 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
        if not (0xE1 <= data[at + 1] <= 0xEF and data[at + 1] not in (0xE2, 0xEE)) and data[at + 1] != 0xFE:
            yield data[at:end]
        at = end
    yield data[at:]
