"""Texts of clients are unreadable in Redis and its files if they are sealed at rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from support.delivery_routes import deliveries, end_task, send
from support.http_client import HOOK_HOST, Client
from support.http_service import Service, StartService
from support.redis_dump import read_keys
from support.website import serving

from serve_app.encryption import SealingSettings
from serve_app.finetunes.registry import FinetuneRegistry
from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.tasks.task import Status

MARK = "Zq7Wmarkk"
"""Start of every text that a client sends here, and of nothing else."""
PROMPT = f'{MARK}prompt [{{"id": "{MARK}row", "bbox": [0, 0, 500, 500], "desc": "{MARK}desc"}}]'


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis server with its own uncompressed files."""
    server = EmbeddedRedis(tmp_path / "redis")
    server.start()
    with Redis.from_url(server.url) as redis:
        redis.config_set("rdbcompression", "no")
    yield server
    server.stop()


def run_tasks(service: Service, client: Client) -> str:
    """Runs tasks to every phase, with every text that a client can send. Returns the id of a ready one."""
    worker, user = service.worker, f"{MARK}user"
    with serving(HOOK_HOST) as hook:
        hook.set_page(f"/{MARK}path", f"{MARK}answer".encode(), status=500)
        url = hook.url(f"/{MARK}path")
        options = {"webhook_url": url, "user": user}
        once = {"Idempotency-Key": f"{MARK}key"}
        body = {"prompt": PROMPT, "webhook_secret": f"{MARK}secret", **options}
        first, again = (client.post("/v1/gen-3-image-klein", json=body, headers=once) for _ in range(2))
        assert (first.status_code, first.json()["webhook_url"]) == (200, url)
        assert again.json() == first.json()
        ready = first.json()["id"]
        worker.take(ready)
        worker.advance(ready, Status.REASONING)
        worker.deliver(ready, b"an image")
        failed = end_task(client, worker, url, prompt=PROMPT, user=user)
        moderated = client.create_task(prompt=PROMPT, **options)
        worker.end(moderated, Status.REQUEST_MODERATED, details={"Moderation Reasons": [f"{MARK}reason"]})
        send(service)
        delivery = deliveries(client, failed)
        assert delivery["destination"] == f"http://{HOOK_HOST}:{hook.port}"
        assert delivery["attempts"][0]["response"] == f"{MARK}answer"
    running = client.create_task(prompt=PROMPT, user=user)
    worker.take(running)
    client.create_task(prompt=PROMPT, user=user)
    assert client.poll(ready).json()["result"]["prompt"] == PROMPT
    assert client.poll(moderated).json()["details"] == {"Moderation Reasons": [f"{MARK}reason"]}
    return ready


def name_finetune(service: Service, client: Client) -> None:
    settings = service.settings
    registry = FinetuneRegistry(service.worker.tasks.redis, settings.redis.prefix, settings.at_rest())
    service.worker.run(registry.begin(f"{MARK}tuned", client.project, "gen-3-image-klein", "flux3-klein"))
    [listed] = client.get("/v1/my_finetunes").json()["finetunes"]
    assert listed["name"] == f"{MARK}tuned"


def dump_store(service: Service) -> str:
    return repr(service.worker.run(read_keys(service.worker.tasks.redis, service.settings.redis.prefix)))


def dump_files(server: EmbeddedRedis, folder: Path) -> bytes:
    """Returns the server's snapshot and its log of writes."""
    with Redis.from_url(server.url) as redis:
        redis.save()
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_sealed_store_has_no_text_of_clients(
    start_service: StartService, own_redis: EmbeddedRedis, tmp_path: Path
) -> None:
    service = start_service(redis_url=own_redis.url, sealing=SealingSettings(at_rest=True))
    with service.client() as client:
        task_id = run_tasks(service, client)
        name_finetune(service, client)
        dump, files = dump_store(service), dump_files(own_redis, tmp_path / "redis")
    # What is not sealed is found: the dumps are whole.
    for text, found in ((task_id, True), (MARK, False), (HOOK_HOST, False)):
        assert (text in dump) is found, text
        assert (text.encode() in files) is found, text
