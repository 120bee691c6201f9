"""Short attacks on the HTTP interface; `make attack` attacks the whole service at length."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.http_service import running

from attack.__main__ import FAMILIES, attack
from attack.target import SETTINGS, Target, open_target
from attack.wire import NotLocal, RawResponse, Request, find_problems, parse_address
from serve_app.accounts.roles import Role
from serve_app.config.settings import Settings

COUNTS = {"urls": 200, "json": 120, "images": 15, "videos": 12, "slow": 30}
ENTRY = {"type": "missing", "loc": ["body"], "msg": "Field required"}


@contextmanager
def start_target(folder: Path, redis_url: str, repository: Path, **changes: Any) -> Iterator[Target]:
    settings: dict[str, Any] = Settings.model_validate({**SETTINGS, **changes}).model_dump(include=set(SETTINGS))
    with running(folder, redis_url, repository, **settings) as service:
        operator = service.worker.new_key("attackers", Role.OPERATOR)
        with open_target(service.base_url, operator, proxied=False) as target:
            yield target


@pytest.fixture(scope="module")
def target(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with start_target(tmp_path_factory.mktemp("attacked"), redis_url, repository) as target:
        yield target


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_no_attack_succeeds(target: Target, family: str) -> None:
    assert attack(target, [family], 1, COUNTS[family]) == []


@pytest.mark.slow
def test_open_url_guard_is_detected(redis_url: str, repository: Path, tmp_path: Path) -> None:
    with start_target(tmp_path, redis_url, repository, network={"allow": ["127.0.0.0/8"]}) as target:
        assert any("reached a forbidden address" in failure for failure in attack(target, ["urls"], 1, 60))


@pytest.mark.parametrize("url", ["http://example.com", "http://0.0.0.0", "https://127.0.0.1", "http://127.0.0.1@x.com"])
def test_remote_service_is_not_attacked(url: str) -> None:
    assert parse_address("http://localhost:8000/") == ("127.0.0.1", 8000)
    with pytest.raises(NotLocal, match="loopback"):
        parse_address(url)


@pytest.mark.parametrize(
    ("status", "body", "headers", "problem"),
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
def test_response_problems_are_found(status: int, body: Any, headers: dict[str, str], problem: str) -> None:
    request = Request("POST", "/v1/x", b'{"path": "/tmp/mine"}')
    answer = RawResponse(status, {"content-type": "application/json"} | headers, json.dumps(body).encode())
    problems = find_problems(request, answer, {"gen_another"})
    assert problem in problems[0] if problem else not problems
