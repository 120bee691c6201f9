"""Prices of requests before they are submitted, and the report of usage."""

from __future__ import annotations

import csv
import io
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from image_endpoints import MASK, PHOTO
from support.http_client import Client, problems, refusal
from support.http_service import Service, StartService
from support.images import image_file, to_base64
from support.website import Website
from support.worker import Worker
from tool_endpoints import DEBLUR, ERASE, MINIMAL, OUTPAINTING, TOOLS, TRY_ON_1, TRY_ON_2

from serve_app.accounts.roles import Role
from serve_app.config.model_settings import ModelSettings
from serve_app.tasks.task import Status

SMALL, LARGE = to_base64(image_file(512, 512)), to_base64(image_file(1600, 1200))


def get_price(client: Client, endpoint: str, body: object) -> httpx2.Response:
    return client.post("/v1/pricing", json={"path": f"/v1/{endpoint}", "body": body})


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("gen-3-image-klein", {"prompt": "a cat", "resolution": "4k", "aspect_ratio": "4:3"}),
        ("gen-3-image-klein", {"prompt": "a cat", "images": [SMALL] * 5, "resolution": "2k"}),
        ("gen-2-max", {"prompt": "a cat", "input_image": LARGE, "input_image_2": SMALL}),
        ("gen-2-pro-preview", {"prompt": "a cat", "input_image": SMALL}),
        ("gen-kontext-pro", {"prompt": "a cat", "input_image": LARGE, "aspect_ratio": "16:9"}),
        *((tool, MINIMAL[tool]) for tool in TOOLS),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"mode": "fast"}),
        (TRY_ON_1, {"person": to_base64(image_file(2049, 1024)), "garment": SMALL}),
    ],
)
def test_price_equals_the_cost_of_the_submission(client: Client, endpoint: str, body: dict[str, Any]) -> None:
    response = get_price(client, endpoint, body)
    assert response.status_code == 200, response.text
    submitted = client.order(endpoint, **body).json()
    priced = {name: submitted[name] for name in ("cost", "input_mp", "output_mp")}
    assert response.json() == priced | {"warnings": response.json()["warnings"]}
    assert response.json()["cost"] > 0


def test_price_of_a_demo_model_names_unknown_words(client: Client) -> None:
    """The checkpoint of flux3-klein is bundled, others are not."""
    demos = {model["id"]: model["demo"] for model in client.get("/v1/models").json()["data"]}
    assert demos["gen-3-image-klein"]
    assert not demos["gen-2-max"]
    warnings = get_price(client, "gen-3-image-klein", {"prompt": "a lighthouse beside a red star"}).json()["warnings"]
    assert warnings == ["The demo model draws coloured shapes only. It does not know: lighthouse"]
    assert get_price(client, "gen-3-image-klein", {"prompt": "a red star"}).json()["warnings"] == []
    assert get_price(client, "gen-2-max", {"prompt": "a lighthouse"}).json()["warnings"] == []


def test_instruction_of_a_tool_causes_no_warning(start_service: StartService) -> None:
    service = start_service(models={"flux2-pro": ModelSettings(checkpoint="bundled/flux2klein")})
    with service.client() as client:
        assert get_price(client, TRY_ON_1, MINIMAL[TRY_ON_1]).json()["warnings"] == []
        named = get_price(client, TRY_ON_1, MINIMAL[TRY_ON_1] | {"prompt": "a lighthouse"}).json()["warnings"]
        assert named == ["The demo model draws coloured shapes only. It does not know: lighthouse"]


@pytest.mark.parametrize(
    ("endpoint", "body", "cost"),
    [
        ("gen-pro", {"prompt": "a cat"}, 5),
        ("gen-pro-1.0-fill", {"image": PHOTO, "mask": MASK}, 5),
        ("gen-pro-1.0-canny", {"prompt": "a cat", "control_image": PHOTO}, 5),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"mode": "fast"}, 4.5),
    ],
)
def test_task_settles_at_a_price_that_the_response_hides(
    client: Client, worker: Worker, endpoint: str, body: dict[str, Any], cost: float
) -> None:
    price = get_price(client, endpoint, body).json()
    submitted = client.order(endpoint, **body).json()
    assert submitted["cost"] == (cost if endpoint == OUTPAINTING else None)
    worker.deliver(submitted["id"], image_file(form="JPEG"))
    assert client.poll(submitted["id"]).json()["cost"] == price["cost"] == cost


