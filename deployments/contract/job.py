"""The job that the service sends to a model, and the output it gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from deployments.contract.request import (
    LayoutRow,  # noqa: F401  # by this name in jobs that 0.2 pickled, as the next one; goes with 0.4
    ResolvedRequest,
    VideoParams,  # noqa: F401
    restore_fields,
)

RESULTS: Final = "results/"
"""Folder of the object store where models put results."""
CHECKPOINTS: Final = "checkpoints/"
"""Folder of the object store where models keep the latents of unfinished videos."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter (LoRA): its id, the object-store key of its weights, and how strongly it applies (0 not at all)."""

    id: str
    key: str
    strength: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InputKeys:
    """Object-store keys of a job's checked inputs, each None where there is none.

    `references` are images in the client's order. `mask` is a grey image of the first reference's size, white where it
    is painted anew. The result follows the edges of `control`. `image_prompt` is an image used like a prompt.
    `start_video` is a video to go on from: the result is it and the new frames, joined. `draft` holds the latents whose
    composition the result has.
    """

    references: tuple[str, ...] = ()
    mask: str | None = None
    control: str | None = None
    image_prompt: str | None = None
    start_video: str | None = None
    draft: str | None = None

    __setstate__ = restore_fields

    @property
    def keys(self) -> tuple[str, ...]:
        single = (self.mask, self.control, self.image_prompt, self.start_video, self.draft)
        return self.references + tuple(key for key in single if key is not None)


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """One attempt at one image or one video.

    Only this attempt writes below `output_prefix`, so an attempt that lost its lease can't overwrite a published
    result. `exclusive` asks the engine to run the job alone: its task has lost several workers. `remaining_s` is the
    time that it may take from its admission on, None without a limit: a span and not a moment, as the clocks of two
    machines may differ. `traceparent` is the parent of the job's spans, empty where nothing is traced; `log_levels` are
    those that operators set on the running service, by module.
    """

    id: str
    attempt: int
    request: ResolvedRequest
    output_prefix: str
    inputs: InputKeys = field(default_factory=InputKeys)
    adapter: Adapter | None = None
    exclusive: bool = False
    remaining_s: float | None = None
    traceparent: str = ""
    log_levels: tuple[tuple[str, str], ...] = ()

    __setstate__ = restore_fields

    @property
    def checkpoint(self) -> str:
        """The object that all attempts at a video share: its latents between two steps."""
        return checkpoint_key(self.id)

    @property
    def is_readable(self) -> bool:
        """False for a job that a dispatcher of 0.2 sent, whose fields are others; goes with 0.4."""
        return isinstance(self.request, ResolvedRequest)


def checkpoint_key(task_id: str) -> str:
    return f"{CHECKPOINTS}{task_id}.safetensors"


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

    __setstate__ = restore_fields

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
