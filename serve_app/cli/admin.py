"""Commands of administrators, from `gen-serve organizations` to `gen-serve export`: a client of `/v1/admin`.

The service applies the same rules and audit log as to other clients. The default key is the operator key of the service
on this machine.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deployments.contract.moderation import CATEGORIES
from serve_app.accounts.roles import Role
from serve_app.cli.output import Amount, Moment, Spent, at, moment, say, show
from serve_app.cli.service import BaseUrl, Json, Key, call_admin, connect, connect_as_operator

organizations = typer.Typer(help="Organizations, which own projects and credits.", no_args_is_help=True)
projects = typer.Typer(help="Projects, which own tasks, with their limits.", no_args_is_help=True)
members = typer.Typer(help="Members of organizations.", no_args_is_help=True)
keys = typer.Typer(help="API keys.", no_args_is_help=True)
credits = typer.Typer(help="Credits of organizations; one is 0.01 USD.", no_args_is_help=True)
licences = typer.Typer(help="Licences of organizations to models.", no_args_is_help=True)

Organization = Annotated[
    str | None,
    typer.Option(help="Organization; by default the key's. Only operators may name another.", show_default=False),
]
OrganizationId = Annotated[str, typer.Argument(help="The organization's id.")]
ProjectId = Annotated[str, typer.Argument(help="The project's id.")]
Person = Annotated[str, typer.Argument(help="The member's name: the claim `sub` of their tokens.")]
Model = Annotated[str, typer.Argument(help="A model of the catalog's licensed_models.")]
Tolerance = Annotated[int, typer.Argument(help="Safety tolerance, 0 to 7; -1 removes the limit.", min=-1, max=7)]
Limit = Annotated[float | None, typer.Option(help="Spending limit of the period in credits; -1 removes it.", min=-1)]
First = Annotated[datetime | None, typer.Option(help="First day, UTC; by default the first of this month.")]
Last = Annotated[datetime | None, typer.Option(help="Last day, UTC; by default today.")]

_PAGE: Final = 1000
_YEAR: Final = timedelta(days=365)
"""Longest period of a usage report, minus one day."""


class _Change(Amount):
    """Credits with a sign."""

    def __str__(self) -> str:
        return f"{'+' if self > 0 else ''}{super().__str__()}"


@organizations.command("create")
def create_organization(
    organization: Annotated[str, typer.Argument(help="The organization's id: letters, digits, dots, dashes.")],
    name: Annotated[str, typer.Option(help="Display name; by default the id.")] = "",
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Create an organization, without credits."""
    call_admin(base_url, key, "POST", "organizations", {"id": organization, "name": name})
    print(f"created {organization}")


@organizations.command("list")
def list_organizations(as_json: Json = False, base_url: BaseUrl = None, key: Key = "") -> None:
    """List all organizations with their balances."""
    with connect_as_operator(base_url, key) as client:
        entries = client.admin("GET", "organizations")["organizations"]
        balances = [client.admin("GET", "credits", organization=each["id"])["credits"] for each in entries]
    rows = (
        (each["id"], each["name"], Amount(n), at(each["created"])) for each, n in zip(entries, balances, strict=True)
    )
    show(("id", "name", "credits", "created"), rows, as_json=as_json)


