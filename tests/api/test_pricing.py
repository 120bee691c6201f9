"""What a request would cost: the same as what it does cost."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from image_endpoints import MASK, PHOTO
from support.client import Client, problems, refusal
from support.http_service import Service
from support.pictures import encoded, picture
from support.promises import promise
from support.website import Website
from support.worker import Worker
from tool_endpoints import DEBLUR, ERASE, MINIMAL, OUTPAINTING, TOOLS, TRY_ON_1, TRY_ON_2

SMALL, LARGE = encoded(picture(512, 512)), encoded(picture(1600, 1200))


def priced(client: Client, endpoint: str, body: object) -> httpx2.Response:
    return client.post("/v1/pricing", json={"path": f"/v1/{endpoint}", "body": body})


@promise(
    "Decided: money, accounts",
    "`POST /v1/pricing` takes a path and a body and answers the estimate without submitting.",
)
@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("gen-3-image-klein", {"prompt": "a cat"}),
        ("gen-3-image-klein", {"prompt": "a cat", "resolution": "4k"}),
        ("gen-3-image-klein", {"prompt": "a cat", "resolution": "4k", "aspect_ratio": "4:3"}),
        ("gen-3-image-klein", {"prompt": "a cat", "width": 1280, "height": 720}),
        ("gen-3-image-klein", {"prompt": "a cat", "images": [SMALL]}),
        ("gen-3-image-klein", {"prompt": "a cat", "images": [SMALL] * 5, "resolution": "2k"}),
        ("gen-2-max", {"prompt": "a cat"}),
        ("gen-2-max", {"prompt": "a cat", "width": 2048, "height": 1024}),
        ("gen-2-max", {"prompt": "a cat", "input_image": LARGE, "input_image_2": SMALL}),
        ("gen-2-pro-preview", {"prompt": "a cat", "input_image": SMALL}),
        ("gen-2-pro", {"prompt": "a cat", "width": 1024, "height": 1536}),
        ("gen-kontext-pro", {"prompt": "a cat"}),
        ("gen-kontext-pro", {"prompt": "a cat", "input_image": LARGE, "aspect_ratio": "16:9"}),
        *((tool, MINIMAL[tool]) for tool in TOOLS),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"mode": "fast"}),
        (TRY_ON_1, {"person": LARGE, "garment": SMALL}),
        (TRY_ON_1, {"person": encoded(picture(2049, 1024)), "garment": SMALL}),
    ],
)
def test_the_price_is_that_of_the_submission(client: Client, endpoint: str, body: dict[str, Any]) -> None:
    response = priced(client, endpoint, body)
    assert response.status_code == 200, response.text
    submitted = client.order(endpoint, **body).json()
    assert response.json() == {name: submitted[name] for name in ("cost", "input_mp", "output_mp")}
    assert response.json()["cost"] > 0


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("gen-pro", {"prompt": "a cat"}),
        ("gen-pro-1.0-fill", {"image": PHOTO, "mask": MASK}),
        ("gen-pro-1.0-canny", {"prompt": "a cat", "control_image": PHOTO}),
    ],
)
def test_endpoints_whose_submission_does_not_tell_settle_at_the_price(
    client: Client, worker: Worker, endpoint: str, body: dict[str, Any]
) -> None:
    price = priced(client, endpoint, body).json()
    submitted = client.order(endpoint, **body).json()
    assert submitted["cost"] is None
    worker.deliver(submitted["id"], picture(form="JPEG"))
    assert client.poll(submitted["id"]).json()["cost"] == price["cost"] == 5


@promise("Task submission response", "`input_mp`: number or null: same: Input megapixels, 2 decimal places")
@promise("Decided: money, accounts", "flat where the table says so")
@pytest.mark.parametrize(
    ("tool", "body", "cost", "input_mp", "output_mp"),
    [
        (ERASE, {}, 3, 0.01, 0.01),
        (OUTPAINTING, {}, 20, 0.01, 0.01),
        (OUTPAINTING, {"mode": "high"}, 20, 0.01, 0.01),
        (OUTPAINTING, {"mode": None}, 20, 0.01, 0.01),
        (OUTPAINTING, {"mode": "fast"}, 4.5, 0.01, 0.01),
        # What counts as input is the picture as sent: not the canvas it lies on, and no mask.
        (OUTPAINTING, {"width": 2048, "height": 2048}, 20, 0.01, 4),
        (OUTPAINTING, {"input_image": SMALL, "width": 1024, "height": 1024}, 20, 0.25, 1),
        (OUTPAINTING, {"width": 2048, "height": 2048, "mode": "fast"}, 4.5, 0.01, 4),
        (TRY_ON_1, {}, 4.75, 0.01, 0.01),
        (TRY_ON_1, {"person": SMALL, "garment": LARGE}, 4.75, 2.08, 0.25),
        (TRY_ON_1, {"person": encoded(picture(1024, 2048)), "garment": SMALL}, 4.75, 2.25, 2),
        # Nor a picture as it is scaled for the model: the result here has about one megapixel.
        (TRY_ON_1, {"person": encoded(picture(2048, 2048)), "garment": SMALL}, 4.75, 4.25, 1),
        (TRY_ON_2, {"person": encoded(picture(2048, 2048)), "garment": SMALL}, 4.75, 4.25, 4),
        (DEBLUR, {}, 3, 0.01, 0.01),
        (DEBLUR, {"image": encoded(picture(2048, 2048))}, 3, 4, 4),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tools_have_flat_prices(
    client: Client, tool: str, body: dict[str, Any], cost: float, input_mp: float, output_mp: float
) -> None:
    price = priced(client, tool, MINIMAL[tool] | body).json()
    assert price == {"cost": cost, "input_mp": input_mp, "output_mp": output_mp}


@pytest.mark.parametrize(("mode", "cost"), [("fast", 4.5), ("high", 20), (None, 20)])
def test_a_mode_settles_at_its_own_price(client: Client, worker: Worker, mode: str | None, cost: float) -> None:
    task_id = client.ordered(OUTPAINTING, **MINIMAL[OUTPAINTING], mode=mode)
    worker.deliver(task_id, picture(form="JPEG"))
    assert client.poll(task_id).json()["cost"] == cost


@promise("12. Tuned-model endpoints", "During the beta such requests are billed at the base endpoint's rate.")
def test_tuned_models_have_their_price(client: Client, worker: Worker) -> None:
    body = {"prompt": "a cat", "finetune_id": worker.new_finetune(client.project)}
    price = priced(client, "gen-3-image-klein-finetuned", body).json()
    assert price["cost"] == client.order("gen-3-image-klein-finetuned", **body).json()["cost"]


def test_pictures_by_address_count_as_well(client: Client, web: Website) -> None:
    by_address = priced(
        client, "gen-3-image-klein", {"prompt": "x", "images": [web.put("/pricing", picture(512, 512))]}
    )
    assert by_address.json() == priced(client, "gen-3-image-klein", {"prompt": "x", "images": [SMALL]}).json()


@pytest.mark.parametrize(
    "path", ["/v1/gen-9", "", "/v1/", "/v1/tasks", "/v2/gen-2-max", "/v1/gen-2-max/", "https://other.test/v1/gen-2-max"]
)
def test_an_unknown_path(client: Client, service: Service, path: str) -> None:
    with service.unchanged():
        response = client.post("/v1/pricing", json={"path": path, "body": {"prompt": "a cat"}})
    assert refusal(response, 404) == "Not Found"


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("gen-3-image-klein", {}),
        ("gen-3-image-klein", {"prompt": "x", "steps": 99}),
        ("gen-3-image-klein", {"prompt": "x", "width": 64}),
        ("gen-3-image-klein", {"prompt": "x", "images": [SMALL] * 11}),
        ("gen-3-image-klein", {"prompt": 3, "seed": "x"}),
        ("gen-2-max", {"prompt": "x", "width": 1}),
        ("gen-pro-1.0-fill", {"mask": MASK}),
        (ERASE, {"mask": MASK, "dilate_pixels": 26}),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"prompt": "x", "mode": "best"}),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"width": 2048, "height": 2049}),
    ],
)
def test_an_invalid_body_is_refused_as_if_it_were_submitted(
    client: Client, service: Service, endpoint: str, body: dict[str, Any]
) -> None:
    with service.unchanged():
        answer = problems(priced(client, endpoint, body))
    assert answer == [(["body", *loc], kind) for loc, kind in problems(client.order(endpoint, **body))]
    assert all(loc[:2] == ["body", "body"] for loc, _ in answer)


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("gen-3-image-klein", {"prompt": "x", "images": [SMALL, "AAAA"]}),
        ("gen-2-max", {"prompt": "x", "input_image_2": "AAAA"}),
        ("gen-pro-1.0-fill", {"image": PHOTO, "mask": encoded(picture(10, 10, mode="L"))}),
        (ERASE, {"image": PHOTO, "mask": encoded(picture(96, 64))}),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"reference_offset_x": -1}),
        (DEBLUR, {"image": encoded(picture(2049, 2048))}),
    ],
)
def test_a_picture_that_cannot_be_used_is_named_within_the_body(
    client: Client, service: Service, endpoint: str, body: dict[str, Any]
) -> None:
    with service.unchanged():
        answer = problems(priced(client, endpoint, body))
    assert answer == [(["body", *loc], kind) for loc, kind in problems(client.order(endpoint, **body))]
