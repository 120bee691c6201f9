"""Shared field types, and the base of generation requests.

Whole numbers are JSON numbers: a boolean, a string or 1.5 is refused, 3.0 is taken for 3. Secrets and images appear
in no `repr` and in no error.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from secrets import randbelow
from typing import Annotated, Any, ClassVar, Final, Literal, LiteralString, NamedTuple, TypeAlias

import pybase64
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SecretStr,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticUseDefault, core_schema

from deployments.contract import request
from deployments.contract.request import ResolvedRequest
from serve_app.inputs.geometry import MAX_AREA
from serve_app.inputs.images import InputImage
from serve_app.inputs.ssrf import UrlRefused, parse_url
from serve_app.schemas.defaults import Draft, ModelDefaults

Role: TypeAlias = Literal["references", "mask", "control", "image_prompt", "workflow"]
"""Role of an image for the model. Only `references` may hold several images. `workflow`: an input by its name."""


class ImageField(NamedTuple):
    """Base64, `data:` URI or URL, at its location in the body."""

    loc: tuple[str, ...]
    value: str
    role: Role


class RequestImage(NamedTuple):
    role: Role
    image: InputImage
    name: str = ""
    """Name of the field, for the role `workflow`."""


class ImageProblem(ValueError):
    """The images are valid, but not together. Clients see the message."""

    def __init__(self, field: str, message: str, kind: LiteralString) -> None:
        super().__init__(message)
        self.field = field
        self.kind = kind


def check_mask_size(mask: InputImage, image: InputImage) -> None:
    """Raises ImageProblem if the sizes differ."""
    if (mask.width, mask.height) != (image.width, image.height):
        sizes = f"{mask.width}x{mask.height} pixels, the image {image.width}x{image.height}"
        raise ImageProblem("mask", f"The mask must be as large as the image, but it has {sizes}", "mask_size")


MAX_PROMPT_CHARS: Final = 32_768
MAX_SEED: Final = 2**32 - 1
MAX_WIDE_SEED: Final = 2**64 - 1
MAX_URL_CHARS: Final = 2083

# fmt: off
AspectRatio: TypeAlias = Literal[
    "auto",
    "21:9", "2:1", "16:9", "3:2", "7:5", "4:3", "5:4", "1:1",
    "4:5", "3:4", "5:7", "2:3", "9:16", "1:2", "9:21",
]
# fmt: on
Resolution: TypeAlias = Literal["768sq", "1k", "1.5k", "2k", "4k"]


_LONGEST_NAME: Final = 100
"""Longer names are not compared, since the comparison time grows with the length."""


def find_similar(name: str, names: Iterable[str], likeness: float = 0.8) -> str | None:
    """Returns the most similar of `names`, or None if none has the `likeness`, from 0 to 1."""
    near = get_close_matches(name.lower(), names, n=1, cutoff=likeness) if len(name) <= _LONGEST_NAME else []
    return near[0] if near else None


_COUNTS: Final = frozenset(("n", "num_images", "num_outputs", "num_images_per_prompt", "batch_size", "samples"))
"""Other services' names for the number of images."""


def advice(name: str, names: Iterable[str]) -> str | None:
    """Returns the hint for an unknown field."""
    if name in _COUNTS:
        return "a task makes one image; send several, or n to /v1/images/generations"
    near = find_similar(name, names)
    return f"did you mean {near}?" if near else None


