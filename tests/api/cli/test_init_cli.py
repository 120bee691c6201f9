"""`gen-serve init`, `check`, `deploy` and `down`."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli_runner import GenServe

from serve_app.accounts.api_key_auth import Callers
from serve_app.launcher import ray_flags
from serve_app.launcher.embedded_redis import free_port
from serve_app.storage import connection


@pytest.fixture
def get_role(redis_url: str, prefix: str) -> Callable[[str], str | None]:
    """Returns the role of a key, None for an invalid one."""

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


def test_init_makes_missing_files_once(
    gen_serve: GenServe, tmp_path: Path, get_role: Callable[[str], str | None]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/key").write_text("gen_from-another-store\n")
    assert states(gen_serve).pop("API key") == "was there"
    assert get_role("gen_from-another-store") == "developer", "made valid in a new store"
    files = {path: path.read_bytes() for path in (tmp_path / "data").iterdir() if path.is_file()}
    assert {path.name for path in files} == {"key", "operator-key", "sealing-key", "ray-token"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files if path.name != "key"} == {0o600}
    assert set(states(gen_serve).values()) == {"was there"}
    assert {path: path.read_bytes() for path in files} == files
    assert get_role((tmp_path / "data/operator-key").read_text().strip()) == "operator"
    assert get_role(gen_serve("init", "--new-key", "first").out.strip()) == "operator"


def test_init_for_a_cluster_names_the_secrets_of_nodes(
    gen_serve: GenServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEN_RAY__ADDRESS", "auto")
    result = gen_serve("init", notes=True)
    assert "GEN_SEALING__KEYS" in result.err
    assert str(tmp_path / "data/sealing-key") in result.err
    assert (tmp_path / "data/sealing-key").read_text().strip() not in result.out + result.err
    assert not (tmp_path / "data/ray-token").exists(), "the cluster has its own"


@pytest.fixture
def initialized_cli(gen_serve: GenServe, monkeypatch: pytest.MonkeyPatch) -> GenServe:
    """Runs commands on an initialized service, which may fetch weights."""
    assert gen_serve("init").code == 0
    monkeypatch.setattr("serve_app.cluster.checks.weights.HF_HUB_OFFLINE", False)
    return gen_serve


def test_check_of_one_machine_names_refusals(
    initialized_cli: GenServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = initialized_cli("check", "--json")
    assert result.code == 0, result.json
    verdicts = {each["what"]: each["verdict"] for each in result.json}
    assert (verdicts["Redis"], verdicts["object store"], verdicts["secrets"]) == ("fine", "fine", "fine")
    assert "Ray flags" not in verdicts, "no process of Ray's was asked"
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GEN_OBJECTS__URL", (tmp_path / "file").as_uri())
    result = initialized_cli("check")
    assert (result.code, "opening it failed" in result.out) == (1, True)
    assert result.err == "error: not fit to serve: fix what is refused above\n"


def test_cluster_must_be_named_and_reachable(initialized_cli: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("deploy", "down"):
        result = initialized_cli(command)
        assert (result.code, "ray.address is not set" in result.err) == (2, True)
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("GEN_RAY__ADDRESS", address)
    monkeypatch.setattr(ray_flags, "apply", lambda: None)  # what it sets must not stay in this process
    result = initialized_cli("check")
    assert (result.code, f"no server listens at ray.address, {address}" in result.err) == (1, True)


def test_repeated_mistake_in_the_settings_is_named_once(gen_serve: GenServe, tmp_path: Path) -> None:
    result = gen_serve("check")
    assert (result.code, "gen-serve init makes one" in result.err) == (2, True)
    config = tmp_path / "shared.yaml"
    config.write_text("models: {flux3-klein: &all {device: gpu}, flux2-pro: *all, eraser: *all}")
    ended = gen_serve("check", "--config", str(config))
    assert ended.code == 2
    assert "models.{flux3-klein, flux2-pro, eraser}.device: String should match" in ended.err
    assert ended.err.count("String should match") == 1