@organizations.command("approve")
def approve(
    organization: OrganizationId,
    endpoint: Annotated[str, typer.Argument(help="An endpoint of the catalog, like gen-2-max.")],
    tolerance: Tolerance,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Set the highest safety tolerance that an organization may request from an endpoint."""
    level = None if tolerance < 0 else tolerance
    call_admin(base_url, key, "PUT", f"organizations/{organization}/safety/{endpoint}", {"tolerance": level})
    print(f"{organization}: {endpoint} up to {'the limit of the catalog' if level is None else level}")


@organizations.command("cap")
def cap(
    organization: OrganizationId,
    category: Annotated[str, typer.Argument(help=f"One of: {', '.join(CATEGORIES)}.")],
    tolerance: Tolerance,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Cap the tolerance of a moderation category for all requests of an organization."""
    level = None if tolerance < 0 else tolerance
    call_admin(base_url, key, "PUT", f"organizations/{organization}/ceilings/{category}", {"tolerance": level})
    print(f"{organization}: {category} up to {'any level' if level is None else level}")


@organizations.command("audit")
def audit(
    organization: Annotated[str | None, typer.Argument(help="The organization's id; by default the key's.")] = None,
    limit: Annotated[int, typer.Option(help="Number of changes, newest first.", min=1, max=_PAGE)] = 20,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """List the audit log: who changed what."""
    changes = call_admin(base_url, key, "GET", "audit", organization=organization, limit=limit)["changes"]
    rows = ((Moment(each["at"]), each["actor"], each["action"], each["subject"], each["details"]) for each in changes)
    show(("time", "who", "what", "which", "details"), rows, as_json=as_json)


@projects.command("create")
def create_project(
    project: ProjectId, organization: Organization = None, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """Create a project."""
    created = call_admin(base_url, key, "POST", "projects", {"id": project}, organization=organization)
    print(f"created {project} in {created['organization']}")


@projects.command("list")
def list_projects(
    organization: Organization = None, as_json: Json = False, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """List an organization's projects with their limits and their spending in credits."""
    entries = call_admin(base_url, key, "GET", "projects", organization=organization)["projects"]
    columns = ("id", "weight", "statuses", "active at most", "today", "this week", "this month")
    rows = (
        (each["id"], each["weight"], each["statuses"], each["max_active"], *map(_spent, each["spending"]))
        for each in entries
    )
    show(columns, rows, as_json=as_json)


@projects.command("set")
def set_project(
    project: ProjectId,
    weight: Annotated[
        float | None, typer.Option(help="Share of the queue, relative to other projects.", min=0.01, max=100)
    ] = None,
    statuses: Annotated[
        str | None, typer.Option(help="full, or basic: Reasoning and Generating shown as Pending.")
    ] = None,
    closed: Annotated[
        bool | None, typer.Option("--closed/--open", help="A closed project accepts no tasks and no tuned models.")
    ] = None,
    max_active: Annotated[
        int | None, typer.Option(help="Maximum of unfinished tasks; 0 for the default.", min=0)
    ] = None,
    limit_day: Limit = None,
    limit_week: Limit = None,
    limit_month: Limit = None,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Change the given settings of a project; the others stay."""
    limits = {"limit_day": limit_day, "limit_week": limit_week, "limit_month": limit_month}
    options = {"weight": weight, "statuses": statuses, "closed": closed, "max_active": max_active, **limits}
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes:
        raise ValueError("nothing to set: give at least one option")
    for name in limits.keys() & changes.keys():
        changes[name] = None if changes[name] < 0 else changes[name]
    if changes.get("max_active") == 0:
        changes["max_active"] = None
    now = call_admin(base_url, key, "PATCH", f"projects/{project}", changes)
    print(f"{now['id']}: weight {now['weight']:g}, {now['statuses']} statuses{', closed' if now['closed'] else ''}")


@projects.command("erase")
def erase(
    project: ProjectId,
    confirm: Annotated[str, typer.Option(help="The project's id again; prompted for by default.")] = "",
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Erase all data of a project except the entries of the ledger. Safe to repeat after a crash.

    The project is closed first and stays closed; to open it: gen-serve projects set --open.
    """
    confirm = confirm or typer.prompt(f"All data of {project} will be erased. Type its id to confirm")
    if confirm != project:
        raise ValueError(f"nothing was erased: {confirm!r} is not {project!r}")
    with connect_as_operator(base_url, key) as client:
        while (erasure := client.admin("POST", f"projects/{project}/erasure", {"project": project}))["done"] is None:
            say(f"{project}: still erasing")
    print(f"{project}: erased at {moment(erasure['done'])}, requested by {erasure['by']}")


@members.command("set")
def set_member(
    person: Person, role: Role, organization: Organization = None, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """Set a member's role. With an identity provider, this also adds the member.

    Without one, members are invited on the account page.
    """
    call_admin(base_url, key, "PUT", f"members/{person}", {"role": role}, organization=organization)
    print(f"{person} is {role}")


@members.command("list")
def list_members(
    organization: Organization = None, as_json: Json = False, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """List an organization's members."""
    entries = call_admin(base_url, key, "GET", "members", organization=organization)["members"]
    show(("person", "role"), ((each["person"], each["role"]) for each in entries), as_json=as_json)


@members.command("remove")
def remove_member(person: Person, organization: Organization = None, base_url: BaseUrl = None, key: Key = "") -> None:
    """Remove a member."""
    call_admin(base_url, key, "DELETE", f"members/{person}", organization=organization)
    print(f"removed {person}")


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="Purpose of the key.")],
    project: Annotated[str | None, typer.Option(help="Project of the key; by default that of your own key.")] = None,
    role: Annotated[Role, typer.Option(help="Role of the key.")] = Role.DEVELOPER,
    days: Annotated[
        float | None, typer.Option(help="Validity in days; by default until it is revoked.", min=0, max=36500)
    ] = None,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Create a key and print it. It can't be shown again."""
    expires = None if days is None else time.time() + days * 86400
    body = {"name": name, "project": project, "role": role, "expires": expires}
    created = call_admin(base_url, key, "POST", "keys", body)
    print(created["key"])


@keys.command("list")
def list_keys(
    project: Annotated[str | None, typer.Option(help="Project; by default that of your own key.")] = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """List the valid keys of a project. The keys themselves are not stored."""
    entries = call_admin(base_url, key, "GET", "keys", project=project)["keys"]
    columns = ("id", "key", "name", "project", "role", "created", "last used", "expires")
    rows = (
        (
            *(each["id"], f"{each['hint']}…", each["name"], each["project"], each["role"]),
            *(at(each[name]) for name in ("created", "used", "expires")),
        )
        for each in entries
    )
    show(columns, rows, as_json=as_json)


@keys.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(help="The key's id, from `keys list`.")],
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Revoke a key. It stops working within 10 seconds."""
    call_admin(base_url, key, "DELETE", f"keys/{key_id}")
    print(f"revoked {key_id}")


@credits.command("show")
def show_balance(
    organization: Organization = None, as_json: Json = False, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """Show the balance; with --organization also the credits held for unfinished tasks, spent and granted."""
    if organization is None:
        with connect(base_url, key) as client:
            show(("left",), [(Amount(client.credits()),)], as_json=as_json)
        return
    now = call_admin(base_url, key, "GET", "credits", organization=organization)
    amounts = tuple(Amount(now[name]) for name in ("credits", "held", "spent", "granted"))
    show(("left", "held", "spent", "granted"), [amounts], as_json=as_json)


@credits.command("grant")
def grant(
    amount: Annotated[float, typer.Argument(help="Credits; a negative number takes some back.", min=-1e12, max=1e12)],
    organization: Organization = None,
    note: Annotated[str, typer.Option(help="Note for the ledger.")] = "",
    once: Annotated[str, typer.Option(help="Id of the grant: a repeated grant of this id has no effect.")] = "",
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Grant credits to an organization."""
    body = {"id": once or str(uuid.uuid4()), "credits": amount, "note": note}
    now = call_admin(base_url, key, "POST", "credits/grants", body, organization=organization)
    print(f"{Amount(now['credits'])} credits")


@credits.command("ledger")
def ledger(
    organization: Organization = None,
    limit: Annotated[int, typer.Option(help="Number of entries, newest first.", min=1, max=_PAGE)] = 20,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """List every change of the balance."""
    entries = call_admin(base_url, key, "GET", "ledger", organization=organization, limit=limit)["entries"]
    rows = (
        (Moment(each["at"]), each["kind"], _Change(each["credits"]), Amount(each["balance"]), each["about"])
        for each in entries
    )
    show(("time", "kind", "amount", "balance", "about"), rows, as_json=as_json)


@credits.command("usage")
def usage(
    organization: Organization = None,
    since: First = None,
    until: Last = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """List tasks and credits by day, project and endpoint."""
    first, last = (None if each is None else each.date().isoformat() for each in (since, until))
    with connect_as_operator(base_url, key) as client:
        entries = client.request("GET", "/v1/usage", organization=organization, since=first, until=last)["usage"]
    rows = ((each["day"], each["project"], each["endpoint"], each["tasks"], Amount(each["cost"])) for each in entries)
    show(("day", "project", "endpoint", "tasks", "credits"), rows, as_json=as_json)


@licences.command("add")
def add_licence(model: Model, organization: Organization = None, base_url: BaseUrl = None, key: Key = "") -> None:
    """License a model to an organization."""
    call_admin(base_url, key, "PUT", f"licences/{model}", organization=organization)
    print(f"{model} is licensed")


@licences.command("list")
def list_licences(
    organization: Organization = None, as_json: Json = False, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """List an organization's licences."""
    entries = call_admin(base_url, key, "GET", "licences", organization=organization)["licences"]
    show(("model", "since"), ((each["model"], Moment(each["since"])) for each in entries), as_json=as_json)


@licences.command("remove")
def remove_licence(model: Model, organization: Organization = None, base_url: BaseUrl = None, key: Key = "") -> None:
    """Withdraw a licence."""
    call_admin(base_url, key, "DELETE", f"licences/{model}", organization=organization)
    print(f"{model} is no longer licensed")


def export(
    folder: Annotated[Path, typer.Argument(help="Folder for the files; it is created.", show_default=False)],
    since: Annotated[
        datetime | None, typer.Option(help="First day, UTC; by default all days.", show_default=False)
    ] = None,
    organization: Organization = None,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Write an organization's ledger, audit log and usage to files of JSON lines, newest first.

    \b
    gen-serve export books/$(date +%F) --since $(date -d yesterday +%F)

    The service keeps the latest 100,000 entries of each log and 400 days of usage.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first = None if since is None else since.replace(tzinfo=UTC).timestamp()
    with connect_as_operator(base_url, key) as client:

        def entries(log: str, name: str) -> Iterator[dict[str, Any]]:
            before = None
            while True:
                page = client.admin("GET", log, organization=organization, limit=_PAGE, before=before)
                for each in page[name]:
                    if first is not None and each["at"] < first:
                        return
                    yield each
                if (before := page["next"]) is None:
                    return

        def days() -> Iterator[dict[str, Any]]:
            today = datetime.now(UTC).date()
            begin = today - _YEAR if since is None else min(max(today - _YEAR, since.date()), today)
            report = client.request("GET", "/v1/usage", organization=organization, since=begin.isoformat())
            yield from reversed(report["usage"])

        files = {"ledger": entries("ledger", "entries"), "audit": entries("audit", "changes"), "usage": days()}
        for name, rows in files.items():
            path = folder / f"{name}.jsonl"
            with path.open("x") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            print(path)


def _spent(window: dict[str, Any]) -> Spent:
    limit = window["limit"]
    return Spent(Amount(window["spent"]), None if limit is None else Amount(limit))
