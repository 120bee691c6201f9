"""`gen-serve check`, `deploy` and `down` without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import GenServe

from serve_app.launcher import ray_flags
from serve_app.launcher.embedded_redis import free_port


@pytest.fixture
def begun(gen_serve: GenServe, repository: Path, monkeypatch: pytest.MonkeyPatch) -> GenServe:
    """A service that has been begun, with a lane whose weights ship with it and the others' fetched when needed."""
    assert gen_serve("init").code == 0
    monkeypatch.setattr("serve_app.cluster.gpu_memory.HF_HUB_OFFLINE", False)
    return gen_serve


def test_what_one_machine_needs_is_looked_at(begun: GenServe) -> None:
    ran = begun("check", "--json")
    assert ran.code == 0
    found = {each["what"]: each["verdict"] for each in ran.json}
    assert (found["Redis"], found["object store"], found["secrets"]) == ("fine", "fine", "fine")
    assert "switches" not in found, "no process of Ray's was asked"


def test_what_is_refused_is_told_and_fails(begun: GenServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("GEN_OBJECTS__URL", (tmp_path / "file").as_uri())
    ran = begun("check")
    assert ran.code == 1
    assert "opening it failed" in ran.out
    assert ran.err == "error: not fit to serve: mend what is refused\n"


def test_without_keys_it_is_said_what_makes_them(gen_serve: GenServe) -> None:
    ran = gen_serve("check")
    assert (ran.code, "gen-serve init makes one" in ran.err) == (2, True)


@pytest.mark.parametrize("command", ["deploy", "down"])
def test_a_cluster_has_to_be_named(begun: GenServe, command: str) -> None:
    ran = begun(command)
    assert (ran.code, "ray.address is not set" in ran.err) == (2, True)


def test_a_cluster_that_is_not_there_is_told_at_once(begun: GenServe, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("GEN_RAY__ADDRESS", address)
    monkeypatch.setattr(ray_flags, "apply", lambda: None)  # what it sets must not stay in this process
    ran = begun("check")
    assert (ran.code, f"nobody listens at ray.address, {address}" in ran.err) == (1, True)


def test_a_mistake_that_models_share_is_told_once(gen_serve: GenServe, tmp_path: Path) -> None:
    config = tmp_path / "shared.yaml"
    config.write_text("models: {flux3-klein: &all {device: gpu}, flux2-pro: *all, eraser: *all}")
    ended = gen_serve("check", "--config", str(config))
    assert ended.code == 2
    assert "models.{flux3-klein, flux2-pro, eraser}.device: String should match" in ended.err
    assert ended.err.count("String should match") == 1
