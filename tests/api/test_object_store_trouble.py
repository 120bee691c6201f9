"""An object store that fails or is slow while inputs are stored."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from obstore.exceptions import GenericError
from support.bundle import OUTLINED
from support.http_client import ENDPOINT, Client, refusal
from support.http_service import Service, make_settings
from support.images import image_file, to_base64

from deployments.contract.objects import ObjectStore
from serve_app.api import services
from serve_app.api.app import create_app
from serve_app.config import catalog
from serve_app.tasks.serializer import ResultSerializer

IMAGE = to_base64(image_file())
AWAY = "The object store is out of reach, nothing was accepted or charged; try again shortly"
OUT_OF_REACH = "The object store is out of reach; try again shortly"
AT_A_TIME = 8
PATIENCE_S = 60


def assert_unavailable(response: httpx2.Response) -> None:
    assert refusal(response, 503) == AWAY
    assert int(response.headers["retry-after"]) >= 1


def fail_puts(monkeypatch: pytest.MonkeyPatch, failure: Exception, survive: int) -> None:
    """Makes puts fail after the first `survive`."""
    puts, put = itertools.count(), ObjectStore.put

    async def failing(store: ObjectStore, *args: Any) -> None:
        if next(puts) >= survive:
            raise failure
        await put(store, *args)

    monkeypatch.setattr(ObjectStore, "put", failing)


async def away(store: ObjectStore, *args: Any) -> None:
    raise GenericError("away")


@pytest.mark.parametrize(
    ("failure", "survive"),
    [(GenericError("away"), 0), (PermissionError("full"), 2), (TimeoutError(), 2)],
    ids=lambda value: repr(value),
)
def test_submission_is_503_and_leaves_nothing(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch, failure: Exception, survive: int
) -> None:
    fail_puts(monkeypatch, failure, survive)
    with service.assert_unchanged():
        assert_unavailable(client.submit(images=[IMAGE] * 4))
    assert client.get("/v1/tasks").json()["tasks"] == []
    assert client.submit().status_code == 200


def test_inputs_that_cannot_be_deleted_are_left_to_the_sweep(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = service.worker
    before = set(worker.run(worker.reservations()))
    with monkeypatch.context() as patched:
        fail_puts(patched, GenericError("away"), survive=2)
        patched.setattr(ObjectStore, "delete", away)
        assert_unavailable(client.submit(images=[IMAGE] * 4))
    (reserved,) = set(worker.run(worker.reservations())) - before
    assert len(worker.run(worker.objects.keys(f"inputs/{reserved}"))) == 2


def test_failed_deletion_does_not_hide_the_error(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    # The credits suffice for the smallest image without an input. That is checked after it is stored.
    with service.client(organization=service.worker.new_organization(credits=0.9)) as client:
        monkeypatch.setattr(ObjectStore, "delete", away)
        assert refusal(client.submit(images=[IMAGE]), 402) == "Insufficient credits"


def test_draft_is_503_if_it_cannot_be_found(client: Client, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = client.order_task("gen-3-video", mode="t2v", prompt="x", draft=True)
    service.worker.deliver_video(draft, b"video", b"latents")
    monkeypatch.setattr(ObjectStore, "keys", away)
    body = {"mode": "draft_enhance", "draft_cache": draft}
    assert_unavailable(client.order("gen-3-video", **body))
    assert_unavailable(client.post("/v1/pricing", json={"path": "/v1/gen-3-video", "body": body}))


class SlowStore:
    """Holds puts until they are `released`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released = asyncio.Event()
        self.in_flight = 0
        self.most_at_a_time = 0
        self._put = ObjectStore.put
        slow = self

        async def put(store: ObjectStore, *args: Any) -> None:
            await slow._delay(lambda: slow._put(store, *args))

        monkeypatch.setattr(ObjectStore, "put", put)

    async def _delay(self, put: Callable[[], Awaitable[None]]) -> None:
        self.in_flight += 1
        self.most_at_a_time = max(self.most_at_a_time, self.in_flight)
        await self.released.wait()
        await put()
        self.in_flight -= 1

    async def wait_for_puts(self, puts: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.in_flight < puts:
                await asyncio.sleep(0.001)


@pytest.fixture
async def inside(redis_url: str, prefix: str, repository: Path, tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client in the service's event loop."""
    settings = make_settings(tmp_path, redis_url, prefix, repository)
    offered = catalog.load(settings)
    app = create_app(settings, offered)
    async with services.open_services(settings, offered) as app_services:
        app.state.services = app_services
        _, secret = await app_services.accounts.keys.create("test")
        transport = httpx2.ASGITransport(app=app)
        headers = {"x-key": secret}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            yield client


async def test_inputs_of_a_submission_are_stored_in_parallel(
    inside: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStore(monkeypatch)
    body = {"prompt": "x", "images": [IMAGE] * 10}
    submission = asyncio.create_task(inside.post(ENDPOINT, json=body))
    await slow.wait_for_puts(AT_A_TIME)
    slow.released.set()
    assert (await submission).status_code == 200
    assert slow.most_at_a_time == AT_A_TIME


async def test_slow_store_delays_no_other_requests(inside: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowStore(monkeypatch)
    submissions = [
        asyncio.create_task(inside.post(ENDPOINT, json={"prompt": "x", "images": [IMAGE]})) for _ in range(20)
    ]
    await slow.wait_for_puts(20)
    other = await inside.post(ENDPOINT, json={"prompt": "x"})
    assert other.status_code == 200
    polled = await inside.get("/v1/get_result", params={"id": other.json()["id"]})
    assert polled.json()["status"] == "Pending"
    slow.released.set()
    assert {response.status_code for response in await asyncio.gather(*submissions)} == {200}


async def test_hanging_store_is_503(inside: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    SlowStore(monkeypatch)
    monkeypatch.setattr("serve_app.submission.input_storage._CALL_LIMIT_S", 0.05)
    assert_unavailable(await inside.post(ENDPOINT, json={"prompt": "x", "images": [IMAGE]}))


def upload_adapter(client: Client) -> httpx2.Response:
    params = {"name": "ink", "base": "gen-3-image-klein"}
    return client.post("/v1/finetunes", params=params, content=OUTLINED.read_bytes(), timeout=60)


def test_adapter_is_listed_while_its_file_is_stored(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "put_file", away)
        assert refusal(upload_adapter(client), 503) == OUT_OF_REACH
    assert client.get("/v1/my_finetunes").json()["finetunes"] == []
    body = {"finetune_id": upload_adapter(client).json()["finetune_id"]}
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "delete_prefix", away)
        assert refusal(client.post("/v1/delete_finetune", json=body), 503) == OUT_OF_REACH
    assert client.post("/v1/delete_finetune", json=body).status_code == 200
    worker = service.worker
    assert worker.run(worker.objects.keys(f"finetunes/{body['finetune_id']}")) == []


def test_result_is_503_if_its_links_cannot_be_signed(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(serializer: ResultSerializer, *args: Any, **options: Any) -> None:
        raise GenericError("away")

    task_id = client.create_task()
    monkeypatch.setattr(ResultSerializer, "body", failing)
    assert refusal(client.get("/v1/get_result", params={"id": task_id}), 503) == OUT_OF_REACH
