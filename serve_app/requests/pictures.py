"""The pictures of a request: as they are sent, and as they are stored for the model."""

from __future__ import annotations

from typing import Literal, LiteralString, NamedTuple, TypeAlias

from serve_app.media.inputs import InputImage

Role: TypeAlias = Literal["references", "mask", "control", "image_prompt"]
"""What a picture is to the model, named as in GenerationJob. Only `references` may be several."""


class SentPicture(NamedTuple):
    """Base64, `data:` URI or URL, at its location in the body."""

    loc: tuple[str, ...]
    value: str
    role: Role


class Picture(NamedTuple):
    role: Role
    image: InputImage


class PictureProblem(ValueError):
    """Pictures that are fine by themselves, but not together. The message is fit for the client's eyes."""

    def __init__(self, field: str, message: str, kind: LiteralString) -> None:
        super().__init__(message)
        self.field = field
        self.kind = kind
