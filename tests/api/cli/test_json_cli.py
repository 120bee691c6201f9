"""Every list for programs: JSON, and nothing else."""

from __future__ import annotations

import time

import pytest
from support.command_line import GenServe
from support.http_service import Service

from serve_app.accounts.credits import DEFAULT_ORGANIZATION

LISTS: dict[str, set[str]] = {
    "organizations list": {"id", "name", "credits", "created"},
    "organizations audit acme": {"time", "who", "what", "which", "details"},
    "projects list --organization acme": {
        "id",
        "weight",
        "statuses",
        "active_at_most",
        "today",
        "this_week",
        "this_month",
    },
    "keys list": {"id", "key", "name", "project", "role", "created", "last_used", "expires"},
    "members list --organization acme": {"person", "role"},
    "licences list --organization acme": {"model", "since"},
    "credits show --organization acme": {"left", "held", "spent", "granted"},
    "credits ledger --organization acme": {"time", "kind", "amount", "balance", "about"},
}


@pytest.fixture
def _filled(gen_serve: GenServe, acme: str) -> None:
    for command in (
        "keys create laptop --project shop",
        "members set ada@acme.test viewer --organization acme",
        "licences add flux-tools --organization acme",
        "projects set shop --limit-day 10",
    ):
        assert gen_serve(*command.split()).code == 0


@pytest.mark.usefixtures("_filled")
@pytest.mark.parametrize(("command", "names"), LISTS.items(), ids=LISTS)
def test_every_list_has_a_form_for_programs(gen_serve: GenServe, command: str, names: set[str]) -> None:
    found = gen_serve(*command.split(), "--json").json
    assert found
    assert all(set(each) == names for each in found)


@pytest.mark.usefixtures("_filled")
def test_numbers_are_numbers_and_moments_are_epoch_seconds(gen_serve: GenServe) -> None:
    [entry] = gen_serve("credits", "ledger", "--organization", "acme", "--json").json
    assert (entry["amount"], entry["balance"]) == (100, 100)
    assert entry["time"] == pytest.approx(time.time(), abs=300)
    [key] = gen_serve("keys", "list", "--json").json
    assert (key["expires"], key["project"]) == (None, "shop")
    [project] = gen_serve("projects", "list", "--organization", "acme", "--json").json
    assert project["today"] == {"spent": 0, "limit": 10}
    assert project["this_week"] == {"spent": 0, "limit": None}


@pytest.mark.parametrize("command", ["webhooks list", "credits usage", "licences list", "members list"])
def test_an_empty_list_is_one_too(gen_serve: GenServe, command: str) -> None:
    found = gen_serve(*command.split(), "--json").json
    assert found == ({"deliveries": [], "next": None} if command == "webhooks list" else [])


def test_what_people_wrote_is_shown_as_they_wrote_it(gen_serve: GenServe) -> None:
    assert gen_serve("keys", "create", "[red]mine[/red] [/]").code == 0
    assert "[red]mine[/red] [/]" in gen_serve("keys", "list").out


def test_tuned_models_are_listed_by_key(client_of: GenServe, service: Service) -> None:
    project = service.worker.new_project(DEFAULT_ORGANIZATION)
    finetune_id = service.worker.new_finetune(project)
    words = ("finetunes", "list", "--key", service.worker.new_key(project))
    [finetune] = client_of(*words, "--json").json
    assert (finetune["id"], finetune["rank"], finetune["MB"]) == (finetune_id, 4, 0)
    assert finetune["uploaded"] == pytest.approx(time.time(), abs=300)
    assert client_of(*words).ids == [finetune_id]
    assert client_of("finetunes", "remove", finetune_id, *words[2:]).out == f"deleted {finetune_id}\n"
