"""When the Python client tries again: its steps, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from gen_serve_client import GenServeError, Retries
from gen_serve_client.calls import Calls
from gen_serve_client.exchange import Answer, Heard, NoAnswer, Pause, Request, Steps
from gen_serve_client.retries import retry_after_s

URL = "http://127.0.0.1:8000"
BROKEN = NoAnswer("broken", connected=True)
NOBODY = NoAnswer("nobody", connected=False)


def answer(status: int, body: bytes = b"{}", retry_after: str = "") -> Answer:
    return Answer(status, {"retry-after": retry_after} if retry_after else {}, body)


def pauses(steps: Steps[Any], answers: list[Answer | NoAnswer]) -> list[float]:
    """How long is paused between requests, until the call has its result, or the answers are used up."""
    return [step.seconds for step in carried_out(steps, answers) if isinstance(step, Pause)]


def carried_out(steps: Steps[Any], answers: list[Answer | NoAnswer]) -> Iterator[Request | Pause]:
    left, heard = list(answers), None
    while True:
        try:
            step = steps.send(heard)
        except (StopIteration, GenServeError):
            return
        yield step
        heard: Heard = left.pop(0) if isinstance(step, Request) else None


def calls(**options: Any) -> Calls:
    return Calls(URL, "secret", Retries(**options))


def test_waits_double_up_to_the_longest() -> None:
    waits = pauses(calls(first_wait_s=1, longest_wait_s=3).credits(), [BROKEN] * 6)
    assert len(waits) == 5
    for wait, most in zip(waits, (1, 2, 3, 3, 3), strict=True):
        assert most / 2 <= wait <= most


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_what_the_service_wishes_holds(status: int) -> None:
    (wait,) = pauses(calls().credits(), [answer(status, retry_after="7"), answer(200, b'{"credits": 1}')])
    assert wait == 7.0


@pytest.mark.parametrize("status", [429, 503])
def test_who_wants_too_long_a_wait_is_not_asked_again(status: int) -> None:
    assert pauses(calls().credits(), [answer(status, retry_after="31")]) == []


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 410, 413, 422])
def test_what_is_refused_for_good_is_not_sent_again(status: int) -> None:
    assert pauses(calls().submit("gen-pro", {}, None), [answer(status)]) == []


def test_a_request_in_work_is_asked_for_again() -> None:
    assert len(pauses(calls().submit("gen-pro", {}, None), [answer(409, retry_after="1"), answer(200)])) == 1


@pytest.mark.parametrize("many", [1, 3])
def test_429_has_a_bound_of_its_own(many: int) -> None:
    chosen = calls(too_many_tries=many, first_wait_s=0)
    assert len(pauses(chosen.credits(), [answer(429)] * 10)) == many - 1


@pytest.mark.parametrize(("heard", "again"), [(NOBODY, 1), (answer(429), 1), (BROKEN, 0), (answer(500), 0)])
def test_what_is_not_to_be_done_twice_is_sent_again_where_it_did_nothing(heard: Answer | NoAnswer, again: int) -> None:
    assert len(pauses(calls().delete_finetune("x"), [heard, answer(200)])) == again


def test_nothing_is_tried_beyond_the_time_that_the_caller_has() -> None:
    assert pauses(calls(first_wait_s=20).wait("x", None, 5.0), [BROKEN]) == []


def test_a_service_that_does_not_wait_is_given_time() -> None:
    body = b'{"id": "x", "status": "%s"}'
    (wait,) = pauses(calls().wait("x", None, None), [answer(200, body % b"Pending"), answer(200, body % b"Error")])
    assert 0.9 < wait <= 1.0


@pytest.mark.parametrize("bad", [{"tries": 0}, {"too_many_tries": 0}])
def test_a_request_is_tried_once_at_least(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="once at least"):
        Retries(**bad)


def test_dates_are_understood() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    seconds = retry_after_s({"retry-after": later})
    assert seconds is not None
    assert 80 < seconds <= 90
    assert retry_after_s({"retry-after": "Mon, 01 Jan 2024 00:00:00 GMT"}) == 0.0


@pytest.mark.parametrize("told", ["", "soon", "-1", "1.5", "\N{SUPERSCRIPT TWO}", "Mon, 99 Jan 2024 00:00:00 GMT"])
def test_what_says_nothing_is_no_wait(told: str) -> None:
    assert retry_after_s({"retry-after": told}) is None
    assert retry_after_s({}) is None


@pytest.mark.parametrize(
    ("url", "goes"),
    [
        (f"{URL}/v1/results/x", True),
        ("HTTP://127.0.0.1:8000/x", True),
        ("http://127.0.0.1:8001/x", False),
        ("https://127.0.0.1:8000/x", False),
        ("http://127.0.0.1:8000@evil.test/x", False),
        ("http://127.0.0.1:8000.evil.test/x", False),
    ],
)
def test_the_key_goes_to_the_same_origin_only(url: str, goes: bool) -> None:
    request = next(calls().fetch(url))
    assert isinstance(request, Request)
    assert ("x-key" in request.headers) == goes


@pytest.mark.parametrize(
    ("base_url", "url"), [("https://a.test", "https://a.test:443/x"), ("http://A.test:80", "http://a.test/x")]
)
def test_usual_ports_need_not_be_named(base_url: str, url: str) -> None:
    request = next(Calls(base_url, "secret", Retries()).fetch(url))
    assert isinstance(request, Request)
    assert "x-key" in request.headers


@pytest.mark.parametrize("key", ["two\nlines", "clé", "tab\t"])
def test_what_no_key_can_be_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII"):
        Calls(URL, key, Retries())
