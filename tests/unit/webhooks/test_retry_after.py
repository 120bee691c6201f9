"""How long a receiver asks to be left alone, in whatever words; nothing it says does harm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.webhooks import post
from serve_app.webhooks.post import Answer

wish_of = post._seconds


@pytest.mark.parametrize(("told", "seconds"), [("0", 0), ("1", 1), ("00120", 120), ("86400", 86400)])
def test_seconds(told: str, seconds: float) -> None:
    assert wish_of(told) == seconds


def test_a_number_of_any_length_is_just_very_long() -> None:
    assert (wish_of("9" * 5000) or 0) > 1e8


def test_a_date_is_as_far_away_as_it_is() -> None:
    at = datetime.now(UTC) + timedelta(hours=2)
    wish = wish_of(format_datetime(at, usegmt=True))
    assert wish is not None
    assert 7000 < wish <= 7200


@pytest.mark.parametrize("told", ["Fri, 31 Dec 1999 23:59:59 GMT", "Friday, 31-Dec-99 23:59:59 GMT"])
def test_a_date_in_the_past_is_now(told: str) -> None:
    assert wish_of(told) == 0


@pytest.mark.parametrize("told", ["", "soon", "-1", "1.5", "+5", " 5", "\u0665", "Mon, 99 Foo 2020 00:00:00 GMT"])
def test_what_is_neither_is_no_wish(told: str) -> None:
    assert wish_of(told) is None


@pytest.mark.parametrize(
    "told", ["Mon, 01 Jan 2024 00:00:00 +" + "9" * 23, "Mon, 01 Jan 2030 00:00:" + "9" * 20 + " GMT"]
)
def test_a_date_with_absurd_numbers_is_no_wish(told: str) -> None:
    assert wish_of(told) is None


@given(st.from_regex(r"\A[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,5} [\d:]{0,12} [+-]?\w{0,6}\Z"))
def test_whatever_looks_like_a_date_does_no_harm(told: str) -> None:
    wish = wish_of(told)
    assert wish is None or wish >= 0


@pytest.mark.parametrize("status", [None, 429, 500, 502, 503, 599])
def test_no_answer_and_overload_tell_of_the_receiver_as_a_whole(status: int | None) -> None:
    assert Answer(status).unwell
    assert not Answer(status).delivered


@pytest.mark.parametrize("status", [200, 204, 299, 301, 307, 400, 401, 404, 410])
def test_other_answers_tell_of_the_one_call_alone(status: int) -> None:
    answer = Answer(status)
    assert not answer.unwell
    assert (answer.delivered, answer.gone) == (status < 300, status == 410)
