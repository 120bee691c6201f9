"""`gen-serve init`: what a service starts with."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import GenServe

from serve_app.accounts.api_key_auth import Callers
from serve_app.storage import connection


@pytest.fixture
def role_of(redis_url: str, prefix: str) -> Callable[[str], str | None]:
    """The role of the holder of a key, None for a key that is not valid."""

    async def look_up(secret: str) -> str | None:
        client = connection.connect(redis_url)
        try:
            caller = await Callers(client, prefix).authenticate(secret)
            return caller and caller.role
        finally:
            await client.aclose()

    return lambda secret: asyncio.run(look_up(secret))


def states(gen_serve: GenServe) -> dict[str, str]:
    return {each["what"]: each["state"] for each in gen_serve("init", "--json").json}


def test_it_makes_what_is_missing_and_nothing_twice(
    gen_serve: GenServe, tmp_path: Path, role_of: Callable[[str], str | None]
) -> None:
    assert set(states(gen_serve).values()) == {"made"}
    files = {path: path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file()}
    assert {path.name for path in files} == {"key", "operator-key", "sealing-key", "ray-token"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert set(states(gen_serve).values()) == {"was there"}
    assert {path: path.read_bytes() for path in files} == files
    assert role_of((tmp_path / "data/operator-key").read_text().strip()) == "operator"
    assert role_of(gen_serve("init", "--new-key", "first").out.strip()) == "operator"


def test_a_key_that_a_new_store_does_not_know_is_made_valid_again(
    gen_serve: GenServe, tmp_path: Path, role_of: Callable[[str], str | None]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/key").write_text("gen_from-another-store\n")
    assert states(gen_serve)["API key"] == "was there"
    assert role_of("gen_from-another-store") == "developer"


def test_on_a_cluster_it_says_what_the_nodes_need(
    gen_serve: GenServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEN_RAY__ADDRESS", "auto")
    ran = gen_serve("init", notes=True)
    assert "GEN_SEALING__KEYS" in ran.err
    assert str(tmp_path / "data/sealing-key") in ran.err
    assert (tmp_path / "data/sealing-key").read_text().strip() not in ran.out + ran.err
    assert not (tmp_path / "data/ray-token").exists(), "the cluster has its own"
