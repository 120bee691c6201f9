"""What a whole service writes down while it runs: nothing that opens a door."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from support.local_service import LocalService
from support.outcomes import outcome

from serve_app.cli.service import Client

WEBHOOK_SECRET = "whsec_" + base64.b64encode(b"the hook's own secret, 32 bytes!").decode()
WRONG_KEY = "gen_not-a-key-but-somebody-may-have-mistyped-one"
WRONG_TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzb21lYm9keSJ9.c2lnbmF0dXJl"


def logs(service: LocalService) -> Iterator[Path]:
    """Everything that the service and its cluster write to."""
    yield service.log
    commands = [" ".join(process.cmdline()) for process in service.processes("raylet")]
    folders = {found for command in commands for found in re.findall(r"--log_dir=(\S+)", command)}
    assert folders, "the cluster's logs were not found"
    for folder in folders:
        yield from (file for file in Path(folder).rglob("*") if file.is_file())


@pytest.fixture
def http(service: LocalService) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=service.base_url, trust_env=False, timeout=60) as http:
        yield http


def test_no_log_holds_a_secret(service: LocalService, client: Client, http: httpx2.Client) -> None:
    key = (service.folder / "data" / "key").read_text().strip()
    operator = (service.folder / "data" / "operator-key").read_text().strip()
    made = http.post("/v1/admin/keys", json={"name": "short-lived"}, headers={"x-key": operator})
    assert made.status_code == 201, made.text

    body = {"prompt": "a star", "width": 64, "height": 64, "steps": 1}
    hook = {"webhook_url": "http://127.0.0.1:9/hook", "webhook_secret": WEBHOOK_SECRET}
    task = outcome(client, client.submit("gen-3-image-klein", body | hook)["id"])
    assert task["status"] == "Ready", task
    signature = task["result"]["sample"].partition("?")[2]
    assert client.fetch(task["result"]["sample"])

    refused = (
        http.post("/v1/gen-3-image-klein", json=body, headers={"x-key": WRONG_KEY}),
        http.get("/v1/tasks", headers={"authorization": f"Bearer {WRONG_TOKEN}"}),
        http.post("/v1/gen-3-image-klein", json=hook | {"steps": "many"}, headers={"x-key": key}),
        http.get(task["result"]["sample"].replace("sig", "gis")),
    )
    for response in refused:
        assert 400 <= response.status_code < 500, response.text
        assert not any(secret in response.text for secret in (key, WRONG_KEY, WRONG_TOKEN, WEBHOOK_SECRET))

    secrets = (key, operator, made.json()["key"], WRONG_KEY, WRONG_TOKEN, WEBHOOK_SECRET, signature)
    found = {
        (file.name, secret[:10]) for file in logs(service) for secret in secrets if secret.encode() in file.read_bytes()
    }
    assert not found
