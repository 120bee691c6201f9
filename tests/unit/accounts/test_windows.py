"""The windows of spending limits against facts of the calendar."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from serve_app.accounts.windows import WINDOWS, compute_windows, day_number, midnight

DAYS = st.dates(date(1970, 1, 1), date(9998, 12, 31))


@given(day=DAYS)
def test_every_day_of_a_window_has_that_same_window(day: date) -> None:
    assert tuple(compute_windows(day)) == WINDOWS
    assert midnight(day) == datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert day_number(day) * 86_400 == midnight(day).timestamp()
    for name, (first, following) in compute_windows(day).items():
        assert first <= day < following
        last = following - timedelta(days=1)
        assert compute_windows(first)[name] == compute_windows(last)[name] == (first, following)
        assert compute_windows(following)[name][0] == following
        if first > date(1970, 1, 1):
            assert compute_windows(first - timedelta(days=1))[name][1] == first


@given(day=DAYS)
def test_weeks_are_iso_weeks_from_monday_to_monday_and_days_a_day(day: date) -> None:
    assert compute_windows(day)["day"] == (day, day + timedelta(days=1))
    monday, following = compute_windows(day)["week"]
    assert monday.isoweekday() == 1
    assert following - monday == timedelta(days=7)
    assert monday.isocalendar()[:2] == day.isocalendar()[:2]


@given(day=DAYS)
def test_months_are_calendar_months(day: date) -> None:
    first, following = compute_windows(day)["month"]
    assert (first.year, first.month, first.day) == (day.year, day.month, 1)
    assert following.day == 1
    assert (following - first).days == calendar.monthrange(day.year, day.month)[1]
