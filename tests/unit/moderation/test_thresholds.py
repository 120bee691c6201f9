from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.contract.moderation import CATEGORIES, Thresholds, Tolerance, lowest

THRESHOLDS = Thresholds({"violence": (0.2, 0.5, 0.8), "hate": (0.3,), "sexual content": (0.4, 0.9)})


@pytest.mark.parametrize(
    ("category", "level", "score", "refused"),
    [
        *(
            ("violence", 0, 0.19, False),
            ("violence", 0, 0.2, True),
            ("violence", 1, 0.49, False),
            ("violence", 1, 0.5, True),
        ),
        *(("violence", 7, 0.79, False), ("violence", 7, 0.8, True), ("hate", 0, 0.3, True), ("hate", 7, 0.3, True)),
        *(("illegal acts", 0, 1.0, False), ("violence", 7, float("nan"), True)),
    ],
)
def test_a_score_that_reaches_its_threshold_is_refused(category: str, level: int, score: float, refused: bool) -> None:
    """Levels beyond the last have the last; what is no number has not passed."""
    assert THRESHOLDS.refused({category: score}, Tolerance(level)) == ([category] if refused else [])


def test_a_ceiling_holds_a_category_whatever_is_asked_for() -> None:
    strict = Tolerance(7, {"violence": 0})
    assert THRESHOLDS.refused({"violence": 0.2, "sexual content": 0.89}, strict) == ["violence"]
    assert Tolerance(1, {"violence": 5}).of("violence") == 1, "a ceiling never lets more through"


def test_the_surest_reason_comes_first() -> None:
    assert THRESHOLDS.refused({"hate": 0.6, "violence": 0.9, "sexual content": 0.6}, Tolerance(0)) == [
        "violence",
        "hate",
        "sexual content",
    ]


def test_of_several_ceilings_the_lowest_counts() -> None:
    assert lowest({"violence": 3, "hate": 1}, {}, {"violence": 2}) == {"hate": 1, "violence": 2}


_SCORES = st.dictionaries(st.sampled_from(CATEGORIES), st.floats(0, 1))


@given(_SCORES, st.integers(0, 6))
def test_a_higher_tolerance_never_refuses_more(scores: dict[str, float], level: int) -> None:
    stricter = set(THRESHOLDS.refused(scores, Tolerance(level)))
    assert set(THRESHOLDS.refused(scores, Tolerance(level + 1))) <= stricter
