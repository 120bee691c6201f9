"""Uploads of adapters, their checks, lists, and requests that name one."""

from __future__ import annotations

import http.client
import json
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import safetensors.torch
import torch
from redis.asyncio import Redis
from support.http_client import Client, problems, refusal
from support.http_service import Service, StartService
from support.promises import promise
from support.redis_process import until

from serve_app.config.settings import FinetuneSettings
from serve_app.finetunes.registry import FinetuneRegistry

BASE = "gen-3-image-klein"
LAYER = "single_transformer_blocks.0.attn.to_q"


def weights(layer: str = LAYER, width: int = 128, rank: int = 4) -> bytes:
    """Returns a LoRA of one layer of the bundled base."""
    return safetensors.torch.save(
        {
            f"transformer.{layer}.lora_A.weight": torch.ones(rank, width),
            f"transformer.{layer}.lora_B.weight": torch.ones(width, rank),
        }
    )


def upload(client: Client, content: bytes, **params: Any) -> httpx2.Response:
    return client.post("/v1/finetunes", params={"name": "ink", "base": BASE} | params, content=content, timeout=60)


def list_ids(client: Client) -> list[str]:
    return [finetune["finetune_id"] for finetune in client.get("/v1/my_finetunes").json()["finetunes"]]


@promise(
    "Decided: tuned models",
    "Operators add one with the CLI or `POST /v1/finetunes` (safetensors upload, base model named, checked on arrival)",
)
def test_uploaded_adapter_is_listed_until_deleted(client: Client) -> None:
    response = upload(client, weights())
    assert response.status_code == 200, response.text
    details = response.json()
    assert (details["name"], details["base"], details["status"]) == ("ink", BASE, "Ready")
    assert (details["rank"], details["layers"], details["size"]) == (4, 1, len(weights()))
    finetune_id = details["finetune_id"]
    assert finetune_id in list_ids(client)
    one = client.get("/v1/finetune_details", params={"finetune_id": finetune_id})
    assert one.json() == {"finetune_details": details}
    deleted = client.post("/v1/delete_finetune", json={"finetune_id": finetune_id})
    assert (deleted.status_code, deleted.json()["deleted_finetune_id"]) == (200, finetune_id)
    assert finetune_id not in list_ids(client)
    again = client.post("/v1/delete_finetune", json={"finetune_id": finetune_id})
    assert refusal(again, 404) == "Finetune not found or access denied"


@pytest.mark.parametrize(
    ("content", "base", "loc", "reason"),
    [
        (b"", BASE, ["body"], "empty"),
        (b"\x80\x04K\x01.", BASE, ["body"], "not a safetensors file"),
        (weights("single_transformer_blocks.99.attn.to_q"), BASE, ["body"], "no layer single_transformer_bl"),
        (weights(width=64), BASE, ["body"], "but the base's layer"),
        (weights(), "gen-none", ["query", "base"], BASE),
    ],
)
def test_unfit_adapter_is_refused_and_leaves_nothing(
    client: Client, service: Service, content: bytes, base: str, loc: list[str], reason: str
) -> None:
    with service.assert_unchanged():
        response = upload(client, content, base=base)
    assert response.status_code == 422
    (entry,) = response.json()["detail"]
    assert entry["loc"] == loc
    assert reason in entry["msg"]


@pytest.fixture
def finetune_id(client: Client, service: Service) -> str:
    return service.worker.new_finetune(client.project)


def generate(client: Client, endpoint: str = BASE, **body: Any) -> httpx2.Response:
    return client.post(f"/v1/{endpoint}-finetuned", json={"prompt": "a red star", **body})


@pytest.mark.parametrize(("requested", "strength"), [(None, 1.1), (0, 0)])
def test_job_has_the_adapter_and_its_strength(
    client: Client, service: Service, finetune_id: str, requested: float | None, strength: float
) -> None:
    response = generate(client, finetune_id=finetune_id, finetune_strength=requested)
    assert response.status_code == 200, response.text
    adapter = service.worker.job(response.json()["id"])["adapter"]
    assert (adapter.id, adapter.strength) == (finetune_id, strength)
    assert adapter.key == f"finetunes/{finetune_id}/weights.safetensors"


def test_adapter_of_another_base_is_not_found(client: Client, finetune_id: str) -> None:
    misplaced = generate(client, "gen-2-max", finetune_id=finetune_id)
    assert refusal(misplaced, 400) == "Finetune not found or not ready"


