"""The commands of administrators."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.cli_runner import A_MINUTE, GenServe
from support.http_service import Service
from support.tasks import new_task

from deployments.contract.moderation import CATEGORIES
from serve_app.accounts.roles import Role


def rows(result: Any) -> list[dict[str, Any]]:
    assert result.code == 0
    return result.json


def test_created_organization_is_listed_with_its_credits(operator: GenServe, acme: str) -> None:
    name = f"bare-{time.time_ns()}"
    assert operator("organizations", "create", name).out == f"created {name}\n"
    listed = {each["id"]: each for each in rows(operator("organizations", "list", "--json"))}
    assert listed[acme].keys() == {"id", "name", "credits", "created"}
    assert (listed[acme]["credits"], listed[name]["credits"]) == (100, 0)


def test_tolerances_of_an_organization_are_approved_capped_and_audited(operator: GenServe, acme: str) -> None:
    assert operator("organizations", "approve", acme, "gen-2-max", "3").out == f"{acme}: gen-2-max up to 3\n"
    assert operator("organizations", "approve", acme, "--", "gen-2-max", "-1").code == 0
    assert operator("organizations", "cap", acme, "illegal acts", "0").code == 0
    freed = operator("organizations", "cap", acme, "--", "illegal acts", "-1")
    assert freed.out == f"{acme}: illegal acts up to any level\n"
    audit = rows(operator("organizations", "audit", acme, "--limit", "4", "--json"))
    assert [(each["what"], each["which"]) for each in audit] == [
        *[("cap safety", "illegal acts")] * 2,
        *[("approve safety", "gen-2-max")] * 2,
    ]


def test_project_is_created_changed_and_listed(operator: GenServe, acme: str, shop: str) -> None:
    club_id = f"club-{shop}"[:60]
    assert operator("projects", "create", club_id).out == f"created {club_id} in {acme}\n"
    words = ("--weight", "2.5", "--statuses", "basic", "--max-active", "3", "--limit-day", "5", "--limit-month", "99.5")
    assert operator("projects", "set", shop, *words).out == f"{shop}: weight 2.5, basic statuses\n"
    assert operator("projects", "set", shop, "--closed").out == f"{shop}: weight 2.5, basic statuses, closed\n"
    [club, project] = operator("projects", "list").table
    assert project == [shop, "2.5", "basic", "3", "0 of 5", "0", "0 of 99.5"]
    none = ("--limit-day", "-1", "--limit-month", "-1", "--max-active", "0")
    assert operator("projects", "set", shop, *none).code == 0
    [_, project] = rows(operator("projects", "list", "--json"))
    assert project["today"] == {"spent": 0, "limit": None}
    assert project["active_at_most"] == int(club[3])


def test_erasure_of_a_project_needs_its_name(operator: GenServe, service: Service, acme: str) -> None:
    project = service.worker.new_project(acme)
    task = new_task(project=project, organization=acme, price=100)
    service.worker.run(service.worker.tasks.submit(task))
    refused = operator("projects", "erase", project, "--confirm", "another")
    assert (refused.code, "nothing was erased" in refused.err) == (2, True)
    result = operator("projects", "erase", project, "--confirm", project)
    assert result.out.startswith(f"{project}: erased at ")
    assert not service.worker.has(f"task:{task.id}")
    assert "closed" not in operator("projects", "set", project, "--open").out


def test_invited_member_gets_a_role_and_is_removed(operator: GenServe, service: Service, acme: str) -> None:
    assert "invitation" in operator("members", "set", "ada@acme.test", "viewer").err
    service.worker.run(service.worker.organizations.set_member(acme, "ada@acme.test", Role.DEVELOPER, "test"))
    for role in ("viewer", "administrator"):
        assert operator("members", "set", "ada@acme.test", role).out == f"ada@acme.test is {role}\n"
    assert operator("members", "list").table == [["ada@acme.test", "administrator"]]
    assert "role" in operator("members", "set", "ada@acme.test", "operator").err
    assert operator("members", "remove", "ada@acme.test").out == "removed ada@acme.test\n"
    assert operator("members", "remove", "ada@acme.test").code == 1


def test_key_has_a_role_and_an_end_and_is_revoked(operator: GenServe, service: Service, acme: str, shop: str) -> None:
    role = Role.VIEWER
    secret = operator("keys", "create", "[red]books[/red]", "--role", role, "--days", "2").out.strip()
    caller = service.worker.caller(secret)
    assert caller is not None
    assert (caller.project.id, caller.organization, caller.role) == (shop, acme, role)
    assert caller.expires == pytest.approx(time.time() + 2 * 86400, abs=300)
    listed = operator("keys", "list", "--project", shop)
    assert secret not in listed.out
    assert [caller.id, f"{secret[:10]}…", "[red]books[/red]", shop, role] in [row[:5] for row in listed.table]
    assert operator("keys", "revoke", caller.id).out == f"revoked {caller.id}\n"
    assert caller.id not in operator("keys", "list").out


def test_grants_change_the_balance_and_the_ledger(operator: GenServe, acme: str) -> None:
    assert operator("credits", "grant", "12.345", "--note", "welcome").out == "112.345 credits\n"
    assert operator("credits", "grant", "--", "-2.345").out == "110 credits\n"
    for _ in range(2):
        assert operator("credits", "grant", "50", "--once", "november").out == "160 credits\n"
    assert operator("credits", "grant", "--", "-160.001").err == (
        "error: HTTP 409: There are only 160 credits to take back\n"
    )
    assert operator("credits", "show", "--organization", acme).table == [["160", "0", "0", "160"]]
    assert operator("credits", "show").table == [["160"]]
    ledger = operator("credits", "ledger", "--limit", "3").table
    assert [row[2] for row in ledger] == ["+50", "-2.345", "+12.345"]
    assert A_MINUTE.fullmatch(ledger[0][0])
    assert ledger[2][4].endswith("note=welcome")
    assert operator("credits", "usage", "--json").json == []


def test_licence_is_added_once_and_removed(operator: GenServe) -> None:
    for model in ("flux-tools", "flux-1-dev", "flux-1-dev"):
        assert operator("licences", "add", model).out == f"{model} is licensed\n"
    assert [row[0] for row in operator("licences", "list").table] == ["flux-1-dev", "flux-tools"]
    assert operator("licences", "remove", "flux-1-dev").out == "flux-1-dev is no longer licensed\n"
    assert operator("licences", "remove", "flux-1-dev").code == 1
    assert operator("licences", "add", "unheard-of").code == 1


def test_export_writes_ledger_audit_and_usage(operator: GenServe, here: Path) -> None:
    assert operator("credits", "grant", "1").code == 0
    assert operator("export", "books").code == 0
    lines = (here / "books" / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["credits"] for line in lines] == [1, 100]
    assert "create project" in (here / "books" / "audit.jsonl").read_text()
    assert (here / "books" / "usage.jsonl").read_text() == ""
    assert operator("export", "later", "--since", "2199-01-01").code == 0
    assert (here / "later" / "ledger.jsonl").read_text() == ""
    assert operator("export", "books").code == 1, "no file is written over"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("organizations approve acme gen-2-max 8", "tolerance"),
        ("organizations approve acme gen-9 3", "no such endpoint"),
        ("organizations cap acme violence low", "tolerance"),
        ("organizations cap acme gore 3", f"the categories are: {', '.join(CATEGORIES)}"),
        ("projects set shop", "nothing to set"),
        ("projects set shop --max-active -1", "--max-active"),
        ("projects set shop --weight nan", "--weight"),
        ("credits grant inf", "amount"),
        ("credits ledger --organization nobody", "no such organization"),
        ("keys create laptop --days nan", "days"),
        ("keys create laptop --days 0", "expires"),
        ("keys revoke 0123456789ab", "no such key"),
        ("organizations create -- ../x", "id"),
    ],
)
def test_invalid_argument_is_named(operator: GenServe, acme: str, shop: str, command: str, message: str) -> None:
    result = operator(*({"acme": acme, "shop": shop}.get(word, word) for word in command.split()))
    assert (result.code in (1, 2), result.out) == (True, "")
    assert message in result.err
