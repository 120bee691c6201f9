"""Custom requests: forms of endpoints that operators define in the catalog, with their own ranges and defaults."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import ConfigDict, Field, create_model, model_validator

from deployments.contract.request import OutputFormat, ResolvedRequest
from deployments.contract.strict_settings import StrictSettings
from serve_app.inputs.geometry import MAX_SIDE, MIN_SIDE, RATIOS, Ratio, Size, size_for
from serve_app.schemas.defaults import Draft, ModelDefaults
from serve_app.schemas.fields import (
    JSON_NUMBER,
    JSON_REAL,
    AspectRatio,
    Flag,
    GenerationRequest,
    ImageFormat,
    ImageInput,
    NullIsUnset,
    Prompt,
    RequestImage,
    Role,
    Seed,
    Text,
    check_exact_size,
    check_mask_size,
    random_seed,
)
from serve_app.schemas.tolerant import IMAGE_LIMITS

MAX_SAFETY_TOLERANCE: Final = 6


class FieldRange(StrictSettings):
    """Range of a form's field. Without a default, the model's setting applies."""

    min: float = Field(allow_inf_nan=False)
    max: float = Field(allow_inf_nan=False)
    default: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.min <= (self.min if self.default is None else self.default) <= self.max:
            raise ValueError("min must be at most max, and default between them")
        return self


class FormSettings(StrictSettings):
    """Ranges and defaults of a custom form. Each form uses those of its fields."""

    steps: FieldRange = FieldRange(min=1, max=100)
    guidance: FieldRange = FieldRange(min=0, max=30)
    strength: FieldRange = FieldRange(min=0, max=1)
    """Share of the input image that is replaced, for pipelines that take it."""
    duration: FieldRange = FieldRange(min=1, max=10, default=5)
    """Whole seconds of video."""
    side: int = Field(default=1024, ge=MIN_SIDE, le=MAX_SIDE)
    """Side in pixels of the square whose area the default size has."""
    max_side: int = Field(default=2048, ge=MIN_SIDE, le=MAX_SIDE)
    multiple: int = Field(default=16, ge=1, le=256)
    """Pixels that sides of results are multiples of."""
    max_images: int = Field(default=4, ge=1, le=16)

    @model_validator(mode="after")
    def _default_fits(self) -> Self:
        if self.side > self.max_side:
            raise ValueError(f"side ({self.side}) must be at most max_side ({self.max_side})")
        return self


class CustomRequest(GenerationRequest):
    """Base of custom forms. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")
    form: ClassVar[FormSettings] = FormSettings()

    prompt: Prompt = Field(description="What the result shows.", examples=["A lighthouse on a cliff at dawn"])
    negative_prompt: Annotated[Text, NullIsUnset()] = Field(
        default="", description="What the result must not show. Only for models that take one.", examples=["text, blur"]
    )
    width: int | None = Field(default=None, description="Width in pixels; needs `height`.")
    height: int | None = Field(default=None, description="Height in pixels; needs `width`.")
    steps: int | None = Field(default=None, description="Denoising steps. Left out: the model's own number.")
    guidance: float | None = Field(
        default=None,
        description="Guidance: higher values keep closer to the prompt. The model's value if omitted.",
    )
    seed: Seed | None = Field(
        default=None,
        description="Seed of the result: the same request with the same seed gives the same result. Random if omitted.",
        examples=[42],
    )
    safety_tolerance: Annotated[int, Field(ge=0, le=MAX_SAFETY_TOLERANCE), JSON_NUMBER] | None = Field(
        default=None, description="Moderation tolerance, 0 is strictest.", examples=[2]
    )

    @model_validator(mode="after")
    def _exact_size_is_valid(self) -> Self:
        check_exact_size(self.width, self.height)
        return self

    def size(self, ratio: Ratio) -> Size:
        """Returns the exact size that was sent, else the form's size in `ratio`."""
        if self.width is not None and self.height is not None:
            return Size(self.width, self.height)
        size = size_for(ratio, self.form.side**2, self.form.multiple)
        max_side = self.form.max_side // self.form.multiple * self.form.multiple
        return Size(min(size.width, max_side), min(size.height, max_side))

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        resolved = defaults.resolve(
            prompt=self.prompt,
            seed=random_seed() if self.seed is None else self.seed,
            output_format=self.result_format(),
            size=self.size(self.ratio(sizes)),
            steps=self.steps,
            guidance=self.guidance,
        )
        return replace(resolved, negative_prompt=self.negative_prompt)

    @abstractmethod
    def ratio(self, sizes: Sequence[tuple[int, int]]) -> Ratio:
        """Returns the ratio of a result whose width and height were not sent."""

    @abstractmethod
    def result_format(self) -> OutputFormat: ...


class _ImageForm(CustomRequest):
    output_format: Annotated[ImageFormat, NullIsUnset()] = Field(
        default="jpeg", description="File format of the result.", examples=["png"]
    )

    def result_format(self) -> OutputFormat:
        return self.output_format


