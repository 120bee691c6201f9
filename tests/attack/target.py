"""The service under attack, its attackers and bystander, and the attackers' own web server."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import httpx2
import yaml
from support.local_service import LocalService

from attack.wire import Address, parse_address

OPEN_HOST: Final = "127.0.0.2"
"""The only loopback address that the service may connect to."""
OPERATOR: Final = "operator"
_IMAGE: Final = {"prompt": "a cat", "width": 64, "height": 64}
SETTINGS: Final[Mapping[str, Any]] = {
    "network": {"allow": [f"{OPEN_HOST}/32"]},
    # The attacks must not end at the rate limit.
    "tasks": {"requests_per_s": 10_000, "burst": 10_000, "max_active": 5000},
    "openai": {"wait_s": 1},
}
"""Settings of a service under attack."""


class _V6Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


@dataclass(frozen=True, slots=True)
class Origin:
    """A server that redirects requests at its open address. No request may arrive at its other addresses."""

    port: int
    hits: list[str]
    """Requests at addresses that are forbidden to the service."""

    def redirect_to(self, url: str, status: int = 302) -> str:
        """Returns the URL of a redirect to `url`."""
        return f"http://{OPEN_HOST}:{self.port}/{status}/{url}"


@contextmanager
def _listening() -> Iterator[Origin]:
    hits: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def handle(self) -> None:
            if self.connection.getsockname()[0] != OPEN_HOST:
                hits.append(self.rfile.readline(200).decode(errors="replace").strip() or "a connection")
            else:
                super().handle()

        def do_GET(self) -> None:
            status, _, target = unquote(self.path).removeprefix("/").partition("/")
            self.send_response(int(status))
            self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ExitStack() as stack:
        open_server = stack.enter_context(ThreadingHTTPServer((OPEN_HOST, 0), Handler))
        port = open_server.server_port
        closed = (ThreadingHTTPServer(("127.0.0.1", port), Handler), _V6Server(("::1", port), Handler))
        for server in (open_server, *map(stack.enter_context, closed)):
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
        yield Origin(port, hits)


@dataclass(slots=True)
class Target:
    http: httpx2.Client
    """The operator's client."""
    proxied: bool
    """True if a proxy before the service closes slow connections."""
    origin: Origin
    organization: str = ""
    """The attackers' organization."""
    project: str = field(default_factory=lambda: f"attack-{uuid.uuid4().hex[:12]}")
    """A project that attacks may change; the keys have another one."""
    keys: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """The attackers' keys by role."""
    bystander: str = field(default="", repr=False)
    """The key of another organization's developer."""

    @property
    def address(self) -> Address:
        return parse_address(str(self.http.base_url))

    def create_tenant(self, *roles: str) -> tuple[str, dict[str, str]]:
        """Creates an organization with credits, a project and keys. Returns its id and the keys by role."""
        organization = f"attack-{uuid.uuid4().hex[:12]}"
        project = f"{organization}-1"
        self.create("/v1/admin/organizations", id=organization)
        self.create(f"/v1/admin/projects?organization={organization}", id=project)
        self.create(f"/v1/admin/credits/grants?organization={organization}", id="start", credits=1_000_000)
        keys = {role: self.create("/v1/admin/keys", name="x", project=project, role=role)["key"] for role in roles}
        return organization, keys

    def create(self, path: str, **body: Any) -> Any:
        return self.http.post(path, json=body).raise_for_status().json()


@contextmanager
def open_target(url: str, operator: str, *, proxied: bool) -> Iterator[Target]:
    """Creates two organizations on a running service; raises NotLocal for a service on another machine."""
    parse_address(url)
    headers = {"x-key": operator}
    with _listening() as origin, httpx2.Client(base_url=url, headers=headers, timeout=30, trust_env=False) as http:
        target = Target(http, proxied, origin)
        target.bystander = target.create_tenant("developer")[1]["developer"]
        target.organization, target.keys = target.create_tenant("administrator", "developer", "viewer")
        target.keys[OPERATOR] = operator
        target.create(f"/v1/admin/projects?organization={target.organization}", id=target.project)
        yield target


@contextmanager
def start_service(folder: Path, repository: Path) -> Iterator[LocalService]:
    """Runs the whole service with simulated models."""
    names = yaml.safe_load((repository / "configs" / "local.yaml").read_text())["models"]
    models = {name: {"checkpoint": "simulated/100ms", "cfg": None} for name in names}
    service = LocalService(folder, repository, models=models, **SETTINGS)
    try:
        service.start()
        yield service
    finally:
        service.close()


@dataclass(slots=True)
class Bystander:
    """A client of another organization."""

    worst_s: float = 0.0
    """Longest time of a submission, a poll and a cancellation together, in seconds."""
    errors: list[str] = field(default_factory=list[str])


@contextmanager
def watch_bystander(target: Target, within_s: float) -> Iterator[Bystander]:
    """Submits, polls and cancels tasks in a thread."""
    bystander, stopping, url = Bystander(), threading.Event(), str(target.http.base_url)

    def submit_tasks(http: httpx2.Client) -> None:
        while not stopping.wait(0.2):
            start = time.monotonic()
            try:
                task = http.post("/v1/gen-3-image-klein", json=_IMAGE).raise_for_status().json()
                http.get("/v1/get_result", params={"id": task["id"]}).raise_for_status()
                http.delete(f"/v1/tasks/{task['id']}")
            except httpx2.HTTPError as problem:
                bystander.errors.append(f"{type(problem).__name__}: {problem}"[:200])
            bystander.worst_s = max(bystander.worst_s, time.monotonic() - start)

    headers = {"x-key": target.bystander}
    with httpx2.Client(base_url=url, headers=headers, timeout=within_s, trust_env=False) as http:
        thread = threading.Thread(target=submit_tasks, args=(http,))
        thread.start()
        try:
            yield bystander
        finally:
            stopping.set()
            thread.join()
