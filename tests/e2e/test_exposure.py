"""Ports and logs of a whole service: it listens on loopback alone and logs no secrets."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import httpx2
import psutil
from support.local_service import LocalService
from support.polling import wait_for_end

from serve_app.cli.service import Client

WEBHOOK_SECRET = "whsec_" + base64.b64encode(b"the hook's own secret, 32 bytes!").decode()
WRONG_KEY = "gen_not-a-key-but-somebody-may-have-mistyped-one"
WRONG_TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzb21lYm9keSJ9.c2lnbmF0dXJl"


def test_nothing_listens_beyond_loopback(service: LocalService) -> None:
    listeners: dict[tuple[str, int], str] = {}
    for process in service.processes():
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                listeners[connection.laddr.ip, connection.laddr.port] = process.name()
    assert {service.port, service.metrics_port} <= {port for _, port in listeners}
    exposed = [name for (ip, _), name in listeners.items() if not ip_address(ip.removeprefix("::ffff:")).is_loopback]
    assert exposed == []


def test_forged_host_and_metrics_are_rejected(service: LocalService) -> None:
    for path, headers, status in (
        ("/v1/get_result?id=x", {}, 404),
        ("/v1/get_result?id=x", {"Host": "evil.test"}, 421),
        ("/metrics", {}, 404),
    ):
        answer = httpx2.get(f"{service.base_url}{path}", headers=headers, trust_env=False, timeout=60)
        assert answer.status_code == status


def find_logs(service: LocalService) -> Iterator[Path]:
    """Yields the log files of the service and its cluster."""
    yield service.log
    commands = [" ".join(process.cmdline()) for process in service.processes("raylet")]
    folders = {path for command in commands for path in re.findall(r"--log_dir=(\S+)", command)}
    assert folders, "the cluster's logs were not found"
    for folder in folders:
        yield from (file for file in Path(folder).rglob("*") if file.is_file())


def test_logs_contain_no_secret(service: LocalService, client: Client) -> None:
    body = {"prompt": "a star", "width": 64, "height": 64, "steps": 1}
    hook = {"webhook_url": "http://127.0.0.1:9/hook", "webhook_secret": WEBHOOK_SECRET}
    task = wait_for_end(client, client.submit("gen-3-image-klein", body | hook)["id"])
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
    contents = [(file.name, file.read_bytes()) for file in find_logs(service)]
    searched = (*secrets, sample.partition("?")[2])
    assert {
        (name, secret[:10]) for name, content in contents for secret in searched if secret.encode() in content
    } == set()
