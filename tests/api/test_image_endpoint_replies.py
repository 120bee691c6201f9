"""What the image endpoints before generation 3 answer: prices, headers, other names, other regions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from image_endpoints import ENDPOINTS, MINIMAL
from support.client import Client, refusal
from support.http_service import Service, StartService
from support.pictures import encoded, picture
from support.promises import promise
from support.worker import Worker

from serve_app.api.app import create_app
from serve_app.config import catalog
from serve_app.config.settings import ServiceSettings, Settings

CANNY = "gen-pro-1.0-canny"
MP_2 = {"width": 2048, "height": 1024}


def pictures(*sizes: tuple[int, int]) -> dict[str, str]:
    names = ["input_image", *(f"input_image_{n}" for n in range(2, 9))]
    return {name: encoded(picture(*size)) for name, size in zip(names, sizes, strict=False)}


@promise(
    "What the service does",
    "Submission responses of some endpoints carry a cost estimate and megapixel counts; the final polling "
    "response carries the settled cost.",
)
@pytest.mark.parametrize(("endpoint", "cost"), [("gen-2-max", 7), ("gen-pro", 5), ("gen-pro-1.0-fill", 5)])
def test_the_settled_cost_is_told_by_every_endpoint(client: Client, worker: Worker, endpoint: str, cost: float) -> None:
    task_id = client.ordered(endpoint, **MINIMAL[endpoint], seed=2**64 - 1)
    worker.deliver(task_id, picture(form="JPEG"))
    polled = client.poll(task_id).json()
    assert (polled["cost"], polled["result"]["seed"]) == (cost, 2**64 - 1)


@promise("Versioning", "`gen-2-pro` is a fixed snapshot for reproducible workflows")
def test_the_snapshot_is_pinned(service: Service) -> None:
    chosen = service.app.state.services.catalog
    assert chosen.models[chosen.endpoints["gen-2-pro"].model].revision
    assert chosen.models[chosen.endpoints["gen-2-pro-preview"].model].revision is None


# Deprecation.


@promise(
    "Decided: tuned models",
    "Deprecated endpoints answer as before and add the headers `Deprecation` and, where a date is set, "
    "`Sunset` (RFC 9745, RFC 8594).",
)
def test_a_deprecated_endpoint_says_so_in_every_answer(client: Client) -> None:
    for response in (client.order(CANNY, **MINIMAL[CANNY]), client.order(CANNY), client.get(f"/v1/{CANNY}")):
        assert response.headers["deprecation"] == "@1761868800"
        assert "sunset" not in response.headers
    described = client.get("/openapi.json").json()["paths"]
    assert described[f"/v1/{CANNY}"]["post"]["deprecated"] is True


# Other names.


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


# Regions.

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


def app_of(regional: Path, region: str | None) -> Any:
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
        client.ordered("gen-2-pro", prompt="x")
        client.ordered("gen-2-max", prompt="x")
        assert "/v1/gen-pro" not in client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize("region", ["us", None])
def test_at_home_or_without_regions_all_is_served(regional: Path, region: str | None) -> None:
    assert "/v1/gen-pro" in app_of(regional, region).openapi()["paths"]


def test_a_region_without_an_address_is_refused(regional: Path) -> None:
    with pytest.raises(ValueError, match="region 'asia'"):
        ServiceSettings(region="asia", regions=REGIONS)
    settings = Settings(catalog=regional, service=ServiceSettings(region="eu", regions={"eu": "https://eu.test"}))
    with pytest.raises(ValueError, match=r"gen-.*regions"):
        catalog.load(settings)
