"""The server under test: the app in this process, or with an option any server, or one that is started for it.

The app in this process has nobody who works behind it: what needs results is left out then, and is checked with
`--start` or `--server`.
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
"""Of one request; polls wait for up to a minute."""
_MANY: Final = 1_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("conformance")
    group.addoption("--server", default="", help="the address of the server to check")
    group.addoption("--server-key", default="", help="a key of a project there")
    group.addoption("--start", action="store_true", help="check a service that is started as `make run` does")
    group.addoption("--destination-host", default="", help="how the server reaches this machine, for webhooks")
    group.addoption("--finetune", default="", help="ENDPOINT=ID of a tuned model there")
    group.addoption("--video", action="store_true", help="make a video, too: minutes, and about 20 credits")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    there = _there(config)
    if config.getoption("--promises"):
        return
    deselected = [item for item in items if any(not there >= set(mark.args) for mark in item.iter_markers("needs"))]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


def _option(config: pytest.Config, option: str) -> str:
    """Options are not known where the tests of all folders run."""
    return config.getoption(option, None) or ""


def _there(config: pytest.Config) -> set[str]:
    start = _option(config, "--start")
    capabilities = {"results": _option(config, "--server") or start, "destination": start or _destination_host(config)}
    capabilities |= {"finetune": start or _option(config, "--finetune"), "video": _option(config, "--video")}
    there = {name for name, is_there in capabilities.items() if is_there}
    return there if _option(config, "--server") and "destination" not in there else there | {"hook"}


def _destination_host(config: pytest.Config) -> str:
    local = urlsplit(_option(config, "--server")).hostname in _LOOPBACK
    return _option(config, "--destination-host") or ("127.0.0.1" if local else "")


def _add_finetune(repository: Path, address: str, key: str) -> str:
    """The id of a tuned model that is added there."""
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
    under_test.cancel_what_was_started()
