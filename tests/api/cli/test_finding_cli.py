"""Which settings and which service commands work with, from whatever folder they are called."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.cli_runner import GenServe, write_config
from support.http_service import Service

from serve_app.launcher.running import RunningService, announce

Runs = Callable[[Path], RunningService]


@pytest.fixture
def anywhere(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> GenServe:
    """Commands in an empty folder, that are told nothing."""
    return GenServe(None, monkeypatch, capsys)


@pytest.fixture
def config(tmp_path: Path, repository: Path, redis_url: str, prefix: str) -> Path:
    """Settings whose paths are relative, as those of `configs/local.yaml`."""
    folder = tmp_path / "started-here"
    folder.mkdir()
    config_file = write_config(folder, repository, redis_url, prefix)
    settings = json.loads(config_file.read_text()) | {"data_dir": "data", "catalog": "catalog.yaml"}
    (folder / "catalog.yaml").write_text((repository / "configs/catalog.yaml").read_text())
    config_file.write_text(json.dumps(settings))
    return config_file


@pytest.fixture
def runs(service: Service) -> Iterator[Runs]:
    """A service that runs with these settings, in their folder."""
    with ExitStack() as stack:

        def start(config: Path) -> RunningService:
            folder = config.parent
            (folder / "data").mkdir(exist_ok=True)
            (folder / "data" / "key").write_text(service.worker.new_key("default") + "\n")
            noted = RunningService(
                base_url=service.base_url,
                metrics_url=None,
                key_file=folder / "data" / "key",
                config=config,
                data_dir=folder / "data",
                catalog=folder / "catalog.yaml",
            )
            stack.enter_context(announce(noted))
            return noted

        yield start


def test_without_settings_those_that_came_with_the_package_count(anywhere: GenServe, here: Path) -> None:
    result = anywhere("webhooks", "list")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    for hint in (f"no data in {here}/.gen", "gen-serve up", "--config"):
        assert hint in result.err
    assert anywhere("openapi").json == anywhere("openapi", "--config", "configs/local.yaml").json
    assert anywhere("openapi", "--config", "configs/none.yaml").err == "error: no such config file: configs/none.yaml\n"
    assert list(here.iterdir()) == []


def test_the_service_that_runs_comes_after_what_is_named_and_before_the_folder(
    anywhere: GenServe, config: Path, runs: Runs, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "configs").mkdir()
    (here / "configs" / "local.yaml").write_text("service: {port: nonsense}")
    result = anywhere("webhooks", "list")
    assert (result.code, result.err.count("\n"), "service.port" in result.err) == (2, 1, True)
    runs(config)
    assert anywhere("webhooks", "list").code == 0
    assert anywhere("openapi", "--config", str(config)).json["info"]["title"], "relative paths are those of the service"
    with monkeypatch.context() as patch:
        patch.setenv("GEN_CATALOG", "mine.yaml")
        assert anywhere("openapi").err == f"error: no such catalog: {here}/mine.yaml\n"
    monkeypatch.setenv("GEN_CONFIG", str(tmp_path / "missing.yaml"))
    assert anywhere("webhooks", "list").err == f"error: no such config file: {tmp_path}/missing.yaml\n"
    assert anywhere("webhooks", "list", "--config", str(config)).code == 0
    assert [path.name for path in here.iterdir()] == ["configs"]


def test_between_several_services_one_has_to_be_chosen(
    anywhere: GenServe, config: Path, runs: Runs, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = runs(config)
    monkeypatch.setattr("serve_app.cli.store.running", lambda: [noted, noted])
    monkeypatch.setattr("serve_app.cli.service.running", lambda: [noted, noted])
    assert "--config" in anywhere("webhooks", "list").err
    assert "--base-url" in anywhere("tasks", "list").err
    assert anywhere("webhooks", "list", "--config", str(config)).code == 0
    assert anywhere("tasks", "list", "--base-url", noted.base_url).code == 0


@pytest.mark.parametrize("command", ["tasks list", "credits show", "finetunes list", "models", "watch --until-done"])
def test_what_needs_only_http_finds_the_service_that_runs(
    anywhere: GenServe, config: Path, runs: Runs, here: Path, command: str
) -> None:
    result = anywhere(*command.split())
    assert (result.code, result.err.count("\n")) != (0, 0)
    noted = runs(config)
    assert anywhere(*command.split()).code == 0
    assert anywhere(*command.split(), "--base-url", noted.base_url.replace("127.0.0.1", "localhost")).code == 0
    assert list(here.iterdir()) == []


def test_an_address_and_a_key_are_enough(
    anywhere: GenServe, service: Service, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("credits", "show", "--json", "--base-url", service.base_url)
    assert anywhere(*words, "--key", key).json == [{"left": 100}]
    for variable in ("GEN_KEY", "GEN_API_KEY"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, key)
            assert anywhere(*words).json == [{"left": 100}]


def test_a_local_key_is_shown_to_no_other_service(anywhere: GenServe, config: Path, runs: Runs, here: Path) -> None:
    runs(config)
    (here / ".gen").mkdir()
    (here / ".gen" / "key").write_text("gen_of_this_machine")
    result = anywhere("tasks", "list", "--base-url", "http://media.example.com")
    assert (result.code, "no API key" in result.err) == (2, True)


def test_an_address_that_is_none_or_where_nobody_is_is_named(anywhere: GenServe) -> None:
    for address in ("localhost:8000", "ftp://example.com", "http://"):
        result = anywhere("tasks", "list", "--key", "k", "--base-url", address)
        assert (result.code, f"--base-url {address} is not a URL" in result.err) == (2, True)
    result = anywhere("tasks", "list", "--key", "k", "--base-url", "http://127.0.0.1:1")
    assert (result.code, result.err.count("\n")) == (1, 1)
    for hint in ("http://127.0.0.1:1", "gen-serve up", "--base-url"):
        assert hint in result.err


@pytest.mark.parametrize("command", ["webhooks list", "backup copy"])
def test_no_data_are_made_by_looking_for_some(
    anywhere: GenServe, here: Path, tmp_path: Path, repository: Path, command: str
) -> None:
    config = tmp_path / "fresh.yaml"
    config.write_text(json.dumps({"catalog": str(repository / "configs/catalog.yaml")}))
    result = anywhere(*command.split(), "--config", str(config))
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert f"there is no data in {here}/.gen" in result.err
    assert list(here.iterdir()) == []


def test_reading_from_a_redis_elsewhere_makes_no_folder(
    gen_serve: GenServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gen_serve("webhooks", "list").code == 0
    assert not (tmp_path / "data").exists()
    monkeypatch.setenv("GEN_REDIS__URL", "redis://127.0.0.1:1")
    assert gen_serve("webhooks", "list").code == 1, "out of reach, and no traceback"
