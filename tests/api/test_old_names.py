"""Deprecated and removed names of endpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from image_endpoints import PHOTO
from pydantic import ValidationError
from support.http_client import Client, problems, refusal
from support.http_service import Service, StartService
from support.promises import promise
from support.worker import Worker

from serve_app.config.catalog import Catalog
from serve_app.config.settings import ServiceSettings

DEPRECATED_SINCE = "@1761868800"
"""2025-10-31 in epoch seconds."""
SUCCESSOR = '</v1/gen-pro-1.1>; rel="successor-version", </v1/gen-kontext-pro>; rel="successor-version"'
WITHDRAWN = ["gen-pro-1.0-depth", "finetune", "gen-pro-1.1-ultra-finetuned", "gen-pro-1.0-depth-finetuned"]
DEPRECATED = ["gen-pro-1.0", "gen-pro-1.0-canny"]
DEPRECATED_FINETUNED = ["gen-pro-finetuned", "gen-pro-1.0-canny-finetuned", "gen-pro-1.0-fill-finetuned"]
FORMER = ["gen-pro-1.1", "gen-pro-1.0"]


def catalog_with(repository: Path, folder: Path, name: str, **changes: Any) -> Path:
    """Writes the shipped catalog with changes of an endpoint."""
    content = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    content["endpoints"][name] |= changes
    path = folder / "catalog.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@promise(
    "Versioning",
    "Deprecated and in effect from 2025-10-31: `gen-pro-1.0`, `gen-pro-1.0-depth`, `gen-pro-1.0-canny`, and the tuning "
    "API: `/v1/finetune`, `gen-pro-finetuned`, `gen-pro-1.1-ultra-finetuned`, `gen-pro-1.0-depth-finetuned`, "
    "`gen-pro-1.0-canny-finetuned`, `gen-pro-1.0-fill-finetuned`.",
)
def test_deprecated_names_have_the_header_and_are_marked_in_openapi(client: Client) -> None:
    described = client.get("/openapi.json").json()["paths"]
    for name in (*DEPRECATED, *DEPRECATED_FINETUNED, *WITHDRAWN):
        assert client.order(name, prompt=3).headers["deprecation"] == DEPRECATED_SINCE, name
        assert described[f"/v1/{name}"]["post"]["deprecated"] is True, name
    for name in WITHDRAWN:
        assert set(described[f"/v1/{name}"]["post"]["responses"]) == {"410"}, name


@pytest.mark.parametrize("name", FORMER)
def test_former_name_makes_the_same_job_at_the_same_price(client: Client, worker: Worker, name: str) -> None:
    body = {"prompt": "a cat", "width": 512, "seed": 4, "image_prompt": PHOTO}
    other, own = (worker.job(client.order_task(each, **body)) for each in (name, "gen-pro"))
    for job in (other, own):
        assert job.pop("image_prompt")
        del job["inputs"]
    assert other == own
    prices = [client.post("/v1/pricing", json={"path": f"/v1/{each}", "body": body}) for each in (name, "gen-pro")]
    assert prices[0].json() == prices[1].json()
    assert {task["endpoint"] for task in client.get("/v1/tasks").json()["tasks"]} == {"gen-pro"}


@pytest.mark.parametrize("name", FORMER)
def test_former_name_has_the_same_safety_level(service: Service, operator: Client, name: str) -> None:
    organization = service.worker.new_organization(credits=100)
    path = f"/v1/admin/organizations/{organization}/safety/gen-pro"
    assert operator.put(path, json={"tolerance": 1}).status_code == 200
    with service.client(organization=organization) as client:
        response = client.order(name, prompt="a cat", safety_tolerance=2)
    assert problems(response) == [(["body", "safety_tolerance"], "safety_tolerance_not_approved")]


@promise("Decided: tuned models", '`gen-pro-1.0` too, deprecated, with `Link: rel="successor-version"`')
def test_deprecated_name_links_to_its_successors(client: Client) -> None:
    for response in (client.order("gen-pro-1.0", prompt="a cat"), client.order("gen-pro-1.0", width=1)):
        assert response.headers["link"] == SUCCESSOR
    assert not {"link", "deprecation"} & set(client.order("gen-pro-1.1", prompt="a cat").headers)


def test_removed_endpoint_names_its_successors(client: Client, service: Service) -> None:
    with service.assert_unchanged():
        response = client.order("gen-pro-1.0-depth", prompt="a cat", control_image=PHOTO)
    assert refusal(response, 410) == "gen-pro-1.0-depth is no longer served: use gen-pro-1.1 or gen-kontext-pro"
    assert response.headers["link"] == SUCCESSOR


@promise("Versioning", "For the tuning API there is no migration path.")
@pytest.mark.parametrize("name", WITHDRAWN[1:])
def test_removed_tuning_api_names_the_upload_endpoint(client: Client, service: Service, name: str) -> None:
    del client.headers["x-key"]
    with service.assert_unchanged():
        response = client.order(name, finetune_id="x", prompt="a cat")
    detail = refusal(response, 410)
    assert detail.startswith(f"{name} is no longer served and has no successor")
    assert "POST /v1/finetunes" in detail
    assert "link" not in response.headers


@promise(
    "Decided: submission",
    "configurable list of family tokens that route to the same handlers (default none: `gen` only)",
)
def test_former_and_removed_names_have_aliases(start_service: StartService) -> None:
    service = start_service(service=ServiceSettings(path_aliases=["flux"]))
    with service.client() as client:
        client.order_task("flux-pro-1.1", prompt="a cat")
        response = client.order("flux-pro-1.0", prompt="a cat")
        assert (response.status_code, response.headers["link"]) == (200, SUCCESSOR)
        assert client.order("flux-pro-1.0-depth").status_code == 410
        priced = client.post("/v1/pricing", json={"path": "/v1/flux-pro-1.1", "body": {"prompt": "a cat"}})
        assert priced.json()["cost"] == 5


def test_catalog_sets_the_sunset_date(start_service: StartService, repository: Path, tmp_path: Path) -> None:
    deprecation = {"deprecated": {"since": "2025-10-31", "sunset": "2027-01-01"}}
    names = {"gen-pro-1.1": {}, "gen-pro-1.0": deprecation}
    path = catalog_with(repository, tmp_path, "gen-pro", finetuned=deprecation, other_names=names, **deprecation)
    with start_service(catalog=path).client() as client:
        for name in ("gen-pro", "gen-pro-finetuned", "gen-pro-1.0"):
            assert client.order(name, width=1).headers["sunset"] == "Fri, 01 Jan 2027 00:00:00 GMT"
        assert "sunset" not in client.order("gen-pro-1.1", width=1).headers


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"other_names": {"gen-2-max": {}}}, "gen-2-max is the name of two endpoints"),
        ({"other_names": {"gen-pro-finetuned": {}}}, "gen-pro-finetuned is the name of two endpoints"),
        ({"other_names": {"gen-pro-1.0-depth": {}}}, "gen-pro-1.0-depth is the name of two endpoints"),
        ({"deprecated": {"since": "2025-10-31", "successors": ["gen-9"]}}, "gen-pro: there is no successor gen-9"),
    ],
)
def test_catalog_refuses_ambiguous_names_and_unknown_successors(
    repository: Path, tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    names = {"gen-pro-1.1": {}}
    path = catalog_with(repository, tmp_path, "gen-pro", **{"other_names": names, **changes})
    if "other_names" in changes:
        changes["other_names"] |= names
    content = yaml.safe_load(path.read_text())
    with pytest.raises(ValidationError, match=problem):
        Catalog.model_validate(content)
