"""Examples of clients in the documents run as they are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gen_serve_client.calls import Calls
from gen_serve_client.exchange import Steps
from gen_serve_client.types import TaskResult
from support import published_clients
from support.http_client import Client
from support.http_service import Service
from support.images import image_file
from support.markdown import blocks
from support.worker import Worker

from serve_app.webhooks.sender import signature_headers

ROOT = Path(__file__).parents[2]
EXAMPLES = [
    (document, number)
    for document in ("docs/quickstart.md", "docs/clients.md", "clients/python/README.md")
    for number in range(len(blocks(ROOT / document, "python")))
]
IMAGE = image_file(form="JPEG")
NODE = [published_clients.node(), "--no-warnings"]
"""Strips types unchecked and fails at syntax errors."""
NODE_S = 60


@pytest.fixture
def _model(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends every task at its first poll."""
    poll, delivered_ids = Calls.poll, set[str]()
    with ThreadPoolExecutor(1) as beside:  # the worker's loop can't run within another

        def deliver_and_poll(
            calls: Calls, task_id: str, wait_s: float, deadline: float | None = None
        ) -> Steps[TaskResult]:
            if task_id not in delivered_ids:
                delivered_ids.add(task_id)
                beside.submit(worker.deliver, task_id, IMAGE).result()
            return (yield from poll(calls, task_id, wait_s, deadline))

        monkeypatch.setattr(Calls, "poll", deliver_and_poll)
        yield


def run(block: str, service: Service) -> dict[str, Any]:
    """Returns the global names after the block."""
    assert block
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block.replace("http://localhost:8000", service.base_url), "example", "exec"), names)
    return names


@pytest.mark.usefixtures("_model")
@pytest.mark.parametrize(("document", "number"), EXAMPLES)
def test_every_python_example_runs(
    document: str, number: int, service: Service, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GEN_KEY", client.secret)
    block = blocks(ROOT / document, "python")[number]
    run(block, service)
    saved = [path.name for path in tmp_path.iterdir() if path.read_bytes() == IMAGE]
    assert set(saved) >= set(re.findall(r'save\("([^"]+)"\)', block))
    assert bool(saved) == ("save(" in block)


def get_example(word: str, document: str = "docs/clients.md") -> str:
    """Returns the only example of the document with this word."""
    (match,) = [each for each in blocks(ROOT / document, "python") if word in each]
    return match


def test_example_of_errors_names_the_field(
    service: Service, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GEN_KEY", client.secret)
    run(get_example("InvalidRequest", "docs/quickstart.md").replace("seed=7", "steps=17"), service)
    assert capsys.readouterr().out.startswith("body.steps ")


@pytest.mark.parametrize(("secret", "status"), [("s3cret", 204), ("another", 400)])
def test_example_of_webhooks_verifies_the_signature(service: Service, secret: str, status: int) -> None:
    body = json.dumps({"id": "x", "status": "Ready"}).encode()
    receive = run(get_example("verify_webhook"), service)["receive"]
    assert receive(signature_headers("x", datetime.now(UTC), body, secret), body) == status


def test_typescript_example_prints_the_image_url(
    service: Service, client: Client, worker: Worker, tmp_path: Path
) -> None:
    (block,) = blocks(ROOT / "docs/quickstart.md", "ts")
    script = tmp_path / "example.mts"
    script.write_text(block.replace("http://localhost:8000", service.base_url))
    environment = os.environ | {"GEN_KEY": client.secret}
    with subprocess.Popen([*NODE, str(script)], env=environment, stdout=subprocess.PIPE, text=True) as running:
        give_up = time.monotonic() + NODE_S
        while not (tasks := client.get("/v1/tasks").json()["tasks"]) and running.poll() is None:
            assert time.monotonic() < give_up, "nothing was submitted"
            time.sleep(0.05)
        worker.deliver(tasks[0]["id"], IMAGE)
        out, _ = running.communicate(timeout=NODE_S)
    assert running.returncode == 0
    assert client.get(out.strip()).content == IMAGE


def test_node_reads_the_typescript_types(tmp_path: Path) -> None:
    script = tmp_path / "types.mts"
    script.write_text((ROOT / "clients/typescript/gen-serve.d.ts").read_text())
    result = subprocess.run([*NODE, str(script)], capture_output=True, text=True, check=False, timeout=NODE_S)
    assert result.returncode == 0, result.stderr
