"""Tuned models: uploaded, checked against their base, listed, deleted."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
import safetensors.torch
import torch
from support.client import Client, refusal
from support.http_service import Service
from support.promises import promise
from support.worker import LANE

from serve_app.finetunes.registry import FinetuneRegistry

BASE = "gen-3-image-klein"
LAYER = "single_transformer_blocks.0.attn.to_q"


def weights(layer: str = LAYER, width: int = 128, rank: int = 4) -> bytes:
    """A LoRA of one layer of the bundled base."""
    return safetensors.torch.save(
        {
            f"transformer.{layer}.lora_A.weight": torch.ones(rank, width),
            f"transformer.{layer}.lora_B.weight": torch.ones(width, rank),
        }
    )


def upload(client: Client, content: bytes, **params: Any) -> httpx2.Response:
    return client.post("/v1/finetunes", params={"name": "ink", "base": BASE} | params, content=content, timeout=60)


def listed(client: Client) -> list[str]:
    return [finetune["finetune_id"] for finetune in client.get("/v1/my_finetunes").json()["finetunes"]]


@promise(
    "Decided: tuned models",
    "Operators add one with the CLI or `POST /v1/finetunes` (safetensors upload, base model named, checked on arrival)",
)
def test_a_tuned_model_comes_and_goes(client: Client, service: Service) -> None:
    response = upload(client, weights())
    assert response.status_code == 200, response.text
    details = response.json()
    assert (details["name"], details["base"], details["status"]) == ("ink", BASE, "Ready")
    assert (details["rank"], details["layers"], details["size"]) == (4, 1, len(weights()))
    finetune_id = details["finetune_id"]
    assert finetune_id in listed(client)
    one = client.get("/v1/finetune_details", params={"finetune_id": finetune_id})
    assert one.json() == {"finetune_details": details}

    with service.client() as stranger:
        assert finetune_id not in listed(stranger)
        assert stranger.get("/v1/finetune_details", params={"finetune_id": finetune_id}).status_code == 404
        assert stranger.post("/v1/delete_finetune", json={"finetune_id": finetune_id}).status_code == 404

    deleted = client.post("/v1/delete_finetune", json={"finetune_id": finetune_id})
    assert (deleted.status_code, deleted.json()["deleted_finetune_id"]) == (200, finetune_id)
    assert finetune_id not in listed(client)
    again = client.post("/v1/delete_finetune", json={"finetune_id": finetune_id})
    assert refusal(again, 404) == "Finetune not found or access denied"


@promise(
    "Decided: tuned models",
    "Operators add one with the CLI or `POST /v1/finetunes` (safetensors upload, base model named, checked on arrival)",
)
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\x80\x04K\x01.", "not a safetensors file"),
        (weights("single_transformer_blocks.99.attn.to_q"), "no linear layer single_transformer_blocks.99.attn.to_q"),
        (weights(width=64), "but the base's layer"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    client: Client, service: Service, content: bytes, reason: str
) -> None:
    with service.unchanged():
        response = upload(client, content)
    assert response.status_code == 422
    (entry,) = response.json()["detail"]
    assert entry["loc"] == ["body"]
    assert reason in entry["msg"]


def test_an_unknown_base_is_answered_with_those_that_are_possible(client: Client) -> None:
    response = upload(client, weights(), base="gen-none")
    (entry,) = response.json()["detail"]
    assert (response.status_code, entry["loc"]) == (422, ["query", "base"])
    assert BASE in entry["msg"]


def test_uploads_need_a_key(client: Client, service: Service) -> None:
    with service.client() as stranger:
        del stranger.headers["x-key"]
        assert upload(stranger, b"x").status_code == 403


@pytest.fixture
def finetune_id(client: Client, service: Service) -> str:
    """A tuned model of the client's, there without the seconds that a check takes."""
    registry = FinetuneRegistry(service.worker.tasks.redis, service.settings.redis.prefix)

    async def register() -> str:
        begun = await registry.begin("ink", client.project, BASE, LANE)
        return (await registry.finish(begun, rank=4, layers=1, size=1)).id

    return service.worker.run(register())


def generate(client: Client, endpoint: str = BASE, **body: Any) -> httpx2.Response:
    return client.post(f"/v1/{endpoint}-finetuned", json={"prompt": "a red star", **body})


@promise("Decided: tuned models", "Adds `finetune_id` (required) and `finetune_strength` (0 to 2, default 1.1).")
@pytest.mark.parametrize("strength", [None, 0, 2])
def test_the_job_names_the_tuned_model_and_its_strength(
    client: Client, service: Service, finetune_id: str, strength: float | None
) -> None:
    response = generate(client, finetune_id=finetune_id, finetune_strength=strength)
    assert response.status_code == 200, response.text
    assert set(response.json()) == {"id", "polling_url", "cost", "input_mp", "output_mp"}
    adapter = service.worker.job(response.json()["id"])["adapter"]
    expected = 1.1 if strength is None else strength
    assert (adapter["id"], adapter["strength"]) == (finetune_id, expected)
    assert adapter["key"] == f"finetunes/{finetune_id}/weights.safetensors"


@promise("Decided: tuned models", 'Unknown or foreign id: 400 `"Finetune not found or not ready"`.')
def test_an_unknown_a_foreign_and_a_misplaced_tuned_model(client: Client, service: Service, finetune_id: str) -> None:
    answer = "Finetune not found or not ready"
    with service.client() as stranger:
        foreign = generate(stranger, finetune_id=finetune_id)
    unknown = generate(client, finetune_id="none")
    misplaced = generate(client, "gen-2-max", finetune_id=finetune_id)
    for response in (foreign, unknown, misplaced):
        assert refusal(response, 400) == answer


@promise(
    "9. gen-pro-1.0-canny-finetuned",
    "Here `control_image` is a required base64 string, `preprocessed_image` does not exist",
)
def test_the_tuned_canny_endpoint_takes_a_control_image_only(client: Client) -> None:
    response = generate(client, "gen-pro-1.0-canny", finetune_id="x", preprocessed_image="abc")
    assert [entry["loc"] for entry in response.json()["detail"]] == [["body", "control_image"]]
    assert response.headers["deprecation"].startswith("@")