class TextToImageForm(_ImageForm):
    """Text to image."""

    aspect_ratio: Annotated[AspectRatio, NullIsUnset()] = Field(
        default="1:1", description="Ratio of width to height; `auto` is 1:1.", examples=["16:9"]
    )

    def ratio(self, sizes: Sequence[tuple[int, int]]) -> Ratio:
        return RATIOS.get(self.aspect_ratio, Fraction(1))


class _ChangeForm(_ImageForm):
    """A request whose result has the ratio of its first image."""

    strength: float | None = Field(default=None, description="How much of the image is replaced.")

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        return replace(super().resolve(defaults, sizes), strength=self.strength)

    def ratio(self, sizes: Sequence[tuple[int, int]]) -> Ratio:
        return Fraction(*sizes[0])


class EditForm(_ChangeForm):
    """Edit of images by words. The result has the ratio of the first one."""

    image_fields: ClassVar[Mapping[str, Role]] = {"images": "references"}
    images: list[ImageInput] = Field(repr=False, description=f"Images to edit or to take from ({IMAGE_LIMITS}).")
    strength: float | None = Field(default=None, description="How much of the image is replaced.")


class InpaintForm(_ChangeForm):
    """Part of an image painted anew."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image": "references", "mask": "mask"}
    image: ImageInput = Field(repr=False, description=f"The image to change ({IMAGE_LIMITS}).")
    mask: ImageInput = Field(repr=False, description="Image of the same size, white where it is painted anew.")
    strength: float | None = Field(default=None, description="How much of the masked part is replaced.")

    def prepare_images(self, images: list[RequestImage]) -> list[RequestImage]:
        check_mask_size(images[1].image, images[0].image)
        return images


class _VideoForm(CustomRequest):
    makes_video: ClassVar[bool] = True

    duration: int = Field(default=5, description="Whole seconds.")
    generate_audio: Flag = Field(default=True, description="Generates sound, if the model can.")

    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        video = defaults.video(self.duration, audio=self.generate_audio)
        return replace(super().resolve(defaults, sizes), video=video)

    def result_format(self) -> OutputFormat:
        return "mp4"


class TextToVideoForm(_VideoForm):
    """Text to video."""

    aspect_ratio: Annotated[AspectRatio, NullIsUnset()] = Field(
        default="16:9", description="Ratio of width to height; `auto` is 16:9.", examples=["9:16"]
    )

    def ratio(self, sizes: Sequence[tuple[int, int]]) -> Ratio:
        return RATIOS.get(self.aspect_ratio, RATIOS["16:9"])


class ImageToVideoForm(_VideoForm):
    """Image to video: the image is the first frame, and sets the ratio."""

    image_fields: ClassVar[Mapping[str, Role]] = {"image": "references"}
    image: ImageInput = Field(repr=False, description=f"The first frame ({IMAGE_LIMITS}).")

    def ratio(self, sizes: Sequence[tuple[int, int]]) -> Ratio:
        return Fraction(*sizes[0])


FORMS: Final[Mapping[str, type[CustomRequest]]] = MappingProxyType(
    {
        "text-to-image": TextToImageForm,
        "edit": EditForm,
        "inpaint": InpaintForm,
        "text-to-video": TextToVideoForm,
        "image-to-video": ImageToVideoForm,
    }
)
"""Custom forms by their catalog names."""


def custom_request(form: str, name: str, settings: FormSettings) -> type[CustomRequest]:
    """Returns the form with the ranges of `settings`, as the request of the endpoint `name`."""
    return _custom_request(form, name, settings.model_dump_json())


@cache
def _custom_request(form: str, name: str, settings_json: str) -> type[CustomRequest]:
    base, settings = FORMS[form], FormSettings.model_validate_json(settings_json)
    side: Any = Annotated[int, Field(ge=MIN_SIDE, le=settings.max_side, multiple_of=settings.multiple), JSON_NUMBER]
    fields: dict[str, Any] = {
        "width": side | None,
        "height": side | None,
        "steps": _range_type(int, settings.steps),
        "guidance": _range_type(float, settings.guidance),
        "strength": _range_type(float, settings.strength),
        "duration": _range_type(int, settings.duration),
        "images": Annotated[list[ImageInput], Field(min_length=1, max_length=settings.max_images)],
    }
    defaults = {"steps": settings.steps, "guidance": settings.guidance, "strength": settings.strength}
    defaults["duration"] = settings.duration
    changes: dict[str, Any] = {}
    for field, field_type in fields.items():
        info = base.model_fields.get(field)
        if info is None:
            continue
        info = info._copy()
        if field in defaults:
            value = defaults[field].default
            info.default = value if value is None or field in ("guidance", "strength") else int(value)
        changes[field] = (field_type, info)
    title = "".join(part.capitalize() for part in name.replace("/", "-").replace(".", "-").split("-"))
    model = create_model(f"{title}Request", __base__=base, __doc__=base.__doc__, **changes)
    model.form = settings
    return model


def _range_type(number: type, allowed: FieldRange) -> Any:
    marker = JSON_NUMBER if number is int else JSON_REAL
    ranged: Any = Annotated[number, Field(ge=allowed.min, le=allowed.max), marker]
    return ranged | None if allowed.default is None else Annotated[ranged, NullIsUnset()]
