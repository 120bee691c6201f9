"""`gen-serve conformance`, against a small server of the dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.command_line import GenServe
from support.http_service import serving
from support.toy_dialect import KEY, ToyDialect


@pytest.fixture
def toy() -> Iterator[str]:
    with serving(ToyDialect().app) as base_url:
        yield base_url


def test_a_topic_is_judged_and_told_in_a_table(gen_serve: GenServe, toy: str) -> None:
    ran = gen_serve("conformance", "--base-url", toy, "--key", KEY, "--only", "idempotency")
    assert (ran.code, ran.err) == (0, "")
    assert ran.table[:2] == [["idempotency", "5", "0", "0"], ["all", "5", "0", "0"]]
    assert ran.out.endswith("5 of 5 sentences hold, 0 do not, 0 were skipped\n")


def test_what_does_not_hold_is_named_and_the_exit_code_is_one(gen_serve: GenServe) -> None:
    with serving(ToyDialect("forgets keys").app) as base_url:
        ran = gen_serve("conformance", "--base-url", base_url, "--key", KEY, "--only", "idempotency")
    assert (ran.code, ran.err) == (1, "error: 3 of 5 sentences do not hold\n")
    assert "FAILS Decided: submission: Same key, other body: 422." in ran.out
    assert KEY not in ran.out


def test_programs_get_json(gen_serve: GenServe, toy: str) -> None:
    ran = gen_serve("conformance", "--base-url", toy, "--key", KEY, "--only", "idempotency", "--json")
    told = json.loads(ran.out)
    assert told["counts"] == {"holds": 5, "fails": 0, "skipped": 0}
    assert told["checks"][0]["section"] == "Decided: submission"
    assert {check["verdict"] for check in told["checks"]} == {"holds"}


def test_the_interface_alone(gen_serve: GenServe, toy: str) -> None:
    words = ("--base-url", toy, "--key", KEY, "--only", "errors", "--interface-only", "--json")
    told = json.loads(gen_serve("conformance", *words).out)
    assert not any(check["decided"] for check in told["checks"])


def test_checks_are_listed_with_what_they_cost(gen_serve: GenServe) -> None:
    ran = gen_serve("conformance", "--list", "--only", "webhooks")
    assert ran.code == 0
    assert ["webhooks", "1", "Events", "The status value for success is `Ready`."] in ran.table


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("--only nonsense --key x", 2, "no section nonsense; there are submission, idempotency, "),
        ("--base-url http://127.0.0.1:9 --key x --only usage", 1, "http://127.0.0.1:9 can't be reached: "),
    ],
)
def test_what_cannot_be_judged_is_told_in_a_line(gen_serve: GenServe, words: str, code: int, said: str) -> None:
    ran = gen_serve("conformance", *words.split())
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith(f"error: {said}")
    assert ran.err.count("\n") == 1
