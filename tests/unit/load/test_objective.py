from __future__ import annotations

import pytest
from support.outcomes_of_load import served, unserved

from serve_app.load.mix import Endpoint, Mix
from serve_app.load.objective import NoSolo, Objective, solo_latencies, solo_requests
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request

MIX = Mix(endpoints=[Endpoint(endpoint="quick"), Endpoint(endpoint="slow", steps=[4, 8])])


def test_seconds_are_the_same_for_all_and_a_multiple_is_of_each_kind() -> None:
    assert Objective.parsed("5").of_kinds(["a", "b"], {}) == {"a": 5, "b": 5}
    tripled = Objective.parsed("3x")
    assert tripled.of_kinds(["a", "b"], {"a": 1, "b": 2}) == {"a": 3, "b": 6}
    assert tripled.longest({"a": 1, "b": 2}) == 6
    assert Objective.parsed("5").longest({}) == 5
    assert (str(Objective.parsed("5")), str(tripled)) == ("5 s", "3x solo latency")


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "5s", "0x"])
def test_anything_else_is_no_objective(text: str) -> None:
    with pytest.raises(ValueError, match="--slo should be seconds, like 5, or a multiple"):
        Objective.parsed(text)


def test_each_kind_is_measured_alone_and_the_first_of_it_does_not_count() -> None:
    sent: list[Request] = []

    def send(request: Request) -> Outcome:
        sent.append(request)
        return served(0, 60 if request.number == 0 else request.number)

    solo = solo_latencies(solo_requests(MIX.one_of_each()), send)
    assert solo == dict.fromkeys(("quick, as the server chooses", "slow, 4 steps", "slow, 8 steps"), pytest.approx(2))
    assert len(sent) == 12


def test_a_request_that_is_refused_alone_says_nothing_of_how_long_it_takes() -> None:
    with pytest.raises(NoSolo, match=r"quick, .*: a request alone was refused \(HTTP 402\)"):
        solo_latencies(solo_requests(MIX.one_of_each()), lambda _: unserved(0, "refused", "HTTP 402"))


def test_too_many_kinds_are_not_measured() -> None:
    many = Mix(endpoints=[Endpoint(endpoint="a", steps=list(range(1, 60)))])
    with pytest.raises(ValueError, match="59 kinds of requests are too many"):
        solo_requests(many.one_of_each())
