"""A short run of what `make attack` does at length, against the service's HTTP interface alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.http_service import running

from attack.__main__ import FAMILIES, attack
from attack.stage import SETTINGS, Stage, open_stage
from attack.wire import Answer, NotOurs, Request, parse_address, wrong
from serve_app.accounts.roles import Role
from serve_app.config.settings import Settings

COUNTS = dict.fromkeys(FAMILIES, 30) | {"urls": 200, "json": 120}
ENTRY = {"type": "missing", "loc": ["body"], "msg": "Field required"}


@contextmanager
def start_stage(folder: Path, redis_url: str, repository: Path, **changes: Any) -> Iterator[Stage]:
    settings: dict[str, Any] = Settings.model_validate({**SETTINGS, **changes}).model_dump(include=set(SETTINGS))
    with running(folder, redis_url, repository, **settings) as service:
        operator = service.worker.new_key("attackers", Role.OPERATOR)
        with open_stage(service.base_url, operator, proxied=False) as stage:
            yield stage


@pytest.fixture(scope="module")
def stage(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with start_stage(tmp_path_factory.mktemp("attacked"), redis_url, repository) as stage:
        yield stage


@pytest.mark.slow
@pytest.mark.parametrize("family", COUNTS)
def test_no_attack_succeeds(stage: Stage, family: str) -> None:
    assert attack(stage, [family], 1, COUNTS[family]) == []


@pytest.mark.slow
def test_a_guard_that_lets_through_is_noticed(redis_url: str, repository: Path, tmp_path: Path) -> None:
    with start_stage(tmp_path, redis_url, repository, network={"allow": ["127.0.0.0/8"]}) as stage:
        assert any("reached where" in failure for failure in attack(stage, ["urls"], 1, 150))


@pytest.mark.parametrize("url", ["http://example.com", "http://0.0.0.0", "https://127.0.0.1", "http://127.0.0.1@x.com"])
def test_services_elsewhere_are_not_attacked(url: str) -> None:
    assert parse_address("http://localhost:8000/") == ("127.0.0.1", 8000)
    with pytest.raises(NotOurs, match="loopback"):
        parse_address(url)


@pytest.mark.parametrize(
    ("status", "body", "headers", "why"),
    [
        (200, {"anything": "/usr/lib"}, {}, ""),
        (422, {"detail": [ENTRY | {"msg": "/tmp/mine"}], "code": "some"}, {}, ""),
        (503, {"detail": "Come again", "code": "some"}, {"retry-after": "2"}, ""),
        (503, {"detail": "Come again", "code": "some"}, {}, "HTTP 503"),
        (500, {"detail": "Internal Server Error", "code": "some"}, {}, "HTTP 500"),
        (400, {"detail": "x", "code": "some"}, {"content-type": "text/html"}, "another form"),
        (422, {"detail": [ENTRY | {"input": "x"}], "code": "some"}, {}, "another form"),
        (422, {"detail": [ENTRY] * 5000, "code": "some"}, {}, "bytes"),
        (400, {"detail": "Traceback (most recent call last)", "code": "some"}, {}, "Traceback"),
        (400, {"detail": "no such file: /usr/share/x", "code": "some"}, {}, "/usr/share"),
        (200, {"key": "gen_another"}, {}, "secret"),
    ],
)
def test_what_is_wrong_about_an_answer(status: int, body: Any, headers: dict[str, str], why: str) -> None:
    request = Request("POST", "/v1/x", b'{"path": "/tmp/mine"}')
    answer = Answer(status, {"content-type": "application/json"} | headers, json.dumps(body).encode())
    problems = wrong(request, answer, {"gen_another"})
    assert why in problems[0] if why else not problems
