"""Results of tasks, as their records store them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DraftResult:
    """The latents of a draft, and the fields of the video that enhances it."""

    key: str
    frames: int
    width: int
    height: int
    audio: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationResult:
    """Object keys of a finished image or video, and its fields that clients see. Times are in epoch seconds."""

    key: str
    prompt: str
    seed: int
    start_time: float
    end_time: float
    duration: float
    """Seconds from the start of work to the end."""
    files: tuple[str, ...] | None = None
    """Names of all objects beside `key`; None in records of 0.1."""
    thumbnail: str | None = None
    draft: DraftResult | None = None
    more: tuple[str, ...] = ()
    """Object keys of a workflow's further results."""

    def encode(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__}
        if self.draft is not None:
            fields["draft"] = asdict(self.draft)
        return json.dumps({name: value for name, value in fields.items() if value is not None and value != ()})

    @classmethod
    def decode(cls, record: str) -> GenerationResult:
        fields: dict[str, Any] = json.loads(record)
        known = {name: fields[name] for name in cls.__slots__ if name in fields}
        if draft := known.get("draft"):
            known["draft"] = DraftResult(**draft)
        known |= {name: tuple(known[name]) for name in ("files", "more") if name in known}
        return cls(**known)

    @property
    def object_keys(self) -> list[str] | None:
        """Keys of all objects that the attempt stored; None without `files`."""
        folder = self.key.rpartition("/")[0]
        return None if self.files is None else [f"{folder}/{name}" for name in self.files]
