"""What a request comes to: its pictures, what will be made, and what that costs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from serve_app.catalog import Endpoint
from serve_app.errors import Invalid
from serve_app.media.geometry import megapixels
from serve_app.media.guard import UrlGuard
from serve_app.media.inputs import BadImage, load_image
from serve_app.requests import GenerationRequest
from serve_app.requests.pictures import Picture, PictureProblem
from serve_app.requests.plan import Plan, Sampling


@dataclass(frozen=True, slots=True)
class Quote:
    pictures: list[Picture]
    """Decoded, checked, and as the model is to get them."""
    plan: Plan
    price: int
    """Milli-credits."""

    @property
    def input_mp(self) -> float:
        """Megapixels of 2^20 pixels, 2 decimals."""
        return megapixels(self.plan.input_pixels)

    @property
    def output_mp(self) -> float:
        return megapixels(self.plan.area)


async def quote(guard: UrlGuard, endpoint: Endpoint, sampling: Sampling, body: GenerationRequest) -> Quote:
    """Raises Invalid for pictures that can't be used."""
    pictures = await _load_pictures(guard, body)
    plan = body.plan([(image.width, image.height) for _, image in pictures]).completed(sampling)
    return Quote(pictures, plan, endpoint.price.millicredits(plan.area, plan.input_pixels))


async def _load_pictures(guard: UrlGuard, body: GenerationRequest) -> list[Picture]:
    """All input pictures. The first bad one is named."""
    sent = body.image_inputs()
    loaded = await asyncio.gather(*(load_image(each.value, guard) for each in sent), return_exceptions=True)
    pictures: list[Picture] = []
    for each, image in zip(sent, loaded, strict=True):
        if isinstance(image, BadImage):
            raise Invalid(["body", *each.loc], str(image), "image_invalid")
        if isinstance(image, BaseException):
            raise image
        pictures.append(Picture(each.role, image))
    try:
        return await asyncio.to_thread(body.prepared, pictures) if pictures else []
    except PictureProblem as problem:
        raise Invalid(["body", problem.field], str(problem), problem.kind) from None
