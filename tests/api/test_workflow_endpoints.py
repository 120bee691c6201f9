"""Endpoints of ComfyUI workflows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml
from support.http_client import Client, problems
from support.http_service import Service, running
from support.images import image_file, to_base64
from support.openai_client import GENERATIONS, waiting

IMAGE = image_file(64, 64)
GRAPH: dict[str, Any] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "example.png"}, "_meta": {"title": "Face"}},
    "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a"}, "_meta": {"title": "Positive"}},
    "3": {"class_type": "KSampler", "inputs": {"seed": 1, "cfg": 7.0, "steps": 4}},
    "4": {"class_type": "LoraLoader", "inputs": {"lora_name": "none.safetensors", "strength_model": 0.0}},
    "5": {"class_type": "EmptyLatentImage", "inputs": {"width": 512, "height": 768}},
    "9": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "mine"}},
}
INPUTS: dict[str, dict[str, Any]] = {
    "prompt": {"at": "Positive.text", "role": "prompt"},
    "guidance": {"at": "3.cfg", "min": 1, "max": 15},
    "seed": {"at": "3.seed", "role": "seed"},
    "size": {"at": ["5.width", "5.height"], "role": "size"},
}
SERVED: dict[str, Any] = {"request": "workflow", "price": {"first": 2, "out": 1}, "safety": {"approved": 5}}


@pytest.fixture(scope="module")
def service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("workflows")
    (folder / "portrait.json").write_text(json.dumps(GRAPH))
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    engine = {"kind": "comfyui", "workflow": str(folder / "portrait.json"), "url": "http://comfyui", "lora_dir": "/l"}
    catalog["models"]["portrait"] = {"backend": "engine", "engine": engine}
    face = {"face": {"at": "Face.image", "type": "image"}}
    tuned = {"style": {"at": ["4.lora_name", "4.strength_model"], "role": "finetune"}}
    catalog["endpoints"] |= {
        "gen-portrait": SERVED | {"model": "portrait", "inputs": INPUTS, "summary": "Portraits"},
        "gen-face": SERVED | {"model": "portrait", "inputs": INPUTS | face},
        "gen-style": SERVED | {"model": "portrait", "inputs": INPUTS | tuned, "finetuned": {}},
    }
    (folder / "catalog.yaml").write_text(yaml.safe_dump(catalog))
    with running(folder, redis_url, repository, catalog=folder / "catalog.yaml") as service:
        yield service


def placed(service: Service, task: str) -> dict[str, Any]:
    """Returns the values that the task's job puts at places of the workflow."""
    request = service.worker.generation(task).request
    return {place: each.value_in(request) for each in request.placements for place in each.places}


def test_values_of_a_request_reach_the_workflow(client: Client, service: Service) -> None:
    task = client.order_task("gen-portrait", prompt="a star", guidance=3, seed=5, width=1024, height=1024)
    values = {"Positive.text": "a star", "3.cfg": 3.0, "3.seed": 5, "5.width": 1024, "5.height": 1024}
    assert placed(service, task) == values


def test_price_counts_the_size(client: Client) -> None:
    costs = [client.order("gen-portrait", prompt="x", width=side, height=side).json()["cost"] for side in (512, 2048)]
    assert costs == [2, 5]


def test_image_of_a_request_is_a_file_of_the_task(client: Client, service: Service) -> None:
    job = service.worker.generation(client.order_task("gen-face", prompt="x", face=to_base64(IMAGE)))
    ((name, key),) = job.inputs.files
    assert (name, job.inputs.keys) == ("face", (key,))
    assert service.worker.run(service.worker.objects.get(key))


@pytest.mark.parametrize(
    ("endpoint", "body", "field"),
    [
        ("gen-portrait", {"guidance": 16}, "guidance"),
        ("gen-portrait", {"style": "x"}, "style"),
        ("gen-face", {}, "face"),
        ("gen-face", {"face": "bm8="}, "face"),
    ],
    ids=["above max", "not exposed", "missing", "no image"],
)
def test_refused_input_is_named(client: Client, service: Service, endpoint: str, body: Any, field: str) -> None:
    with service.assert_unchanged():
        response = client.order(endpoint, prompt="x", **body)
    assert problems(response)[0][0] == ["body", field]


def test_all_results_of_a_workflow_are_samples(client: Client, service: Service) -> None:
    task = client.order_task("gen-portrait", prompt="x")
    files = [image_file(8 + number, 8) for number in range(3)]
    service.worker.deliver_files(task, dict(zip(("image.png", "image-2.png", "image-3.png"), files, strict=True)))
    result = client.poll(task).json()["result"]
    assert result["sample"] == result["samples"][0]
    assert [client.get(url).content for url in result["samples"]] == files


def test_uploaded_adapter_reaches_its_loader(client: Client, service: Service) -> None:
    layers = {f"x.lora_{half}.weight": torch.ones(4, 4) for half in ("down", "up")}
    params = {"name": "ink", "base": "gen-style"}
    uploaded = client.post("/v1/finetunes", params=params, content=safetensors.torch.save(layers), timeout=60)
    assert uploaded.status_code == 200, uploaded.text
    assert (uploaded.json()["rank"], uploaded.json()["layers"]) == (4, 1)
    body = {"prompt": "x", "finetune_id": uploaded.json()["finetune_id"], "finetune_strength": 0.7}
    job = service.worker.generation(client.order_task("gen-style-finetuned", **body))
    assert job.adapter is not None
    assert job.adapter.strength == 0.7
    kinds = {place: each.adapter for each in job.request.placements for place in each.places if each.adapter}
    assert kinds == {"4.lora_name": "file", "4.strength_model": "strength"}
    plain = client.post(
        "/v1/finetunes", params=params, content=safetensors.torch.save({"x": torch.ones(1)}), timeout=60
    )
    assert "no LoRA layers" in plain.json()["detail"][0]["msg"]


def test_description_has_the_inputs(client: Client) -> None:
    document = client.get("/openapi.json").json()
    (name,) = [name for name in document["components"]["schemas"] if name.startswith("GenPortrait")]
    fields = document["components"]["schemas"][name]["properties"]
    assert {"prompt", "guidance", "seed", "width", "height", "output_format"} <= fields.keys()


def test_openai_clients_use_workflows(client: Client, service: Service) -> None:
    call = {"model": "gen-portrait", "prompt": "a star", "size": "512x512"}
    with waiting(client, lambda: client.post(GENERATIONS, json=call)) as (answer, (task_id,)):
        assert placed(service, task_id)["5.height"] == 512
        service.worker.deliver(task_id, IMAGE, "png")
    assert answer.result().status_code == 200, answer.result().text
