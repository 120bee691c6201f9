from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from support.input_images import picture, sizes

from serve_app.inputs.geometry import MEGAPIXEL
from serve_app.inputs.images import InputPicture
from serve_app.schemas.fields import MAX_PROMPT_CHARS, Picture, PictureProblem
from serve_app.schemas.tools import TryOnRequest, TryOnV1Request, TryOnV2Request

BODY = {"person": "a", "garment": "b"}
SMALL = picture((64, 64), "L")


def _prepared(form: type[TryOnRequest], person: InputPicture = SMALL, garment: InputPicture = SMALL) -> list[Picture]:
    request = form.model_validate(BODY)
    return request.prepared([Picture("references", person), Picture("references", garment)])


@pytest.mark.parametrize("form", [TryOnV1Request, TryOnV2Request])
def test_the_person_comes_first(form: type[TryOnRequest]) -> None:
    sent = form.model_validate({"garment": "b", "person": "a"}).image_inputs()
    assert sent == [(("person",), "a", "references"), (("garment",), "b", "references")]


@pytest.mark.parametrize("form", [TryOnV1Request, TryOnV2Request])
@pytest.mark.parametrize(("prompt", "expected"), [(None, ""), ("", ""), ("buttoned up", "buttoned up")])
def test_a_prompt_may_be_sent(form: type[TryOnRequest], prompt: str | None, expected: str) -> None:
    assert form.model_validate({**BODY, "prompt": prompt}).plan([(64, 64), (64, 64)]).prompt == expected


@pytest.mark.parametrize("prompt", [1, True, ["x"], "x" * (MAX_PROMPT_CHARS + 1)])
def test_prompts_are_text_of_limited_length(prompt: Any) -> None:
    with pytest.raises(ValidationError):
        TryOnV1Request.model_validate({**BODY, "prompt": prompt})


@pytest.mark.parametrize("size", [(2049, 1024), (1449, 1448)])
def test_v1_scales_all_above_to_one(size: tuple[int, int]) -> None:
    large = picture(size, "L")
    for made, others in (
        (_prepared(TryOnV1Request, large)[0], _prepared(TryOnV1Request, large)[1]),
        (_prepared(TryOnV1Request, SMALL, large)[1], _prepared(TryOnV1Request, SMALL, large)[0]),
    ):
        assert others.image == SMALL
        assert made.role == "references"
        assert made.image.width * made.image.height == pytest.approx(MEGAPIXEL, rel=0.005)
        assert made.image.width / made.image.height == pytest.approx(size[0] / size[1], rel=0.002)


def test_v1_answers_at_the_size_it_works_at() -> None:
    made = _prepared(TryOnV1Request, picture((3000, 2000), "L"))
    plan = TryOnV1Request.model_validate(BODY).plan(sizes(made))
    assert (plan.width, plan.height) == (1254, 836)


@pytest.mark.parametrize("size", [(2048, 2048), (4096, 1024), (3000, 1398)])
def test_v2_takes_four_megapixels_as_they_are(size: tuple[int, int]) -> None:
    large = picture(size, "L")
    made = _prepared(TryOnV2Request, large, large)
    assert [each.image for each in made] == [large, large]
    plan = TryOnV2Request.model_validate(BODY).plan(sizes(made))
    assert (plan.width, plan.height) == size


@pytest.mark.parametrize("size", [(2049, 2048), (3000, 1399)])
@pytest.mark.parametrize("field", ["person", "garment"])
def test_v2_refuses_larger_ones(size: tuple[int, int], field: str) -> None:
    with pytest.raises(PictureProblem) as refused:
        _prepared(TryOnV2Request, **{field: picture(size, "L")})
    assert (refused.value.field, refused.value.kind) == (field, "picture_too_large")
