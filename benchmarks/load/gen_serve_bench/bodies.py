"""Which fields of an endpoint a shape becomes, and pictures to send along: made, not anybody's."""

from __future__ import annotations

import base64
import io
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from PIL import Image, ImageDraw

from gen_serve_bench.workload import Request, Size

VARIANTS: Final = 8
"""Of a picture of one size: servers that keep what they have seen get different ones, and memory has an end."""
_TUNED: Final = "-finetuned"
_KEYFRAME: Final = Size(640, 352)
_CLIP_RATIOS: Final = ("21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21")
_FHD_AREA: Final = 1920 * 1088
_LEAST_SIDE: Final = 64


@dataclass(frozen=True, slots=True)
class Form:
    """How an endpoint is asked."""

    size: Literal["pixels", "ratio", "picture"] = "pixels"
    """Told in pixels, as a ratio, or taken from the first picture that is sent."""
    steps: bool = False
    pictures: tuple[str, ...] = ()
    """A field for each."""
    least: int = 0
    """Pictures without which there is nothing to do."""
    mask: str = ""
    prompt: bool = True
    listed: str = ""
    """One field for all pictures."""


_GEN_2: Final = Form(pictures=("input_image", *(f"input_image_{n}" for n in range(2, 9))))
_PRO: Final = Form(steps=True, pictures=("image_prompt",))
_TRY_ON: Final = Form("picture", pictures=("person", "garment"), least=2)
_ANY: Final = Form(steps=True, listed="images")
"""Of gen-3-image-klein, and of what is not known here."""
_FORMS: Final[Mapping[str, Form]] = {
    "gen-2-max": _GEN_2,
    "gen-2-pro": _GEN_2,
    "gen-2-pro-preview": _GEN_2,
    "gen-kontext-pro": Form("ratio", pictures=_GEN_2.pictures[:4]),
    "gen-pro": _PRO,
    "gen-pro-1.0": _PRO,
    "gen-pro-1.1": _PRO,
    "gen-pro-1.0-fill": Form("picture", True, ("image",), 1, "mask"),
    "gen-pro-1.0-canny": Form("picture", True, ("control_image",), 1),
    "gen-tools/erase-v1": Form("picture", False, ("image",), 1, "mask", prompt=False),
    "gen-tools/outpainting-v1": Form("pixels", False, ("input_image",), 1, prompt=False),
    "gen-tools/vto-v1": _TRY_ON,
    "gen-tools/vto-v2": _TRY_ON,
    "gen-tools/deblur-v1": Form("picture", False, ("image",), 1, prompt=False),
}


def path_of(request: Request, finetune: str | None = None) -> str:
    """A tuned endpoint without a tuned model to name is its base: the same work, but for the adapter's."""
    untuned = finetune is None and "finetune_id" not in request.body
    return f"/v1/{request.endpoint.removesuffix(_TUNED) if untuned else request.endpoint}"


def body_of(request: Request, finetune: str | None = None) -> dict[str, Any]:
    """The request's own further fields go before what its shape says. Raises ValueError for more pictures than the
    endpoint takes."""
    base = request.endpoint.removesuffix(_TUNED)
    body = _clip(request) if base == "gen-3-video" else _picture(request, _FORMS.get(base, _ANY))
    if request.shape.tuned and finetune is not None:
        body["finetune_id"] = finetune
    return body | dict(request.body)


def _picture(request: Request, form: Form) -> dict[str, Any]:
    shape, size = request.shape, request.shape.size
    body: dict[str, Any] = {"prompt": request.prompt} if form.prompt else {}
    body["seed"] = request.seed
    if size and form.size == "pixels":
        body |= {"width": size.width, "height": size.height}
    elif size and form.size == "ratio":
        divisor = math.gcd(*size)
        body["aspect_ratio"] = f"{size.width // divisor}:{size.height // divisor}"
    if form.steps and shape.steps is not None:
        body["steps"] = shape.steps
    if not (count := max(form.least, shape.references)):
        return body
    if not form.listed and count > len(form.pictures):
        raise ValueError(f"{request.endpoint} takes {len(form.pictures)} pictures at most, not {count} (references)")
    first = _first_size(request, form)
    made = [photo(request.reference_size if n else first, request.seed + n) for n in range(count)]
    body |= {form.listed: made} if form.listed else dict(zip(form.pictures, made, strict=False))
    return body | ({form.mask: mask(first)} if form.mask else {})


def _first_size(request: Request, form: Form) -> Size:
    size = request.shape.size
    if size is None or (form.size != "picture" and form.prompt):
        return request.reference_size
    if form.size == "picture":
        return size
    # In the middle of a canvas that is painted around it.
    return Size(max(_LEAST_SIDE, size.width // 2), max(_LEAST_SIDE, size.height // 2))


def _clip(request: Request) -> dict[str, Any]:
    shape, size = request.shape, request.shape.size
    body: dict[str, Any] = {"mode": "t2v", "prompt": request.prompt, "seed": request.seed}
    if shape.references:
        frames = [photo(size or _KEYFRAME, request.seed + n) for n in range(shape.references)]
        body |= {"mode": "i2v", "keyframes": frames}
    if shape.seconds is not None:
        body["duration"] = shape.seconds
    if size:
        area = size.width * size.height
        body["resolution"] = "fhd" if area > 0.75 * _FHD_AREA else "hd"
        body["draft"] = area < 0.2 * _FHD_AREA
        body["aspect_ratio"] = min(_CLIP_RATIOS, key=lambda ratio: _distance(ratio, size))
    return body


def _distance(ratio: str, size: Size) -> float:
    width, height = map(int, ratio.split(":"))
    return abs(math.log(width / height) - math.log(size.width / size.height))


def photo(size: Size, seed: int) -> str:
    """Base64 of a JPEG: coloured spots over a coarse noise, about as large as a photograph of that size."""
    return _photo(size, seed % VARIANTS)


@lru_cache(maxsize=256)
def _photo(size: Size, variant: int) -> str:
    chance = random.Random(variant)
    grain = Image.frombytes("RGB", (64, 64), chance.randbytes(64 * 64 * 3))
    picture = grain.resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(picture)
    for _ in range(6):
        left, top = chance.randrange(size.width), chance.randrange(size.height)
        draw.ellipse((left, top, left + size.width // 4, top + size.height // 4), fill=tuple(chance.randbytes(3)))
    return _encoded(picture, "JPEG")


@lru_cache(maxsize=64)
def mask(size: Size) -> str:
    """Base64 of a PNG: black, with a white box in the middle."""
    picture = Image.new("L", size)
    picture.paste(255, (size.width // 4, size.height // 4, max(1, size.width * 3 // 4), max(1, size.height * 3 // 4)))
    return _encoded(picture, "PNG")


def _encoded(picture: Image.Image, form: str) -> str:
    file = io.BytesIO()
    picture.save(file, form)
    return base64.b64encode(file.getvalue()).decode()