@pytest.mark.parametrize(
    ("tool", "body", "cost", "input_mp", "output_mp"),
    [
        (OUTPAINTING, {}, 20, 0.01, 0.01),
        (OUTPAINTING, {"mode": None}, 20, 0.01, 0.01),
        (OUTPAINTING, {"mode": "fast"}, 4.5, 0.01, 0.01),
        # Input is the image as sent, without its canvas and masks.
        (OUTPAINTING, {"width": 2048, "height": 2048}, 20, 0.01, 4),
        (ERASE, {}, 3, 0.01, 0.01),
        (TRY_ON_1, {"person": SMALL, "garment": LARGE}, 4.75, 2.08, 0.25),
        # This input counts before it is scaled for the model. The result has about one megapixel.
        (TRY_ON_1, {"person": to_base64(image_file(2048, 2048)), "garment": SMALL}, 4.75, 4.25, 1),
        (TRY_ON_2, {"person": to_base64(image_file(2048, 2048)), "garment": SMALL}, 4.75, 4.25, 4),
        (DEBLUR, {"image": to_base64(image_file(2048, 2048))}, 3, 4, 4),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tools_have_flat_prices(
    client: Client, tool: str, body: dict[str, Any], cost: float, input_mp: float, output_mp: float
) -> None:
    price = get_price(client, tool, MINIMAL[tool] | body).json()
    assert price == {"cost": cost, "input_mp": input_mp, "output_mp": output_mp, "warnings": []}


def test_finetunes_and_images_by_url_cost_the_same(client: Client, worker: Worker, web: Website) -> None:
    body = {"prompt": "a cat", "finetune_id": worker.new_finetune(client.project)}
    price = get_price(client, "gen-3-image-klein-finetuned", body).json()
    assert price["cost"] == client.order("gen-3-image-klein-finetuned", **body).json()["cost"]
    prices = [
        get_price(client, "gen-3-image-klein", {"prompt": "x", "images": [image]}).json()
        for image in (SMALL, web.set_page("/pricing", image_file(512, 512)))
    ]
    assert prices[0] == prices[1]


@pytest.mark.parametrize("path", ["/v1/gen-9", "", "/v1/tasks", "/v2/gen-2-max", "https://other.test/v1/gen-2-max"])
def test_price_of_an_unknown_path_is_404(client: Client, service: Service, path: str) -> None:
    with service.assert_unchanged():
        response = client.post("/v1/pricing", json={"path": path, "body": {"prompt": "a cat"}})
    assert refusal(response, 404) == "Not Found"


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("gen-3-image-klein", {"prompt": 3, "seed": "x", "steps": 99}),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"prompt": "x", "mode": "best"}),
        ("gen-3-image-klein", {"prompt": "x", "images": [SMALL, "AAAA"]}),
        ("gen-pro-1.0-fill", {"image": PHOTO, "mask": to_base64(image_file(10, 10, mode="L"))}),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"reference_offset_x": -1}),
        (DEBLUR, {"image": to_base64(image_file(2049, 2048))}),
    ],
)
def test_pricing_refuses_what_a_submission_refuses(
    client: Client, service: Service, endpoint: str, body: dict[str, Any]
) -> None:
    with service.assert_unchanged():
        answer = problems(get_price(client, endpoint, body))
    assert answer == [(["body", *loc], kind) for loc, kind in problems(client.order(endpoint, **body))]
    assert all(loc[:2] == ["body", "body"] for loc, _ in answer)


def test_usage_is_reported_as_json_and_csv(service: Service, worker: Worker, organization: str) -> None:
    today, day = datetime.now(UTC).date(), timedelta(days=1)
    around = {"since": str(today - day), "until": str(today + day)}  # for a test that runs at midnight
    with ExitStack() as stack:
        one, two, viewer = (
            stack.enter_context(service.client(role=role, organization=organization))
            for role in (Role.DEVELOPER, Role.DEVELOPER, Role.VIEWER)
        )
        worker.deliver(one.order_task("gen-2-max", prompt="a cat"), image_file(form="JPEG"))
        worker.deliver(two.create_task(), image_file(form="JPEG"))
        worker.end(one.create_task(), Status.ERROR)

        def read(**query: str) -> httpx2.Response:
            return viewer.get("/v1/usage", params=around | query).raise_for_status()

        rows, table = read().json()["usage"], read(format="csv")
        texts = [read(project=two.project, format=form).text for form in ("json", "csv")]
        assert read(project="none").json() == {"usage": []}
    assert all(set(row) == {"day", "project", "endpoint", "tasks", "cost"} for row in rows)
    counted = {(row["project"], row["endpoint"], row["tasks"], row["cost"]) for row in rows}
    assert counted == {(one.project, "gen-2-max", 1, 7), (two.project, "gen-3-image-klein", 1, 0.9)}
    assert [(two.project in text, one.project in text) for text in texts] == [(True, False)] * 2

    assert table.headers["content-type"].startswith("text/csv")
    disposition = 'attachment; filename="usage-{since}-{until}.csv"'.format(**around)
    assert table.headers["content-disposition"] == disposition
    for csv_row, row in zip(csv.DictReader(io.StringIO(table.text, newline="")), rows, strict=True):
        assert list(csv_row) == ["day", "project", "endpoint", "tasks", "credits"]
        assert [*csv_row.values()][:4] == [*map(str, row.values())][:4]
        assert float(csv_row["credits"]) == row["cost"]
