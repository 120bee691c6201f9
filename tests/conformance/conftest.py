"""The server under test: the app in this process, or a running server (`--server`), or a new one (`--start`).

The app in this process has no models: tests that need results are deselected then.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2
import pytest
from anyio.from_thread import start_blocking_portal
from server_under_test import KLEIN, ServerUnderTest
from support.http_client import HOOK
from support.http_service import running
from support.local_service import LocalService
from support.webhook_receiver import receiving

from serve_app.config.settings import TaskSettings

_TUNED: Final = Path("deployments/bundled/adapters/outlined.safetensors")
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_TIMEOUT_S: Final = 90.0
"""Seconds for a request; polls wait for up to a minute."""
_MANY: Final = 1_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--server", default="", help="address of the server to check")
    group.addoption("--server-key", default="", help="key of a project on the server")
    group.addoption("--start", action="store_true", help="start a service as `make run` does and check it")
    group.addoption("--destination-host", default="", help="this machine's host as the server reaches it, for webhooks")
    group.addoption("--finetune", default="", help="ENDPOINT=ID of an adapter on the server")
    group.addoption("--video", action="store_true", help="also make a video, which takes minutes and about 20 credits")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    capabilities = _find_capabilities(config)
    if config.getoption("--promises"):
        return
    deselected = [
        item for item in items if any(not capabilities >= set(mark.args) for mark in item.iter_markers("needs"))
    ]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


def _option(config: pytest.Config, option: str) -> str:
    """Returns an option, or "" when all folders are tested, where the options are unknown."""
    return config.getoption(option, None) or ""


def _find_capabilities(config: pytest.Config) -> set[str]:
    start = _option(config, "--start")
    options = {"results": _option(config, "--server") or start, "destination": start or _destination_host(config)}
    options |= {"finetune": start or _option(config, "--finetune"), "video": _option(config, "--video")}
    capabilities = {name for name, value in options.items() if value}
    is_remote = _option(config, "--server") and "destination" not in capabilities
    return capabilities if is_remote else capabilities | {"hook"}


def _destination_host(config: pytest.Config) -> str:
    local = urlsplit(_option(config, "--server")).hostname in _LOOPBACK
    return _option(config, "--destination-host") or ("127.0.0.1" if local else "")


def _add_finetune(repository: Path, address: str, key: str) -> str:
    """Uploads an adapter. Returns its id."""
    command = [str(Path(sys.executable).parent / "gen-serve"), "finetunes", "add", str(repository / _TUNED)]
    where = ["--base", KLEIN, "--base-url", address, "--key", key]
    return subprocess.run([*command, *where], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="session")
def under_test(request: pytest.FixtureRequest, repository: Path) -> Iterator[ServerUnderTest]:
    config, folder = request.config, request.getfixturevalue("tmp_path_factory")
    address, key, finetune = (_option(config, name) for name in ("--server", "--server-key", "--finetune"))
    host = _destination_host(config)
    with ExitStack() as stack:
        if _option(config, "--start"):
            service = LocalService(folder.mktemp("under-test"), repository)
            stack.callback(service.close)
            service.start()
            address, key, host = service.base_url, service.key, "127.0.0.1"
            finetune = f"{KLEIN}={_add_finetune(repository, address, key)}"
        elif not address:
            redis_url = request.getfixturevalue("redis_url")
            tasks = TaskSettings(max_queued=_MANY, lease_s=3600, requests_per_s=_MANY, burst=_MANY)
            app = stack.enter_context(running(folder.mktemp("under-test"), redis_url, repository, tasks=tasks))
            address, key = app.base_url, stack.enter_context(app.client()).secret
        destination, idle_hook = None, "" if _option(config, "--server") else HOOK
        if host:
            portal = stack.enter_context(start_blocking_portal())
            listening = receiving("127.0.0.1" if host == "127.0.0.1" else "")
            destination = stack.enter_context(portal.wrap_async_context_manager(listening))
        http = stack.enter_context(httpx2.Client(base_url=address.rstrip("/"), timeout=_TIMEOUT_S, trust_env=False))
        base, _, finetune_id = finetune.partition("=")
        yield ServerUnderTest(http, key, destination, host, idle_hook, (base, finetune_id))


@pytest.fixture
def server(under_test: ServerUnderTest) -> Iterator[ServerUnderTest]:
    yield under_test
    under_test.cancel_tasks()
