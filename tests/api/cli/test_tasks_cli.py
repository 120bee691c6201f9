"""The commands of tasks: list, show, wait, watch and cancel."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from rich.console import Console
from support.cli_runner import GenServe
from support.http_service import Service
from support.images import image_file
from support.website import serving

from serve_app.cli.output import describe_outlook
from serve_app.tasks.task import Status

SUBMIT = ("generate", "gen-3-image-klein", "prompt=a red star", "seed=7", "--detach")


@pytest.fixture
def task_id(client_cli: GenServe) -> str:
    return client_cli(*SUBMIT).out.strip()


def test_task_is_listed_and_shown(client_cli: GenServe, service: Service, task_id: str) -> None:
    [row] = client_cli("tasks", "list").table
    assert row[:3] == [task_id, "gen-3-image-klein", "Pending"]
    assert int(dict(client_cli("tasks", "show", task_id).table)["queue_position"]) >= 1
    service.worker.deliver(task_id, image_file(form="JPEG"))
    [row] = client_cli("tasks", "list").table
    assert (row[0], row[2], row[-1]) == (task_id, "Ready", "0.9")
    [task] = client_cli("tasks", "list", "--json").json["tasks"]
    assert (task["id"], task["status"], task["cost"]) == (task_id, "Ready", 0.9)
    assert client_cli("tasks", "list", "--active").table == []
    details = dict(client_cli("tasks", "show", task_id).table)
    assert (details["id"], details["status"], details["seed"], details["cost"]) == (task_id, "Ready", "7", "0.9")
    assert client_cli("tasks", "show", task_id, "--json").json["result"]["seed"] == 7


def test_next_page_keeps_the_filter(client_cli: GenServe) -> None:
    ids = [client_cli(*SUBMIT).out.strip() for _ in range(3)]
    first = client_cli("tasks", "list", "--active", "--limit", "2")
    *_, last = first.out.splitlines()
    assert last.startswith("more: gen-serve tasks list --active --cursor ")
    rest = client_cli("tasks", "list", "--active", "--limit", "2", "--cursor", last.split()[-1])
    assert [row[0] for row in first.table[:2]] + rest.ids == ids[::-1]


@pytest.mark.parametrize("command", ["show", "wait", "watch"])
def test_missing_task_is_named(client_cli: GenServe, command: str) -> None:
    result = client_cli("tasks", command, str(uuid.uuid4()))
    assert (result.code, result.out, result.err) == (1, "", "error: there is no such task, or it has been deleted\n")


def test_reason_of_an_end_is_shown(client_cli: GenServe, service: Service, task_id: str) -> None:
    other = client_cli(*SUBMIT).out.strip()
    service.worker.end(other, Status.REQUEST_MODERATED, details={"Moderation Reasons": ["violence", "self-harm"]})
    assert dict(client_cli("tasks", "show", other).table)["Moderation Reasons"] == "violence, self-harm"
    assert client_cli("tasks", "cancel", task_id).out == f"cancelled {task_id}\n"
    assert client_cli("tasks", "wait", task_id).err == "error: Error: Cancelled by the client\n"


@pytest.mark.usefixtures("model")
def test_watched_task_is_not_saved(client_cli: GenServe, task_id: str) -> None:
    result = client_cli("tasks", "watch", task_id, notes=True)
    assert result.out.startswith("http://")
    assert f"id {task_id}" in result.err


def test_watch_prints_every_change(client_cli: GenServe, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [client_cli(*SUBMIT).out.strip() for _ in range(2)]
    steps = iter(
        (
            lambda: service.worker.advance(ids[0], Status.GENERATING, progress=0.5),
            lambda: service.worker.deliver(ids[0], image_file(form="JPEG")),
            lambda: service.worker.end(ids[1], Status.ERROR),
        )
    )
    monkeypatch.setattr("time.sleep", lambda _: next(steps)())
    lines = [line.split("\t") for line in client_cli("watch", "--until-done").out.splitlines()]
    changes = [(0, "Pending"), (1, "Pending"), (0, "Generating"), (0, "Ready"), (1, "Error")]
    assert [(line[0], line[2]) for line in lines] == [(ids[number], status) for number, status in changes]


def test_watch_redraws_a_terminal_until_an_interrupt(
    client_cli: GenServe, service: Service, monkeypatch: pytest.MonkeyPatch, task_id: str
) -> None:
    looks = iter((lambda: service.worker.deliver(task_id, image_file(form="JPEG")),))

    def sleep(_: float) -> None:
        if (look := next(looks, None)) is None:
            raise KeyboardInterrupt
        look()

    monkeypatch.setattr("serve_app.cli.tasks.Console", lambda: Console(force_terminal=True, width=200))
    monkeypatch.setattr("time.sleep", sleep)
    result = client_cli("watch", notes=True)
    assert result.code == 130
    assert result.out.index("Pending") < result.out.index("Ready")


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({}, ""),
        ({"queue_position": 3, "eta": 12.3}, "3rd in the queue, about 12 s"),
        ({"queue_position": 111}, "111th in the queue"),
        ({"eta": 0.0}, "about 1 s left"),
        ({"eta": 600.0}, "about 10 min left"),
        ({"queue_position": 1, "eta": 25.0, "message": "starting model, about 20 s"}, "starting model, about 20 s"),
    ],
)
def test_outlook_of_a_task_is_described(details: dict[str, Any], words: str) -> None:
    assert describe_outlook(details) == words


def test_foreign_server_is_named_in_one_line(client_cli: GenServe) -> None:
    with serving("127.0.0.1") as web:
        web.set_page("/v1/credits", b"<html>")
        result = client_cli("credits", "show", "--base-url", web.url(""))
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "--base-url" in result.err
