"""Against the template that Ray ships: these fail when a new version no longer has the lines that are changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ray.serve._private.haproxy_templates import HAPROXY_CONFIG_TEMPLATE

from serve_app.local import proxy_start

ERRORS = Path("/somewhere/503.http")
LINES = HAPROXY_CONFIG_TEMPLATE.replace("{{ config.retry_on }}", "conn-failure")


@pytest.fixture(scope="module")
def changed() -> str:
    return proxy_start.changed(LINES, ERRORS)


def test_an_unknown_path_is_a_service_that_starts(changed: str) -> None:
    assert "status 404 content-type text/plain lf-string" in LINES
    assert "status 404 content-type text/plain lf-string" not in changed
    assert "backend default_backend\n    http-request return status 503 content-type application/json" in changed


def test_only_requests_that_change_nothing_go_to_a_second_replica(changed: str) -> None:
    assert "retry-on conn-failure empty-response\n" in changed
    frontend = changed.partition("frontend http_frontend\n")[2]
    assert frontend.splitlines()[1] == "    http-request disable-l7-retry if !METH_GET"


def test_no_replica_in_reach_is_503(changed: str) -> None:
    told = [line.split() for line in changed.splitlines() if line.strip().startswith("errorfile")]
    assert told == [["errorfile", status, str(ERRORS)] for status in ("502", "503", "504")]


def test_the_rest_stays(changed: str) -> None:
    before, after = LINES.splitlines(), changed.splitlines()
    assert len(after) == len(before) + 1
    assert len(set(before) - set(after)) == 5


def test_it_becomes_the_program_with_all_its_arguments(tmp_path: Path) -> None:
    config = tmp_path / "haproxy.cfg"
    config.write_text("defaults\n    retry-on conn-failure\n    errorfile 503 /elsewhere\n")
    command = [sys.executable, proxy_start.__file__, "/bin/cat", "-n", "-f", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert "invalid option -- 'f'" in done.stderr, "cat got what was meant for the proxy"
    error_file = tmp_path / "503.http"
    assert config.read_text() == (
        f"defaults\n    retry-on conn-failure empty-response\n    errorfile 503 {error_file}\n"
    )
    head, _, body = error_file.read_bytes().decode().partition("\r\n\r\n")
    assert f"Content-Length: {len(body)}" in head
