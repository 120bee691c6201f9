"""Administrators' commands, from `gen-serve organizations` to `gen-serve export`: a client of `/v1/admin`.

Everything goes through the service, with the rules and the audit log that hold for other clients. The key of the
service on this machine is an operator's.
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
from serve_app.cli.service import BaseUrl, Json, Key, connect, connect_as_operator

organizations = typer.Typer(help="Organizations: who pays.", no_args_is_help=True)
projects = typer.Typer(help="Projects: whom tasks belong to, and what they may cost.", no_args_is_help=True)
members = typer.Typer(help="Members of organizations: people who come with a token.", no_args_is_help=True)
keys = typer.Typer(help="API keys.", no_args_is_help=True)
credits = typer.Typer(help="Credits of organizations; one is 0.01 USD.", no_args_is_help=True)
licences = typer.Typer(help="Licences of models.", no_args_is_help=True)

Organization = Annotated[
    str | None, typer.Option(help="Whose; else that of the key. Only operators may name another.", show_default=False)
]
OrganizationId = Annotated[str, typer.Argument(help="The organization's id.")]
ProjectId = Annotated[str, typer.Argument(help="The project's id.")]
Person = Annotated[str, typer.Argument(help="As tokens name them: the claim `sub`.")]
Model = Annotated[str, typer.Argument(help="A model of the catalog's licensed_models.")]
Tolerance = Annotated[int, typer.Argument(help="Safety tolerance, 0 to 7; -1 takes the limit away.", min=-1, max=7)]
Limit = Annotated[float | None, typer.Option(help="Credits that may be spent in one; -1 for no limit.", min=-1)]
First = Annotated[datetime | None, typer.Option(help="First day, UTC; else the first of this month.")]
Last = Annotated[datetime | None, typer.Option(help="Last day, UTC; else today.")]

_PAGE: Final = 1000
_YEAR: Final = timedelta(days=365)
"""The longest report of usage, less a day."""


class _Change(Amount):
    def __str__(self) -> str:
        return f"{'+' if self > 0 else ''}{super().__str__()}"


@organizations.command("create")
def create_organization(
    organization: Annotated[str, typer.Argument(help="Its id: letters, digits, dots, dashes.")],
    name: Annotated[str, typer.Option(help="What people call it; else its id.")] = "",
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Make an organization, without credits."""
    with connect_as_operator(base_url, key) as client:
        client.admin("POST", "organizations", {"id": organization, "name": name})
    print(f"made {organization}")


@organizations.command("list")
def list_organizations(as_json: Json = False, base_url: BaseUrl = None, key: Key = "") -> None:
    """List all organizations with what they have left."""
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
    endpoint: Annotated[str, typer.Argument(help="As in the catalog: gen-2-max.")],
    tolerance: Tolerance,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Set the highest safety tolerance that an organization may ask an endpoint for."""
    level = None if tolerance < 0 else tolerance
    with connect_as_operator(base_url, key) as client:
        client.admin("PUT", f"organizations/{organization}/safety/{endpoint}", {"tolerance": level})
    print(f"{organization}: {endpoint} up to {'what the catalog says' if level is None else level}")


@organizations.command("cap")
def cap(
    organization: OrganizationId,
    category: Annotated[str, typer.Argument(help=f"One of: {', '.join(CATEGORIES)}.")],
    tolerance: Tolerance,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Hold a category of moderation to a tolerance, whatever an organization asks for."""
    level = None if tolerance < 0 else tolerance
    with connect_as_operator(base_url, key) as client:
        client.admin("PUT", f"organizations/{organization}/ceilings/{category}", {"tolerance": level})
    print(f"{organization}: {category} up to {'any level' if level is None else level}")


