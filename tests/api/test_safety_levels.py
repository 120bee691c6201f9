"""Which safety tolerance may be asked for, and which counts: the catalog's word, and that on an organization."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from image_endpoints import GEN_2
from support.http_client import Client, problems, refusal
from support.http_service import Service, StartService
from support.promises import promise
from support.worker import Worker
from tool_endpoints import MINIMAL, TOOLS

from deployments.contract.moderation import CATEGORIES
from serve_app.accounts.organizations import MAX_TOLERANCE
from serve_app.accounts.roles import Role

KLEIN = "gen-3-image-klein"
KONTEXT = "gen-kontext-pro"
KIND = "safety_tolerance_not_approved"


@pytest.fixture
def client(service: Service, organization: str) -> Iterator[Client]:
    """Its key is fresh: levels are set before it is first used."""
    with service.client(organization=organization) as client:
        yield client


def approve(operator: Client, organization: str, endpoint: str, tolerance: int | None) -> dict[str, Any]:
    path = f"/v1/admin/organizations/{organization}/safety/{endpoint}"
    response = operator.put(path, json={"tolerance": tolerance})
    assert response.status_code == 200, response.text
    return response.json()


def cap(operator: Client, organization: str, category: str, tolerance: int | None) -> dict[str, int]:
    """Returns the organization's ceilings."""
    path = f"/v1/admin/organizations/{organization}/ceilings/{category}"
    response = operator.put(path, json={"tolerance": tolerance})
    assert response.status_code == 200, response.text
    return response.json()["ceilings"]


def get_ceilings(worker: Worker, client: Client, endpoint: str, **body: Any) -> dict[str, int]:
    return worker.job(client.order_task(endpoint, prompt="a cat", **body))["safety"].ceilings


def get_approved_levels(client: Client, service: Service, endpoint: str, tolerance: int) -> list[int]:
    """The levels that the refusal says are approved."""
    with service.assert_unchanged():
        response = client.order(endpoint, prompt="a cat", safety_tolerance=tolerance)
    assert problems(response) == [(["body", "safety_tolerance"], KIND)]
    (entry,) = response.json()["detail"]
    assert set(entry["ctx"]) == {"approved"}
    assert str(entry["ctx"]["approved"]) in entry["msg"]
    return entry["ctx"]["approved"]


def get_tolerance(worker: Worker, client: Client, endpoint: str, **body: Any) -> int:
    return worker.job(client.order_task(endpoint, prompt="a cat", **body))["safety"].level


@promise("1. gen-3-image-klein", "The approved maximum and per-category ceilings depend on route and organization")
def test_an_organization_can_be_approved_for_more(
    operator: Client, client: Client, service: Service, worker: Worker
) -> None:
    organization = approve(operator, client.organization, KLEIN, 6)
    assert organization["safety"] == {KLEIN: 6}
    assert get_tolerance(worker, client, KLEIN, safety_tolerance=6) == 6
    assert get_approved_levels(client, service, KLEIN, 7) == [0, 1, 2, 3, 4, 5, 6]
    assert get_tolerance(worker, client, KLEIN) == 2, "the default is the catalog's"


@promise("2. gen-2-max", "0 to 5, 0 strictest; higher levels need a request to the provider")
@pytest.mark.parametrize("endpoint", GEN_2)
def test_an_operator_may_grant_a_higher_level_on_request(
    operator: Client, client: Client, service: Service, worker: Worker, endpoint: str
) -> None:
    with service.client(organization=worker.new_organization(credits=100)) as stranger:
        assert get_approved_levels(stranger, service, endpoint, 6) == [0, 1, 2, 3, 4, 5]
    assert approve(operator, client.organization, endpoint, 6)["safety"] == {endpoint: 6}
    assert get_tolerance(worker, client, endpoint, safety_tolerance=6) == 6
    path = f"/v1/admin/organizations/{client.organization}/safety/{endpoint}"
    assert [loc for loc, _ in problems(operator.put(path, json={"tolerance": 7}))] == [["body", "tolerance"]]


