"""Requests over a limit are rejected before their images are fetched, decoded or stored."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from support.http_client import ENDPOINT, Client, refusal
from support.http_service import Service, StartService
from support.images import image_file
from support.website import Website

from deployments.contract.objects import ObjectStore
from serve_app.config.settings import TaskSettings

NO_IMAGE = "AAAA"


@pytest.fixture
def unfetched(web: Website) -> Iterator[str]:
    """URL of an image that must not be fetched."""
    path = f"/{uuid.uuid4().hex}"
    yield web.set_page(path, image_file())
    assert path not in web.paths


@pytest.fixture(autouse=True)
def _assert_nothing_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def put(store: ObjectStore, key: str, data: bytes, content_type: str) -> None:
        pytest.fail("an input was stored")

    monkeypatch.setattr(ObjectStore, "put", put)


def get_refusal(client: Client, service: Service, url: str, status: int) -> str:
    """Returns the detail of the error, which is the same for an image by URL and for an invalid one."""
    with service.assert_unchanged():
        details = {refusal(client.submit(images=[image]), status) for image in (url, NO_IMAGE)}
    [detail] = details
    return detail


@pytest.mark.parametrize(
    ("limit", "detail"),
    [({"max_active": 1}, "Too many active tasks"), ({"max_queued": 1}, "The queue of gen-3-image-klein is full")],
)
def test_task_limit_is_checked_before_images(
    start_service: StartService, unfetched: str, limit: dict[str, int], detail: str
) -> None:
    service = start_service(tasks=TaskSettings(**limit))
    with service.client() as client:
        client.create_task()
        assert get_refusal(client, service, unfetched, 429).startswith(detail)


def test_rate_limit_is_checked_before_images(start_service: StartService, unfetched: str) -> None:
    service = start_service(tasks=TaskSettings(requests_per_s=0.001, burst=1))
    with service.client() as client, service.client() as pricing:
        client.create_task()
        assert get_refusal(client, service, unfetched, 429).startswith("Too many requests")
        body = {"prompt": "x"}
        assert pricing.post("/v1/pricing", json={"path": ENDPOINT, "body": body}).status_code == 200
        response = pricing.post("/v1/pricing", json={"path": ENDPOINT, "body": body | {"images": [unfetched]}})
        assert refusal(response, 429).startswith("Too many requests")
        assert 1 <= int(response.headers["retry-after"]) <= 1000


def test_smallest_price_is_checked_before_images(service: Service, unfetched: str) -> None:
    with service.client(organization=service.worker.new_organization(credits=0.899)) as client:
        assert get_refusal(client, service, unfetched, 402) == "Insufficient credits"


def test_spending_limit_is_checked_before_images(
    service: Service, administrator: Client, organization: str, unfetched: str
) -> None:
    with service.client(organization=organization) as client:
        administrator.patch(f"/v1/admin/projects/{client.project}", json={"limit_day": 0.5})
        assert get_refusal(client, service, unfetched, 402).startswith("Spending limit reached")
