"""Rate limits of keys, and the number of active tasks of a project."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from support.http_client import Client, refusal
from support.http_service import Service, running
from support.images import image_file, to_base64

from serve_app.config.settings import TaskSettings

REMAINING = re.compile(r'"requests";r=(\d+);t=(\d+)')
EVERY_S = 1000
"""Seconds per request: none becomes due while a test runs."""


@pytest.fixture(scope="module")
def slow_service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    tasks = TaskSettings(requests_per_s=1 / EVERY_S, burst=3)
    with running(tmp_path_factory.mktemp("slow"), redis_url, repository, tasks=tasks) as service:
        yield service


def read_limit(response: httpx2.Response) -> tuple[int, int]:
    """Returns the number of remaining requests, and the seconds until the next one."""
    assert response.headers["ratelimit-policy"] == f'"requests";q=3;w={3 * EVERY_S}'
    match = REMAINING.fullmatch(response.headers["ratelimit"])
    assert match
    assert 1 <= int(match[2]) <= EVERY_S
    return int(match[1]), int(match[2])


def test_submissions_count_down_to_a_429_that_leaves_nothing(slow_service: Service) -> None:
    with slow_service.client() as client, slow_service.client() as other:
        responses = [client.submit() for _ in range(3)]
        assert [(each.status_code, read_limit(each)[0]) for each in responses] == [(200, 2), (200, 1), (200, 0)]
        for body in ({}, {"images": [to_base64(image_file())]}):
            with slow_service.assert_unchanged():
                response = client.submit(**body)
            assert refusal(response, 429).startswith("Too many requests")
            assert read_limit(response) == (0, int(response.headers["retry-after"]))
        assert read_limit(other.submit())[0] == 2, "another key is unaffected"


def test_repeat_of_an_idempotency_key_does_not_count(slow_service: Service) -> None:
    with slow_service.client(headers={"Idempotency-Key": "once"}) as client:
        first = client.submit()
        for _ in range(5):
            assert client.submit().json() == first.json()
        client.headers["Idempotency-Key"] = "another"
        assert read_limit(client.submit())[0] == 1


def test_price_counts_like_a_submission(slow_service: Service) -> None:
    request = {"path": "/v1/gen-3-image-klein", "body": {"prompt": "a cat"}}
    with slow_service.client() as client:
        responses = [client.submit(), client.post("/v1/pricing", json=request), client.submit()]
        assert [(each.status_code, read_limit(each)[0]) for each in responses] == [(200, 2), (200, 1), (200, 0)]
        assert refusal(client.post("/v1/pricing", json=request), 429).startswith("Too many requests")


def test_project_has_its_own_limit_of_active_tasks(
    service: Service, administrator: Client, operator: Client, organization: str
) -> None:
    with service.client(organization=organization) as client:
        path = f"/v1/admin/projects/{client.project}"
        operator.patch(path, json={"max_active": 2})
        first, _ = client.create_task(), client.create_task()
        for body in ({}, {"images": [to_base64(image_file())]}):
            with service.assert_unchanged():
                response = client.submit(**body)
            assert refusal(response, 429) == "Too many active tasks: this project may have 2 at a time"
            assert int(response.headers["retry-after"]) >= 1
        administrator.create_task()
        client.delete(f"/v1/tasks/{first}")
        client.create_task()
        operator.patch(path, json={"max_active": 3})
        client.create_task()
        assert client.submit().status_code == 429
        operator.patch(path, json={"max_active": None})
        client.create_task()
