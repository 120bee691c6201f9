"""Which fields of the interface's endpoints a shape becomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from serve_app.load import pictures
from serve_app.load.request import Request
from serve_app.load.shape import Size

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
    listed: str = ""
    """One field for all of them."""
    least: int = 0
    """Pictures without which there is nothing to do."""
    mask: str = ""
    prompt: bool = True


_GEN_2: Final = Form(pictures=("input_image", *(f"input_image_{n}" for n in range(2, 9))))
_PRO: Final = Form(steps=True, pictures=("image_prompt",))
_TRY_ON: Final = Form("picture", pictures=("person", "garment"), least=2)

_ENDPOINTS: Final[Mapping[str, Form]] = {
    "gen-2-max": _GEN_2,
    "gen-2-pro": _GEN_2,
    "gen-2-pro-preview": _GEN_2,
    "gen-kontext-pro": Form("ratio", pictures=("input_image", "input_image_2", "input_image_3", "input_image_4")),
    "gen-pro": _PRO,
    "gen-pro-1.0": _PRO,
    "gen-pro-1.1": _PRO,
    "gen-pro-1.0-fill": Form("picture", steps=True, pictures=("image",), least=1, mask="mask"),
    "gen-pro-1.0-canny": Form("picture", steps=True, pictures=("control_image",), least=1),
    "gen-tools/erase-v1": Form("picture", pictures=("image",), least=1, mask="mask", prompt=False),
    "gen-tools/outpainting-v1": Form(pictures=("input_image",), least=1, prompt=False),
    "gen-tools/vto-v1": _TRY_ON,
    "gen-tools/vto-v2": _TRY_ON,
    "gen-tools/deblur-v1": Form("picture", pictures=("image",), least=1, prompt=False),
}
_ANY: Final = Form(steps=True, listed="images")
"""Of gen-3-image-klein, and of what is not known here."""
_VIDEO: Final = "gen-3-video"


def path_of(request: Request, finetune: str | None = None) -> str:
    return f"/v1/{_endpoint(request, finetune)}"


def body_of(request: Request, finetune: str | None = None) -> dict[str, Any]:
    """The request's own further fields go before what its shape says. Raises ValueError for more pictures than the
    endpoint takes."""
    base = request.endpoint.removesuffix(_TUNED)
    body = _clip(request) if base == _VIDEO else _picture(request, _ENDPOINTS.get(base, _ANY))
    if request.shape.tuned and finetune is not None:
        body["finetune_id"] = finetune
    return body | dict(request.body)


def _endpoint(request: Request, finetune: str | None) -> str:
    """A tuned endpoint without a tuned model to name is its base: the same work, but for the adapter's."""
    if finetune is None and "finetune_id" not in request.body:
        return request.endpoint.removesuffix(_TUNED)
    return request.endpoint


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
    return body | _sent(request, form)


def _sent(request: Request, form: Form) -> dict[str, Any]:
    count = max(form.least, request.shape.references)
    if not count:
        return {}
    first = _first_size(request, form)
    made = [pictures.photo(request.reference_size if n else first, request.seed + n) for n in range(count)]
    if form.listed:
        return {form.listed: made}
    if count > len(form.pictures):
        raise ValueError(f"{request.endpoint} takes {len(form.pictures)} pictures at most, not {count} (references)")
    fields: dict[str, Any] = dict(zip(form.pictures, made, strict=False))
    if form.mask:
        fields[form.mask] = pictures.mask(first)
    return fields


def _first_size(request: Request, form: Form) -> Size:
    size = request.shape.size
    if size is None:
        return request.reference_size
    if form.size == "picture":
        return size
    if not form.prompt:  # a picture in the middle of a canvas that is painted around it
        return Size(max(_LEAST_SIDE, size.width // 2), max(_LEAST_SIDE, size.height // 2))
    return request.reference_size


def _clip(request: Request) -> dict[str, Any]:
    shape, size = request.shape, request.shape.size
    body: dict[str, Any] = {"mode": "t2v", "prompt": request.prompt, "seed": request.seed}
    if shape.references:
        frames = [pictures.photo(size or _KEYFRAME, request.seed + n) for n in range(shape.references)]
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
