"""Commands find their settings and their service from any folder."""

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
PLAN = ("plan", "no-model", "--rate", "1")


@pytest.fixture
def anywhere(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> GenServe:
    """Runs commands in an empty folder without options."""
    return GenServe(None, monkeypatch, capsys)


@pytest.fixture
def config(tmp_path: Path, repository: Path, redis_url: str, prefix: str) -> Path:
    """Returns settings with relative paths, like those of `configs/local.yaml`."""
    folder = tmp_path / "started-here"
    folder.mkdir()
    config_file = write_config(folder, repository, redis_url, prefix)
    settings = json.loads(config_file.read_text()) | {"data_dir": "data", "catalog": "catalog.yaml"}
    (folder / "catalog.yaml").write_text((repository / "configs/catalog.yaml").read_text())
    config_file.write_text(json.dumps(settings))
    return config_file


@pytest.fixture
def runs(service: Service) -> Iterator[Runs]:
    """Announces a service that runs with the given settings, in their folder."""
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


def test_packaged_settings_are_the_default(anywhere: GenServe, here: Path) -> None:
    for command in ("webhooks list", "backup copy"):
        result = anywhere(*command.split())
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        for hint in (f"no data in {here}/.gen", "gen-serve up", "--config"):
            assert hint in result.err
    for options in ((), ("--config", "configs/local.yaml")):
        assert "there is no model no-model" in anywhere(*PLAN, *options).err, "the catalog is loaded"
    assert anywhere(*PLAN, "--config", "configs/none.yaml").err == "error: no such config file: configs/none.yaml\n"
    assert list(here.iterdir()) == []


def test_running_service_comes_after_named_settings_and_before_the_folder(
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
        assert anywhere(*PLAN).err == f"error: no such catalog: {here}/mine.yaml\n"
    monkeypatch.setenv("GEN_CONFIG", str(tmp_path / "missing.yaml"))
    assert anywhere("webhooks", "list").err == f"error: no such config file: {tmp_path}/missing.yaml\n"
    assert anywhere("webhooks", "list", "--config", str(config)).code == 0
    assert [path.name for path in here.iterdir()] == ["configs"]


def test_one_of_several_services_must_be_named(
    anywhere: GenServe, config: Path, runs: Runs, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = runs(config)
    monkeypatch.setattr("serve_app.cli.store.running", lambda: [noted, noted])
    monkeypatch.setattr("serve_app.cli.service.running", lambda: [noted, noted])
    assert "--config" in anywhere("webhooks", "list").err
    assert "--base-url" in anywhere("tasks", "list").err
    assert anywhere("webhooks", "list", "--config", str(config)).code == 0
    assert anywhere("tasks", "list", "--base-url", noted.base_url).code == 0


@pytest.mark.parametrize("command", ["tasks list", "watch --until-done"])
def test_command_calls_the_running_service(
    anywhere: GenServe, config: Path, runs: Runs, here: Path, command: str
) -> None:
    result = anywhere(*command.split())
    assert (result.code, result.err.count("\n")) != (0, 0)
    noted = runs(config)
    assert anywhere(*command.split()).code == 0
    assert anywhere(*command.split(), "--base-url", noted.base_url.replace("127.0.0.1", "localhost")).code == 0
    assert list(here.iterdir()) == []


def test_address_and_key_are_enough(
    anywhere: GenServe, service: Service, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("credits", "show", "--json", "--base-url", service.base_url)
    assert anywhere(*words, "--key", key).json == [{"left": 100}]
    for variable in ("GEN_KEY", "GEN_API_KEY"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, key)
            assert anywhere(*words).json == [{"left": 100}]


def test_local_key_is_not_sent_to_another_service(anywhere: GenServe, config: Path, runs: Runs, here: Path) -> None:
    runs(config)
    (here / ".gen").mkdir()
    (here / ".gen" / "key").write_text("gen_of_this_machine")
    result = anywhere("tasks", "list", "--base-url", "http://media.example.com")
    assert (result.code, "no API key" in result.err) == (2, True)


def test_invalid_or_unreachable_address_is_named(anywhere: GenServe) -> None:
    for address in ("localhost:8000", "ftp://example.com", "http://"):
        result = anywhere("tasks", "list", "--key", "k", "--base-url", address)
        assert (result.code, f"--base-url {address} is not a URL" in result.err) == (2, True)
    result = anywhere("tasks", "list", "--key", "k", "--base-url", "http://127.0.0.1:1")
    assert (result.code, result.err.count("\n")) == (1, 1)
    for hint in ("http://127.0.0.1:1", "gen-serve up", "--base-url"):
        assert hint in result.err


def test_reading_a_remote_redis_makes_no_folder(
    gen_serve: GenServe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gen_serve("webhooks", "list").code == 0
    assert not (tmp_path / "data").exists()
    monkeypatch.setenv("GEN_REDIS__URL", "redis://127.0.0.1:1")
    assert gen_serve("webhooks", "list").code == 1, "out of reach"
