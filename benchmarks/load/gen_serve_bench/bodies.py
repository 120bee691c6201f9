"""Request bodies: the fields that each endpoint takes for a shape, and synthetic images to send."""

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

from gen_serve_bench.workload import LoadRequest, Size

VARIANTS: Final = 8
"""Variants of a synthetic image per size: several against servers' caches, but few enough to keep in memory."""
_TUNED: Final = "-finetuned"
_KEYFRAME: Final = Size(640, 352)
_VIDEO_RATIOS: Final = ("21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21")
_FHD_AREA: Final = 1920 * 1088
_MIN_SIDE: Final = 64


@dataclass(frozen=True, slots=True)
class RequestForm:
    """Fields of an endpoint."""

    size: Literal["pixels", "ratio", "image"] = "pixels"
    """Form of the size: in pixels, as a ratio, or taken from the first image."""
    steps: bool = False
    images: tuple[str, ...] = ()
    """Fields of the images, one each."""
    min_images: int = 0
    mask: str = ""
    """Field of the mask, if it takes one."""
    prompt: bool = True
    list_field: str = ""
    """Field of a list of images, if it takes one."""


_GEN_2: Final = RequestForm(images=("input_image", *(f"input_image_{n}" for n in range(2, 9))))
_PRO: Final = RequestForm(steps=True, images=("image_prompt",))
_TRY_ON: Final = RequestForm("image", images=("person", "garment"), min_images=2)
_DEFAULT: Final = RequestForm(steps=True, list_field="images")
"""Fields of gen-3-image-klein and of unknown endpoints."""
_FORMS: Final[Mapping[str, RequestForm]] = {
    "gen-2-max": _GEN_2,
    "gen-2-pro": _GEN_2,
    "gen-2-pro-preview": _GEN_2,
    "gen-kontext-pro": RequestForm("ratio", images=_GEN_2.images[:4]),
    "gen-pro": _PRO,
    "gen-pro-1.0": _PRO,
    "gen-pro-1.1": _PRO,
    "gen-pro-1.0-fill": RequestForm("image", True, ("image",), 1, "mask"),
    "gen-pro-1.0-canny": RequestForm("image", True, ("control_image",), 1),
    "gen-tools/erase-v1": RequestForm("image", False, ("image",), 1, "mask", prompt=False),
    "gen-tools/outpainting-v1": RequestForm("pixels", False, ("input_image",), 1, prompt=False),
    "gen-tools/vto-v1": _TRY_ON,
    "gen-tools/vto-v2": _TRY_ON,
    "gen-tools/deblur-v1": RequestForm("image", False, ("image",), 1, prompt=False),
}


def request_path(request: LoadRequest, finetune: str | None = None) -> str:
    """Returns the path. Without the id of a tuned model, a tuned endpoint becomes its base, whose work is similar."""
    is_base = finetune is None and "finetune_id" not in request.body
    return f"/v1/{request.endpoint.removesuffix(_TUNED) if is_base else request.endpoint}"


def request_body(request: LoadRequest, finetune: str | None = None) -> dict[str, Any]:
    """Returns the body; the request's extra fields override those of its shape.

    Raises ValueError for more images than the endpoint takes.
    """
    base = request.endpoint.removesuffix(_TUNED)
    body = _video(request) if base == "gen-3-video" else _image(request, _FORMS.get(base, _DEFAULT))
    if request.shape.tuned and finetune is not None:
        body["finetune_id"] = finetune
    return body | dict(request.body)


def _image(request: LoadRequest, form: RequestForm) -> dict[str, Any]:
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
    if not (count := max(form.min_images, shape.references)):
        return body
    if not form.list_field and count > len(form.images):
        raise ValueError(f"{request.endpoint} takes {len(form.images)} images at most, not {count} (references)")
    first = _first_size(request, form)
    images = [photo(request.reference_size if n else first, request.seed + n) for n in range(count)]
    body |= {form.list_field: images} if form.list_field else dict(zip(form.images, images, strict=False))
    return body | ({form.mask: mask(first)} if form.mask else {})


def _first_size(request: LoadRequest, form: RequestForm) -> Size:
    size = request.shape.size
    if size is None or (form.size != "image" and form.prompt):
        return request.reference_size
    if form.size == "image":
        return size
    # Outpainting gets an image that fills the middle of the canvas.
    return Size(max(_MIN_SIDE, size.width // 2), max(_MIN_SIDE, size.height // 2))


def _video(request: LoadRequest) -> dict[str, Any]:
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
        body["aspect_ratio"] = min(_VIDEO_RATIOS, key=lambda ratio: _ratio_distance(ratio, size))
    return body


def _ratio_distance(ratio: str, size: Size) -> float:
    width, height = map(int, ratio.split(":"))
    return abs(math.log(width / height) - math.log(size.width / size.height))


def photo(size: Size, seed: int) -> str:
    """Returns a base64 JPEG of coloured spots over coarse noise, about as large as a photograph of that size."""
    return _photo(size, seed % VARIANTS)


@lru_cache(maxsize=256)
def _photo(size: Size, variant: int) -> str:
    rng = random.Random(variant)
    noise = Image.frombytes("RGB", (64, 64), rng.randbytes(64 * 64 * 3))
    image = noise.resize(size, Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for _ in range(6):
        left, top = rng.randrange(size.width), rng.randrange(size.height)
        draw.ellipse((left, top, left + size.width // 4, top + size.height // 4), fill=tuple(rng.randbytes(3)))
    return _encode(image, "JPEG")


@lru_cache(maxsize=64)
def mask(size: Size) -> str:
    """Returns a base64 PNG: black with a white box in the middle."""
    image = Image.new("L", size)
    image.paste(255, (size.width // 4, size.height // 4, max(1, size.width * 3 // 4), max(1, size.height * 3 // 4)))
    return _encode(image, "PNG")


def _encode(image: Image.Image, image_format: str) -> str:
    file = io.BytesIO()
    image.save(file, image_format)
    return base64.b64encode(file.getvalue()).decode()
