"""Base of tolerant requests: image endpoints before generation 3, and tools.

Unknown fields are ignored, and an explicit null means "not set", as a negative seed does.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, create_model, model_validator

from serve_app.schemas.fields import (
    JSON_NUMBER,
    JSON_REAL,
    Flag,
    GenerationRequest,
    ImageFormat,
    NullIsUnset,
    WideSeed,
    advice,
    random_seed,
)

IMAGE_LIMITS = "JPEG, PNG or WebP; base64, `data:` URI or http(s) URL; at most 20 MB and 20 megapixels; turned upright"


_IMAGES_ELSEWHERE: Final = frozenset(
    {
        *("image", "images", "image_url", "image_urls", "input_image", "input_images", "input_image_url", "init_image"),
        *("reference_image", "reference_images", "reference_image_urls"),
        *("mask", "mask_url", "mask_image", "control_image"),
    }
)
"""Fields that hold images in the dialects of other services."""
_MAX_WARNINGS: Final = 20
UPSAMPLING: Final = "prompt_upsampling"


class TolerantRequest(GenerationRequest):
    model_config = ConfigDict(extra="ignore")

    other_names: ClassVar[frozenset[str]] = frozenset()
    """Names of further fields that are read."""
    _ignored: tuple[str, ...] = PrivateAttr(default=())

    seed: WideSeed | None = Field(
        default=None,
        description="Seed of the image: the same request with the same seed gives the same image. Random if omitted or "
        "negative. JavaScript rounds seeds above 2^53 when it reads the answer.",
        examples=[42],
    )
    safety_tolerance: Annotated[int, Field(ge=0, le=6), JSON_NUMBER] | None = Field(
        default=None, description="Moderation tolerance, 0 (strictest) to 6. 2 if omitted.", examples=[2]
    )
    output_format: Annotated[ImageFormat, NullIsUnset()] = Field(
        default="jpeg", description="File format of the result.", examples=["png"]
    )

    @model_validator(mode="wrap")
    @classmethod
    def _note_ignored(cls, body: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        request = handler(body)
        if isinstance(body, dict):
            unknown = sorted(body.keys() - cls.model_fields.keys() - cls.other_names)[:_MAX_WARNINGS]
            meant = (name for name in unknown if body[name] is True or body[name] not in (None, False, "", [], 1))
            advice_by_field = [(name, cls._advice(name)) for name in meant]
            request._ignored = tuple(
                f"{name} is not a field of this endpoint and was ignored{': ' if advice else ''}{advice or ''}"
                for name, advice in advice_by_field
                if advice or name in _IMAGES_ELSEWHERE or name == UPSAMPLING
            )
        return request

    @classmethod
    def _advice(cls, name: str) -> str | None:
        """Returns the hint for the unknown field `name`."""
        if name in _IMAGES_ELSEWHERE and cls.image_fields:
            fields = list(cls.image_fields)
            return f"did you mean {next((field for field in fields if field in name), fields[0])}?"
        return advice(name, cls.model_fields)

    def ignored_fields(self) -> tuple[str, ...]:
        return self._ignored

    def seed_or_random(self) -> int:
        return random_seed() if self.seed is None else self.seed


class UpsamplingRequest(TolerantRequest):
    """`disable_pup` is understood as the opposite of `prompt_upsampling`, and ignored beside it."""

    prompt_upsampling: Flag = Field(
        default=False, description="Rewrites the prompt for a more creative result.", examples=[False]
    )

    def asks_for_rewriting(self) -> bool:
        return self.prompt_upsampling

    @model_validator(mode="before")
    @classmethod
    def _takes_the_opposite(cls, body: Any) -> Any:
        return with_opposite(body, UPSAMPLING, "disable_pup")


def with_opposite(body: Any, own: str, other: str) -> Any:
    """Returns the body with `own` set from its opposite `other`, if only that was sent.

    If both are sent, `own` counts: clients send the defaults of both without meaning either.
    """
    if isinstance(body, dict) and body.get(own) is None and isinstance(body.get(other), bool):
        return body | {own: not body[other]}
    return body


class FinetunedFields(BaseModel):
    finetune_id: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="The tuned model, by the id that its upload answered.", examples=["4f0c1d2e9a7b6c5d"]
    )
    finetune_strength: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False), JSON_REAL, NullIsUnset()] = Field(
        default=1.1, description="Strength of the tuned model: 0 has no effect, 1 is as trained.", examples=[1.1]
    )

    def finetune(self) -> tuple[str, float] | None:
        return self.finetune_id, self.finetune_strength


@cache
def with_finetune(base: type[GenerationRequest]) -> type[GenerationRequest]:
    """Returns the request of a base endpoint with the fields of FinetunedFields."""
    return create_model(f"Tuned{base.__name__}", __base__=(FinetunedFields, base))  # type: ignore[call-overload]
