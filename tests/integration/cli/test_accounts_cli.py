"""The commands that look after organizations, projects, credits, keys and licences."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from deployments.contract.moderation import CATEGORIES
from serve_app import cli
from serve_app.accounts.callers import Caller, Callers
from serve_app.accounts.roles import Role
from serve_app.cli.options import ACTOR
from serve_app.redis_store import connection

A_MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def table(self) -> list[list[str]]:
        """The rows that it printed, without the heading. No cell of these tables is empty but at the end of a row."""
        return [re.split(r"\s{2,}", line.strip()) for line in self.out.splitlines()[1:]]


GenServe: TypeAlias = Callable[..., Ran]


@pytest.fixture
def config(redis_url: str, prefix: str, repository: Path, tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    settings = {
        "data_dir": str(tmp_path / "data"),
        "catalog": str(repository / "configs/catalog.yaml"),
        "redis": {"url": redis_url, "prefix": prefix},
    }
    path.write_text(json.dumps(settings))
    return path


@pytest.fixture
def gen_serve(config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> GenServe:
    """Runs a command on the service of `config`, in this process."""

    def run(*words: str) -> Ran:
        monkeypatch.setenv("GEN_CONFIG", str(config))
        monkeypatch.setattr("sys.argv", ["gen-serve", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        printed = capsys.readouterr()
        assert isinstance(code, int)
        assert bool(printed.err) == (code != 0), "errors go to stderr, and nothing else does"
        return Ran(code, printed.out, printed.err)

    return run


@pytest.fixture
def acme(gen_serve: GenServe) -> str:
    """An organization with 100 credits and the project `shop`."""
    for words in (
        ("organizations", "create", "acme", "--name", "Acme Inc."),
        ("credits", "grant", "100", "--organization", "acme", "--note", "start"),
        ("projects", "create", "shop", "--organization", "acme"),
    ):
        assert gen_serve(*words).code == 0
    return "acme"


def caller_of(secret: str, redis_url: str, prefix: str) -> Caller | None:
    """Whom the service takes the holder of a key for."""

    async def look_up() -> Caller | None:
        client = connection.connect(redis_url)
        try:
            return await Callers(client, prefix).authenticate(secret)
        finally:
            await client.aclose()

    return asyncio.run(look_up())


# Organizations.


def test_the_default_organization_is_there_from_the_start(gen_serve: GenServe) -> None:
    assert gen_serve("organizations", "list").table == [["default", "Default", "0"]]


def test_organizations_are_made_and_listed_with_what_they_have(gen_serve: GenServe, acme: str) -> None:
    made = gen_serve("organizations", "create", "bare")
    assert (made.code, made.out) == (0, "made bare\n")
    first, second, third = gen_serve("organizations", "list").table
    assert first[:3] == ["acme", "Acme Inc.", "100"]
    assert A_MINUTE.fullmatch(first[3])
    assert second[:3] == ["bare", "bare", "0"]
    assert third == ["default", "Default", "0"]


# Projects.


def test_projects_are_made_changed_and_listed(gen_serve: GenServe, acme: str) -> None:
    made = gen_serve("projects", "create", "club", "--organization", acme)
    assert (made.code, made.out) == (0, "club: made in acme\n")
    words = ("--weight", "2.5", "--statuses", "basic", "--max-active", "3", "--limit-day", "5", "--limit-month", "99.5")
    assert gen_serve("projects", "set", "shop", *words).out == "shop: weight 2.5, basic statuses\n"
    assert gen_serve("projects", "list", "--organization", acme).table == [
        ["club", "1", "full", "0", "0", "0"],
        ["shop", "2.5", "basic", "3", "0 of 5", "0", "0 of 99.5"],
    ]
    assert [row[0] for row in gen_serve("projects", "list").table] == ["default"]


def test_setting_one_thing_leaves_the_others(gen_serve: GenServe, acme: str) -> None:
    gen_serve("projects", "set", "shop", "--limit-week", "0", "--max-active", "7")
    assert gen_serve("projects", "set", "shop", "--weight", "3").code == 0
    [row] = gen_serve("projects", "list", "--organization", acme).table
    assert row == ["shop", "3", "full", "7", "0", "0 of 0", "0"]


def test_limits_are_taken_away_again(gen_serve: GenServe, acme: str) -> None:
    limits = ("--limit-day", "1", "--limit-week", "2", "--limit-month", "3", "--max-active", "4")
    assert gen_serve("projects", "set", "shop", *limits).code == 0
    none = ("--limit-day", "-1", "--limit-week", "-1", "--limit-month", "-1", "--max-active", "0")
    assert gen_serve("projects", "set", "shop", *none).code == 0
    [row] = gen_serve("projects", "list", "--organization", acme).table
    assert row == ["shop", "1", "full", "0", "0", "0"]


# Credits.


def test_credits_are_granted_shown_and_accounted_for(gen_serve: GenServe, acme: str) -> None:
    assert gen_serve("credits", "grant", "12.345", "--organization", acme).out == "acme: 112.345 credits\n"
    back = gen_serve("credits", "grant", "--organization", acme, "--note", "by mistake", "--", "-2.345")
    assert (back.code, back.out) == (0, "acme: 110 credits\n")
    assert gen_serve("credits", "show", "--organization", acme).table == [["110", "0", "0", "110"]]
    ledger = gen_serve("credits", "ledger", "--organization", acme)
    assert [row[1:4] for row in ledger.table] == [
        ["grant", "-2.345", "110"],
        ["grant", "+12.345", "112.345"],
        ["grant", "+100", "100"],
    ]
    for row, note in zip(ledger.table, ("by mistake", "", "start"), strict=True):
        assert A_MINUTE.fullmatch(row[0])
        assert f"by={ACTOR}" in row[4]
        assert row[4].endswith(f"note={note}")
    assert gen_serve("credits", "ledger", "--organization", acme, "--limit", "1").table == ledger.table[:1]
    assert gen_serve("credits", "show").table == [["0", "0", "0", "0"]]


def test_a_grant_with_a_name_is_made_once(gen_serve: GenServe, acme: str) -> None:
    words = ("credits", "grant", "50", "--organization", acme, "--once", "november")
    assert [gen_serve(*words).out for _ in range(3)] == ["acme: 150 credits\n"] * 3
    assert len(gen_serve("credits", "ledger", "--organization", acme).table) == 2
    # In another organization the name is free.
    assert gen_serve("credits", "grant", "5", "--once", "november").out == "default: 5 credits\n"


# Keys.


def test_a_key_is_made_for_a_role_and_a_time_and_revoked(
    gen_serve: GenServe, acme: str, redis_url: str, prefix: str
) -> None:
    made = gen_serve("keys", "create", "books", "--project", "shop", "--role", "viewer", "--days", "2")
    secret = made.out.strip()
    assert (made.code, secret[:4], len(secret.split())) == (0, "gen_", 1)
    caller = caller_of(secret, redis_url, prefix)
    assert caller is not None
    assert (caller.project.id, caller.organization, caller.role) == ("shop", acme, Role.VIEWER)
    assert caller.expires == pytest.approx(time.time() + 2 * 86400, abs=300)

    listed = gen_serve("keys", "list")
    assert secret not in listed.out
    [row] = listed.table
    assert row[:5] == [caller.id, f"{secret[:10]}…", "books", "shop", "viewer"]
    created, _, expires = (datetime.strptime(moment, "%Y-%m-%d %H:%M") for moment in row[5:])
    # In local time, where a night may be an hour longer or shorter.
    assert abs(expires - created - timedelta(days=2)) <= timedelta(hours=1, minutes=1)

    revoked = gen_serve("keys", "revoke", caller.id)
    assert (revoked.code, revoked.out) == (0, f"revoked {caller.id}\n")
    assert caller_of(secret, redis_url, prefix) is None
    assert gen_serve("keys", "list").table == []


def test_a_key_is_a_developers_of_the_default_project_and_does_not_expire(
    gen_serve: GenServe, redis_url: str, prefix: str
) -> None:
    caller = caller_of(gen_serve("keys", "create", "laptop").out.strip(), redis_url, prefix)
    assert caller is not None
    assert (caller.project.id, caller.organization, caller.role) == ("default", "default", Role.DEVELOPER)
    assert caller.expires is None


@pytest.mark.parametrize("role", list(Role))
def test_the_command_line_makes_keys_of_every_role(
    gen_serve: GenServe, redis_url: str, prefix: str, role: Role
) -> None:
    secret = gen_serve("keys", "create", "laptop", "--role", role.value).out.strip()
    caller = caller_of(secret, redis_url, prefix)
    assert caller is not None
    assert caller.role is role


def test_a_key_for_no_time_is_of_no_use(gen_serve: GenServe, redis_url: str, prefix: str) -> None:
    secret = gen_serve("keys", "create", "laptop", "--days", "0").out.strip()
    assert caller_of(secret, redis_url, prefix) is None


# Licences.


def test_licences_are_added_listed_and_removed(gen_serve: GenServe, acme: str) -> None:
    for model in ("flux-tools", "flux-1-dev", "flux-1-dev"):
        added = gen_serve("licences", "add", model, "--organization", acme)
        assert (added.code, added.out) == (0, f"acme: {model} is licensed\n")
    rows = gen_serve("licences", "list", "--organization", acme).table
    assert [row[0] for row in rows] == ["flux-1-dev", "flux-tools"]
    assert all(A_MINUTE.fullmatch(row[1]) for row in rows)
    assert gen_serve("licences", "list").table == []
    removed = gen_serve("licences", "remove", "flux-1-dev", "--organization", acme)
    assert (removed.code, removed.out) == (0, "acme: flux-1-dev is not licensed any more\n")
    assert [row[0] for row in gen_serve("licences", "list", "--organization", acme).table] == ["flux-tools"]


# Mistakes: exit code 2, a line that names them, and nothing is changed.

MISTAKES: dict[str, tuple[str, str]] = {
    "organization-twice": ("organizations create acme", "there is an organization acme already"),
    "project-twice": ("projects create shop --organization acme", "there is a project shop already"),
    "project-of-another": ("projects create shop", "there is a project shop already"),
    "default-project": ("projects create default", "there is a project default already"),
    "project-nowhere": ("projects create club --organization nobody", "there is no organization nobody"),
    "nothing-to-set": ("projects set shop", "nothing to set: name at least one option"),
    "statuses": ("projects set shop --statuses odd", "statuses must be full or basic"),
    "grant-nowhere": ("credits grant 1 --organization nobody", "there is no organization nobody"),
    "too-much-taken": ("credits grant --organization acme -- -100.001", "acme has only 100 credits"),
    "all-taken-of-none": ("credits grant -- -1", "default has only 0 credits"),
    "unknown-key": ("keys revoke 0123456789ab", "there is no key 0123456789ab"),
    "unknown-model": (
        "licences add unheard-of --organization acme",
        "there is no model unheard-of to license; known: flux-1-dev, flux-1-kontext-dev, flux-tools",
    ),
    "licence-nowhere": ("licences add flux-1-dev --organization nobody", "there is no organization nobody"),
    "cap-nowhere": ("organizations cap nobody violence 3", "there is no organization nobody"),
    "cap-too-high": ("organizations cap acme violence 8", "the tolerance must be from 0 to 7, or -1"),
    "cap-too-low": ("organizations cap acme -- violence -2", "the tolerance must be from 0 to 7, or -1"),
    "unknown-category": (
        "organizations cap acme gore 3",
        f"there is no category gore; there are: {', '.join(CATEGORIES)}",
    ),
    "no-licence": ("licences remove flux-1-dev --organization acme", "acme has no licence for flux-1-dev"),
}


@pytest.fixture
def stored(redis_url: str, prefix: str) -> Iterator[Callable[[], dict[bytes, bytes]]]:
    """Everything that the service keeps, on every call."""
    client = Redis.from_url(redis_url)

    def read() -> dict[bytes, bytes]:
        found: Any = client.scan_iter(f"{prefix}*", count=10_000)
        return {key: cast(bytes, client.dump(key)) for key in found}

    yield read
    client.close()


@pytest.mark.parametrize(("command", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_and_changes_nothing(
    gen_serve: GenServe, acme: str, stored: Callable[[], dict[bytes, bytes]], command: str, said: str
) -> None:
    before = stored()
    ran = gen_serve(*command.split())
    assert (ran.code, ran.out, ran.err) == (2, "", f"error: {said}\n")
    assert stored() == before


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "-inf"])
def test_what_is_no_weight_is_refused(
    gen_serve: GenServe, acme: str, stored: Callable[[], dict[bytes, bytes]], weight: str
) -> None:
    before = stored()
    ran = gen_serve("projects", "set", "shop", "--weight", weight)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: weight ")
    assert stored() == before


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("organizations create", "organization"),
        ("organizations invent", "invent"),
        ("organizations cap acme violence", "tolerance"),
        ("organizations cap acme violence low", "tolerance"),
        ("projects set shop --max-active -1", "--max-active"),
        ("projects set shop --limit-day -2", "--limit-day"),
        ("projects set shop --weight much", "--weight"),
        ("credits grant much", "amount"),
        ("credits ledger --limit 0", "--limit"),
        ("keys create laptop --role king", "king"),
        ("keys create laptop --days -1", "--days"),
        ("keys create laptop --days nan", "--days"),
    ],
)
def test_wrong_usage_is_explained(gen_serve: GenServe, command: str, named: str) -> None:
    ran = gen_serve(*command.split())
    assert (ran.code, ran.out) == (2, "")
    assert named in ran.err
    assert ran.err.startswith("Usage: ")


@pytest.mark.parametrize("group", ["organizations", "projects", "credits", "keys", "licences"])
def test_every_group_has_help(gen_serve: GenServe, group: str) -> None:
    assert f" {group} [OPTIONS] COMMAND" in gen_serve(group, "--help").out


def test_a_settings_file_that_is_not_there(gen_serve: GenServe, tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    ran = gen_serve("organizations", "list", "--config", str(missing))
    assert (ran.code, ran.err) == (2, f"error: no such config file: {missing}\n")


# What the command line lets through, and should not.


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "../x", "-x", "\u00e9", "x" * 65])
@pytest.mark.parametrize("group", ["organizations", "projects"])
def test_an_id_that_can_not_stand_in_an_address_is_refused(gen_serve: GenServe, group: str, name: str) -> None:
    assert gen_serve(group, "create", "--", name).code == 2


@pytest.mark.parametrize(
    "command", ["credits grant inf", "credits grant 1e30 --once big", "projects set default --limit-day inf"]
)
def test_more_than_can_be_counted_is_refused(gen_serve: GenServe, command: str) -> None:
    assert gen_serve(*command.split()).code == 2


def test_a_grant_that_failed_can_be_made_again(gen_serve: GenServe) -> None:
    with suppress(ResponseError):
        gen_serve("credits", "grant", "1e30", "--once", "big")
    assert gen_serve("credits", "grant", "10", "--once", "big").out == "default: 10 credits\n"


def test_a_key_that_lives_very_long_does_not_hide_the_others(gen_serve: GenServe) -> None:
    gen_serve("keys", "create", "eternal", "--days", "1e10")
    assert gen_serve("keys", "list").code == 0


@pytest.mark.parametrize("command", ["credits show", "credits ledger", "projects list", "licences list"])
def test_an_unknown_organization_is_named(gen_serve: GenServe, command: str) -> None:
    ran = gen_serve(*command.split(), "--organization", "nobody")
    assert (ran.code, ran.err) == (2, "error: there is no organization nobody\n")


def test_a_project_that_is_not_there_can_not_be_changed(gen_serve: GenServe) -> None:
    assert gen_serve("projects", "set", "shpo", "--weight", "2").code == 2


def test_a_store_out_of_reach_is_an_error_and_no_traceback(
    gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEN_REDIS__URL", "redis://127.0.0.1:1")
    assert gen_serve("organizations", "list").code == 1


def test_members_come_change_and_go(gen_serve: GenServe, acme: str) -> None:
    assert gen_serve("members", "set", "ada@acme.test", "developer", "--organization", acme).code == 0
    assert gen_serve("members", "set", "ada@acme.test", "viewer", "--organization", acme).code == 0
    assert gen_serve("members", "list", "--organization", acme).table == [["ada@acme.test", "viewer"]]
    assert gen_serve("members", "remove", "ada@acme.test", "--organization", acme).code == 0
    assert gen_serve("members", "list", "--organization", acme).table == []
    assert gen_serve("members", "remove", "ada@acme.test", "--organization", acme).code == 2
    assert gen_serve("members", "set", "ada@acme.test", "operator", "--organization", acme).code == 2


def test_an_organization_can_be_approved_for_other_safety_levels(gen_serve: GenServe, acme: str) -> None:
    assert gen_serve("organizations", "approve", acme, "gen-2-max", "3").code == 0
    assert gen_serve("organizations", "approve", acme, "gen-2-max", "-1").code == 2, "-1 looks like an option"
    assert gen_serve("organizations", "approve", acme, "--", "gen-2-max", "-1").code == 0
    assert gen_serve("organizations", "approve", acme, "gen-2-max", "8").code == 2
    assert gen_serve("organizations", "approve", acme, "gen-9", "3").code == 2
    actions = [row[1:4] for row in gen_serve("organizations", "audit", acme).table]
    assert actions[:2] == [[ACTOR, "approve safety", "gen-2-max"]] * 2


def test_an_organization_can_be_held_to_a_level(gen_serve: GenServe, acme: str, redis_url: str, prefix: str) -> None:
    secret = gen_serve("keys", "create", "laptop", "--project", "shop").out.strip()

    def ceilings() -> dict[str, int]:
        caller = caller_of(secret, redis_url, prefix)
        assert caller is not None
        return dict(caller.ceilings)

    capped = gen_serve("organizations", "cap", acme, "violence", "3")
    assert (capped.code, capped.out) == (0, "acme: violence up to 3\n")
    assert gen_serve("organizations", "cap", acme, "illegal acts", "0").code == 0
    assert ceilings() == {"violence": 3, "illegal acts": 0}
    assert gen_serve("organizations", "cap", acme, "violence", "-1").code == 2, "-1 looks like an option"
    freed = gen_serve("organizations", "cap", acme, "--", "violence", "-1")
    assert (freed.code, freed.out) == (0, "acme: violence up to any level\n")
    assert ceilings() == {"illegal acts": 0}
    assert [row[1:] for row in gen_serve("organizations", "audit", acme, "--limit", "3").table] == [
        [ACTOR, "cap safety", "violence", "tolerance="],
        [ACTOR, "cap safety", "illegal acts", "tolerance=0"],
        [ACTOR, "cap safety", "violence", "tolerance=3"],
    ]


@pytest.mark.parametrize("category", CATEGORIES)
def test_every_category_can_be_held(gen_serve: GenServe, category: str) -> None:
    assert gen_serve("organizations", "cap", "default", category, "7").out == f"default: {category} up to 7\n"
    assert category in " ".join(gen_serve("organizations", "cap", "--help").out.replace("│", " ").split())


def test_nothing_was_used_yet(gen_serve: GenServe, acme: str) -> None:
    assert gen_serve("credits", "usage", "--organization", acme, "--since", "2026-01-01").table == []
    assert gen_serve("credits", "usage", "--organization", "nobody").code == 2
