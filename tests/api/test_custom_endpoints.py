"""Endpoints that an operator defines in the catalog: all interfaces have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from diffusers.pipelines.qwenimage.pipeline_qwenimage import QwenImagePipeline
from support.http_client import Client, problems
from support.http_service import Service, StartService
from support.images import image_file, to_base64
from support.openai_client import EDITS, GENERATIONS, waiting

from deployments.backends.pipeline_signature import PipelineSignature

IMAGE = image_file(64, 64)
FIELDS = {"side": 512, "max_side": 1024, "multiple": 32, "steps": {"min": 1, "max": 8}, "max_images": 2}
REQUESTS = {
    "gen-any": "text-to-image",
    "gen-any-edit": "edit",
    "gen-any-fill": "inpaint",
    "gen-any-video": "text-to-video",
}


@pytest.fixture
def service(start_service: StartService, repository: Path, tmp_path: Path) -> Service:
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    catalog["models"]["any"] = {"checkpoint": "owner/name", "steps": 4, "guidance": 3.5, "fps": 16}
    for name, request in REQUESTS.items():
        price = {"first": 2, "per_second": request == "text-to-video"}
        own = {"request": request, "model": "any", "price": price, "fields": FIELDS, "safety": {"approved": 5}}
        catalog["endpoints"][name] = own
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump(catalog))
    return start_service(catalog=path)


@pytest.fixture
def client(service: Service) -> Any:
    with service.client() as client:
        yield client


def test_a_request_reaches_the_model_as_it_was_written(client: Client, service: Service) -> None:
    body = {"prompt": "a star", "negative_prompt": "rain", "aspect_ratio": "16:9", "steps": 8, "seed": 5}
    job = service.worker.generation(client.order_task("gen-any", **body))
    assert (job.request.prompt, job.request.negative_prompt, job.request.width, job.request.height) == (
        "a star",
        "rain",
        672,
        384,
    )
    assert (job.request.steps, job.request.guidance, job.request.seed) == (8, 3.5, 5)
    edit = {"prompt": "bluer", "images": [to_base64(IMAGE)], "strength": 0.5}
    job = service.worker.generation(client.order_task("gen-any-edit", **edit))
    assert (len(job.inputs.references), job.request.strength, job.request.steps) == (1, 0.5, 4)


def test_an_endpoint_of_the_dialect_may_name_such_a_model(
    start_service: StartService, repository: Path, tmp_path: Path
) -> None:
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    catalog["models"]["flux1-dev"] = {"checkpoint": "Qwen/Qwen-Image", "backend": "diffusers"}
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump(catalog))
    service = start_service(catalog=path)
    with service.client() as client:
        job = service.worker.generation(client.order_task("gen-pro", prompt="a star", width=512, height=512))
    PipelineSignature.from_pipeline(QwenImagePipeline).check(job)


def test_a_video_has_the_models_frames_a_second(client: Client, service: Service) -> None:
    task = client.order_task("gen-any-video", prompt="waves", duration=3)
    job = service.worker.generation(task)
    assert job.request.video is not None
    assert (job.request.video.frames, job.request.video.fps, job.request.output_format) == (48, 16, "mp4")
    assert client.poll(task).status_code == 200


@pytest.mark.parametrize(
    ("endpoint", "body", "loc"),
    [
        ("gen-any", {"steps": 9}, ["body", "steps"]),
        ("gen-any", {"width": 100, "height": 512}, ["body", "width"]),
        ("gen-any", {"guidance_scale": 3}, ["body", "guidance_scale"]),
        ("gen-any-edit", {"images": [to_base64(IMAGE)] * 3}, ["body", "images"]),
        ("gen-any-fill", {"image": to_base64(IMAGE)}, ["body", "mask"]),
        ("gen-any-fill", {"image": to_base64(IMAGE), "mask": to_base64(image_file(32, 64))}, ["body", "mask"]),
    ],
)
def test_what_the_catalog_does_not_allow_is_refused_by_its_name(
    client: Client, endpoint: str, body: dict[str, Any], loc: list[str]
) -> None:
    response = client.post(f"/v1/{endpoint}", json={"prompt": "x", **body})
    assert response.status_code == 422
    assert problems(response)[0][0] == loc


def test_the_description_has_the_ranges(client: Client) -> None:
    document = client.get("/openapi.json").json()
    assert {f"/v1/{name}" for name in REQUESTS} <= document["paths"].keys()
    steps = document["components"]["schemas"]["GenAnyRequest"]["properties"]["steps"]
    assert {key: steps["anyOf"][0][key] for key in ("minimum", "maximum")} == {"minimum": 1.0, "maximum": 8.0}


def test_clients_of_openai_find_it(client: Client, service: Service) -> None:
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


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ({"checkpoint": "owner/name", "pipeline": "FluxPipeline"}, {"strength": 0.5}),
        ({"backend": "engine", "engine": {"kind": "gen-serve", "url": "http://engine"}}, {"negative_prompt": "rain"}),
        ({"checkpoint": "owner/name", "pipeline": "FluxKontextPipeline"}, {"images": 2 * [to_base64(IMAGE)]}),
    ],
)
def test_a_field_that_the_model_lacks_is_named_before_anything_is_charged(
    model: dict[str, Any], fields: dict[str, Any], start_service: StartService, repository: Path, tmp_path: Path
) -> None:
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    catalog["models"]["any"] = {"steps": 4, **model}
    endpoint = {"request": "edit", "model": "any", "price": {"first": 2}, "safety": {"approved": 5}}
    catalog["endpoints"]["gen-any"] = endpoint
    (tmp_path / "catalog.yaml").write_text(yaml.safe_dump(catalog))
    service = start_service(catalog=tmp_path / "catalog.yaml")
    with service.client() as client:
        body = {"prompt": "bluer", "images": [to_base64(IMAGE)], **fields}
        with service.assert_unchanged():
            response = client.post("/v1/gen-any", json=body)
        (name,) = fields
        assert problems(response) == [(["body", name], "not_supported_by_model")]
