"""The job that the service sends to a model, and the output it gets back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

MEGAPIXEL: Final = 1024 * 1024
"""Square pixels in one megapixel, as it is counted and billed."""
FPS: Final = 24
"""Frames a second of videos, unless a model is made for another rate."""


@dataclass(frozen=True, slots=True)
class VideoParams:
    """The part of a job that only videos have: `frames` new frames are made, with `audio` or silent.

    `times` says for each of the job's `references` at which second it is to be seen. `start` (an object key, like the
    following) is a video to go on from: its end leads in, and the result is it and the new frames, joined. `draft` asks
    for a quick pass whose latents are kept; `enhance` names such latents, whose composition the result has. Between two
    steps the latents are kept at `checkpoint`, which all attempts share, so that another one can go on from there.
    """

    frames: int
    checkpoint: str
    audio: bool = True
    times: tuple[float, ...] = ()
    start: str | None = None
    draft: bool = False
    enhance: str | None = None
    fps: int = FPS


Box: TypeAlias = tuple[int, int, int, int]
"""`(top, left, bottom, right)`, integers 0 to 1000, relative to the image."""

ImageFormat: TypeAlias = Literal["jpeg", "png", "webp"]
OutputFormat: TypeAlias = ImageFormat | Literal["mp4"]


@dataclass(frozen=True, slots=True)
class LayoutRow:
    """One row of a prompt's region table.

    `source` names the reference image an element is taken from (None: newly described); a `target` of None
    removes the element; `source_box` equal to `target` keeps it, a differing one moves or resizes it.
    """

    name: str
    target: Box | None
    description: str
    source: str | None = None
    source_box: Box | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter (LoRA): its id, the object-store key of its weights, and how strongly it applies (0 not at all)."""

    id: str
    key: str
    strength: float


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """One attempt at one image or video, fully decided: nothing in it is left to a default.

    Sizes are in pixels. `references` are object-store keys of decoded-and-checked input images, in the client's
    order. `output_prefix` is where this attempt may write; it differs between attempts, so an attempt that lost its
    lease can never overwrite a published result. `remaining_s` is how long it may take from its admission on, None
    without a limit: a span and no moment, as the clocks of two machines may differ. `exclusive` asks the engine to run
    the job with the batch to itself: it is set on a task that already lost several workers.

    What only some families use, None where it does not apply: `guidance` is the strength of the prompt, applied at
    every step or, with `guidance_interval` n, at every n-th. `mask` (an object key, like the following) is a grey
    image of the first reference's size, white where it is to be painted anew. `control` is an image whose edges the
    result follows; `canny` gives the two thresholds to find them by, None when the image shows edges already.
    `image_prompt` is an image used like a prompt. `transparent` asks for an RGBA image of the subject alone. `video`
    makes the job one for a video. `negative_prompt` says what must not be seen. `strength`,
    0 to 1, is how much of the input image is replaced.

    What is told with a job, and is no part of it: `traceparent` is the parent of the spans that are written of it,
    empty where none are; `log_levels` are those that operators set on the running service, by module.
    """

    id: str
    attempt: int
    prompt: str
    width: int
    height: int
    steps: int
    seed: int
    output_format: OutputFormat
    output_prefix: str
    references: tuple[str, ...] = ()
    layout: tuple[LayoutRow, ...] = ()
    exclusive: bool = False
    guidance: float | None = None
    guidance_interval: float | None = None
    mask: str | None = None
    control: str | None = None
    canny: tuple[int, int] | None = None
    image_prompt: str | None = None
    adapter: Adapter | None = None
    transparent: bool = False
    video: VideoParams | None = None
    traceparent: str = ""
    log_levels: tuple[tuple[str, str], ...] = ()
    remaining_s: float | None = None
    negative_prompt: str = ""
    strength: float | None = None

    def __setstate__(self, values: Sequence[Any]) -> None:
        """Values go from one process to another in the order of the fields, and while one release takes another's
        place these differ: new fields stand at the end, and of a job from before they have their defaults."""
        for field, value in zip(fields(self), values, strict=False):
            object.__setattr__(self, field.name, value)
        for field in fields(self)[len(values) :]:
            object.__setattr__(self, field.name, field.default)

    @property
    def megapixels(self) -> float:
        """Of the image, or of a video's images, of which a second counts as one."""
        return self.width * self.height / MEGAPIXEL * (self.video.frames / self.video.fps if self.video else 1)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The object keys of all that it is made from."""
        single = (
            self.mask,
            self.control,
            self.image_prompt,
            *((self.video.start, self.video.enhance) if self.video else ()),
        )
        return self.references + tuple(key for key in single if key is not None)


@dataclass(frozen=True, slots=True)
class Output:
    """A finished result: an object in the store, never bytes."""

    key: str
    content_type: str
    width: int
    height: int
    size: int
    """Length in bytes."""
    draft: str | None = None
    """The object with a draft's latents, where one was asked for."""
    thumbnail: str | None = None
    """The object with a small image of it."""
    warnings: tuple[str, ...] = ()
    """What of the job could not be done though there is a result; fit for the client's eyes."""
    proxy: str | None = None
    """The object that moderation looks at: of an image its small one, of a video some of its frames."""
    previews: tuple[int, ...] = ()
    """The steps after which previews were stored."""

    __setstate__ = GenerationJob.__setstate__

    @property
    def files(self) -> list[str]:
        """The keys of all that the attempt stored."""
        previews = (preview_key(self.key.rpartition("/")[0], step) for step in self.previews)
        keys = (self.key, self.draft, self.thumbnail, self.proxy, *previews)
        return list(dict.fromkeys(key for key in keys if key))


def preview_key(output_prefix: str, step: int) -> str:
    return f"{output_prefix}/preview-{step}.jpeg"


UNKNOWN: Final = "application/octet-stream"
_BY_SUFFIX: Final = MappingProxyType(
    {
        ".jpeg": "image/jpeg",
        ".jpg": "image/jpeg",
        ".png": "image/png",
        ".webp": "image/webp",
        ".mp4": "video/mp4",
    }
)


def media_type(name: str) -> str:
    """Of a file or an object by its suffix, in either case."""
    return _BY_SUFFIX.get(PurePosixPath(name).suffix.lower(), UNKNOWN)
