"""The service under attack, who attacks it, who is to be left alone, and the attackers' own web server."""

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
"""The one address on the loopback interface that the service's guard is told to let through."""
OPERATOR: Final = "operator"
_IMAGE: Final = {"prompt": "a cat", "width": 64, "height": 64}
SETTINGS: Final[Mapping[str, Any]] = {
    "network": {"allow": [f"{OPEN_HOST}/32"]},
    # What is tried is the service, not its rate limit.
    "tasks": {"requests_per_s": 10_000, "burst": 10_000, "max_active": 5000},
    "openai": {"wait_s": 1},
}
"""Of a service that is to be attacked. Loopback stays closed to it, but for the attackers' own server."""


class _V6Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


@dataclass(frozen=True, slots=True)
class Origin:
    """Redirects who asks at its open address; at all others no request of the service's must ever arrive."""

    port: int
    hits: list[str]
    """What arrived at an address that is closed to the service."""

    def redirect_to(self, url: str, status: int = 302) -> str:
        """The open address of a redirect to `url`."""
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
class Stage:
    http: httpx2.Client
    """Of the operator."""
    proxied: bool
    """Whether a proxy stands before the service, which then ends slow connections."""
    origin: Origin
    organization: str = ""
    """The attackers'."""
    project: str = field(default_factory=lambda: f"attack-{uuid.uuid4().hex[:12]}")
    """Another than that of the keys: it may come to harm."""
    keys: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    """By role."""
    bystander: str = field(default="", repr=False)
    """The key of another organization's developer."""

    @property
    def address(self) -> Address:
        return parse_address(str(self.http.base_url))

    def tenant(self, *roles: str) -> tuple[str, dict[str, str]]:
        """An organization with credits, and keys of its project."""
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
def open_stage(url: str, operator: str, *, proxied: bool) -> Iterator[Stage]:
    """A service that runs, with two organizations made for the attack. Raises NotOurs."""
    parse_address(url)
    headers = {"x-key": operator}
    with _listening() as origin, httpx2.Client(base_url=url, headers=headers, timeout=30, trust_env=False) as http:
        stage = Stage(http, proxied, origin)
        stage.bystander = stage.tenant("developer")[1]["developer"]
        stage.organization, stage.keys = stage.tenant("administrator", "developer", "viewer")
        stage.keys[OPERATOR] = operator
        stage.create(f"/v1/admin/projects?organization={stage.organization}", id=stage.project)
        yield stage


@contextmanager
def start_service(folder: Path, repository: Path) -> Iterator[LocalService]:
    """The whole service, with models that only take time: what is attacked stands before them."""
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
    """Another organization's client."""

    worst_s: float = 0.0
    """How long it waited at most, for a submission, a poll and a cancellation."""
    trouble: list[str] = field(default_factory=list[str])
    """When it was not served, or not in time."""


@contextmanager
def watching(stage: Stage, within_s: float) -> Iterator[Bystander]:
    """Submits, polls and cancels, again and again, in a thread of its own."""
    bystander, over, url = Bystander(), threading.Event(), str(stage.http.base_url)

    def ask_on(http: httpx2.Client) -> None:
        while not over.wait(0.2):
            began = time.monotonic()
            try:
                task = http.post("/v1/gen-3-image-klein", json=_IMAGE).raise_for_status().json()
                http.get("/v1/get_result", params={"id": task["id"]}).raise_for_status()
                http.delete(f"/v1/tasks/{task['id']}")
            except httpx2.HTTPError as problem:
                bystander.trouble.append(f"{type(problem).__name__}: {problem}"[:200])
            bystander.worst_s = max(bystander.worst_s, time.monotonic() - began)

    headers = {"x-key": stage.bystander}
    with httpx2.Client(base_url=url, headers=headers, timeout=within_s, trust_env=False) as http:
        asking = threading.Thread(target=ask_on, args=(http,))
        asking.start()
        try:
            yield bystander
        finally:
            over.set()
            asking.join()
