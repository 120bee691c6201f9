from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray._common.formatters import JSONFormatter

from deployments.telemetry import logs
from deployments.telemetry.logs import LogSpec

SERVE = logging.getLogger("ray.serve")
OURS = logging.getLogger("serve_app.dispatcher.queue")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Returns the log of a replica as Ray Serve writes it: JSON, behind a buffer of a thousand lines."""
    path = tmp_path / "replica.log"
    target = logging.FileHandler(path)
    target.setFormatter(JSONFormatter())
    monkeypatch.setattr(SERVE, "handlers", [logging.handlers.MemoryHandler(1000, logging.ERROR, target)])
    yield path
    logs.set_levels({})
    target.close()


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_line_is_written_at_once_with_its_task(file: Path) -> None:
    logs.configure_replica(LogSpec("json"))

    async def attempt(task: str) -> None:
        logs.bind(task=task, project="shop", model="flux3-klein", attempt=2, trace="")
        await asyncio.sleep(0)  # lets the other attempt run
        OURS.warning("gave back %s", task)

    async def both() -> None:
        await asyncio.gather(attempt("a"), attempt("b"))

    asyncio.run(both())
    OURS.info("about nothing")
    first, second, last = lines(file)
    assert (first["message"], first["levelname"]) == ("gave back a", "WARNING")
    fields = {"project": "shop", "model": "flux3-klein", "attempt": 2}
    assert first.items() >= {"task": "a", **fields}.items()
    assert second.items() >= {"task": "b", **fields}.items()
    assert "trace" not in first
    assert "task" not in last


def test_replica_configured_twice_logs_once(file: Path) -> None:
    logs.configure_replica(LogSpec())
    logs.configure_replica(LogSpec())
    OURS.info("once")
    assert [line["message"] for line in lines(file)] == ["once"]


def test_levels_hold_for_a_module_until_they_are_removed(file: Path) -> None:
    logs.configure_replica(LogSpec(levels={"serve_app.webhooks": "error"}))

    def list_levels() -> list[object]:
        file.write_text("")
        for name in ("serve_app.dispatcher.queue", "serve_app.webhooks.sender", "deployments.replica"):
            for level in (logging.DEBUG, logging.WARNING):
                logging.getLogger(name).log(level, "%s %s", name.split(".")[1], logging.getLevelName(level).lower())
        return [line["message"] for line in lines(file)]

    usual = ["dispatcher warning", "replica warning"]
    assert list_levels() == usual
    logs.set_levels({"serve_app.webhooks": "error", "serve_app.dispatcher": "debug", "deployments": "critical"})
    assert list_levels() == ["dispatcher debug", "dispatcher warning"]
    logs.set_levels({"serve_app.webhooks": "error"})
    assert list_levels() == usual


@pytest.mark.parametrize(
    ("module", "level", "message"),
    [
        ("", "debug", "serve_app, deployments, ray.serve"),
        ("serve_apps", "debug", "serve_app"),
        ("serve_app.dispatcher", "loud", "debug, info, warning"),
    ],
)
def test_unknown_module_or_level_lists_valid_ones(module: str, level: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        logs.check_level(module, level)


def test_other_process_writes_the_same_fields(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure_stderr(LogSpec("json"))

    async def failing() -> None:
        logs.bind(task="t", attempt=1)
        try:
            raise KeyError("what")
        except KeyError:
            OURS.exception("failed")

    asyncio.run(failing())
    line = json.loads(capsys.readouterr().err)
    assert line.pop("asctime")
    assert "KeyError: 'what'" in line.pop("exc_text")
    assert line == {"levelname": "ERROR", "name": OURS.name, "message": "failed", "task": "t", "attempt": 1}


def test_only_json_changes_the_options_of_ray_serve() -> None:
    assert LogSpec().serve_options() == {}
    assert LogSpec("json").serve_options()["logging_config"]["encoding"] == "JSON"
