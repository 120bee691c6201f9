"""What a request would cost: the same as what it does cost."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx2
import pytest
from image_endpoints import MASK, PHOTO
from support.http_client import Client, problems, refusal
from support.http_service import Service, StartService
from support.images import image_file, to_base64
from support.promises import promise
from support.website import Website
from support.worker import Worker
from tool_endpoints import DEBLUR, ERASE, MINIMAL, OUTPAINTING, TOOLS, TRY_ON_1, TRY_ON_2

from serve_app.accounts.roles import Role
from serve_app.config.model_settings import ModelSettings
from serve_app.tasks.task import Status

SMALL, LARGE = to_base64(image_file(512, 512)), to_base64(image_file(1600, 1200))


def get_price(client: Client, endpoint: str, body: object) -> httpx2.Response:
    return client.post("/v1/pricing", json={"path": f"/v1/{endpoint}", "body": body})


@promise(
    "Decided: money, accounts",
    "`POST /v1/pricing` takes a path and a body and answers the estimate without submitting.",
)
@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("gen-3-image-klein", {"prompt": "a cat"}),
        ("gen-3-image-klein", {"prompt": "a cat", "resolution": "4k", "aspect_ratio": "4:3"}),
        ("gen-3-image-klein", {"prompt": "a cat", "images": [SMALL] * 5, "resolution": "2k"}),
        ("gen-2-max", {"prompt": "a cat"}),
        ("gen-2-max", {"prompt": "a cat", "input_image": LARGE, "input_image_2": SMALL}),
        ("gen-2-pro-preview", {"prompt": "a cat", "input_image": SMALL}),
        ("gen-kontext-pro", {"prompt": "a cat", "input_image": LARGE, "aspect_ratio": "16:9"}),
        *((tool, MINIMAL[tool]) for tool in TOOLS),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"mode": "fast"}),
        (TRY_ON_1, {"person": to_base64(image_file(2049, 1024)), "garment": SMALL}),
    ],
)
def test_the_price_is_that_of_the_submission(client: Client, endpoint: str, body: dict[str, Any]) -> None:
    response = get_price(client, endpoint, body)
    assert response.status_code == 200, response.text
    submitted = client.order(endpoint, **body).json()
    priced = {name: submitted[name] for name in ("cost", "input_mp", "output_mp")}
    assert response.json() == priced | {"warnings": response.json()["warnings"]}
    assert response.json()["cost"] > 0


def test_words_that_a_demo_model_does_not_know_are_named_beside_the_price(client: Client) -> None:
    """The service's flux3-klein is a bundled checkpoint; others are not."""
    demos = {model["id"]: model["demo"] for model in client.get("/v1/models").json()["data"]}
    assert demos["gen-3-image-klein"]
    assert not demos["gen-2-max"]
    warnings = get_price(client, "gen-3-image-klein", {"prompt": "a lighthouse beside a red star"}).json()["warnings"]
    assert warnings == ["The demo model draws coloured shapes only. It does not know: lighthouse"]
    assert get_price(client, "gen-3-image-klein", {"prompt": "a red star"}).json()["warnings"] == []
    assert get_price(client, "gen-2-max", {"prompt": "a lighthouse"}).json()["warnings"] == []


def test_the_instruction_of_a_tool_is_no_word_of_the_request(start_service: StartService) -> None:
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
def test_what_is_settled_is_the_price_whether_the_submission_told_it(
    client: Client, worker: Worker, endpoint: str, body: dict[str, Any], cost: float
) -> None:
    price = get_price(client, endpoint, body).json()
    submitted = client.order(endpoint, **body).json()
    assert submitted["cost"] == (cost if endpoint == OUTPAINTING else None)
    worker.deliver(submitted["id"], image_file(form="JPEG"))
    assert client.poll(submitted["id"]).json()["cost"] == price["cost"] == cost


@promise("Task submission response", "`input_mp`: number or null: same: Input megapixels, 2 decimal places")
@promise("Decided: money, accounts", "flat where the table says so")
@pytest.mark.parametrize(
    ("tool", "body", "cost", "input_mp", "output_mp"),
    [
        (OUTPAINTING, {}, 20, 0.01, 0.01),
        (OUTPAINTING, {"mode": None}, 20, 0.01, 0.01),
        (OUTPAINTING, {"mode": "fast"}, 4.5, 0.01, 0.01),
        # What counts as input is the image as sent: not the canvas it lies on, and no mask.
        (OUTPAINTING, {"width": 2048, "height": 2048}, 20, 0.01, 4),
        (ERASE, {}, 3, 0.01, 0.01),
        (TRY_ON_1, {"person": SMALL, "garment": LARGE}, 4.75, 2.08, 0.25),
        # Nor an image as it is scaled for the model: the result here has about one megapixel.
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


@promise("12. Tuned-model endpoints", "During the beta such requests are billed at the base endpoint's rate.")
def test_tuned_models_and_images_by_address_have_their_price(client: Client, worker: Worker, web: Website) -> None:
    body = {"prompt": "a cat", "finetune_id": worker.new_finetune(client.project)}
    price = get_price(client, "gen-3-image-klein-finetuned", body).json()
    assert price["cost"] == client.order("gen-3-image-klein-finetuned", **body).json()["cost"]
    prices = [
        get_price(client, "gen-3-image-klein", {"prompt": "x", "images": [image]}).json()
        for image in (SMALL, web.set_page("/pricing", image_file(512, 512)))
    ]
    assert prices[0] == prices[1]


@pytest.mark.parametrize("path", ["/v1/gen-9", "", "/v1/tasks", "/v2/gen-2-max", "https://other.test/v1/gen-2-max"])
def test_an_unknown_path(client: Client, service: Service, path: str) -> None:
    with service.assert_unchanged():
        response = client.post("/v1/pricing", json={"path": path, "body": {"prompt": "a cat"}})
    assert refusal(response, 404) == "Not Found"


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("gen-3-image-klein", {"prompt": "x", "steps": 99}),
        ("gen-3-image-klein", {"prompt": 3, "seed": "x"}),
        ("gen-pro-1.0-fill", {"mask": MASK}),
        (ERASE, {"mask": MASK, "dilate_pixels": 26}),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"prompt": "x", "mode": "best"}),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"width": 2048, "height": 2049}),
        # Of images.
        ("gen-3-image-klein", {"prompt": "x", "images": [SMALL, "AAAA"]}),
        ("gen-2-max", {"prompt": "x", "input_image_2": "AAAA"}),
        ("gen-pro-1.0-fill", {"image": PHOTO, "mask": to_base64(image_file(10, 10, mode="L"))}),
        (ERASE, {"image": PHOTO, "mask": to_base64(image_file(96, 64))}),
        (OUTPAINTING, MINIMAL[OUTPAINTING] | {"reference_offset_x": -1}),
        (DEBLUR, {"image": to_base64(image_file(2049, 2048))}),
    ],
)
def test_an_invalid_body_is_refused_as_if_it_were_submitted(
    client: Client, service: Service, endpoint: str, body: dict[str, Any]
) -> None:
    with service.assert_unchanged():
        answer = problems(get_price(client, endpoint, body))
    assert answer == [(["body", *loc], kind) for loc, kind in problems(client.order(endpoint, **body))]
    assert all(loc[:2] == ["body", "body"] for loc, _ in answer)


