"""Every field of the image endpoints before generation 3: both sides of its range, its default, its name in errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from image_endpoints import ENDPOINTS, GEN_2, MINIMAL, PHOTO
from support.http_client import Client, refusal
from support.http_service import Service, StartService
from support.images import image_file, to_base64
from support.promises import promise
from support.worker import Worker

from serve_app.api.app import create_app
from serve_app.config import catalog
from serve_app.config.model_settings import RewriterSettings
from serve_app.config.settings import ServiceSettings, Settings

FILL, CANNY = "gen-pro-1.0-fill", "gen-pro-1.0-canny"
MAX_SEED = 2**64 - 1


@promise("Decided: submission", "ignored on the gen-1/gen-2/kontext-style routes")
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_unknown_fields_are_ignored(client: Client, worker: Worker, endpoint: str) -> None:
    unknown = {"num_images": 2, "raw": True, "negative_prompt": "x", "input_image_9": "no image", "images": ["x"]}
    job = worker.job(client.order_task(endpoint, **MINIMAL[endpoint], **unknown, seed=MAX_SEED))
    assert job["seed"] == MAX_SEED


@promise("Decided: submission", "`prompt_upsampling` and `disable_pup` accepted as opposites on non-strict routes.")
@pytest.mark.parametrize(
    ("endpoint", "body", "rewrite"),
    [
        *((name, {"disable_pup": True}, False) for name in GEN_2),
        *((name, {"prompt_upsampling": False}, False) for name in GEN_2),
        *((name, {"prompt_upsampling": True}, True) for name in GEN_2),
        *((name, {"disable_pup": False}, True) for name in ENDPOINTS[3:]),
        # The endpoint's own field counts.
        ("gen-2-max", {"disable_pup": True, "prompt_upsampling": True}, False),
        ("gen-2-max", {"disable_pup": False, "prompt_upsampling": False}, True),
        ("gen-pro", {"disable_pup": False, "prompt_upsampling": False}, False),
        # An unknown field of the wrong kind is still only an unknown field.
        ("gen-2-pro", {"disable_pup": "x"}, True),
        ("gen-pro", {"disable_pup": "x"}, False),
    ],
)
def test_rewriting_the_prompt(
    client: Client, worker: Worker, endpoint: str, body: dict[str, Any], rewrite: bool
) -> None:
    assert worker.job(client.order_task(endpoint, **MINIMAL[endpoint], **body))["rewrite"] is rewrite


@pytest.mark.parametrize(
    ("rewriter", "has_no_effect"),
    [
        (RewriterSettings(), {"prompts": False, "edits": False}),
        (RewriterSettings(asked_for=("prompts", "ratios")), {"prompts": False, "edits": True}),
        (RewriterSettings(asked_for=("edits",)), {"prompts": True, "edits": False}),
        (RewriterSettings(enabled=False), {"prompts": True, "edits": True}),
    ],
)
def test_a_request_to_rewrite_is_carried_out_or_warned_of(
    start_service: StartService, rewriter: RewriterSettings, has_no_effect: dict[str, bool]
) -> None:
    service = start_service(rewriter=rewriter)
    with service.client() as client:
        for endpoint in ENDPOINTS:
            for asked in ({"prompt_upsampling": True}, {"disable_pup": False}, {}):
                answer = client.post(f"/v1/{endpoint}", json=MINIMAL[endpoint] | {"prompt": "a star"} | asked).json()
                job = service.worker.job(answer["id"])
                kind = "edits" if job["references"] else "prompts"
                warned = any("prompt_upsampling" in each for each in answer.get("warnings", []))
                assert warned == (bool(asked) and has_no_effect[kind]), (endpoint, asked, answer)
                assert job["rewrite"] or not asked
                client.delete(f"/v1/tasks/{answer['id']}")


@promise("2. gen-2-max", "removes the background and returns a transparent RGBA PNG")
def test_a_transparent_image_is_a_png(client: Client, worker: Worker) -> None:
    job = worker.job(client.order_task("gen-2-max", prompt="x", transparent_bg=True, output_format="jpeg"))
    assert (job["transparent"], job["output_format"]) == (True, "png")
    assert worker.job(client.order_task("gen-2-pro", prompt="x", transparent_bg=True))["transparent"] is False


@pytest.mark.parametrize(
    ("endpoint", "body", "size"),
    [
        ("gen-2-max", {"width": 1001, "height": 67}, (1001, 67)),
        ("gen-2-max", {"input_image": to_base64(image_file(301, 203)), "width": 640, "height": 480}, (640, 480)),
        ("gen-2-max", {"input_image_3": to_base64(image_file(70, 90)), "input_image_7": PHOTO}, (70, 90)),
        ("gen-2-max", {"input_image": to_base64(image_file(32, 48))}, (64, 96)),
        ("gen-2-max", {"aspect_ratio": "16:9"}, (1024, 1024)),
        ("gen-kontext-pro", {"aspect_ratio": "16:9"}, (1360, 768)),
        ("gen-kontext-pro", {"input_image": to_base64(image_file(300, 200))}, (1254, 836)),
        ("gen-kontext-pro", {"input_image": to_base64(image_file(300, 200)), "aspect_ratio": "1:1"}, (1024, 1024)),
        (
            FILL,
            {"image": to_base64(image_file(333, 77)), "mask": to_base64(image_file(333, 77, white=True))},
            (333, 77),
        ),
        (CANNY, {"control_image": to_base64(image_file(333, 77))}, (333, 77)),
        (CANNY, {"preprocessed_image": to_base64(image_file(80, 70))}, (80, 70)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sizes(client: Client, worker: Worker, endpoint: str, body: dict[str, Any], size: tuple[int, int]) -> None:
    job = worker.job(client.order_task(endpoint, **MINIMAL[endpoint] | body))
    assert (job["width"], job["height"]) == size


@pytest.mark.parametrize(
    ("endpoint", "field", "value", "advice"),
    [
        ("gen-kontext-pro", "image_url", "https://example.com/cat.png", "did you mean input_image?"),
        ("gen-2-pro", "images", ["https://example.com/cat.png"], "did you mean input_image?"),
        ("gen-kontext-pro", "aspect_ration", "16:9", "did you mean aspect_ratio?"),
        ("gen-2-pro", "num_images", 4, "a task makes one image; send several, or n to /v1/images/generations"),
    ],
)
def test_what_is_ignored_though_it_is_meant_is_warned_of(
    client: Client, endpoint: str, field: str, value: object, advice: str
) -> None:
    answer = client.order(endpoint, prompt="a cat", **{field: value}).json()
    assert answer["warnings"] == [f"{field} is not a field of this endpoint and was ignored: {advice}"]


@pytest.mark.parametrize(
    ("value", "expected"), [("42", '"42" is a string; send 42'), ("x", "Input should be a valid integer")]
)
def test_a_number_in_quotes_is_said_to_be_a_string(client: Client, value: str, expected: str) -> None:
    [entry] = client.order("gen-2-pro", prompt="a cat", seed=value).json()["detail"]
    assert entry["msg"] == expected


CANNY_NAME = "gen-pro-1.0-canny"


@promise(
    "What the service does",
    "Submission responses of some endpoints carry a cost estimate and megapixel counts; the final polling "
    "response carries the settled cost.",
)
@pytest.mark.parametrize(("endpoint", "cost"), [("gen-2-max", 7), ("gen-pro", 5), ("gen-pro-1.0-fill", 5)])
def test_the_settled_cost_is_told_by_every_endpoint(client: Client, worker: Worker, endpoint: str, cost: float) -> None:
    task_id = client.order_task(endpoint, **MINIMAL[endpoint], seed=2**64 - 1)
    worker.deliver(task_id, image_file(form="JPEG"))
    polled = client.poll(task_id).json()
    assert (polled["cost"], polled["result"]["seed"]) == (cost, 2**64 - 1)


@promise("Versioning", "`gen-2-pro` is a fixed snapshot for reproducible workflows")
def test_the_snapshot_is_pinned(service: Service) -> None:
    catalog = service.app.state.services.catalog
    assert catalog.models[catalog.endpoints["gen-2-pro"].model].revision
    assert catalog.models[catalog.endpoints["gen-2-pro-preview"].model].revision is None


@promise(
    "Decided: tuned models",
    "Deprecated endpoints answer as before and add the headers `Deprecation` and, where a date is set, "
    "`Sunset` (RFC 9745, RFC 8594).",
)
def test_a_deprecated_endpoint_says_so_in_every_answer(client: Client) -> None:
    for response in (
        client.order(CANNY_NAME, **MINIMAL[CANNY_NAME]),
        client.order(CANNY_NAME),
        client.get(f"/v1/{CANNY_NAME}"),
    ):
        assert response.headers["deprecation"] == "@1761868800"
        assert "sunset" not in response.headers
    described = client.get("/openapi.json").json()["paths"]
    assert described[f"/v1/{CANNY_NAME}"]["post"]["deprecated"] is True


@promise(
    "Decided: submission",
    "configurable list of family tokens that route to the same handlers (default none: `gen` only)",
)
def test_aliases_lead_to_the_same_endpoints(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(path_aliases=["flux", "other"]))
    with service.client() as client:
        for token in ("flux", "other", "gen"):
            for endpoint in (*ENDPOINTS, "gen-3-image-klein"):
                body = MINIMAL.get(endpoint, {"prompt": "x"})
                name = endpoint.replace("gen", token, 1)
                assert client.order(name, **body).status_code == 200, name
        assert client.order("flux-pro-1.0-canny").headers["deprecation"]
        for path in ("fluxx-pro", "flux", "flux-", "flux-none", "xflux-pro"):
            response = client.order(path, prompt="x")
            assert refusal(response, 404) == "Not Found", path
        assert "flux" not in client.get("/openapi.json").text
        listed = client.get("/v1/tasks").json()["tasks"]
        assert {task["endpoint"] for task in listed} == {*ENDPOINTS, "gen-3-image-klein"}


REGIONS = {"eu": "https://eu.test", "us": "https://us.test/"}


@pytest.fixture
def regional(repository: Path, tmp_path: Path) -> Path:
    """The catalog with one endpoint in one region and another in two."""
    path = repository / "configs/catalog.yaml"
    content = yaml.safe_load(path.read_text())
    content["endpoints"]["gen-pro"]["regions"] = ["us"]
    content["endpoints"]["gen-2-pro"]["regions"] = ["us", "eu"]
    copy = tmp_path / "catalog.yaml"
    copy.write_text(yaml.safe_dump(content))
    return copy


def make_app(regional: Path, region: str | None) -> Any:
    settings = Settings(catalog=regional, service=ServiceSettings(region=region, regions=REGIONS))
    return create_app(settings, catalog.load(settings))


@promise(
    "Decided: regions",
    "`regions:` in the config lists base URLs by name; a `-finetuned` endpoint may be served only there.",
)
def test_an_endpoint_of_another_region_is_told_where_it_is(start_service: StartService, regional: Path) -> None:
    service = start_service(catalog=regional, service=ServiceSettings(region="eu", regions=REGIONS))
    with service.client() as client:
        response = client.order("gen-pro")
        assert response.status_code == 404
        detail = "Not served in region eu; this endpoint is at https://us.test/v1/gen-pro"
        assert response.json()["detail"] == detail
        client.order_task("gen-2-pro", prompt="x")
        client.order_task("gen-2-max", prompt="x")
        assert "/v1/gen-pro" not in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize("region", ["us", None])
def test_at_home_or_without_regions_all_is_served(regional: Path, region: str | None) -> None:
    assert "/v1/gen-pro" in make_app(regional, region).openapi()["paths"]


def test_a_region_without_an_address_is_refused(regional: Path) -> None:
    with pytest.raises(ValueError, match="region 'asia'"):
        ServiceSettings(region="asia", regions=REGIONS)
    settings = Settings(catalog=regional, service=ServiceSettings(region="eu", regions={"eu": "https://eu.test"}))
    with pytest.raises(ValueError, match=r"gen-.*regions"):
        catalog.load(settings)
