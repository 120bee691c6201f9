from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from serve_app.schemas.video import MAX_KEYFRAMES, Keyframes, check_times, keyframes_of, times

FIELD: TypeAdapter[Any] = TypeAdapter(Keyframes)


def _problems(sent: Any) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as refused:
        FIELD.validate_python(sent)
    return [(error["loc"], error["type"]) for error in refused.value.errors()]


@pytest.mark.parametrize(
    "sent",
    ["a", ["a"], ["a"] * MAX_KEYFRAMES, [(0.0, "a")], [(0.5, "a"), (19.0, "b")], [(1.0, "a")] * MAX_KEYFRAMES],
    ids=len,
)
def test_what_is_taken(sent: Any) -> None:
    as_json = sent if isinstance(sent, str) else [list(each) if isinstance(each, tuple) else each for each in sent]
    assert FIELD.validate_python(as_json) == sent


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ([], [((), "too_short")]),
        (["a"] * (MAX_KEYFRAMES + 1), [((), "too_long")]),
        (None, [((), "keyframes_form")]),
        (["a", ""], [((1,), "string_too_short")]),
        (["a", None, 3], [((1,), "string_type"), ((2,), "string_type")]),
        (["a", [1, "b"]], [((), "keyframes_mixed")]),
        ([[1, "b"], "a"], [((), "keyframes_mixed")]),
        ([[1]], [((0, 1), "missing")]),
        ([[1, "a", 2]], [((0,), "too_long")]),
        ([[True, "a"]], [((0, 0), "float_type")]),
        ([[-0.1, "a"]], [((0, 0), "greater_than_equal")]),
        ([[float("nan"), "a"]], [((0, 0), "finite_number")]),
    ],
)
def test_what_is_refused_and_where(sent: Any, found: list[Any]) -> None:
    assert _problems(sent) == found


def test_each_is_found_where_it_was_sent() -> None:
    assert keyframes_of("a") == [((), "a", None)]
    assert keyframes_of(["a", "b"]) == [(("0",), "a", None), (("1",), "b", None)]
    assert keyframes_of([(0.0, "a"), (2.5, "b")]) == [(("0", "1"), "a", 0.0), (("1", "1"), "b", 2.5)]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("a", (0,)),
        (["a"] * 2, (0, 6)),
        (["a"] * 3, (0, 3, 6)),
        ([(0.0, "a"), (0.5, "b"), (6.0, "c")], (0, 0.5, 6)),
    ],
)
def test_when_they_are_seen(sent: Any, expected: tuple[float, ...]) -> None:
    assert times(keyframes_of(sent), 6) == pytest.approx(expected)


@pytest.mark.parametrize("seconds", [[0.0], [6.0], [0.0, 0.1, 6.0]])
def test_times_in_order_and_within_the_video(seconds: list[float]) -> None:
    check_times("keyframes", keyframes_of([(second, "a") for second in seconds]), 6)


@pytest.mark.parametrize(
    ("seconds", "index", "kind"),
    [
        ([6.01], 0, "keyframe_too_late"),
        ([1.0, 1.0], 1, "keyframes_out_of_order"),
        ([0.0, 3.0, 2.9], 2, "keyframes_out_of_order"),
    ],
)
def test_times_that_can_not_be(seconds: list[float], index: int, kind: str) -> None:
    with pytest.raises(ValidationError) as refused:
        check_times("keyframes", keyframes_of([(second, "a") for second in seconds]), 6)
    assert [(error["loc"], error["type"]) for error in refused.value.errors()] == [(("keyframes", index, 0), kind)]
