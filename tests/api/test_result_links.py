"""Links to results that can be passed on."""

from __future__ import annotations

import time
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from support.client import Client, refusal
from support.http_service import Service
from support.pictures import picture

PICTURE = picture(form="JPEG")


@pytest.fixture
def task_id(client: Client, service: Service) -> str:
    task_id = client.submit(prompt="a red star").json()["id"]
    service.worker.deliver(task_id, PICTURE)
    return task_id


def test_whoever_has_the_link_sees_the_result(client: Client, task_id: str) -> None:
    link = client.post(f"/v1/tasks/{task_id}/links", json={"expires_in": 3600}).json()
    assert link["expires"] == pytest.approx(time.time() + 3600, abs=60)
    assert float(parse_qs(urlsplit(link["url"]).query)["se"][0]) == pytest.approx(link["expires"], abs=2)
    assert httpx2.get(link["url"], trust_env=False, timeout=60).content == PICTURE


def test_it_is_good_for_no_longer_than_the_result_is_kept(client: Client, service: Service, task_id: str) -> None:
    link = client.post(f"/v1/tasks/{task_id}/links", json={"expires_in": 7 * 24 * 3600}).json()
    assert link["expires"] == pytest.approx(time.time() + service.settings.tasks.retention_s, abs=60)


def test_there_are_none_to_what_is_not_made_or_not_ones_own(client: Client, service: Service, task_id: str) -> None:
    waiting = client.submit(prompt="a red star").json()["id"]
    wrong = client.post(f"/v1/tasks/{waiting}/links", json={})
    assert refusal(wrong, 409) == "The task has no result: it is Pending"
    with service.client() as another:
        assert refusal(another.post(f"/v1/tasks/{task_id}/links", json={}), 404) == "Task not found"


@pytest.mark.parametrize("seconds", [59, 7 * 24 * 3600 + 1, "soon"])
def test_how_long_is_bounded(client: Client, task_id: str, seconds: object) -> None:
    assert client.post(f"/v1/tasks/{task_id}/links", json={"expires_in": seconds}).status_code == 422
