"""Endpoints of the tools: prices, descriptions, and what reaches their models."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.http_client import Client, problems
from support.http_service import Service
from support.images import encode_image, image_base64, image_file, to_base64
from support.input_images import stored_as
from support.promises import promise
from support.website import Website
from support.worker import Worker
from tool_endpoints import (
    DEBLUR,
    ERASE,
    MINIMAL,
    OUTPAINTING,
    PHOTO,
    PHOTO_FILE,
    SPOT,
    SPOT_FILE,
    TOOLS,
    TRY_ON_1,
    TRY_ONS,
    make_mask,
    make_photo,
)

MEGAPIXEL = 2**20
MAX_SEED = 2**64 - 1


def get_files(worker: Worker, task_id: str) -> list[bytes]:
    """Returns the files of a task's references and mask."""
    job = worker.job(task_id)
    return [worker.run(worker.objects.get(key)) for key in (*job["references"], job["mask"]) if key]


def open_images(worker: Worker, task_id: str) -> list[Image.Image]:
    return [Image.open(io.BytesIO(file)) for file in get_files(worker, task_id)]


def test_tool_holds_and_counts_its_price(service: Service, administrator: Client) -> None:
    reply = administrator.order(ERASE, **MINIMAL[ERASE]).json()
    assert administrator.get("/v1/credits").json() == {"credits": 100 - reply["cost"]}
    service.worker.deliver(reply["id"], image_file(form="JPEG"))
    (used,) = administrator.get("/v1/usage").json()["usage"]
    assert (used["endpoint"], used["tasks"], used["cost"]) == (ERASE, 1, reply["cost"])


@pytest.mark.parametrize("tool", sorted(set(TOOLS) - {OUTPAINTING}))
def test_tool_warns_that_it_rewrites_no_prompt(client: Client, tool: str) -> None:
    for sent, count in ((True, 1), (False, 0)):
        answer = client.order(tool, **MINIMAL[tool], prompt_upsampling=sent).json()
        assert ["prompt_upsampling" in each for each in answer.get("warnings", [])] == [True] * count


def test_mask_is_no_billed_input(client: Client, worker: Worker) -> None:
    with Image.open(io.BytesIO(PHOTO_FILE)) as photo:
        pixels = photo.width * photo.height
    assert worker.job(client.order_task(ERASE, **MINIMAL[ERASE]))["input_pixels"] == pixels


# Descriptions


@pytest.fixture
def openapi(client: Client) -> dict[str, Any]:
    return client.get("/openapi.json").json()


def test_operation_ids_differ_in_any_language(openapi: dict[str, Any]) -> None:
    names = [
        operation["operationId"]
        for path, methods in openapi["paths"].items()
        for operation in methods.values()
        if path.startswith("/v1/")
    ]
    assert len(names) == len({re.sub(r"[^a-z0-9]", "", name.lower()) for name in names})


def test_tool_fields_have_descriptions_and_examples(openapi: dict[str, Any]) -> None:
    forms = openapi["components"]["schemas"]
    for name in ("EraseRequest", "OutpaintingRequest", "TryOnV1Request", "TryOnV2Request", "DeblurRequest"):
        for field, schema in forms[name]["properties"].items():
            assert schema["description"], (name, field)
            assert schema["examples"], (name, field)


# Options


@pytest.mark.parametrize("tool", TOOLS)
def test_tool_options_reach_the_model(client: Client, worker: Worker, tool: str) -> None:
    options = {"seed": MAX_SEED, "output_format": "webp"}
    job = worker.job(client.order_task(tool, **MINIMAL[tool], safety_tolerance=5, **options))
    assert {name: job[name] for name in options} == options
    assert job["safety"].level == 5


@promise("11. Tool endpoints", "`mode` parameter with values `fast` and `high` (default `high`)")
@pytest.mark.parametrize(("mode", "steps"), [("fast", 10), ("high", 40), (None, 40)])
def test_outpainting_mode_decides_the_steps(client: Client, worker: Worker, mode: str | None, steps: int) -> None:
    task_id = client.order_task(OUTPAINTING, **MINIMAL[OUTPAINTING], mode=mode)
    task = worker.run(worker.tasks.reads.get(task_id))
    assert task is not None
    assert (task.queue, worker.job(task_id)["steps"]) == ("flux1-fill", steps)


