"""Windows of spending limits: days, ISO weeks and calendar months."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from serve_app.accounts.windows import WINDOWS, compute_windows, day_number, midnight

DAYS = st.dates(date(1970, 1, 1), date(9998, 12, 31))


@given(day=DAYS)
def test_all_days_of_a_window_have_the_same_window(day: date) -> None:
    assert tuple(compute_windows(day)) == WINDOWS
    assert midnight(day) == datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert day_number(day) * 86_400 == midnight(day).timestamp()
    for name, (first, following) in compute_windows(day).items():
        assert first <= day < following
        last = following - timedelta(days=1)
        assert compute_windows(first)[name] == compute_windows(last)[name] == (first, following)


@given(day=DAYS)
def test_windows_are_a_day_an_iso_week_and_a_month(day: date) -> None:
    windows = compute_windows(day)
    assert windows["day"] == (day, day + timedelta(days=1))
    monday, following = windows["week"]
    assert monday.isoweekday() == 1
    assert following - monday == timedelta(days=7)
    assert monday.isocalendar()[:2] == day.isocalendar()[:2]
    first, following = windows["month"]
    assert (first.year, first.month, first.day) == (day.year, day.month, 1)
    assert following.day == 1
    assert (following - first).days == calendar.monthrange(day.year, day.month)[1]
