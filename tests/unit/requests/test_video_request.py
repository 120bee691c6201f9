"""The forms of a request for a video: what they take, and what they make of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.requests import REQUESTS, GenerationRequest
from serve_app.requests.fields import MAX_SEED
from serve_app.requests.finetuned import finetuned
from serve_app.requests.plan import ClipPlan, Plan, Recipe
from serve_app.requests.video import FORMS, ClipRequest, DraftEnhanceRequest, NewClipRequest, VideoRequest
from serve_app.submission.drafts import Draft

MINIMAL: dict[str, dict[str, Any]] = {
    "t2v": {"prompt": "x"},
    "i2v": {"prompt": "x", "keyframes": ["a"]},
    "v2v": {"prompt": "x", "start_video": "a"},
    "draft_enhance": {"draft_cache": "a"},
}
NEW = ["t2v", "i2v", "v2v"]
SIZES = [(640, 480)]
DRAFT = Draft("results/t/1/draft.safetensors", prompt="y", seed=7, seconds=6, width=640, height=352, sound=False)
PINNED = replace(DRAFT, references=("inputs/t/0.png",), times=(2.5,))


def _request(mode: str, **body: Any) -> ClipRequest:
    request = REQUESTS["video"].model_validate({"mode": mode, **MINIMAL[mode], **body})
    assert isinstance(request, ClipRequest)
    return request


def _plan(mode: str, sizes: list[tuple[int, int]] = SIZES, **body: Any) -> Plan:
    return _request(mode, **body).plan(sizes)


def _clip(mode: str, sizes: list[tuple[int, int]] = SIZES, **body: Any) -> ClipPlan:
    clip = _plan(mode, sizes, **body).clip
    assert clip is not None
    return clip


def _problems(body: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        VideoRequest.model_validate(body)
    return [(error["loc"], error["type"]) for error in refused.value.errors()]


# Forms.


@pytest.mark.parametrize("mode", FORMS)
def test_the_mode_chooses_the_form(mode: str) -> None:
    assert type(_request(mode)) is FORMS[mode]


@pytest.mark.parametrize("body", [{}, {"mode": None}, {"prompt": "x", "nonsense": 1}])
def test_a_missing_mode_is_the_only_problem(body: dict[str, Any]) -> None:
    assert _problems(body) == [(("mode",), "missing")]


@pytest.mark.parametrize("mode", ["", "T2V", "draft", 1, ["t2v"], {}, True])
def test_an_unknown_mode_is_the_only_problem(mode: Any) -> None:
    assert _problems({"mode": mode, "nonsense": 1}) == [(("mode",), "literal_error")]
    with pytest.raises(ValidationError, match="one of t2v, i2v, v2v, draft_enhance"):
        VideoRequest.model_validate({"mode": mode})


@pytest.mark.parametrize("body", [[], "t2v", None, 3])
def test_what_is_no_object(body: Any) -> None:
    assert _problems(body) == [((), "model_type")]


@pytest.mark.parametrize("mode", FORMS)
def test_only_the_chosen_form_has_problems(mode: str) -> None:
    missing = [((name,), "missing") for name in MINIMAL[mode]]
    assert sorted(_problems({"mode": mode})) == sorted(missing)


@pytest.mark.parametrize(
    ("mode", "field"),
    [
        *((mode, "nonsense") for mode in FORMS),
        *((mode, "width") for mode in FORMS),
        *((mode, "finetune_id") for mode in FORMS),
        *(("t2v", field) for field in ("keyframes", "start_video", "draft_cache")),
        *(("i2v", field) for field in ("start_video", "draft_cache")),
        *(("v2v", field) for field in ("keyframes", "draft_cache")),
        *(("draft_enhance", field) for field in ("prompt", "seed", "duration", "aspect_ratio", "generate_audio")),
        *(("draft_enhance", field) for field in ("draft", "keyframes", "start_video")),
    ],
)
def test_fields_of_other_forms_and_of_none_are_refused(mode: str, field: str) -> None:
    assert _problems({"mode": mode, **MINIMAL[mode], field: "x"}) == [((field,), "extra_forbidden")]


@pytest.mark.parametrize("mode", FORMS)
@pytest.mark.parametrize("field", ["resolution", "safety_tolerance", "webhook_url", "webhook_secret", "user"])
def test_null_is_unset_in_every_form(mode: str, field: str) -> None:
    assert getattr(_request(mode, **{field: None}), field) == getattr(_request(mode), field)


@pytest.mark.parametrize("mode", NEW)
@pytest.mark.parametrize("field", ["aspect_ratio", "duration", "generate_audio", "draft", "seed"])
def test_null_is_unset(mode: str, field: str) -> None:
    assert getattr(_request(mode, **{field: None}), field) == getattr(_request(mode), field)


@pytest.mark.parametrize("mode", FORMS)
@pytest.mark.parametrize("level", [0, 6, 4.0])
def test_tolerances(mode: str, level: float) -> None:
    assert _request(mode, safety_tolerance=level).safety_tolerance == level


@pytest.mark.parametrize("mode", FORMS)
@pytest.mark.parametrize("level", [-1, 7, 1.5, "2", True])
def test_tolerances_that_are_none(mode: str, level: Any) -> None:
    ((loc, _),) = _problems({"mode": mode, **MINIMAL[mode], "safety_tolerance": level})
    assert loc == ("safety_tolerance",)


@pytest.mark.parametrize("mode", NEW)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", ""),
        ("prompt", " \n"),
        ("prompt", None),
        ("aspect_ratio", "2:1"),
        ("aspect_ratio", "16x9"),
        ("resolution", "4k"),
        ("generate_audio", "true"),
        ("draft", 1),
        ("seed", -1),
        ("seed", MAX_SEED + 1),
        ("seed", "1"),
    ],
)
def test_values_that_are_refused(mode: str, field: str, value: Any) -> None:
    ((loc, _),) = _problems({"mode": mode, **MINIMAL[mode], field: value})
    assert loc == (field,)


@pytest.mark.parametrize(("mode", "longest"), [("t2v", 20), ("i2v", 20), ("v2v", 15)])
def test_durations(mode: str, longest: int) -> None:
    assert [_clip(mode, duration=n).seconds for n in (5, 5.0, longest, "auto")] == [5, 5, longest, 5]
    for wrong in (4, longest + 1, 0, -5, 5.5, "5", "AUTO", "", True, [5], float("inf")):
        ((loc, _),) = _problems({"mode": mode, **MINIMAL[mode], "duration": wrong})
        assert loc == ("duration",), wrong


@pytest.mark.parametrize("mode", ["t2v", "i2v"])
def test_the_error_of_a_duration_speaks_of_numbers_alone(mode: str) -> None:
    assert _problems({"mode": mode, **MINIMAL[mode], "duration": 21}) == [(("duration",), "less_than_equal")]


# What goes in.


def test_keyframes_are_pictures_each_at_its_place() -> None:
    assert _request("i2v", keyframes="a").image_inputs() == [(("keyframes",), "a", "references")]
    assert _request("i2v", keyframes=["a", "b"]).image_inputs() == [
        (("keyframes", "0"), "a", "references"),
        (("keyframes", "1"), "b", "references"),
    ]
    assert _request("i2v", keyframes=[[0, "a"], [1, "b"]]).image_inputs() == [
        (("keyframes", "0", "1"), "a", "references"),
        (("keyframes", "1", "1"), "b", "references"),
    ]


def test_only_continuations_have_a_video() -> None:
    assert [_request(mode).video_input() for mode in FORMS] == [None, None, "a", None]
    assert [len(_request(mode).image_inputs()) for mode in FORMS] == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("keyframes", "body", "index", "kind"),
    [
        ([[0, "a"], [5.1, "b"]], {"duration": 5}, 1, "keyframe_too_late"),
        ([[0, "a"], [20.1, "b"]], {}, 1, "keyframe_too_late"),
        ([[3, "a"], [3, "b"]], {}, 1, "keyframes_out_of_order"),
        ([[3, "a"], [1, "b"]], {"duration": "auto"}, 1, "keyframes_out_of_order"),
    ],
)
def test_keyframes_at_times_that_can_not_be(keyframes: Any, body: dict[str, Any], index: int, kind: str) -> None:
    sent = {"mode": "i2v", "prompt": "x", "keyframes": keyframes, **body}
    assert _problems(sent) == [(("keyframes", index, 0), kind)]


# Plans.


@pytest.mark.parametrize(
    ("keyframes", "duration", "seconds", "times"),
    [
        (["a"], "auto", 5, (0,)),
        (["a"] * 2, 8, 8, (0, 8)),
        (["a"] * 3, None, 5, (0, 2.5, 5)),
        ([[0, "a"], [4, "b"]], "auto", 5, (0, 4)),
        ([[0, "a"], [5.01, "b"]], "auto", 6, (0, 5.01)),
        ([[7, "a"]], "auto", 7, (7,)),
        ([[0, "a"], [20, "b"]], "auto", 20, (0, 20)),
        ([[0, "a"], [4, "b"]], 12, 12, (0, 4)),
    ],
)
def test_a_video_reaches_to_its_last_keyframe(
    keyframes: Any, duration: Any, seconds: int, times: tuple[float, ...]
) -> None:
    clip = _clip("i2v", [(64, 64)] * len(keyframes), keyframes=keyframes, duration=duration)
    assert (clip.seconds, clip.times) == (seconds, times)


@pytest.mark.parametrize("mode", NEW)
@pytest.mark.parametrize(
    ("body", "size"),
    [
        ({"aspect_ratio": "16:9"}, (1280, 704)),
        ({"aspect_ratio": "16:9", "resolution": "fhd"}, (1920, 1088)),
        ({"aspect_ratio": "16:9", "draft": True}, (640, 352)),
        ({"aspect_ratio": "9:16", "resolution": "fhd", "draft": True}, (544, 960)),
    ],
)
def test_sizes(mode: str, body: dict[str, Any], size: tuple[int, int]) -> None:
    plan = _plan(mode, **body)
    assert (plan.width, plan.height) == size
    assert plan.area == size[0] * size[1]


@pytest.mark.parametrize("mode", ["i2v", "v2v"])
@pytest.mark.parametrize(
    ("sent", "size"), [((640, 480), (1088, 832)), ((1080, 1920), (704, 1280)), ((1000, 999), (960, 960))]
)
def test_auto_follows_what_was_sent(mode: str, sent: tuple[int, int], size: tuple[int, int]) -> None:
    plan = _plan(mode, [sent])
    assert (plan.width, plan.height) == size
    assert plan.area == 1280 * 704, "a price must not depend on the ratio"


def test_the_first_keyframe_decides() -> None:
    plan = _plan("i2v", [(90, 160), (160, 90)], keyframes=["a", "b"])
    assert (plan.width, plan.height) == (704, 1280)


@pytest.mark.parametrize("body", [{}, {"resolution": "fhd"}, {"draft": True}])
def test_without_a_ratio_the_prompt_will_choose(body: dict[str, Any]) -> None:
    plan = _plan("t2v", [], **body)
    assert (plan.width, plan.height) == (None, None)
    assert plan.area == _plan("t2v", aspect_ratio="16:9", **body).area


@pytest.mark.parametrize("mode", NEW)
def test_what_a_video_takes_over(mode: str) -> None:
    plan = _plan(mode, seed=3, generate_audio=False, draft=True)
    assert (plan.prompt, plan.seed, plan.output_format, plan.steps) == ("x", 3, "mp4", None)
    assert plan.clip is not None
    assert (plan.clip.sound, plan.clip.draft, plan.clip.enhance) == (False, True, None)
    plain = _clip(mode)
    assert (plain.sound, plain.draft) == (True, False)


def test_seeds_that_are_left_out_differ() -> None:
    assert len({_plan("t2v").seed for _ in range(10)}) > 1


def test_a_draft_gives_all_but_the_resolution() -> None:
    request = _request("draft_enhance")
    assert isinstance(request, DraftEnhanceRequest)
    plan = request.plan([], DRAFT)
    assert (plan.prompt, plan.seed, plan.width, plan.height) == ("y", 7, 1920, 1088)
    assert plan.clip == ClipPlan(seconds=6, sound=False, enhance=DRAFT.key)
    assert request.plan([], PINNED).clip == ClipPlan(seconds=6, sound=False, times=(2.5,), enhance=DRAFT.key)


@pytest.mark.parametrize("resolution", ["hd", "fhd"])
@pytest.mark.parametrize("ratio", ["21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21"])
@pytest.mark.parametrize("drafted_at", ["hd", "fhd"])
def test_what_is_made_of_a_draft_has_the_size_that_it_would_have_had(
    resolution: str, ratio: str, drafted_at: str
) -> None:
    drafted = _plan("t2v", aspect_ratio=ratio, resolution=drafted_at, draft=True)
    assert drafted.width is not None
    assert drafted.height is not None
    request = _request("draft_enhance", resolution=resolution)
    assert isinstance(request, DraftEnhanceRequest)
    made = request.plan([], replace(DRAFT, width=drafted.width, height=drafted.height))
    full = _plan("t2v", aspect_ratio=ratio, resolution=resolution)
    assert (made.width, made.height, made.area) == (full.width, full.height, full.area)


@pytest.mark.parametrize(("mode", "body", "chosen"), [
    *((mode, {}, "full") for mode in NEW),
    *((mode, {"draft": True}, "draft") for mode in NEW),
    ("draft_enhance", {}, "enhance"),
])  # fmt: skip
def test_the_way_that_it_is_done(mode: str, body: dict[str, Any], chosen: str) -> None:
    assert _request(mode, **body).chosen_mode() == chosen
    assert chosen in VideoRequest.modes


def test_work_grows_with_seconds_steps_and_area() -> None:
    recipe = Recipe(steps=10)
    short, long = (_plan("t2v", duration=n).completed(recipe).work for n in (5, 10))
    assert long == pytest.approx(2 * short)
    assert short == pytest.approx(5 * 10 * 1280 * 704 / 2**20)
    assert _plan("t2v", resolution="fhd").completed(recipe).work > 2 * short
    assert _plan("t2v", draft=True).completed(recipe).work == pytest.approx(short / 4)
    assert _plan("i2v", [(1024, 1024)]).completed(recipe, input_pixels=2**20).work == pytest.approx(short + 10)


def test_a_picture_counts_as_one_second() -> None:
    plan = Plan("x", 4, 0, "png", area=2**20, input_pixels=2**20)
    assert (plan.seconds, plan.work) == (1, 8)


# The description.


def test_every_field_is_described_with_examples() -> None:
    for form in FORMS.values():
        for name, field in form.model_fields.items():
            assert field.description, (form, name)
            assert field.examples or name == "mode", (form, name)


def test_the_schema_is_a_union_by_mode() -> None:
    schema = VideoRequest.model_json_schema()
    assert schema["discriminator"]["propertyName"] == "mode"
    assert set(schema["discriminator"]["mapping"]) == set(FORMS)
    for mode, form in FORMS.items():
        described = schema["$defs"][form.__name__]
        assert described["additionalProperties"] is False
        assert set(described["required"]) == {"mode", *MINIMAL[mode]}


def test_what_the_catalog_asks_of_a_form() -> None:
    assert VideoRequest.highest_tolerance() == 6
    assert not VideoRequest.finetunable
    assert [form for form in REQUESTS.values() if not form.finetunable] == [VideoRequest]
    assert finetuned(REQUESTS["kontext"]).highest_tolerance() == REQUESTS["kontext"].highest_tolerance() == 6


def test_pictures_are_in_no_text() -> None:
    for mode, body in (("i2v", {"keyframes": ["secret"]}), ("v2v", {"start_video": "secret"})):
        assert "secret" not in repr(_request(mode, **body))


def test_forms_share_what_every_request_has() -> None:
    for form in FORMS.values():
        assert issubclass(form, GenerationRequest)
        assert {"webhook_url", "webhook_secret", "user"} <= set(form.model_fields)
    assert all(issubclass(FORMS[mode], NewClipRequest) for mode in NEW)
