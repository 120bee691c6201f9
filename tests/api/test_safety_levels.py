"""Safety tolerances: levels approved by the catalog or for an organization, and ceilings of categories."""

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
from tool_endpoints import ERASE, MINIMAL

from deployments.contract.moderation import CATEGORIES, Tolerance
from serve_app.accounts.organizations import MAX_TOLERANCE
from serve_app.accounts.roles import Role

KLEIN = "gen-3-image-klein"
KONTEXT = "gen-kontext-pro"
KIND = "safety_tolerance_not_approved"


@pytest.fixture
def client(service: Service, organization: str) -> Iterator[Client]:
    """A new key: its organization's levels are set before its first use, and cached then."""
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


def get_safety(worker: Worker, client: Client, endpoint: str, **body: Any) -> Tolerance:
    return worker.job(client.order_task(endpoint, prompt="a cat", **body))["safety"]


def get_approved_levels(client: Client, service: Service, endpoint: str, tolerance: int) -> list[int]:
    """Returns the approved levels that the error lists."""
    with service.assert_unchanged():
        response = client.order(endpoint, prompt="a cat", safety_tolerance=tolerance)
    assert problems(response) == [(["body", "safety_tolerance"], KIND)]
    (entry,) = response.json()["detail"]
    assert set(entry["ctx"]) == {"approved"}
    assert str(entry["ctx"]["approved"]) in entry["msg"]
    return entry["ctx"]["approved"]


@promise("1. gen-3-image-klein", "The approved maximum and per-category ceilings depend on route and organization")
def test_approved_level_is_a_maximum_and_no_default(
    operator: Client, client: Client, service: Service, worker: Worker
) -> None:
    approve(operator, client.organization, KLEIN, 6)
    tuned = f"{KLEIN}-finetuned"
    assert approve(operator, client.organization, tuned, 6)["safety"] == {KLEIN: 6, tuned: 6}
    assert get_safety(worker, client, KLEIN, safety_tolerance=6).level == 6
    assert get_approved_levels(client, service, KLEIN, 7) == [0, 1, 2, 3, 4, 5, 6]
    assert get_safety(worker, client, KLEIN).level == 2


@promise("2. gen-2-max", "0 to 5, 0 strictest; higher levels need a request to the provider")
@promise(
    "Errors",
    "On the image endpoint with `safety_tolerance` above the approved level, HTTP 422 is returned together "
    "with the approved levels.",
)
@pytest.mark.parametrize("endpoint", [KLEIN, *GEN_2])
def test_operator_approves_a_higher_level(
    operator: Client, client: Client, service: Service, worker: Worker, endpoint: str
) -> None:
    with service.client(organization=worker.new_organization(credits=100)) as stranger:
        assert get_approved_levels(stranger, service, endpoint, 6) == [0, 1, 2, 3, 4, 5]
    assert approve(operator, client.organization, endpoint, 6)["safety"] == {endpoint: 6}
    assert get_safety(worker, client, endpoint, safety_tolerance=6).level == 6
    beyond = {KLEIN: 8}.get(endpoint, 7)
    path = f"/v1/admin/organizations/{client.organization}/safety/{endpoint}"
    assert [loc for loc, _ in problems(operator.put(path, json={"tolerance": beyond}))] == [["body", "tolerance"]]


def test_tools_have_levels_of_their_own(operator: Client, client: Client, service: Service, worker: Worker) -> None:
    assert approve(operator, client.organization, ERASE, 1)["safety"] == {ERASE: 1}
    with service.assert_unchanged():
        response = client.order(ERASE, **MINIMAL[ERASE], safety_tolerance=2)
    assert problems(response) == [(["body", "safety_tolerance"], KIND)]
    assert response.json()["detail"][0]["ctx"] == {"approved": [0, 1]}
    assert worker.job(client.order_task(ERASE, **MINIMAL[ERASE]))["safety"].level == 1
    client.order_task("gen-2-max", prompt="a cat", safety_tolerance=2)


# Ceilings


@promise("1. gen-3-image-klein", "The approved maximum and per-category ceilings depend on route and organization")
def test_ceiling_of_the_organization_reaches_the_job(operator: Client, client: Client, worker: Worker) -> None:
    category = CATEGORIES[-1]
    assert cap(operator, client.organization, category, 1) == {category: 1}
    for endpoint in (KLEIN, KONTEXT):
        assert get_safety(worker, client, endpoint, safety_tolerance=5) == Tolerance(5, {category: 1})


def test_ceilings_are_set_and_removed_one_by_one(operator: Client, client: Client, worker: Worker) -> None:
    cap(operator, client.organization, "violence", 0)
    cap(operator, client.organization, "hate", MAX_TOLERANCE)
    assert cap(operator, client.organization, "violence", 3) == {"hate": MAX_TOLERANCE, "violence": 3}
    assert cap(operator, client.organization, "self-harm", None) == {"hate": MAX_TOLERANCE, "violence": 3}
    assert cap(operator, client.organization, "hate", None) == {"violence": 3}
    assert get_safety(worker, client, KLEIN).ceilings == {"violence": 3}


def test_lowest_ceiling_of_catalog_and_organization_counts(
    start_service: StartService, repository: Path, tmp_path: Path
) -> None:
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    catalog["endpoints"][KLEIN]["safety"]["ceilings"] = {"violence": 2, "hate": 3, "illegal acts": 0}
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump(catalog))
    service = start_service(catalog=path)
    worker, organization = service.worker, service.worker.new_organization(credits=100)
    with service.client() as plain:
        assert get_safety(worker, plain, KLEIN).ceilings == {"violence": 2, "hate": 3, "illegal acts": 0}
        assert get_safety(worker, plain, KONTEXT).ceilings == {}
    with service.client(role=Role.OPERATOR) as operator, service.client(organization=organization) as client:
        for category, tolerance in {"violence": 1, "hate": 4, "self-harm": 5}.items():
            cap(operator, organization, category, tolerance)
        assert get_safety(worker, client, KLEIN).ceilings == {
            "violence": 1,
            "hate": 3,
            "illegal acts": 0,
            "self-harm": 5,
        }
        assert get_safety(worker, client, KONTEXT).ceilings == {"violence": 1, "hate": 4, "self-harm": 5}
        tuned = f"{KLEIN}-finetuned"
        safety = get_safety(worker, client, tuned, finetune_id=worker.new_finetune(client.project))
        assert safety.ceilings["illegal acts"] == 0


@pytest.mark.parametrize("category", ["gore", "Violence"])
def test_unknown_category_is_404(operator: Client, organization: str, service: Service, category: str) -> None:
    with service.assert_unchanged():
        response = operator.put(f"/v1/admin/organizations/{organization}/ceilings/{category}", json={"tolerance": 1})
    detail = refusal(response, 404)
    assert all(each in detail for each in CATEGORIES)
    assert category not in detail
