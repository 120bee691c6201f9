"""Licences of models that organizations run themselves, and their reports of usage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import httpx2
import pytest
from redis import Redis as RawRedis
from support.http_client import Client, problems, refusal
from support.http_service import Service, replace_services
from support.promises import promise

from serve_app.accounts.api_key_auth import Callers
from serve_app.accounts.licences import LicenceStore
from serve_app.accounts.roles import Role
from serve_app.accounts.windows import day_number
from serve_app.storage import connection

MODEL, OTHER_MODEL = "flux-1-dev", "flux-tools"
LICENCES = "/v1/admin/licences"


@pytest.fixture
def licensee(operator: Client, organization: str) -> str:
    """An organization with a licence of MODEL."""
    change_licence(operator, "PUT", organization)
    return organization


@pytest.fixture
def developer(service: Service, licensee: str) -> Iterator[Client]:
    with service.client(organization=licensee) as client:
        yield client


@pytest.fixture
def billing_manager(service: Service, licensee: str) -> Iterator[Client]:
    with service.client(role=Role.BILLING_MANAGER, organization=licensee) as client:
        yield client


def change_licence(operator: Client, method: str, organization: str, model: str = MODEL) -> None:
    response = operator.request(method, f"{LICENCES}/{model}", params={"organization": organization})
    assert response.status_code == 204, response.text


def report(client: Client, model: str = MODEL, **body: Any) -> httpx2.Response:
    return client.post(f"/v1/licenses/models/{model}/usage", json=body)


def count_generations(client: Client, **query: Any) -> dict[str, int]:
    """Returns the reported generations by model, by default those of the days around now."""
    today = datetime.now(UTC).date()
    query = {"since": today - timedelta(days=1), "until": today + timedelta(days=1), **query}
    response = client.get(f"{LICENCES}/usage", params={name: str(value) for name, value in query.items()})
    assert response.status_code == 200, response.text
    sums: Counter[str] = Counter()
    for each in response.json()["usage"]:
        sums[each["model"]] += each["generations"]
    return dict(sums)


def test_reports_add_up(developer: Client, billing_manager: Client) -> None:
    for number, response in ((3, report(developer, number_of_generations=3)), (1, report(developer))):
        message = {"message": f"Recorded {number} generations of {MODEL}"}
        assert (response.status_code, response.json()) == (200, message)
    assert count_generations(billing_manager) == {MODEL: 4}


@promise("Limits", "`number_of_generations` greater than 0")
def test_invalid_number_of_generations_is_refused(service: Service, developer: Client, billing_manager: Client) -> None:
    greater, less, integer = "greater_than", "less_than_equal", "int_type"
    for number, kind in ((0, greater), (1_000_000_001, less), (1.0, integer), (True, integer), (None, integer)):
        with service.assert_unchanged():
            response = report(developer, number_of_generations=number)
        assert problems(response) == [(["body", "number_of_generations"], kind)]
    assert count_generations(billing_manager) == {}


@pytest.mark.parametrize("model", ["FLUX-1-DEV", "gen-3-image-klein"])
def test_report_of_an_unknown_model_lists_the_known_ones(service: Service, developer: Client, model: str) -> None:
    with service.assert_unchanged():
        detail = refusal(report(developer, model), 400)
    assert "not supported" in detail
    assert "flux-1-dev, flux-1-kontext-dev, flux-tools" in detail


@promise("14. Model usage", "The model is not licensed for the caller")
@promise("14. Model usage", "a subscription change may take 15 minutes to take effect")
def test_licence_holds_from_its_grant_until_it_is_withdrawn(
    operator: Client, developer: Client, billing_manager: Client, client: Client, licensee: str, service: Service
) -> None:
    with service.assert_unchanged():
        assert refusal(report(client), 403) == f"{MODEL} is not licensed for this organization"
        assert refusal(report(developer, OTHER_MODEL), 403) == f"{OTHER_MODEL} is not licensed for this organization"
    change_licence(operator, "PUT", licensee, OTHER_MODEL)
    assert report(developer, OTHER_MODEL).status_code == 200
    change_licence(operator, "DELETE", licensee, OTHER_MODEL)
    assert report(developer, OTHER_MODEL).status_code == 403
    # The other licence is unchanged, and reports stay.
    assert report(developer).status_code == 200
    assert count_generations(billing_manager) == {MODEL: 1, OTHER_MODEL: 1}


def test_licences_are_listed_with_their_start(operator: Client, billing_manager: Client, licensee: str) -> None:
    before = billing_manager.get(LICENCES).json()
    [licence] = before["licences"]
    assert licence["model"] == MODEL
    assert time.time() - 300 < licence["since"] <= time.time() + 1
    change_licence(operator, "PUT", licensee)  # a repeat changes nothing
    assert billing_manager.get(LICENCES).json() == before
    change_licence(operator, "PUT", licensee, OTHER_MODEL)
    assert [each["model"] for each in billing_manager.get(LICENCES).json()["licences"]] == [MODEL, OTHER_MODEL]


def test_change_of_a_missing_licence_is_404(service: Service, operator: Client, licensee: str) -> None:
    for method, model, organization, missing in (
        ("PUT", "unheard-of", licensee, "model"),
        ("DELETE", OTHER_MODEL, licensee, "licence"),
        ("DELETE", "unheard-of", licensee, "licence"),
        ("PUT", MODEL, "nobody", "organization"),
        ("DELETE", MODEL, "nobody", "organization"),
    ):
        with service.assert_unchanged():
            response = operator.request(method, f"{LICENCES}/{model}", params={"organization": organization})
        assert refusal(response, 404) == f"There is no such {missing}"


def test_other_organizations_see_no_licences_and_reports(
    service: Service, developer: Client, operator: Client, licensee: str
) -> None:
    assert report(developer, number_of_generations=5).status_code == 200
    stranger = service.worker.new_organization(credits=1)
    with service.client(role=Role.ADMINISTRATOR, organization=stranger) as client:
        assert client.get(LICENCES).json() == {"licences": []}
        assert count_generations(client) == {}
    assert count_generations(operator, organization=licensee) == {MODEL: 5}
    assert count_generations(operator, organization=stranger) == {}


@promise("Decided: money, accounts", "counted per organization, model and day")
def test_reports_are_listed_by_day_and_model(service: Service, billing_manager: Client, licensee: str) -> None:
    first = date(2026, 2, 27)
    redis = RawRedis.from_url(service.settings.redis_url)
    for offset, counts in ((0, {MODEL: 3}), (2, {OTHER_MODEL: 1, MODEL: 4}), (3, {MODEL: 9})):
        day = day_number(first + timedelta(days=offset))
        redis.hset(f"{service.settings.redis.prefix}generations:{licensee}:{day}", mapping=counts)  # type: ignore[arg-type]
    redis.close()
    response = billing_manager.get(f"{LICENCES}/usage", params={"since": "2026-02-27", "until": "2026-03-01"})
    assert response.json() == {
        "usage": [
            {"day": "2026-02-27", "model": MODEL, "generations": 3},
            {"day": "2026-03-01", "model": MODEL, "generations": 4},
            {"day": "2026-03-01", "model": OTHER_MODEL, "generations": 1},
        ]
    }
    assert count_generations(billing_manager, since="2026-02-28", until="2026-02-28") == {}


@contextmanager
def store_unreachable(service: Service, group: str, name: str, factory: Callable[[Any], Any]) -> Iterator[None]:
    """Makes the store unreachable for one service of the app only."""
    unreachable = factory(connection.connect("redis://127.0.0.1:1", retries=0))
    services = replace_services(service.app, group, **{name: unreachable})
    yield
    service.app.state.services = services


@promise("14. Model usage", "500: Usage could not be processed: `detail` string stating the failure")
def test_report_that_cannot_be_stored_is_a_500(service: Service, developer: Client) -> None:
    with store_unreachable(service, "accounts", "licences", LicenceStore), service.assert_unchanged():
        response = report(developer, number_of_generations=2)
        # Reports are validated before they are counted.
        assert report(developer, "unheard-of").status_code == 400
        assert report(developer, number_of_generations=0).status_code == 422
    assert refusal(response, 500).startswith("Usage could not be processed")


def test_report_whose_key_cannot_be_checked_is_a_500(service: Service, developer: Client) -> None:
    with store_unreachable(service, "auth", "callers", Callers), service.assert_unchanged():
        response = report(developer, number_of_generations=2)
        assert developer.get("/v1/tasks").status_code == 503
    detail = "Usage could not be processed: the store is out of reach; nothing was counted, send it again"
    assert refusal(response, 500) == detail
