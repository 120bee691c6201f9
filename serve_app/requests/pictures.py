"""The pictures of a request: as they are sent, and as they are stored for the model."""

from __future__ import annotations

from typing import Literal, LiteralString, NamedTuple, TypeAlias

from serve_app.media.decoding import InputPicture

Role: TypeAlias = Literal["references", "mask", "control", "image_prompt"]
"""What a picture is to the model, named as in GenerationJob. Only `references` may be several."""


class SentPicture(NamedTuple):
    """Base64, `data:` URI or URL, at its location in the body."""

    loc: tuple[str, ...]
    value: str
    role: Role


class Picture(NamedTuple):
    role: Role
    image: InputPicture


class PictureProblem(ValueError):
    """Pictures that are fine by themselves, but not together. The message is fit for the client's eyes."""

    def __init__(self, field: str, message: str, kind: LiteralString) -> None:
        super().__init__(message)
        self.field = field
        self.kind = kind


def check_mask_size(mask: InputPicture, image: InputPicture) -> None:
    """Raises PictureProblem when they differ in size."""
    if (mask.width, mask.height) != (image.width, image.height):
        sizes = f"{mask.width}x{mask.height} pixels, the image {image.width}x{image.height}"
        raise PictureProblem("mask", f"The mask must be as large as the image, but it has {sizes}", "mask_size")
