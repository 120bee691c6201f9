"""Mistakes at the command line: exit code 2, a line that names them, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from redis.exceptions import ResponseError
from support.command_line import GenServe

from deployments.contract.moderation import CATEGORIES

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


@pytest.mark.parametrize(("command", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_and_changes_nothing(
    gen_serve: GenServe, acme: str, kept: Callable[[], dict[bytes, bytes]], command: str, said: str
) -> None:
    before = kept()
    ran = gen_serve(*command.split())
    assert (ran.code, ran.out, ran.err) == (2, "", f"error: {said}\n")
    assert kept() == before


@pytest.mark.parametrize("weight", ["0", "-1", "nan", "inf", "-inf"])
def test_what_is_no_weight_is_refused(
    gen_serve: GenServe, acme: str, kept: Callable[[], dict[bytes, bytes]], weight: str
) -> None:
    before = kept()
    ran = gen_serve("projects", "set", "shop", "--weight", weight)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: weight ")
    assert kept() == before


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
