"""The job that the service sends to a model, and the output it gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from deployments.contract.request import (
    LayoutRow,  # noqa: F401  # under this name in jobs that 0.2 pickled, as VideoParams; goes with 0.4
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
    """An adapter (LoRA): its id, the object-store key of its weights, and its strength (0: no effect)."""

    id: str
    key: str
    strength: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InputKeys:
    """Object-store keys of a job's checked inputs; None for a missing one.

    `references` are images in the client's order. `mask` is a grey image of the first reference's size, white where to
    repaint. `control` has the edges that the result follows. `image_prompt` is an image used like a prompt.
    `start_video` is the video to continue: the result is that video and the new frames, joined. `draft` has the latents
    that the result takes its composition from.
    """

    references: tuple[str, ...] = ()
    mask: str | None = None
    control: str | None = None
    image_prompt: str | None = None
    start_video: str | None = None
    draft: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    """Keys of a workflow's input files, each after the name of its input."""

    __setstate__ = restore_fields

    @property
    def keys(self) -> tuple[str, ...]:
        single = (self.mask, self.control, self.image_prompt, self.start_video, self.draft)
        return (*self.references, *(key for key in single if key is not None), *(key for _, key in self.files))


@dataclass(frozen=True, slots=True)
class GenerationJob:
    """One attempt at one image or video.

    Only this attempt writes below `output_prefix`, so an attempt that lost its lease can't overwrite a published
    result. `exclusive` makes the engine run the job alone, as its task has lost several replicas. `remaining_s` is the
    time limit from its admission, or None: a duration and no moment, as clocks of two machines may differ.
    `traceparent` is the parent of the job's spans, empty without tracing. `log_levels` are those set on the running
    service, by module.
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
        """Object with the latents of a video between two steps, which all attempts share."""
        return checkpoint_key(self.id)

    @property
    def is_readable(self) -> bool:
        """False for a job from a dispatcher of release 0.2, which has other fields; goes with 0.4."""
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
    """Object with a draft's latents."""
    thumbnail: str | None = None
    """Object with a small image of the result."""
    warnings: tuple[str, ...] = ()
    """Parts of the job that could not be done; shown to the client."""
    proxy: str | None = None
    """Object that moderation reads: the thumbnail of an image, or some frames of a video."""
    previews: tuple[int, ...] = ()
    """Steps after which previews were stored."""
    more: tuple[Output, ...] = ()
    """Further results of a workflow."""

    __setstate__ = restore_fields

    @property
    def moderated(self) -> str | None:
        """Object that moderation reads; None for sound, which it does not understand."""
        return None if self.content_type.startswith("audio/") else self.proxy or self.key

    @property
    def files(self) -> list[str]:
        """Keys of all objects that the attempt stored."""
        previews = (preview_key(self.key.rpartition("/")[0], step) for step in self.previews)
        further = (key for output in self.more for key in output.files)
        keys = (self.key, self.draft, self.thumbnail, self.proxy, *previews, *further)
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
        ".webm": "video/webm",
        ".gif": "image/gif",
        ".wav": "audio/wav",
        ".mp3": "audio/mpeg",
        ".flac": "audio/flac",
        ".opus": "audio/ogg",
        ".ogg": "audio/ogg",
    }
)


def media_type(name: str) -> str:
    """Returns the media type of a file or object by its suffix, in either case."""
    return _BY_SUFFIX.get(PurePosixPath(name).suffix.lower(), UNKNOWN)
