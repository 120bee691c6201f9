"""Events pass between releases: what the other side does not know is left out, and what it did not tell is nothing."""

from __future__ import annotations

import pickle
from dataclasses import fields

import pytest

from deployments.contract.events import Done, Failed, Interrupted
from deployments.contract.job import Output

LAST = (Done(Output("key", "image/png", 64, 64, 1)), Failed("no"), Interrupted("no", blame=False))


@pytest.mark.parametrize("event", LAST, ids=lambda event: type(event).__name__)
def test_an_event_of_a_release_that_did_not_tell_the_time_is_read(event: Done | Failed | Interrupted) -> None:
    told = [getattr(event, field.name) for field in fields(event)]
    old = object.__new__(type(event))
    old.__setstate__(told[:-1])  # type: ignore[attr-defined]  # as pickle does, with what that release had
    assert old.took_s == 0.0
    assert [getattr(old, field.name) for field in fields(event)[:-1]] == told[:-1]


@pytest.mark.parametrize("event", LAST, ids=lambda event: type(event).__name__)
def test_the_time_comes_behind_what_a_release_before_knows(event: Done | Failed | Interrupted) -> None:
    assert [field.name for field in fields(event)][-1] == "device_s"
    assert pickle.loads(pickle.dumps(event)) == event
