"""The commands that look after organizations, their members, projects, credits and licences."""

from __future__ import annotations

import asyncio

from support.command_line import A_MINUTE, GenServe

from serve_app.accounts.invitations import Invitation, InvitationStore
from serve_app.accounts.roles import Role
from serve_app.accounts.sessions import Kind, Session, SessionStore
from serve_app.cli.options import ACTOR
from serve_app.redis_store import connection


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
    assert gen_serve("credits", "show", "--organization", "default").table == [["0", "0", "0", "0"]]


def test_a_grant_with_a_name_is_made_once(gen_serve: GenServe, acme: str) -> None:
    words = ("credits", "grant", "50", "--organization", acme, "--once", "november")
    assert [gen_serve(*words).out for _ in range(3)] == ["acme: 150 credits\n"] * 3
    assert len(gen_serve("credits", "ledger", "--organization", acme).table) == 2
    # In another organization the name is free.
    assert gen_serve("credits", "grant", "5", "--once", "november").out == "default: 5 credits\n"


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


def test_who_is_taken_out_comes_back_by_nothing_they_left(
    gen_serve: GenServe, acme: str, redis_url: str, prefix: str
) -> None:
    async def left_by(word: str, *words: str, by: str) -> tuple[Invitation | None, Session | None]:
        redis = connection.connect(redis_url)
        try:
            invitation = await InvitationStore(redis, prefix).write(acme, Role.ADMINISTRATOR, by)
            session = await SessionStore(redis, prefix).begin(Kind.PERSON, "ada@acme.test", acme, "p")
            ran = await asyncio.to_thread(gen_serve, word, *words)
            assert ran.code == 0, ran.err
            invited = await InvitationStore(redis, prefix).find(invitation)
            return invited, await SessionStore(redis, prefix).find(session)
        finally:
            await redis.aclose()

    member = ("ada@acme.test", "--organization", acme)
    assert gen_serve("members", "set", *member[:1], "administrator", *member[1:]).code == 0
    ada, program = "ada@acme.test", "ada@acme.test (https://id.test)"
    invitation, session = asyncio.run(left_by("members", "set", ada, "viewer", *member[1:], by=program))
    assert (invitation, session is None) == (None, False)
    assert asyncio.run(left_by("members", "remove", *member, by=ada)) == (None, None)


def test_members_come_change_and_go(gen_serve: GenServe, acme: str) -> None:
    assert gen_serve("members", "set", "ada@acme.test", "developer", "--organization", acme).code == 0
    assert gen_serve("members", "set", "ada@acme.test", "viewer", "--organization", acme).code == 0
    assert gen_serve("members", "list", "--organization", acme).table == [["ada@acme.test", "viewer"]]
    assert gen_serve("members", "remove", "ada@acme.test", "--organization", acme).code == 0
    assert gen_serve("members", "list", "--organization", acme).table == []
    assert gen_serve("members", "remove", "ada@acme.test", "--organization", acme).code == 2
    assert gen_serve("members", "set", "ada@acme.test", "operator", "--organization", acme).code == 2


def test_nothing_was_used_yet(gen_serve: GenServe, acme: str) -> None:
    assert gen_serve("credits", "usage", "--organization", acme, "--since", "2026-01-01").table == []
    assert gen_serve("credits", "usage", "--organization", "nobody").code == 2
