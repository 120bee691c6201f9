"""What a whole service writes down while it runs: nothing that opens a door."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
from support.local_service import LocalService
from support.polling import outcome

from serve_app.cli.service import Client

WEBHOOK_SECRET = "whsec_" + base64.b64encode(b"the hook's own secret, 32 bytes!").decode()
WRONG_KEY = "gen_not-a-key-but-somebody-may-have-mistyped-one"
WRONG_TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzb21lYm9keSJ9.c2lnbmF0dXJl"


def logs(service: LocalService) -> Iterator[Path]:
    """Everything that the service and its cluster write to."""
    yield service.log
    commands = [" ".join(process.cmdline()) for process in service.processes("raylet")]
    folders = {path for command in commands for path in re.findall(r"--log_dir=(\S+)", command)}
    assert folders, "the cluster's logs were not found"
    for folder in folders:
        yield from (file for file in Path(folder).rglob("*") if file.is_file())


def test_no_log_holds_a_secret(service: LocalService, client: Client) -> None:
    body = {"prompt": "a star", "width": 64, "height": 64, "steps": 1}
    hook = {"webhook_url": "http://127.0.0.1:9/hook", "webhook_secret": WEBHOOK_SECRET}
    task = outcome(client, client.submit("gen-3-image-klein", body | hook)["id"])
    sample = task["result"]["sample"]
    assert client.fetch(sample)
    with httpx2.Client(base_url=service.base_url, trust_env=False, timeout=60) as http:
        response = http.post("/v1/admin/keys", json={"name": "short-lived"}, headers={"x-key": service.operator_key})
        secrets = (service.key, service.operator_key, response.json()["key"], WRONG_KEY, WRONG_TOKEN, WEBHOOK_SECRET)
        for refused in (
            http.post("/v1/gen-3-image-klein", json=body, headers={"x-key": WRONG_KEY}),
            http.get("/v1/tasks", headers={"authorization": f"Bearer {WRONG_TOKEN}"}),
            http.post("/v1/gen-3-image-klein", json=hook | {"steps": "many"}, headers={"x-key": service.key}),
            http.get(sample.replace("sig", "gis")),
        ):
            assert 400 <= refused.status_code < 500, refused.text
            assert not any(secret in refused.text for secret in secrets)
    contents = [(file.name, file.read_bytes()) for file in logs(service)]
    searched = (*secrets, sample.partition("?")[2])
    assert {
        (name, secret[:10]) for name, content in contents for secret in searched if secret.encode() in content
    } == set()
