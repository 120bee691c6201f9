"""Models that organizations run themselves: who may, and what they report of it."""

from __future__ import annotations

import socket
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
    """Reported generations by model, over all days asked for; by default those around now."""
    today = datetime.now(UTC).date()
    query = {"since": today - timedelta(days=1), "until": today + timedelta(days=1), **query}
    response = client.get(f"{LICENCES}/usage", params={name: str(value) for name, value in query.items()})
    assert response.status_code == 200, response.text
    sums: Counter[str] = Counter()
    for each in response.json()["usage"]:
        sums[each["model"]] += each["generations"]
    return dict(sums)


@promise("14. Model usage", "200: Usage recorded: `message` string")
@promise("Usage record", "`number_of_generations`, integer, greater than 0, default 1.")
def test_reports_are_recorded_and_added_up(developer: Client, billing_manager: Client) -> None:
    for number in (3, 1):
        response = report(developer) if number == 1 else report(developer, number_of_generations=number)
        assert (response.status_code, response.json()) == (
            200,
            {"message": f"Recorded {number} generations of {MODEL}"},
        )
    assert count_generations(billing_manager) == {MODEL: 4}


@promise("Limits", "`number_of_generations` greater than 0")
@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (0, "greater_than"),
        (1_000_000_001, "less_than_equal"),
        (1.5, "int_type"),
        (1.0, "int_type"),
        (True, "int_type"),
        (None, "int_type"),
    ],
    ids=str,
)
def test_what_is_no_number_of_generations(
    service: Service, developer: Client, billing_manager: Client, number: Any, kind: str
) -> None:
    with service.assert_unchanged():
        response = report(developer, number_of_generations=number)
    assert problems(response) == [(["body", "number_of_generations"], kind)]
    assert count_generations(billing_manager) == {}


@promise("14. Model usage", "400: Model slug is not supported for usage reporting: `detail` string")
@pytest.mark.parametrize("model", ["unheard-of", "FLUX-1-DEV", "gen-3-image-klein", "x" * 100])
def test_a_model_that_nobody_can_license(service: Service, developer: Client, model: str) -> None:
    with service.assert_unchanged():
        response = report(developer, model)
    detail = refusal(response, 400)
    assert "not supported" in detail
    assert "flux-1-dev, flux-1-kontext-dev, flux-tools" in detail


@promise("14. Model usage", "The model is not licensed for the caller")
def test_a_model_that_is_not_licensed(
    service: Service, developer: Client, billing_manager: Client, client: Client
) -> None:
    for who, model in ((developer, OTHER_MODEL), (client, MODEL)):
        with service.assert_unchanged():
            assert refusal(report(who, model), 403) == f"{model} is not licensed for this organization"
    assert count_generations(billing_manager) == {}


@promise("14. Model usage", "a subscription change may take 15 minutes to take effect")
def test_a_licence_holds_from_the_next_report_on_and_no_longer_than_until_it_is_withdrawn(
    operator: Client, developer: Client, billing_manager: Client, licensee: str
) -> None:
    assert report(developer, OTHER_MODEL).status_code == 403
    change_licence(operator, "PUT", licensee, OTHER_MODEL)
    assert report(developer, OTHER_MODEL).status_code == 200
    change_licence(operator, "DELETE", licensee, OTHER_MODEL)
    assert report(developer, OTHER_MODEL).status_code == 403
    # The other licence is as it was, and what was counted stays.
    assert report(developer).status_code == 200
    assert count_generations(billing_manager) == {MODEL: 1, OTHER_MODEL: 1}


def test_licences_are_listed_with_when_they_began(operator: Client, billing_manager: Client, licensee: str) -> None:
    before = billing_manager.get(LICENCES).json()
    [licence] = before["licences"]
    assert licence["model"] == MODEL
    assert time.time() - 300 < licence["since"] <= time.time() + 1
    change_licence(operator, "PUT", licensee)  # once more changes nothing
    assert billing_manager.get(LICENCES).json() == before
    change_licence(operator, "PUT", licensee, OTHER_MODEL)
    assert [each["model"] for each in billing_manager.get(LICENCES).json()["licences"]] == [MODEL, OTHER_MODEL]


def test_licences_that_can_not_be_changed(service: Service, operator: Client, licensee: str) -> None:
    def change_licence(method: str, model: str, organization: str) -> str:
        response = operator.request(method, f"{LICENCES}/{model}", params={"organization": organization})
        return refusal(response, 404)

    with service.assert_unchanged():
        assert change_licence("PUT", "unheard-of", licensee) == "There is no such model"
        assert change_licence("DELETE", OTHER_MODEL, licensee) == "There is no such licence"
        assert change_licence("DELETE", "unheard-of", licensee) == "There is no such licence"
        for method in ("PUT", "DELETE"):
            assert change_licence(method, MODEL, "nobody") == "There is no such organization"


def test_another_organization_sees_nothing_of_it(
    service: Service, developer: Client, operator: Client, licensee: str
) -> None:
    assert report(developer, number_of_generations=5).status_code == 200
    stranger = service.worker.new_organization(credits=1)
    with service.client(role=Role.ADMINISTRATOR, organization=stranger) as client:
        assert client.get(LICENCES).json() == {"licences": []}
        assert count_generations(client) == {}
        for path in (LICENCES, f"{LICENCES}/usage"):
            assert refusal(client.get(path, params={"organization": licensee}), 404) == "There is no such organization"
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


@pytest.mark.parametrize(
    ("query", "loc"),
    [
        ({"since": "2026-03-02", "until": "2026-03-01"}, "until"),
        ({"since": "2025-01-01", "until": "2026-03-01"}, "since"),
        ({"since": "yesterday"}, "since"),
        ({"until": "2026-02-30"}, "until"),
    ],
    ids=["out-of-order", "too-many-days", "no-date", "no-such-day"],
)
def test_days_that_can_not_be_reported_on(billing_manager: Client, query: dict[str, str], loc: str) -> None:
    response = billing_manager.get(f"{LICENCES}/usage", params=query)
    assert [where for where, _ in problems(response)] == [["query", loc]]


@contextmanager
def away(service: Service, group: str, **factories: Callable[[Any], Any]) -> Iterator[None]:
    """The store is out of reach for this service of the application, and for nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    replacements = {
        name: factory(connection.connect(f"redis://127.0.0.1:{port}", retries=0)) for name, factory in factories.items()
    }
    whole = replace_services(service.app, group, **replacements)
    yield
    service.app.state.services = whole


@promise("14. Model usage", "500: Usage could not be processed: `detail` string stating the failure")
def test_a_report_that_could_not_be_counted_says_so(service: Service, developer: Client) -> None:
    with away(service, "accounts", licences=LicenceStore), service.assert_unchanged():
        response = report(developer, number_of_generations=2)
        # What is wrong with a report comes before counting it.
        assert report(developer, "unheard-of").status_code == 400
        assert report(developer, number_of_generations=0).status_code == 422
    assert refusal(response, 500).startswith("Usage could not be processed")


@promise("14. Model usage", "500: Usage could not be processed: `detail` string stating the failure")
def test_a_report_whose_key_can_not_be_looked_up_says_so(service: Service, developer: Client) -> None:
    with away(service, "auth", callers=Callers), service.assert_unchanged():
        response = report(developer, number_of_generations=2)
        assert developer.get("/v1/tasks").status_code == 503, "elsewhere it is a 503"
    detail = "Usage could not be processed: the store is out of reach; nothing was counted, send it again"
    assert refusal(response, 500) == detail
