"""What attacks begin with is real, they are the same each time, and what failed is found again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from attack import failures, picture_files, video_files
from attack.attacks import Outcome, Play, Shot
from attack.bystander import Delays, Waited
from attack.corpus import samples, urls
from attack.failures import Failure
from attack.families import FAMILIES, permissions
from attack.mutations import HEAVY, LIGHT
from attack.origin import OPEN_HOST, Origin
from attack.picture_files import FILES as PICTURES
from attack.stage import NotOurs, Stage, address_of
from attack.video_files import FILES as VIDEOS
from attack.wire import Address, Request


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:8000", "http://127.0.0.1:8000/"])
def test_services_on_this_machine_are_attacked(url: str) -> None:
    assert address_of(url) == Address("127.0.0.1", 8000)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "http://192.168.0.7:8000",
        "http://0.0.0.0:8000",
        "https://127.0.0.1",
        "http://127.0.0.1.example.com",
        "http://127.0.0.1@example.com",
        "127.0.0.1:8000",
        "",
    ],
)
def test_no_others_are(url: str) -> None:
    with pytest.raises(NotOurs, match="loopback"):
        address_of(url)


def test_every_endpoint_that_takes_json_has_a_real_request(repository: Path) -> None:
    described = paths(repository)
    wanted = {
        (method.upper(), _pattern(path))
        for path, methods in described.items()
        for method, operation in methods.items()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    }
    there = {(sample.method, _pattern(sample.path)) for sample in samples()}
    assert {(method, path) for method, path in wanted if not any(_fits(method, path, *one) for one in there)} == set()


def test_every_route_that_asks_for_a_key_is_in_the_table_of_permissions(repository: Path) -> None:
    described = paths(repository)
    wanted = {
        (method.upper(), _pattern(path))
        for path, methods in described.items()
        for method, operation in methods.items()
        if operation.get("security") and not path.startswith("/v1/gen-")  # these are made by one hand
    }
    there = {(route.method, _pattern(route.path)) for route in permissions.TABLE}
    assert {(method, path) for method, path in wanted if not any(_fits(method, path, *one) for one in there)} == set()


def paths(repository: Path) -> dict[str, Any]:
    """Of both documents."""
    documents = [json.loads((repository / name).read_text()) for name in ("openapi.json", "openapi-admin.json")]
    return documents[0]["paths"] | documents[1]["paths"]


def _pattern(path: str) -> tuple[str, ...]:
    return tuple("" if part.startswith("{") else part for part in path.partition("?")[0].split("/"))


def _fits(method: str, path: Sequence[str], sent: str, where: Sequence[str]) -> bool:
    alike = len(path) == len(where) and all(part in ("", given) for part, given in zip(path, where, strict=True))
    return method == sent and alike


def test_no_address_of_the_corpus_is_the_one_that_may_be_asked() -> None:
    assert [url for url in urls().direct if url.startswith(f"http://{OPEN_HOST}:")] == []
    assert len(set(urls().direct)) == len(urls().direct) > 250


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_makes_the_same_attacks(repository: Path, family: str) -> None:
    first, second = (FAMILIES[family].attacks(repository, 1, 40) for _ in range(2))
    names = [attack.name for attack in first]
    assert names == [attack.name for attack in second]
    assert len(set(names)) == len(names)
    assert sum(attack.tries for attack in first) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_are_made_and_the_same_mark_makes_the_same(kind: str) -> None:
    made = [picture_files.written(kind, f"1/{number}") for number in range(12)]
    assert all(made)
    assert picture_files.written(kind, "1/11") == made[-1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in VIDEOS if kind != "costly"])
def test_videos_are_made_and_the_same_mark_makes_the_same(kind: str) -> None:
    made = [video_files.written(kind, f"1/{number}", Origin(port=9)) for number in range(12)]
    assert len(set(made)) > 1
    assert video_files.written(kind, "1/11", Origin(port=9)) == made[-1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*LIGHT, *HEAVY])
def test_bodies_are_made_of_every_sample_and_the_same_mark_makes_the_same(kind: str) -> None:
    mutation = LIGHT.get(kind) or HEAVY[kind]
    for sample in samples() if kind in LIGHT else samples()[:2]:
        assert mutation(Random(1), sample.body) == mutation(Random(1), sample.body)


async def test_what_failed_is_found_again(tmp_path: Path) -> None:
    async def act(stage: Stage) -> Sequence[str]:
        return ["broken"]

    play, request = Play("a play", act), Request("GET", "/x")
    file = tmp_path / "new" / "failed.jsonl"
    kept = [
        Failure.of("json", 3, 10, play, Outcome(["broken"])),
        Failure.of("json", 3, 10, Shot("gone", lambda _: request), Outcome(["HTTP 500"], request=request)),
        Failure.of("json", 3, 10, Play("gone, too", act), Outcome(["broken"])),
    ]
    failures.save(file, kept)
    assert failures.load(file) == kept
    asked: list[tuple[str, int, int]] = []

    def made(*mark: int | str) -> Sequence[Play]:
        asked.append(mark)  # type: ignore[arg-type]
        return [play]

    (_, first), (_, second) = failures.again(failures.load(file), made)
    assert asked == [("json", 3, 10)]
    assert first is play
    assert isinstance(second, Shot)
    assert second.build(None) == request  # type: ignore[arg-type]


def test_nothing_has_failed_yet(tmp_path: Path) -> None:
    assert failures.load(tmp_path / "none") == []


def test_delays_of_a_bystander() -> None:
    delays = Delays.of([Waited(0, n / 1000) for n in range(1, 101)] + [Waited(0, 2.0, "HTTP 503")])
    assert delays.p50 == pytest.approx(0.051)
    assert delays.p99 == pytest.approx(0.1)
    assert (delays.worst, delays.requests, delays.troubles) == (2.0, 101, ["HTTP 503"])
    assert Delays.of([]) == Delays(0.0, 0.0, 0.0, 0, [])