def test_endpoints_whose_name_has_a_slash(start_service: StartService, repository: Path, tmp_path: Path) -> None:
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    catalog["endpoints"]["gen-tools/erase-v1"] = catalog["endpoints"]["gen-2-max"]  # a prompt is all that it takes
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump(catalog))
    service = start_service(catalog=path)
    organization = service.worker.new_organization(credits=100)
    with service.client(role=Role.OPERATOR) as operator, service.client(organization=organization) as client:
        for name in ("gen-tools/erase-v1", "gen-tools/erase-v1-finetuned"):
            assert approve(operator, organization, name, 1)["safety"][name] == 1
        assert get_approved_levels(client, service, "gen-tools/erase-v1", 2) == [0, 1]
        client.order_task("gen-2-max", prompt="a cat", safety_tolerance=2)


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_are_held_to_what_is_approved(
    operator: Client, client: Client, service: Service, worker: Worker, tool: str
) -> None:
    assert approve(operator, client.organization, tool, 1)["safety"] == {tool: 1}
    with service.assert_unchanged():
        response = client.order(tool, **MINIMAL[tool], safety_tolerance=2)
        assert problems(response) == [(["body", "safety_tolerance"], KIND)]
    assert response.json()["detail"][0]["ctx"] == {"approved": [0, 1]}
    assert worker.job(client.order_task(tool, **MINIMAL[tool]))["safety"].level == 1


# Ceilings: what holds for a category of moderation, whatever is asked for and approved.


@promise("1. gen-3-image-klein", "The approved maximum and per-category ceilings depend on route and organization")
@pytest.mark.parametrize("category", CATEGORIES)
def test_an_organizations_ceiling_reaches_the_job(
    operator: Client, client: Client, worker: Worker, category: str
) -> None:
    assert cap(operator, client.organization, category, 1) == {category: 1}
    for endpoint in (KLEIN, KONTEXT):
        job = worker.job(client.order_task(endpoint, prompt="a cat", safety_tolerance=5))
        assert (job["safety"].level, job["safety"].ceilings) == (5, {category: 1}), "what is asked for stays"


def test_ceilings_are_set_one_by_one_and_taken_away_again(operator: Client, client: Client, worker: Worker) -> None:
    cap(operator, client.organization, "violence", 0)
    cap(operator, client.organization, "hate", MAX_TOLERANCE)
    assert cap(operator, client.organization, "violence", 3) == {"hate": MAX_TOLERANCE, "violence": 3}
    assert cap(operator, client.organization, "self-harm", None) == {"hate": MAX_TOLERANCE, "violence": 3}
    assert cap(operator, client.organization, "hate", None) == {"violence": 3}
    assert get_ceilings(worker, client, KLEIN) == {"violence": 3}


def test_the_lowest_of_catalog_and_organization_counts(
    start_service: StartService, repository: Path, tmp_path: Path
) -> None:
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    catalog["endpoints"][KLEIN]["safety"]["ceilings"] = {"violence": 2, "hate": 3, "illegal acts": 0}
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump(catalog))
    service = start_service(catalog=path)
    worker, organization = service.worker, service.worker.new_organization(credits=100)
    with service.client() as plain:
        assert get_ceilings(worker, plain, KLEIN) == {"violence": 2, "hate": 3, "illegal acts": 0}
        assert get_ceilings(worker, plain, KONTEXT) == {}
    with service.client(role=Role.OPERATOR) as operator, service.client(organization=organization) as client:
        for category, tolerance in {"violence": 1, "hate": 4, "self-harm": 5}.items():
            cap(operator, organization, category, tolerance)
        assert get_ceilings(worker, client, KLEIN) == {"violence": 1, "hate": 3, "illegal acts": 0, "self-harm": 5}
        assert get_ceilings(worker, client, KONTEXT) == {"violence": 1, "hate": 4, "self-harm": 5}
        tuned = f"{KLEIN}-finetuned"
        job = worker.job(client.order_task(tuned, prompt="a cat", finetune_id=worker.new_finetune(client.project)))
        assert job["safety"].ceilings["illegal acts"] == 0, "tuned models are held to the same"


@pytest.mark.parametrize("category", ["gore", "Violence", "x" * 100])
def test_a_category_that_is_not_there(operator: Client, organization: str, service: Service, category: str) -> None:
    with service.assert_unchanged():
        response = operator.put(f"/v1/admin/organizations/{organization}/ceilings/{category}", json={"tolerance": 1})
    detail = refusal(response, 404)
    assert all(each in detail for each in CATEGORIES)
    assert category not in detail