@promise(
    "9. gen-pro-1.0-canny-finetuned",
    "Here `control_image` is a required base64 string, `preprocessed_image` does not exist",
)
def test_tuned_canny_endpoint_needs_a_control_image(client: Client) -> None:
    response = generate(client, "gen-pro-1.0-canny", finetune_id="x", preprocessed_image="abc")
    assert [entry["loc"] for entry in response.json()["detail"]] == [["body", "control_image"]]


PATH = "/v1/finetunes?name=ink&base=gen-3-image-klein"
TRICKLED = b"x"


@contextmanager
def open_upload(client: Client, service: Service) -> Iterator[http.client.HTTPConnection]:
    """Starts an upload that never ends, and waits until the service reads it (RFC 9110, 10.1.1)."""
    connection = http.client.HTTPConnection(*service.address, timeout=60)
    try:
        connection.putrequest("POST", PATH)
        connection.putheader("x-key", client.secret)
        connection.putheader("Content-Length", "1000000")
        connection.putheader("Expect", "100-continue")
        connection.endheaders()
        assert connection.sock.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.send(TRICKLED)
        yield connection
    finally:
        connection.close()


SAME_PROJECT = "This project uploads a tuned model already; try again when that has ended"
SAME_ORGANIZATION = "This organization uploads 2 tuned models already, as many as it may at a time; try again shortly"


def test_project_uploads_one_adapter_at_a_time(
    client: Client, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with service.client(organization=service.worker.new_organization(credits=1)) as other:
        with open_upload(client, service):
            assert refusal(upload(client, TRICKLED), 429) == SAME_PROJECT
            assert problems(upload(other, b"no tuned model")) == [(["body"], "finetune_invalid")]
        until(lambda: upload(client, TRICKLED).status_code == 422)
    assert "unhandled error" not in caplog.text


def test_organization_uses_half_of_the_upload_slots(start_service: StartService) -> None:
    small = start_service(finetunes=FinetuneSettings(max_parallel=4))
    organization = small.worker.new_organization(credits=1)
    with ExitStack() as stack:
        clients = [stack.enter_context(small.client(organization=organization)) for _ in range(3)]
        for client in clients[:2]:
            stack.enter_context(open_upload(client, small))
        assert refusal(upload(clients[2], TRICKLED), 429) == SAME_ORGANIZATION
        stranger = stack.enter_context(small.client(organization=small.worker.new_organization(credits=1)))
        assert upload(stranger, b"no tuned model").status_code == 422


def test_upload_has_a_total_time_limit(start_service: StartService) -> None:
    service = start_service(finetunes=FinetuneSettings(receive_s=0.5))
    with service.client() as client, service.assert_unchanged(), open_upload(client, service) as connection:
        response = connection.getresponse()
        assert (response.status, json.loads(response.read())["code"]) == (408, "request_timeout")


def header(entries: dict[str, Any]) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
HOSTILE: dict[str, tuple[bytes, str]] = {
    "long header": (struct.pack("<Q", 2**23 + 1) + b"{}".ljust(2**23 + 1), "its header is longer than 8 MiB"),
    "nested": (struct.pack("<Q", 5_000_000) + b'{"a":' * 1_000_000, "not a safetensors file"),
    "long name": (header({f"transformer.{'x' * 1_000_000}.lora_A.weight": EMPTY}), "transformer.xxx"),
}


@pytest.mark.parametrize(("content", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_file_is_refused_with_a_short_message(
    client: Client, service: Service, content: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with service.assert_unchanged():
        response = upload(client, content)
    assert problems(response) == [(["body"], "finetune_invalid")]
    message = response.json()["detail"][0]["msg"]
    assert reason in message
    assert len(message) < 500
    # torch creates a cache folder when it is first imported.
    assert [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor_")] == []


async def test_pending_adapter_is_not_used(redis: Redis, prefix: str) -> None:
    registry = FinetuneRegistry(redis, prefix)
    finetune = await registry.begin("ink", "p", BASE, "flux3-klein")
    assert await registry.weights(finetune.id, "p", "flux3-klein") is None
    await registry.finish(finetune, rank=4, layers=1, size=1)
    assert await registry.weights(finetune.id, "p", "flux3-klein") == finetune.key
    assert await registry.weights(finetune.id, "p", "flux2-pro") is None


def test_project_has_a_maximum_of_adapters(start_service: StartService) -> None:
    service = start_service(finetunes=FinetuneSettings(max_per_project=1))
    with service.client() as client:
        service.worker.new_finetune(client.project)
        assert "may have 1 tuned models" in refusal(upload(client, weights()), 429)
