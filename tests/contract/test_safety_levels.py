"""Which safety tolerance may be asked for: the catalog's, or what an organization was approved for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from running_service import Client, Service, StartService, Worker, problems, refusal

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


def refused(client: Client, service: Service, endpoint: str, tolerance: int) -> list[int]:
    """The levels that the refusal says are approved."""
    with service.unchanged():
        response = client.order(endpoint, prompt="a cat", safety_tolerance=tolerance)
    assert problems(response) == [(["body", "safety_tolerance"], KIND)]
    (entry,) = response.json()["detail"]
    assert set(entry["ctx"]) == {"approved"}
    assert str(entry["ctx"]["approved"]) in entry["msg"]
    return entry["ctx"]["approved"]


def tolerance_of(worker: Worker, client: Client, endpoint: str, **body: Any) -> int:
    return worker.job(client.ordered(endpoint, prompt="a cat", **body))["safety_tolerance"]


@pytest.mark.parametrize("level", [6, 7])
def test_the_catalog_decides_where_nothing_else_is_said(client: Client, service: Service, level: int) -> None:
    assert refused(client, service, KLEIN, level) == [0, 1, 2, 3, 4, 5]
    client.ordered(KLEIN, prompt="a cat", safety_tolerance=5)


def test_an_organization_can_be_approved_for_more(
    operator: Client, client: Client, service: Service, worker: Worker
) -> None:
    shown = approve(operator, client.organization, KLEIN, 6)
    assert shown["safety"] == {KLEIN: 6}
    assert tolerance_of(worker, client, KLEIN, safety_tolerance=6) == 6
    assert refused(client, service, KLEIN, 7) == [0, 1, 2, 3, 4, 5, 6]
    assert tolerance_of(worker, client, KLEIN) == 2, "the default is the catalog's"


@pytest.mark.parametrize(("endpoint", "level"), [(KLEIN, 0), (KLEIN, 1), (KONTEXT, 0), (KONTEXT, 1)])
def test_an_organization_can_be_held_to_less(
    operator: Client, client: Client, service: Service, worker: Worker, endpoint: str, level: int
) -> None:
    approve(operator, client.organization, endpoint, level)
    assert refused(client, service, endpoint, level + 1) == list(range(level + 1))
    assert tolerance_of(worker, client, endpoint, safety_tolerance=level) == level
    assert tolerance_of(worker, client, endpoint) == level, "a default above it is lowered, not refused"
    assert tolerance_of(worker, client, endpoint, safety_tolerance=None) == level


def test_it_holds_for_one_endpoint_and_one_organization(
    operator: Client, client: Client, service: Service, worker: Worker
) -> None:
    approve(operator, client.organization, KLEIN, 0)
    assert tolerance_of(worker, client, KONTEXT, safety_tolerance=6) == 6
    with service.client() as stranger:
        assert tolerance_of(worker, stranger, KLEIN, safety_tolerance=5) == 5


def test_null_leaves_it_to_the_catalog_again(operator: Client, client: Client, service: Service) -> None:
    approve(operator, client.organization, KONTEXT, 4)
    approve(operator, client.organization, KLEIN, 0)
    assert approve(operator, client.organization, KLEIN, None)["safety"] == {KONTEXT: 4}
    client.ordered(KLEIN, prompt="a cat", safety_tolerance=5)
    assert refused(client, service, KLEIN, 6) == [0, 1, 2, 3, 4, 5]


def test_everyone_of_the_organization_sees_what_it_is_approved_for(operator: Client, client: Client) -> None:
    approve(operator, client.organization, "gen-2-max", 1)
    shown = client.get(f"/v1/admin/organizations/{client.organization}").json()
    assert shown["safety"] == {"gen-2-max": 1}


def test_the_always_there_organization_has_levels_of_its_own(operator: Client) -> None:
    assert approve(operator, "default", "gen-2-pro", 5)["safety"]["gen-2-pro"] == 5
    assert "gen-2-pro" not in approve(operator, "default", "gen-2-pro", None)["safety"]


@pytest.mark.parametrize("endpoint", ["gen-9", "gen-9/more", "none"])
def test_an_endpoint_that_is_not_there(operator: Client, organization: str, service: Service, endpoint: str) -> None:
    with service.unchanged():
        response = operator.put(f"/v1/admin/organizations/{organization}/safety/{endpoint}", json={"tolerance": 1})
    assert refusal(response, 404) == "There is no such endpoint"


def test_an_organization_that_is_not_there(operator: Client, service: Service) -> None:
    with service.unchanged():
        response = operator.put(f"/v1/admin/organizations/none/safety/{KLEIN}", json={"tolerance": 1})
    assert refusal(response, 404) == "There is no such organization"


@pytest.mark.parametrize("body", [{}, {"tolerance": -1}, {"tolerance": 8}, {"tolerance": 1.5}, {"tolerance": "low"}])
def test_levels_that_are_refused(operator: Client, organization: str, service: Service, body: dict[str, Any]) -> None:
    with service.unchanged():
        response = operator.put(f"/v1/admin/organizations/{organization}/safety/{KLEIN}", json=body)
        assert [loc for loc, _ in problems(response)] == [["body", "tolerance"]]


def test_approvals_are_in_the_audit_log(operator: Client, administrator: Client, organization: str) -> None:
    approve(operator, organization, KLEIN, 6)
    approve(operator, organization, KLEIN, None)
    removed, approved, *_ = administrator.get("/v1/admin/audit").json()["changes"]
    for change, tolerance in ((approved, "6"), (removed, "")):
        assert (change["action"], change["subject"]) == ("approve safety", KLEIN)
        assert change["details"] == {"tolerance": tolerance}


def test_endpoints_whose_name_has_a_slash(start_service: StartService, repository: Path, tmp_path: Path) -> None:
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    catalog["endpoints"]["gen-tools/erase-v1"] = catalog["endpoints"]["gen-2-max"]
    path = tmp_path / "catalog.yaml"
    path.write_text(yaml.safe_dump(catalog))
    service = start_service(catalog=path)
    organization = service.worker.new_organization(credits=100)
    with service.client(role=Role.OPERATOR) as operator, service.client(organization=organization) as client:
        for name in ("gen-tools/erase-v1", "gen-tools/erase-v1-finetuned"):
            assert approve(operator, organization, name, 1)["safety"][name] == 1
        assert refused(client, service, "gen-tools/erase-v1", 2) == [0, 1]
        client.ordered("gen-2-max", prompt="a cat", safety_tolerance=2)