@organizations.command("audit")
def audit(
    organization: Annotated[str | None, typer.Argument(help="Its id; else that of the key.")] = None,
    limit: Annotated[int, typer.Option(help="Changes, newest first.", min=1, max=_PAGE)] = 20,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """List who changed what."""
    with connect_as_operator(base_url, key) as client:
        changes = client.admin("GET", "audit", organization=organization, limit=limit)["changes"]
    rows = ((Moment(each["at"]), each["actor"], each["action"], each["subject"], each["details"]) for each in changes)
    show(("time", "who", "what", "which", "details"), rows, as_json=as_json)


@projects.command("create")
def create_project(
    project: ProjectId, organization: Organization = None, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """Make a project."""
    with connect_as_operator(base_url, key) as client:
        created = client.admin("POST", "projects", {"id": project}, organization=organization)
    print(f"{project}: made in {created['organization']}")


@projects.command("list")
def list_projects(
    organization: Organization = None, as_json: Json = False, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """List an organization's projects with their limits and what they have spent, in credits."""
    with connect_as_operator(base_url, key) as client:
        entries = client.admin("GET", "projects", organization=organization)["projects"]
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
        float | None, typer.Option(help="Share of the queue against other projects.", min=0.01, max=100)
    ] = None,
    statuses: Annotated[
        str | None, typer.Option(help="full, or basic: Reasoning and Generating shown as Pending.")
    ] = None,
    closed: Annotated[
        bool | None, typer.Option("--closed/--open", help="Whether it takes neither tasks nor tuned models.")
    ] = None,
    max_active: Annotated[
        int | None, typer.Option(help="Unfinished tasks at a time; 0 for the default.", min=0)
    ] = None,
    limit_day: Limit = None,
    limit_week: Limit = None,
    limit_month: Limit = None,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Change what is named, and nothing else."""
    limits = {"limit_day": limit_day, "limit_week": limit_week, "limit_month": limit_month}
    options = {"weight": weight, "statuses": statuses, "closed": closed, "max_active": max_active, **limits}
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes:
        raise ValueError("nothing to set: name at least one option")
    for name in limits.keys() & changes.keys():
        changes[name] = None if changes[name] < 0 else changes[name]
    if changes.get("max_active") == 0:
        changes["max_active"] = None
    with connect_as_operator(base_url, key) as client:
        now = client.admin("PATCH", f"projects/{project}", changes)
    print(f"{now['id']}: weight {now['weight']:g}, {now['statuses']} statuses{', closed' if now['closed'] else ''}")


@projects.command("erase")
def erase(
    project: ProjectId,
    confirm: Annotated[str, typer.Option(help="The project's id once more; else it is asked for.")] = "",
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Erase what a project has, but for the numbers of the ledger. May be repeated after a crash.

    The project is closed first, and stays so: gen-serve projects set --open.
    """
    confirm = confirm or typer.prompt(f"All that {project} has will be gone. Its id once more")
    if confirm != project:
        raise ValueError(f"nothing was erased: {confirm!r} is not {project!r}")
    with connect_as_operator(base_url, key) as client:
        while (erasure := client.admin("POST", f"projects/{project}/erasure", {"project": project}))["done"] is None:
            say(f"{project}: not all is erased yet")
    print(f"{project}: erased at {moment(erasure['done'])}, asked for by {erasure['by']}")


@members.command("set")
def set_member(
    person: Person, role: Role, organization: Organization = None, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """Give a member another role; where a provider of identities is set up, make someone a member.

    Others become members by an invitation, from the account page.
    """
    with connect_as_operator(base_url, key) as client:
        client.admin("PUT", f"members/{person}", {"role": role}, organization=organization)
    print(f"{person} is {role}")


@members.command("list")
def list_members(
    organization: Organization = None, as_json: Json = False, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """List an organization's members."""
    with connect_as_operator(base_url, key) as client:
        entries = client.admin("GET", "members", organization=organization)["members"]
    show(("person", "role"), ((each["person"], each["role"]) for each in entries), as_json=as_json)


@members.command("remove")
def remove_member(person: Person, organization: Organization = None, base_url: BaseUrl = None, key: Key = "") -> None:
    """Take a member out."""
    with connect_as_operator(base_url, key) as client:
        client.admin("DELETE", f"members/{person}", organization=organization)
    print(f"{person} is no member any more")


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    project: Annotated[str | None, typer.Option(help="Project the key acts in; else that of the key in use.")] = None,
    role: Annotated[Role, typer.Option(help="What it may do.")] = Role.DEVELOPER,
    days: Annotated[
        float | None, typer.Option(help="How long it is valid; else until it is revoked.", min=0, max=36500)
    ] = None,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Make a key and show it, this once."""
    expires = None if days is None else time.time() + days * 86400
    with connect_as_operator(base_url, key) as client:
        created = client.admin("POST", "keys", {"name": name, "project": project, "role": role, "expires": expires})
    print(created["key"])


@keys.command("list")
def list_keys(
    project: Annotated[str | None, typer.Option(help="Whose; else the project of the key in use.")] = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """List the valid keys of a project; the keys themselves are not stored."""
    with connect_as_operator(base_url, key) as client:
        entries = client.admin("GET", "keys", project=project)["keys"]
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
    key_id: Annotated[str, typer.Argument(help="The key's id, as `keys list` shows it.")],
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Revoke a key; it stops working within 10 seconds."""
    with connect_as_operator(base_url, key) as client:
        client.admin("DELETE", f"keys/{key_id}")
    print(f"revoked {key_id}")


@credits.command("show")
def show_balance(
    organization: Organization = None, as_json: Json = False, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """Show what is left; with --organization also what is held for tasks on their way, and was spent."""
    if organization is None:
        with connect(base_url, key) as client:
            show(("left",), [(Amount(client.credits()),)], as_json=as_json)
        return
    with connect_as_operator(base_url, key) as client:
        now = client.admin("GET", "credits", organization=organization)
    amounts = tuple(Amount(now[name]) for name in ("credits", "held", "spent", "granted"))
    show(("left", "held", "spent", "granted"), [amounts], as_json=as_json)


@credits.command("grant")
def grant(
    amount: Annotated[float, typer.Argument(help="Credits; below 0 takes some back.", min=-1e12, max=1e12)],
    organization: Organization = None,
    note: Annotated[str, typer.Option(help="What for; stands in the ledger.")] = "",
    once: Annotated[str, typer.Option(help="A name for this grant: repeated, it is made once.")] = "",
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Give credits to an organization."""
    body = {"id": once or str(uuid.uuid4()), "credits": amount, "note": note}
    with connect_as_operator(base_url, key) as client:
        now = client.admin("POST", "credits/grants", body, organization=organization)
    print(f"{Amount(now['credits'])} credits")


@credits.command("ledger")
def ledger(
    organization: Organization = None,
    limit: Annotated[int, typer.Option(help="Entries, newest first.", min=1, max=_PAGE)] = 20,
    as_json: Json = False,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """List every change of the balance."""
    with connect_as_operator(base_url, key) as client:
        entries = client.admin("GET", "ledger", organization=organization, limit=limit)["entries"]
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
    """List what was used, by day, project and endpoint."""
    first, last = (None if each is None else each.date().isoformat() for each in (since, until))
    with connect_as_operator(base_url, key) as client:
        entries = client.request("GET", "/v1/usage", organization=organization, since=first, until=last)["usage"]
    rows = ((each["day"], each["project"], each["endpoint"], each["tasks"], Amount(each["cost"])) for each in entries)
    show(("day", "project", "endpoint", "tasks", "credits"), rows, as_json=as_json)


@licences.command("add")
def add_licence(model: Model, organization: Organization = None, base_url: BaseUrl = None, key: Key = "") -> None:
    """License a model."""
    with connect_as_operator(base_url, key) as client:
        client.admin("PUT", f"licences/{model}", organization=organization)
    print(f"{model} is licensed")


@licences.command("list")
def list_licences(
    organization: Organization = None, as_json: Json = False, base_url: BaseUrl = None, key: Key = ""
) -> None:
    """List an organization's licences."""
    with connect_as_operator(base_url, key) as client:
        entries = client.admin("GET", "licences", organization=organization)["licences"]
    show(("model", "since"), ((each["model"], Moment(each["since"])) for each in entries), as_json=as_json)


@licences.command("remove")
def remove_licence(model: Model, organization: Organization = None, base_url: BaseUrl = None, key: Key = "") -> None:
    """Withdraw a licence."""
    with connect_as_operator(base_url, key) as client:
        client.admin("DELETE", f"licences/{model}", organization=organization)
    print(f"{model} is not licensed any more")


def export(
    folder: Annotated[Path, typer.Argument(help="Where the files go; it is made.", show_default=False)],
    since: Annotated[
        datetime | None, typer.Option(help="First day, UTC; else all that is kept.", show_default=False)
    ] = None,
    organization: Organization = None,
    base_url: BaseUrl = None,
    key: Key = "",
) -> None:
    """Write an organization's ledger, audit log and usage to files, a JSON object a line, newest first.

    \b
    gen-serve export books/$(date +%F) --since $(date -d yesterday +%F)

    The service keeps the latest 100,000 entries of each log and 400 days of usage: export what is to stay longer.
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