@dataclass(frozen=True, slots=True)
class NullIsUnset:
    """Marks a field whose explicit null means the same as leaving it out: the default applies."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(_default_for_null, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"type": "null"}]}


def located_error(
    field: str | tuple[str | int, ...], kind: LiteralString, message: LiteralString, **context: Any
) -> ValidationError:
    """Returns an error for validators of a whole request that names one field or a location in it.

    `message` may refer to the context by `{name}`.
    """
    problem = PydanticCustomError(kind, message, context or None)
    details = InitErrorDetails(type=problem, loc=(field,) if isinstance(field, str) else field, input=None)
    return ValidationError.from_exception_data("request", [details], hide_input=True)


def _default_for_null(value: Any) -> Any:
    if value is None:
        raise PydanticUseDefault
    return value


def check_exact_size(width: int | None, height: int | None) -> None:
    """Raises ValidationError if only one is set, or if their area is too large."""
    if width is None and height is None:
        return
    if width is None:
        raise located_error("width", "missing", "Field required together with height")
    if height is None:
        raise located_error("height", "missing", "Field required together with width")
    if width * height > MAX_AREA:
        raise located_error("height", "area_too_large", "width x height should be at most {most} pixels", most=MAX_AREA)


def _lower_case(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _format_name(value: Any) -> Any:
    name = _lower_case(value)
    return "jpeg" if name == "jpg" else name


def _not_blank(prompt: str) -> str:
    if not prompt.strip():
        raise PydanticCustomError("prompt_blank", "Input should have more than white space")
    return prompt


def _not_empty(file: str) -> str:
    # A length limit of pydantic's would count all characters.
    if not file:
        raise PydanticCustomError("string_too_short", "String should have at least 1 character")
    return file


def _random_if_negative(seed: int) -> int | None:
    return None if seed < 0 else seed


def zero_is_unset(value: Any) -> Any:
    """Returns None for 0, which clients of typed languages send for a number that is not set."""
    return None if value == 0 and not isinstance(value, bool) else value


def _number(value: Any) -> Any:
    if isinstance(value, (bool, str, bytes)):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def _real(value: Any) -> Any:
    if isinstance(value, (bool, str, bytes)):
        raise PydanticCustomError("float_type", "Input should be a valid number")
    return value


def _webhook_url(value: str) -> str:
    try:
        parse_url(value)
    except UrlRefused as refusal:
        raise PydanticCustomError("url_refused", "{reason}", {"reason": str(refusal)}) from None
    return value


def _webhook_secret(value: SecretStr) -> SecretStr:
    try:
        key = decode_secret(value.get_secret_value())
    except ValueError:
        key = b""
    if not key:
        raise PydanticCustomError("webhook_secret", "A secret that starts with whsec_ must go on in valid base64")
    return value


JSON_NUMBER: Final = BeforeValidator(_number)
"""Marks an integer that must be sent as a JSON number; it follows the limits, so that the schema shows them."""

JSON_REAL: Final = BeforeValidator(_real)
"""Marks a number that must be sent as a JSON number."""

LOWER_CASE: Final = BeforeValidator(_lower_case)
"""Marks a name that may be written in any case."""

Flag = Annotated[bool, Strict(), NullIsUnset()]

Prompt = Annotated[str, Field(min_length=1, max_length=MAX_PROMPT_CHARS), AfterValidator(_not_blank)]

Text = Annotated[str, Field(max_length=MAX_PROMPT_CHARS)]
"""A prompt that may be empty."""

Seed = Annotated[int, Field(ge=0, le=MAX_SEED), JSON_NUMBER]

WideSeed = Annotated[int, Field(le=MAX_WIDE_SEED), JSON_NUMBER, AfterValidator(_random_if_negative)]
"""Seed that reaches the model unchanged. Clients send negative ones, mostly -1, for a random seed: they mean null."""

ImageFormat = Annotated[request.ImageFormat, BeforeValidator(_format_name)]
"""Format name in any case; `jpg` means `jpeg`."""

WebhookUrl = Annotated[
    str,
    Field(min_length=1, max_length=MAX_URL_CHARS, json_schema_extra={"format": "uri", "pattern": "^https?://"}),
    AfterValidator(_webhook_url),
]

WebhookSecret = Annotated[SecretStr, Field(min_length=1, max_length=512), AfterValidator(_webhook_secret)]

User = Annotated[str, Field(min_length=1, max_length=256)]

ImageInput = Annotated[str, Field(json_schema_extra={"minLength": 1}), AfterValidator(_not_empty)]
"""Base64, a `data:` URI or an http(s) URL. The content is checked once it is loaded."""


class GenerationRequest(BaseModel):
    """Base of all generation requests."""

    model_config = ConfigDict(hide_input_in_errors=True)

    image_fields: ClassVar[Mapping[str, Role]] = {}
    """The fields that hold images, each one image or a list of them."""
    modes: ClassVar[tuple[str, ...]] = ()
    """All values of `chosen_mode`; empty on endpoints without modes."""
    makes_video: ClassVar[bool] = False
    finetunable: ClassVar[bool] = True
    """True if an endpoint may take tuned models with it."""

    webhook_url: WebhookUrl | None = Field(
        default=None,
        description="URL that receives the result as a POST once the task has one. It must be reachable publicly.",
        examples=["https://example.com/hooks/images"],
    )
    webhook_secret: WebhookSecret | None = Field(
        default=None,
        repr=False,
        description="Secret that signs the webhook. After `whsec_` the key is expected in base64, else it is the "
        "text itself. Without a secret, webhooks are not signed.",
        examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )
    user: User | None = Field(
        default=None,
        description="Your own identifier of your end user, 1 to 256 characters. Kept with the task, shown to no one "
        "else.",
        examples=["user-4711"],
    )

    safety_tolerance: int | None = Field(
        default=None, description="How much is let through, 0 is strictest. None: the endpoint's default."
    )

    @classmethod
    def highest_tolerance(cls) -> int:
        """Returns the highest `safety_tolerance` that a request can name."""
        field = TypeAdapter(cls.model_fields["safety_tolerance"].rebuild_annotation())
        return max(each["maximum"] for each in field.json_schema()["anyOf"] if "maximum" in each)

    @classmethod
    def field_names(cls, body: Any) -> Collection[str]:
        """Returns the names of the fields that a body like this one may have."""
        return cls.model_fields

    @abstractmethod
    def resolve(
        self, defaults: ModelDefaults, sizes: Sequence[tuple[int, int]], draft: Draft | None = None
    ) -> ResolvedRequest:
        """Fills in the values that the request leaves open. Call it once: a missing seed is drawn here.

        `sizes` are width and height of each image that `prepare_images` returned, then of the video. `draft` is the
        draft that the request enhances.
        """

    def ignored_fields(self) -> tuple[str, ...]:
        """Returns warnings about ignored fields that seem to be meant."""
        return ()

    def asks_for_rewriting(self) -> bool:
        """Returns whether the request itself says that its prompt is to be rewritten."""
        return False

    def finetune(self) -> tuple[str, float] | None:
        """Returns the id of the tuned model and its strength; None on endpoints without."""
        return None

    def chosen_mode(self) -> str:
        """Returns the endpoint's mode that does the work; empty on endpoints without modes."""
        return ""

    def image_inputs(self) -> list[ImageField]:
        """Returns the images as sent, in the model's order."""
        inputs: list[ImageField] = []
        for name, role in self.image_fields.items():
            value: str | list[str] | None = getattr(self, name)
            if isinstance(value, str):
                inputs.append(ImageField((name,), value, role))
            elif value is not None:
                inputs.extend(ImageField((name, str(index)), item, role) for index, item in enumerate(value))
        return inputs

    @property
    def has_inputs(self) -> bool:
        """True if files must be fetched or read before the request can be accepted."""
        return bool(self.image_inputs()) or self.video_input() is not None

    def video_input(self) -> str | None:
        """Returns the video as sent, in the field `start_video`; None on endpoints without."""
        return None

    def prepare_images(self, images: list[RequestImage]) -> list[RequestImage]:
        """Returns the model's images, given those of `image_inputs` in the same order. Call it in a thread.

        Raises ImageProblem if they don't go together.
        """
        return images


def random_seed() -> int:
    return randbelow(MAX_SEED + 1)


PREFIX: Final = "whsec_"


def decode_secret(secret: str) -> bytes:
    """Returns the key. Raises ValueError if `whsec_` is not followed by valid base64."""
    if secret.startswith(PREFIX):
        return pybase64.b64decode(secret.removeprefix(PREFIX), validate=True)
    return secret.encode()
