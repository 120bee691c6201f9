"""What will be refused anyway is refused before its images are fetched, decoded or stored."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from support.http_client import ENDPOINT, Client, refusal
from support.http_service import Service, StartService
from support.images import image_file
from support.website import Website

from deployments.contract.objects import ObjectStore
from serve_app.config.settings import TaskSettings

EVERY_S = 1000
"""Slow enough that no further request becomes due while a test runs."""
NO_IMAGE = "AAAA"
Image: TypeAlias = Callable[[], str]


@pytest.fixture
def at(web: Website) -> Iterator[Image]:
    """Where an image is that must not be fetched."""
    path = f"/{uuid.uuid4().hex}"
    yield lambda: web.set_page(path, image_file())
    assert path not in web.paths


@pytest.fixture
def nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def put(store: ObjectStore, key: str, data: bytes, content_type: str) -> None:
        pytest.fail("an input was stored")

    monkeypatch.setattr(ObjectStore, "put", put)


pytestmark = pytest.mark.usefixtures("nothing_is_stored")


def assert_refused(client: Client, service: Service, at: Image, status: int) -> str:
    """The refusal, which an image by its address and one that can't be decoded meet alike."""
    with service.assert_unchanged():
        details = {refusal(client.submit(images=[image]), status) for image in (at(), NO_IMAGE)}
    assert len(details) == 1
    return details.pop()


def test_too_many_requests(start_service: StartService, at: Image) -> None:
    service = start_service(tasks=TaskSettings(requests_per_s=1 / EVERY_S, burst=1))
    with service.client() as client:
        client.create_task()
        assert assert_refused(client, service, at, 429).startswith("Too many requests")


def test_too_many_active_tasks(start_service: StartService, at: Image) -> None:
    service = start_service(tasks=TaskSettings(max_active=1))
    with service.client() as client:
        client.create_task()
        assert assert_refused(client, service, at, 429).startswith("Too many active tasks")


def test_a_full_queue(start_service: StartService, at: Image) -> None:
    service = start_service(tasks=TaskSettings(max_queued=1))
    with service.client() as client:
        client.create_task()
        assert assert_refused(client, service, at, 429) == "The queue of gen-3-image-klein is full"


def test_less_than_the_smallest_price(service: Service, at: Image) -> None:
    with service.client(organization=service.worker.new_organization(credits=0.899)) as client:
        assert assert_refused(client, service, at, 402) == "Insufficient credits"


def test_a_spending_limit_that_nothing_fits_below(
    service: Service, administrator: Client, organization: str, at: Image
) -> None:
    with service.client(organization=organization) as client:
        administrator.patch(f"/v1/admin/projects/{client.project}", json={"limit_day": 0.5})
        assert assert_refused(client, service, at, 402).startswith("Spending limit reached")


def test_prices_of_a_key_that_is_too_fast(start_service: StartService, at: Image) -> None:
    service = start_service(tasks=TaskSettings(requests_per_s=1 / EVERY_S, burst=1))
    request: dict[str, Any] = {"path": ENDPOINT, "body": {"prompt": "x"}}
    with service.client() as client:
        assert client.post("/v1/pricing", json=request).status_code == 200
        request["body"]["images"] = [at()]
        response = client.post("/v1/pricing", json=request)
        assert refusal(response, 429).startswith("Too many requests")
        assert 1 <= int(response.headers["retry-after"]) <= EVERY_S
