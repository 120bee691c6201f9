"""How fast a key may submit, and how many tasks a project may have."""

from __future__ import annotations

import re

import pytest
from support.http_client import Client, refusal
from support.http_service import Service, StartService
from support.images import image_file, to_base64
from support.promises import promise

from serve_app.config.settings import TaskSettings

REMAINING = re.compile(r'"requests";r=(\d+);t=(\d+)')
EVERY_S = 1000
"""Slow enough that none comes back while a test runs."""


@pytest.fixture
def slow_service(start_service: StartService) -> Service:
    return start_service(tasks=TaskSettings(requests_per_s=1 / EVERY_S, burst=3))


def remaining(headers: object) -> tuple[int, int]:
    """What is left, and the seconds until there is more."""
    match = REMAINING.fullmatch(str(headers))
    assert match, headers
    return int(match[1]), int(match[2])


def test_accepted_submissions_count_down(slow_service: Service) -> None:
    with slow_service.client() as client:
        for expected in (2, 1, 0):
            response = client.submit()
            assert response.status_code == 200
            assert response.headers["ratelimit-policy"] == f'"requests";q=3;w={3 * EVERY_S}'
            actual, until_more = remaining(response.headers["ratelimit"])
            assert actual == expected
            assert 1 <= until_more <= EVERY_S


@promise(
    "Decided: errors",
    "too many active tasks for the project (default 24), too many requests, or the endpoint's queue is full: "
    "each says which, with `Retry-After`",
)
def test_one_too_many_is_told_when_to_come_back_and_leaves_nothing(slow_service: Service) -> None:
    with slow_service.client() as client, slow_service.client() as other:
        for _ in range(3):
            client.create_task()
        for body in ({}, {"images": [to_base64(image_file())]}):
            with slow_service.assert_unchanged():
                response = client.submit(**body)
            assert refusal(response, 429).startswith("Too many requests")
            wait = int(response.headers["retry-after"])
            assert 1 <= wait <= EVERY_S
            assert remaining(response.headers["ratelimit"]) == (0, wait)
            assert response.headers["ratelimit-policy"] == f'"requests";q=3;w={3 * EVERY_S}'
        assert remaining(other.submit().headers["ratelimit"])[0] == 2, "another key is unaffected"


def test_a_repeat_under_an_idempotency_key_does_not_count(slow_service: Service) -> None:
    with slow_service.client(headers={"Idempotency-Key": "once"}) as client:
        first = client.submit()
        for _ in range(5):
            assert client.submit().json() == first.json()
        client.headers["Idempotency-Key"] = "another"
        assert remaining(client.submit().headers["ratelimit"])[0] == 1


def test_a_price_counts_like_a_submission(slow_service: Service) -> None:
    request = {"path": "/v1/gen-3-image-klein", "body": {"prompt": "a cat"}}
    with slow_service.client() as client:
        for ask, expected in ((client.submit, 2), (lambda: client.post("/v1/pricing", json=request), 1)):
            response = ask()
            assert response.status_code == 200
            assert remaining(response.headers["ratelimit"])[0] == expected
        assert remaining(client.submit().headers["ratelimit"])[0] == 0
        assert refusal(client.post("/v1/pricing", json=request), 429).startswith("Too many requests")


@promise(
    "Decided: errors",
    "too many active tasks for the project (default 24), too many requests, or the endpoint's queue is full: "
    "each says which, with `Retry-After`",
)
@pytest.mark.parametrize("most", [1, 2])
def test_a_projects_own_number_of_active_tasks(
    service: Service, administrator: Client, operator: Client, organization: str, most: int
) -> None:
    with service.client(organization=organization) as client:
        path = f"/v1/admin/projects/{client.project}"
        operator.patch(path, json={"max_active": most})
        first, *_ = [client.create_task() for _ in range(most)]
        for body in ({}, {"images": [to_base64(image_file())]}):
            with service.assert_unchanged():
                response = client.submit(**body)
            assert refusal(response, 429) == f"Too many active tasks: this project may have {most} at a time"
            assert int(response.headers["retry-after"]) >= 1
        administrator.create_task()
        client.delete(f"/v1/tasks/{first}")
        client.create_task()
        operator.patch(path, json={"max_active": most + 1})
        client.create_task()
        assert client.submit().status_code == 429
        operator.patch(path, json={"max_active": None})
        client.create_task()