@pytest.mark.parametrize("tool", TRY_ONS)
def test_instruction_precedes_the_prompt_of_the_user(
    client: Client, worker: Worker, service: Service, tool: str
) -> None:
    endpoints = service.app.state.services.catalog.endpoints
    own = endpoints[tool].instruction
    assert all((own, endpoints[DEBLUR].instruction))
    assert not any((endpoints[ERASE].instruction, endpoints[OUTPAINTING].instruction))
    words = 'open, [{"id": 1}]'
    assert worker.job(client.order_task(tool, **MINIMAL[tool], prompt=words))["prompt"] == f"{own} {words}"
    assert worker.job(client.order_task(tool, **MINIMAL[tool], prompt=""))["prompt"] == own


# Images


@promise("Decided: tools", "Images as base64 or URL.")
@pytest.mark.parametrize("tool", TOOLS)
def test_tool_reads_images_from_urls(client: Client, worker: Worker, web: Website, tool: str) -> None:
    files = {PHOTO: PHOTO_FILE, SPOT: SPOT_FILE}
    urls = {
        name: web.set_page(f"/{tool}/{name}", files[value]) for name, value in MINIMAL[tool].items() if value in files
    }
    plain, fetched = (
        get_files(worker, client.order_task(tool, **body)) for body in (MINIMAL[tool], MINIMAL[tool] | urls)
    )
    assert plain == fetched
    assert tool == OUTPAINTING or plain[0] == stored_as(PHOTO_FILE), "references are stored as they are"


@promise("11. Tool endpoints", "inputs up to 4 MP used as-is")
@pytest.mark.parametrize("tool", TRY_ONS)
def test_try_on_reads_the_person_first(client: Client, worker: Worker, tool: str) -> None:
    person, garment = encode_image(make_photo(80, 100)), encode_image(make_photo(120, 90))
    task_id = client.order_task(tool, garment=to_base64(garment), person=to_base64(person))
    assert get_files(worker, task_id) == [stored_as(person), stored_as(garment)]
    job = worker.job(task_id)
    assert (job["width"], job["height"]) == (80, 100)


@promise("11. Tool endpoints", "inputs up to 2 MP, larger inputs are downscaled to about 1 MP")
@pytest.mark.parametrize(("width", "area"), [(2048, 2048 * 1024), (2049, MEGAPIXEL)])
def test_first_try_on_scales_images_above_two_megapixels(client: Client, worker: Worker, width: int, area: int) -> None:
    large = to_base64(image_file(width, 1024, mode="L"))
    reply = client.order(TRY_ON_1, **MINIMAL[TRY_ON_1] | {"person": large}).json()
    job, (person, _) = worker.job(reply["id"]), open_images(worker, reply["id"])
    assert (job["width"], job["height"]) == person.size
    assert person.width * person.height == pytest.approx(area, rel=0.01)
    assert reply["input_mp"] == pytest.approx((width * 1024 + 96 * 64) / MEGAPIXEL, abs=0.01), "as sent"


@promise("11. Tool endpoints", "optional edge expansion")
def test_erase_mask_is_stored_grown(client: Client, worker: Worker) -> None:
    dot = image_base64(make_mask(45, 30, 46, 31))
    _, mask = open_images(worker, client.order_task(ERASE, image=PHOTO, mask=dot, dilate_pixels=2))
    assert (mask.mode, mask.format, mask.size) == ("L", "PNG", (96, 64))
    assert mask.getbbox() == (43, 28, 48, 33)


@promise("11. Tool endpoints", "placement of the reference via `reference_offset_x` / `reference_offset_y`")
def test_outpainting_places_the_image_on_a_canvas(client: Client, worker: Worker) -> None:
    task_id = client.order_task(OUTPAINTING, **MINIMAL[OUTPAINTING], reference_offset_x=32, reference_offset_y=0)
    job, (canvas, mask) = worker.job(task_id), open_images(worker, task_id)
    assert (canvas.size, canvas.mode, canvas.format) == ((128, 96), "RGB", "PNG")
    assert (mask.size, mask.mode, mask.format) == ((128, 96), "L", "PNG")
    assert (np.asarray(canvas)[:64, 32:] == np.asarray(make_photo())).all()
    expected = np.full((96, 128), 255)
    expected[:64, 32:] = 0
    assert (np.asarray(mask) == expected).all()
    assert (job["width"], job["height"], job["area"]) == (128, 96, 128 * 96)


@promise("Decided: tools", "`auto_crop` false (an overflow is then a 422)")
def test_image_beyond_the_canvas_is_rejected_at_its_offset(client: Client, service: Service) -> None:
    with service.assert_unchanged():
        response = client.order(OUTPAINTING, **MINIMAL[OUTPAINTING], reference_offset_x=33)
    assert problems(response) == [(["body", "reference_offset_x"], "reference_overflow")]
