"""What a service starts with, and whether it is fit to: `gen-serve init`, `check`, `deploy` and `down`."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command_line import GenServe

from serve_app.accounts.api_key_auth import Callers
from serve_app.launcher import ray_flags
from serve_app.launcher.embedded_redis import free_port
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
    (tmp_path / "data").mkdir()
    (tmp_path / "data/key").write_text("gen_from-another-store\n")
    assert states(gen_serve).pop("API key") == "was there"
    assert role_of("gen_from-another-store") == "developer", "made valid in a new store"
    files = {path: path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file()}
    assert {path.name for path in files} == {"key", "operator-key", "sealing-key", "ray-token"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files if path.name != "key"} == {0o600}
    assert set(states(gen_serve).values()) == {"was there"}
    assert {path: path.read_bytes() for path in files} == files
    assert role_of((tmp_path / "data/operator-key").read_text().strip()) == "operator"
    assert role_of(gen_serve("init", "--new-key", "first").out.strip()) == "operator"


def test_on_a_cluster_it_says_what_the_nodes_need(
    gen_serve: GenServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEN_RAY__ADDRESS", "auto")
    ran = gen_serve("init", notes=True)
    assert "GEN_SEALING__KEYS" in ran.err
    assert str(tmp_path / "data/sealing-key") in ran.err
    assert (tmp_path / "data/sealing-key").read_text().strip() not in ran.out + ran.err
    assert not (tmp_path / "data/ray-token").exists(), "the cluster has its own"


@pytest.fixture
def begun(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> GenServe:
    """A service that has been begun, with a queue whose weights ship with it and the others' fetched when needed."""
    assert gen_serve("init").code == 0
    monkeypatch.setattr("serve_app.cluster.gpu_memory.HF_HUB_OFFLINE", False)
    return gen_serve


def test_what_one_machine_needs_is_looked_at(begun: GenServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = begun("check", "--json")
    assert ran.code == 0
    found = {each["what"]: each["verdict"] for each in ran.json}
    assert (found["Redis"], found["object store"], found["secrets"]) == ("fine", "fine", "fine")
    assert "switches" not in found, "no process of Ray's was asked"
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GEN_OBJECTS__URL", (tmp_path / "file").as_uri())
    ran = begun("check")
    assert (ran.code, "opening it failed" in ran.out) == (1, True)
    assert ran.err == "error: not fit to serve: fix what is refused\n"


def test_a_cluster_has_to_be_named_and_there(begun: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("deploy", "down"):
        ran = begun(command)
        assert (ran.code, "ray.address is not set" in ran.err) == (2, True)
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("GEN_RAY__ADDRESS", address)
    monkeypatch.setattr(ray_flags, "apply", lambda: None)  # what it sets must not stay in this process
    ran = begun("check")
    assert (ran.code, f"nobody listens at ray.address, {address}" in ran.err) == (1, True)


def test_mistakes_in_the_settings_are_told_once(gen_serve: GenServe, tmp_path: Path) -> None:
    ran = gen_serve("check")
    assert (ran.code, "gen-serve init makes one" in ran.err) == (2, True)
    config = tmp_path / "shared.yaml"
    config.write_text("models: {flux3-klein: &all {device: gpu}, flux2-pro: *all, eraser: *all}")
    ended = gen_serve("check", "--config", str(config))
    assert ended.code == 2
    assert "models.{flux3-klein, flux2-pro, eraser}.device: String should match" in ended.err
    assert ended.err.count("String should match") == 1