DAY = timedelta(days=1)
COLUMNS = ["day", "project", "endpoint", "tasks", "credits"]


def today() -> date:
    return datetime.now(UTC).date()


def around() -> dict[str, str]:
    """Days enough for a test that runs at midnight."""
    return {"since": str(today() - DAY), "until": str(today() + DAY)}


def usage(client: Client, **query: Any) -> list[dict[str, Any]]:
    response = client.get("/v1/usage", params=around() | query)
    assert response.status_code == 200, response.text
    assert set(response.json()) == {"usage"}
    return response.json()["usage"]


def sum_usage(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, float]]:
    totals: dict[tuple[str, str], tuple[int, float]] = {}
    for row in rows:
        assert set(row) == {"day", "project", "endpoint", "tasks", "cost"}
        tasks, cost = totals.get((row["project"], row["endpoint"]), (0, 0.0))
        totals[row["project"], row["endpoint"]] = (tasks + row["tasks"], cost + row["cost"])
    return totals


@pytest.fixture
def viewer(service: Service, organization: str) -> Iterator[Client]:
    with service.client(role=Role.VIEWER, organization=organization) as client:
        yield client


@pytest.fixture
def projects(service: Service, worker: Worker, organization: str) -> list[str]:
    """Two: the first used two endpoints, the second one."""
    with service.client(organization=organization) as one, service.client(organization=organization) as two:
        for task_id in (
            one.create_task(),
            one.create_task(resolution="2k"),
            one.order_task("gen-2-max", prompt="a cat"),
            two.create_task(),
        ):
            worker.deliver(task_id, image_file(form="JPEG"))
        for status in (Status.ERROR, Status.CONTENT_MODERATED):
            worker.end(one.create_task(), status)
        one.create_task()
        one.delete(f"/v1/tasks/{two.create_task()}")
        return [one.project, two.project]


def test_only_what_was_delivered_counts(viewer: Client, projects: list[str]) -> None:
    one, two = projects
    assert sum_usage(usage(viewer)) == {
        (one, "gen-3-image-klein"): (2, pytest.approx(0.9 + 0.9 + 3 * 0.18)),
        (one, "gen-2-max"): (1, 7),
        (two, "gen-3-image-klein"): (1, 0.9),
    }


def test_json_and_csv_agree(viewer: Client, projects: list[str]) -> None:
    rows = usage(viewer)
    response = viewer.get("/v1/usage", params=around() | {"format": "csv"})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/csv")
    disposition = response.headers["content-disposition"]
    assert disposition == 'attachment; filename="usage-{since}-{until}.csv"'.format(**around())
    table = list(csv.DictReader(io.StringIO(response.text, newline="")))
    assert len(table) == len(rows) >= 3
    for csv_row, row in zip(table, rows, strict=True):
        assert list(csv_row) == COLUMNS
        assert [*csv_row.values()][:4] == [*map(str, row.values())][:4]
        assert float(csv_row["credits"]) == row["cost"]


@pytest.mark.parametrize("form", ["json", "csv"])
def test_only_of_one_project(viewer: Client, projects: list[str], form: str) -> None:
    one, two = projects
    for project, other in ((one, two), (two, one)):
        text = viewer.get("/v1/usage", params=around() | {"project": project, "format": form}).text
        assert project in text
        assert other not in text
    assert usage(viewer, project="none") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "2026-02-02", "until": "2026-02-01"}, "until"),
        ({"since": "9999-12-31"}, "until"),
        ({"since": "2025-01-01", "until": "2026-01-02"}, "since"),
        ({"since": "2026-02-30"}, "since"),
        ({"until": ""}, "until"),
        ({"until": "1767225600"}, "until"),
        ({"since": "2026-01-31T00:00:00Z"}, "since"),
        ({"format": "xml"}, "format"),
        ({"project": "x" * 65}, "project"),
    ],
)
def test_queries_that_are_refused(viewer: Client, query: dict[str, str], field: str) -> None:
    assert [loc for loc, _ in problems(viewer.get("/v1/usage", params=query))] == [["query", field]]
