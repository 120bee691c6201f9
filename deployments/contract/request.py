"""The resolved request: every property of an image or video that submission decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, Final, Literal, TypeAlias

MEGAPIXEL: Final = 1024 * 1024
"""Square pixels in a megapixel, for counting and billing."""
FPS: Final = 24
"""Frames per second of videos, unless a model has another rate."""

Box: TypeAlias = tuple[int, int, int, int]
"""`(top, left, bottom, right)`, integers 0 to 1000, relative to the image."""

ImageFormat: TypeAlias = Literal["jpeg", "png", "webp"]
OutputFormat: TypeAlias = ImageFormat | Literal["mp4", "original"]
"""`original`: as the workflow wrote it."""
Scalar: TypeAlias = str | int | float | bool


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


def restore_fields(self: Any, values: Sequence[Any]) -> None:
    """`__setstate__` of records that two releases may exchange during an upgrade.

    Values are pickled in the order of the fields. New fields come last and have a default, which they get when the
    sender does not know them.
    """
    own = fields(self)
    for field, value in zip(own, values, strict=False):
        object.__setattr__(self, field.name, value)
    for field in own[len(values) :]:
        value = field.default if field.default_factory is MISSING else field.default_factory()
        object.__setattr__(self, field.name, value)


@dataclass(frozen=True, slots=True)
class VideoParams:
    """The parameters of a video: `frames` new frames, with `audio` or silent.

    `times` are the seconds at which the job's references are seen. `draft` asks for a quick pass whose latents are
    kept.
    """

    frames: int
    audio: bool = True
    times: tuple[float, ...] = ()
    draft: bool = False
    fps: int = FPS

    @property
    def seconds(self) -> int:
        return self.frames // self.fps

    __setstate__ = restore_fields


@dataclass(frozen=True, slots=True)
class Placement:
    """An input of a workflow's endpoint, and the places of the workflow that it fills."""

    name: str
    """Name of the input in requests."""
    places: tuple[str, ...]
    """Places as `node.input`."""
    value: Scalar | None = None
    """Value of the request; None if `field` has it, or a file."""
    field: str | None = None
    """Field of the resolved request that has the value, such as `prompt`."""
    is_text: bool = False
    """True for any text of the client's, which is moderated."""
    adapter: Literal["file", "strength"] | None = None
    """Part of the job's adapter that the place gets. Without an adapter, the workflow's own value stays."""

    @property
    def is_file(self) -> bool:
        return self.value is None and self.field is None and self.adapter is None

    def value_in(self, request: ResolvedRequest) -> Scalar | None:
        return self.value if self.field is None else getattr(request, self.field)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """A request with every default filled in. Sizes are in pixels.

    With `open_ratio` the prompt decides the ratio of the canvas before a model gets the request; until then `width`
    and `height` are those of the default ratio. `rewrite` lets a rewriter enrich the prompt first.

    Fields that only some families use are None for others. `guidance` is the strength of the prompt, applied at every
    step, or at every n-th with `guidance_interval` n. `canny` has the two thresholds to find the edges of the control
    image; None if it shows edges already. `transparent` asks for an RGBA image of the subject. `strength`, 0 to 1, is
    the share of the input image that is replaced. `video` makes the result a video.
    """

    prompt: str
    width: int
    height: int
    steps: int
    seed: int
    output_format: OutputFormat
    open_ratio: bool = False
    input_pixels: int = 0
    """Pixels of the images and of a video's first frame as the client sent them, without masks."""
    layout: tuple[LayoutRow, ...] = ()
    guidance: float | None = None
    guidance_interval: float | None = None
    canny: tuple[int, int] | None = None
    transparent: bool = False
    rewrite: bool = False
    video: VideoParams | None = None
    negative_prompt: str = ""
    strength: float | None = None
    area: int = 0
    """Pixels of the canvas, for prices and fair sharing; 0 in a model's own probes."""
    is_workflow: bool = False
    placements: tuple[Placement, ...] = ()
    """Inputs of a workflow."""

    __setstate__ = restore_fields

    @property
    def seconds(self) -> int:
        """Seconds of video; 1 for an image."""
        return self.video.seconds if self.video else 1

    @property
    def has_checkpoint(self) -> bool:
        """Returns whether an attempt may leave an object from which the next one goes on."""
        return self.video is not None or self.is_workflow

    @property
    def text(self) -> str:
        """All texts of the client's, a line each."""
        texts = (str(each.value) for each in self.placements if each.is_text)
        return "\n".join(filter(None, (self.prompt, self.negative_prompt, *texts)))

    @property
    def work(self) -> float:
        """Compute units for fair sharing: megapixel-steps of images or of seconds of video, inputs included."""
        return (self.area * self.seconds + self.input_pixels) / MEGAPIXEL * self.steps

    @property
    def megapixels(self) -> float:
        """Megapixels of the image, or of a video, of which a second counts as one image."""
        return self.width * self.height / MEGAPIXEL * (self.video.frames / self.video.fps if self.video else 1)
