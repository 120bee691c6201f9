from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from support.payloads import DEFAULTS

from serve_app.schemas import REQUESTS
from serve_app.schemas.defaults import ModelDefaults
from serve_app.schemas.examples import examples
from serve_app.schemas.fields import (
    MAX_PROMPT_CHARS,
    MAX_SEED,
    MAX_URL_CHARS,
    GenerationRequest,
    Prompt,
    Seed,
    User,
    WebhookSecret,
    WebhookUrl,
)
from serve_app.schemas.tolerant import with_finetune, with_opposite

MINIMAL: dict[str, dict[str, Any]] = {
    "gen2-max": {"prompt": "x"},
    "gen2-pro": {"prompt": "x"},
    "kontext": {"prompt": "x"},
    "pro": {},
    "fill": {"image": "a"},
    "canny": {"prompt": "x", "control_image": "a"},
    "canny-control": {"prompt": "x", "control_image": "a"},
    "erase": {"image": "a", "mask": "b"},
    "outpainting": {"input_image": "a", "width": 640, "height": 480},
    "vto-v1": {"person": "a", "garment": "b"},
    "vto-v2": {"person": "a", "garment": "b"},
    "deblur": {"image": "a"},
}


SIZES = [(640, 480), (640, 480)]


def _request(name: str, **body: Any) -> GenerationRequest:
    return REQUESTS[name].model_validate(MINIMAL[name] | body)


def _url(length: int) -> str:
    return "https://example.com/".ljust(length, "x")


LIMITS: list[tuple[Any, list[Any], list[Any]]] = [
    (Prompt, ["x" * MAX_PROMPT_CHARS], ["", "x" * (MAX_PROMPT_CHARS + 1)]),
    (Seed, [MAX_SEED, 7.0], [-1, MAX_SEED + 1, 1.5, True, float("inf")]),
    (WebhookUrl, [_url(MAX_URL_CHARS), "HTTPS://EXAMPLE.com"], [_url(MAX_URL_CHARS + 1), "ftp://example.com"]),
    (WebhookUrl, [], ["example.com/hook", "https://user:word@example.com/"]),
    (WebhookSecret, [], ["", "x" * 513]),
    (User, ["x" * 256], ["", "x" * 257]),
]


@pytest.mark.parametrize(("field", "accepted", "refused"), LIMITS)
def test_field_accepts_values_within_its_limits(field: Any, accepted: list[Any], refused: list[Any]) -> None:
    for value in accepted:
        assert TypeAdapter(field).validate_python(value) == value
    for value in refused:
        with pytest.raises(ValidationError):
            TypeAdapter(field).validate_python(value)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!!!!", "whsec_abc", "whsec_\u00e9\u00e9\u00e9\u00e9"])
def test_webhook_secret_with_a_prefix_is_base64(secret: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(WebhookSecret).validate_python(secret)
    assert "base64" in refused.value.errors()[0]["msg"]


def test_webhook_secret_stays_out_of_repr_and_errors() -> None:
    request = _request("gen2-pro", webhook_secret="hush")
    assert "hush" not in f"{request!r} {request} {request.model_dump_json()}"
    with pytest.raises(ValidationError) as refused:
        _request("gen2-pro", webhook_secret="whsec_hush!")
    assert "hush" not in str(refused.value)


def test_image_inputs_have_location_and_role_in_order() -> None:
    klein = REQUESTS["image-klein"].model_validate({"prompt": "x", "images": ["a", "b"]})
    assert klein.image_inputs() == [(("images", "0"), "a", "references"), (("images", "1"), "b", "references")]
    fill = _request("fill", mask="c")
    assert fill.image_inputs() == [(("image",), "a", "references"), (("mask",), "c", "mask")]
    assert _request("gen2-pro").image_inputs() == []


@pytest.mark.parametrize("name", MINIMAL)
def test_null_means_not_set(name: str) -> None:
    optional = set(REQUESTS[name].model_fields) - set(MINIMAL[name])
    assert _request(name, **dict.fromkeys(optional)) == _request(name)


@pytest.mark.parametrize("name", MINIMAL)
def test_seed_has_64_bits_and_a_random_one_32(name: str) -> None:
    for seed in (0, 2**64 - 1):
        assert _request(name, seed=seed).resolve(DEFAULTS, SIZES).seed == seed
    assert all(0 <= _request(name, seed=seed).resolve(DEFAULTS, SIZES).seed <= MAX_SEED for seed in [None] * 20 + [-1])
    for seed in (2**64, 1.5, "7", True):
        with pytest.raises(ValidationError):
            _request(name, seed=seed)


@pytest.mark.parametrize(
    ("name", "default"),
    [("erase", "png"), ("outpainting", "png"), ("deblur", "png"), ("vto-v1", "jpeg"), ("vto-v2", "jpeg")],
)
def test_format_of_tool_results(name: str, default: str) -> None:
    assert _request(name).resolve(DEFAULTS, SIZES).output_format == default
    for value, kind in (("jpeg", "jpeg"), ("png", "png"), ("webp", "webp"), ("JPG", "jpeg")):
        assert _request(name, output_format=value).resolve(DEFAULTS, SIZES).output_format == kind


@pytest.mark.parametrize("name", MINIMAL)
def test_only_klein_reads_layouts(name: str) -> None:
    layout = 'x [{"id": "a", "bbox": [0, 0, 500, 500], "desc": "b"}]'
    body = {"prompt": layout} if "prompt" in REQUESTS[name].model_fields else {}
    assert _request(name, **body).resolve(DEFAULTS, SIZES).layout == ()
    assert REQUESTS["image-klein"].model_validate({"prompt": layout}).resolve(DEFAULTS, []).layout


@pytest.mark.parametrize("name", MINIMAL)
def test_model_completes_omitted_fields(name: str) -> None:
    resolved = _request(name).resolve(ModelDefaults(steps=9, guidance=4.5, instruction="please"), SIZES)
    fields = REQUESTS[name].model_fields
    assert resolved.steps == (fields["steps"].default if "steps" in fields else 9)
    assert resolved.guidance == (fields["guidance"].default if "guidance" in fields else 4.5)
    assert resolved.prompt.startswith("please")


@pytest.mark.parametrize("name", MINIMAL)
def test_images_stay_out_of_repr_and_errors(name: str) -> None:
    images = {field: f"hush{n}" for n, field in enumerate(REQUESTS[name].image_fields)}
    assert "hush" not in repr(_request(name, **images))
    with pytest.raises(ValidationError) as refused:
        _request(name, **{field: [{value: 1}] for field, value in images.items()})
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"other": True}, {"other": True, "own": False}),
        *((body, body) for body in ({"own": False, "other": False}, {"other": "no"}, "text")),
    ],
)
def test_opposite_name_of_a_flag_is_read(body: Any, expected: Any) -> None:
    assert with_opposite(body, "own", "other") == expected


LISTED = [
    pytest.param(name, tuned, body, id=f"{name}{'-finetuned' if tuned else ''}: {title}")
    for name, form in REQUESTS.items()
    for tuned in ((False, True) if form.finetunable else (False,))
    for title, body in examples(name, tuned=tuned).items()
]


@pytest.mark.parametrize(("name", "tuned", "body"), LISTED)
def test_example_is_valid_and_has_only_known_fields(name: str, tuned: bool, body: dict[str, Any]) -> None:
    form = with_finetune(REQUESTS[name]) if tuned else REQUESTS[name]
    request = form.model_validate(body)
    assert set(body) <= set(type(request).model_fields)
    assert request.model_fields_set == set(body)
