"""Masks as OpenAI's clients have them: what is transparent is painted anew. Endpoints take white for that."""

from __future__ import annotations

from functools import cache

from serve_app.media.masks import alpha_mask
from serve_app.requests import GenerationRequest
from serve_app.requests.pictures import Picture, PictureProblem


@cache
def masked_by_alpha(form: type[GenerationRequest]) -> type[GenerationRequest]:
    """The form with such masks."""

    def prepared(self: GenerationRequest, pictures: list[Picture]) -> list[Picture]:
        return form.prepared(self, [_white(each) if each.role == "mask" else each for each in pictures])

    return type(form.__name__, (form,), {"prepared": prepared, "__module__": form.__module__})


def _white(mask: Picture) -> Picture:
    """Raises PictureProblem."""
    white = alpha_mask(mask.image)
    if white is None:
        message = "The mask has no transparent parts, which are what is painted anew"
        raise PictureProblem("mask", message, "image_invalid")
    return Picture("mask", white)
