"""The commands that make, list and revoke keys."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest
from support.command_line import GenServe, Holder

from serve_app.accounts.roles import Role


def test_a_key_is_made_for_a_role_and_a_time_and_revoked(gen_serve: GenServe, acme: str, holder: Holder) -> None:
    made = gen_serve("keys", "create", "books", "--project", "shop", "--role", "viewer", "--days", "2")
    secret = made.out.strip()
    assert (made.code, secret[:4], len(secret.split())) == (0, "gen_", 1)
    caller = holder(secret)
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
    assert holder(secret) is None
    assert gen_serve("keys", "list").table == []


def test_a_key_is_a_developers_of_the_default_project_and_does_not_expire(gen_serve: GenServe, holder: Holder) -> None:
    caller = holder(gen_serve("keys", "create", "laptop").out.strip())
    assert caller is not None
    assert (caller.project.id, caller.organization, caller.role) == ("default", "default", Role.DEVELOPER)
    assert caller.expires is None


@pytest.mark.parametrize("role", list(Role))
def test_the_command_line_makes_keys_of_every_role(gen_serve: GenServe, holder: Holder, role: Role) -> None:
    secret = gen_serve("keys", "create", "laptop", "--role", role.value).out.strip()
    caller = holder(secret)
    assert caller is not None
    assert caller.role is role


def test_a_key_for_no_time_is_of_no_use(gen_serve: GenServe, holder: Holder) -> None:
    secret = gen_serve("keys", "create", "laptop", "--days", "0").out.strip()
    assert holder(secret) is None


def test_a_key_that_lives_very_long_does_not_hide_the_others(gen_serve: GenServe) -> None:
    gen_serve("keys", "create", "eternal", "--days", "1e10")
    assert gen_serve("keys", "list").code == 0
