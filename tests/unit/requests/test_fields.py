from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from serve_app.schemas import GenerationRequest
from serve_app.schemas.fields import (
    MAX_PROMPT_CHARS,
    MAX_SEED,
    MAX_URL_CHARS,
    ImageInput,
    Prompt,
    Role,
    Seed,
    User,
    WebhookSecret,
    WebhookUrl,
    located_error,
)
from serve_app.schemas.plan import Plan


class _Request(GenerationRequest):
    image_fields: ClassVar[Mapping[str, Role]] = {"images": "references", "image": "mask"}
    images: list[ImageInput] | None = Field(default=None, repr=False)
    image: ImageInput | None = Field(default=None, repr=False)

    def plan(self, references: Sequence[tuple[int, int]]) -> Plan:
        return Plan("", 1, 0, "png", 0)


def _url(length: int) -> str:
    return "https://example.com/".ljust(length, "x")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Prompt, "x" * MAX_PROMPT_CHARS),
        (Seed, MAX_SEED),
        (Seed, 7.0),
        (WebhookUrl, _url(MAX_URL_CHARS)),
        (WebhookUrl, "HTTPS://EXAMPLE.com"),
        (User, "x" * 256),
    ],
)
def test_accepted_values(field: Any, value: Any) -> None:
    assert TypeAdapter(field).validate_python(value) == value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (Prompt, ""),
        (Prompt, "x" * (MAX_PROMPT_CHARS + 1)),
        (Seed, -1),
        (Seed, MAX_SEED + 1),
        (Seed, 1.5),
        (Seed, True),
        (Seed, float("inf")),
        (WebhookUrl, _url(MAX_URL_CHARS + 1)),
        (WebhookUrl, "ftp://example.com"),
        (WebhookUrl, "example.com/hook"),
        (WebhookUrl, "https://user:word@example.com/"),
        (WebhookSecret, ""),
        (WebhookSecret, "x" * 513),
        (User, ""),
        (User, "x" * 257),
        (ImageInput, ""),
    ],
)
def test_refused_values(field: Any, value: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(field).validate_python(value)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!!!!", "whsec_abc", "whsec_\u00e9\u00e9\u00e9\u00e9"])
def test_webhook_secrets_with_a_prefix_must_be_base64(secret: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(WebhookSecret).validate_python(secret)
    assert "base64" in refused.value.errors()[0]["msg"]


def test_the_schema_tells_the_limits() -> None:
    assert TypeAdapter(Seed).json_schema() == {"type": "integer", "minimum": 0, "maximum": MAX_SEED}
    url = TypeAdapter(WebhookUrl).json_schema()
    assert (url["type"], url["format"], url["minLength"], url["maxLength"]) == ("string", "uri", 1, 2083)


def test_secrets_and_pictures_stay_out_of_repr_and_errors() -> None:
    request = _Request.model_validate({"webhook_secret": "hush", "image": "hush", "images": ["hush"]})
    assert "hush" not in f"{request!r} {request} {request.model_dump_json(exclude={'image', 'images'})}"
    with pytest.raises(ValidationError) as refused:
        _Request.model_validate({"webhook_secret": "whsec_hush!", "image": ["hush"]})
    assert "hush" not in str(refused.value)


def test_image_inputs_come_in_order_with_their_location_and_role() -> None:
    request = _Request(images=["a", "b"], image="c")
    assert request.image_inputs() == [
        (("images", "0"), "a", "references"),
        (("images", "1"), "b", "references"),
        (("image",), "c", "mask"),
    ]
    assert _Request().image_inputs() == []


def test_located_errors() -> None:
    error = located_error("height", "too_much", "at most {most}", most=3).errors()[0]
    assert (error["loc"], error["type"], error["msg"]) == (("height",), "too_much", "at most 3")
