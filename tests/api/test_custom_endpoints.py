"""Endpoints that an operator defines in the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from diffusers.pipelines.qwenimage.pipeline_qwenimage import QwenImagePipeline
from support.http_client import Client, problems
from support.http_service import Service, running
from support.images import image_file, to_base64
from support.openai_client import EDITS, GENERATIONS, waiting

from deployments.backends.pipeline_signature import PipelineSignature

IMAGE = image_file(64, 64)
PHOTO = to_base64(IMAGE)
MODELS: dict[str, Any] = {
    "any": {"checkpoint": "owner/name", "steps": 4, "guidance": 3.5, "fps": 16},
    "flux": {"checkpoint": "owner/name", "pipeline": "FluxPipeline", "steps": 4},
    "kontext": {"checkpoint": "owner/name", "pipeline": "FluxKontextPipeline", "steps": 4},
    "engine": {"backend": "engine", "engine": {"kind": "gen-serve", "url": "http://engine"}, "steps": 4},
    # The endpoint gen-pro may name another model, too.
    "flux1-dev": {"checkpoint": "Qwen/Qwen-Image", "backend": "diffusers"},
}
FIELDS = {"side": 512, "max_side": 1024, "multiple": 32, "steps": {"min": 1, "max": 8}, "max_images": 2}
REQUESTS = {
    "gen-any": ("text-to-image", "any"),
    "gen-any-edit": ("edit", "any"),
    "gen-any-fill": ("inpaint", "any"),
    "gen-any-video": ("text-to-video", "any"),
    "gen-flux": ("edit", "flux"),
    "gen-kontext": ("edit", "kontext"),
    "gen-engine": ("edit", "engine"),
}
"""Request form and model of each endpoint."""


@pytest.fixture(scope="module")
def service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    catalog["models"] |= MODELS
    for name, (request, model) in REQUESTS.items():
        price = {"first": 2, "per_second": request == "text-to-video"}
        own = {"request": request, "model": model, "price": price, "fields": FIELDS, "safety": {"approved": 5}}
        catalog["endpoints"][name] = own
    folder = tmp_path_factory.mktemp("custom")
    (folder / "catalog.yaml").write_text(yaml.safe_dump(catalog))
    with running(folder, redis_url, repository, catalog=folder / "catalog.yaml") as service:
        yield service


def test_request_reaches_the_model_with_the_catalogs_defaults(client: Client, service: Service) -> None:
    body = {"prompt": "a star", "negative_prompt": "rain", "aspect_ratio": "16:9", "steps": 8, "seed": 5}
    request = service.worker.generation(client.order_task("gen-any", **body)).request
    assert (request.prompt, request.negative_prompt, request.width, request.height) == ("a star", "rain", 672, 384)
    assert (request.steps, request.guidance, request.seed) == (8, 3.5, 5)
    job = service.worker.generation(client.order_task("gen-any-edit", prompt="bluer", images=[PHOTO], strength=0.5))
    assert (len(job.inputs.references), job.request.strength, job.request.steps) == (1, 0.5, 4)


def test_endpoint_of_the_dialect_runs_another_model(client: Client, service: Service) -> None:
    job = service.worker.generation(client.order_task("gen-pro", prompt="a star", width=512, height=512))
    PipelineSignature.from_pipeline(QwenImagePipeline).check(job)


def test_video_has_the_models_frames_per_second(client: Client, service: Service) -> None:
    task = client.order_task("gen-any-video", prompt="waves", duration=3)
    request = service.worker.generation(task).request
    assert request.video is not None
    assert (request.video.frames, request.video.fps, request.output_format) == (48, 16, "mp4")
    assert client.poll(task).status_code == 200


@pytest.mark.parametrize(
    ("endpoint", "body", "field"),
    [
        ("gen-any", {"steps": 9}, "steps"),
        ("gen-any-fill", {"image": PHOTO, "mask": to_base64(image_file(32, 64))}, "mask"),
    ],
)
def test_invalid_field_is_named(client: Client, endpoint: str, body: dict[str, Any], field: str) -> None:
    assert problems(client.order(endpoint, prompt="x", **body))[0][0] == ["body", field]


@pytest.mark.parametrize(
    ("endpoint", "field"),
    [
        ("gen-flux", {"strength": 0.5}),
        ("gen-engine", {"negative_prompt": "rain"}),
        ("gen-kontext", {"images": [PHOTO, PHOTO]}),
    ],
)
def test_field_that_the_model_lacks_is_rejected(
    client: Client, service: Service, endpoint: str, field: dict[str, Any]
) -> None:
    with service.assert_unchanged():
        response = client.order(endpoint, **{"prompt": "bluer", "images": [PHOTO]} | field)
    assert problems(response) == [(["body", *field], "not_supported_by_model")]


def test_description_has_the_catalogs_ranges(client: Client) -> None:
    document = client.get("/openapi.json").json()
    assert {f"/v1/{name}" for name in REQUESTS} <= document["paths"].keys()
    steps = document["components"]["schemas"]["GenAnyRequest"]["properties"]["steps"]
    assert {key: steps["anyOf"][0][key] for key in ("minimum", "maximum")} == {"minimum": 1.0, "maximum": 8.0}


def test_openai_clients_use_custom_endpoints(client: Client, service: Service) -> None:
    assert {"gen-any", "gen-any-edit"} <= {each["id"] for each in client.get("/v1/models").json()["data"]}
    call = {"model": "gen-any", "prompt": "a star", "size": "512x512"}
    with waiting(client, lambda: client.post(GENERATIONS, json=call)) as (answer, (task_id,)):
        assert service.worker.generation(task_id).request.width == 512
        service.worker.deliver(task_id, IMAGE, "png")
    assert answer.result().status_code == 200
    form = {"model": "gen-any-edit", "prompt": "bluer"}
    files = {"image": ("a.png", IMAGE, "image/png")}
    with waiting(client, lambda: client.post(EDITS, data=form, files=files)) as (answer, (task_id,)):
        service.worker.deliver(task_id, IMAGE, "png")
    assert answer.result().status_code == 200
