"""The service under attack, who attacks it, and what the attackers brought with them."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from support.local_service import LocalService

from attack.origin import OPEN_HOST, Origin, listening
from attack.wire import Address, Answer, Request, exchange

CREDITS: Final = 1_000_000
MOST_ACTIVE: Final = 5000
ROLES: Final = ("administrator", "developer", "billing_manager", "viewer")
OPERATOR: Final = "operator"
_PATIENCE_S: Final = 30.0
SETTINGS: Final[Mapping[str, Any]] = {
    "network": {"allow": [f"{OPEN_HOST}/32"]},
    # What is tried is the service, not its rate limit.
    "tasks": {"requests_per_s": 10_000, "burst": 10_000, "max_active": MOST_ACTIVE},
    "openai": {"wait_s": 1},
}
"""Of a service that is to be attacked. Loopback stays closed to it, but for the attackers' own origin."""


class NotOurs(ValueError):
    """A service that must not be attacked from here."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """An organization with credits and a project, and a key of each role."""

    organization: str
    project: str
    keys: Mapping[str, str] = field(repr=False)


@dataclass(slots=True)
class Stage:
    address: Address
    operator: str = field(repr=False)
    """The operator's key."""
    proxied: bool
    """Whether a proxy stands before the service, which then ends slow connections and words broken requests."""
    origin: Origin
    attacker: Tenant = field(init=False)
    victim: Tenant = field(init=False)
    """Has what attackers are after."""
    bystander: Tenant = field(init=False)
    spare: str = field(init=False)
    """A project of the attackers' that may come to harm."""
    working_keys: dict[str, str] = field(default_factory=dict, repr=False)
    """A developer's of each project."""
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def secrets(self) -> frozenset[str]:
        """What no answer to an attacker may hold."""
        return frozenset({self.operator, *self.victim.keys.values(), *self.bystander.keys.values()})

    def key(self, role: str = "developer") -> str:
        return self.operator if role == OPERATOR else self.attacker.keys[role]

    def next_number(self) -> int:
        """Another one each time: names of what is made must differ."""
        return next(self._numbers)

    async def send(self, request: Request, key: str, limit_s: float = _PATIENCE_S) -> Answer:
        return await exchange(self.address, request, key, limit_s)

    async def ask(self, method: str, target: str, body: Any = None, *, key: str) -> Answer:
        """A request as an honest client makes it."""
        data = b"" if body is None else json.dumps(body).encode()
        headers = () if body is None else (("Content-Type", "application/json"),)
        return await self.send(Request(method, target, data, headers), key)

    async def made(self, method: str, target: str, body: Any, *, key: str | None = None) -> Any:
        """What an honest request came to, by the operator unless another key is given. Raises RuntimeError."""
        answer = await self.ask(method, target, body, key=key or self.operator)
        if answer.status >= 300:
            raise RuntimeError(f"{method} {target} came to {answer.status}: {answer.text[:500]}")
        return json.loads(answer.body) if answer.body else None

    async def settle_in(self) -> None:
        self.attacker, self.victim, self.bystander = [await self.tenant() for _ in range(3)]
        self.spare = await self.project(self.attacker.organization)
        self.working_keys = {each.project: each.keys["developer"] for each in (self.attacker, self.victim)}
        self.working_keys[self.spare] = await self.new_key(self.spare)

    async def tenant(self, credits: float = CREDITS) -> Tenant:
        organization = f"attack-{uuid.uuid4().hex[:12]}"
        await self.made("POST", "/v1/admin/organizations", {"id": organization})
        project = await self.project(organization)
        await self.made(
            "POST", f"/v1/admin/credits/grants?organization={organization}", {"id": "start", "credits": credits}
        )
        return Tenant(organization, project, {role: await self.new_key(project, role) for role in ROLES})

    async def project(self, organization: str, **changes: Any) -> str:
        project = f"{organization}-{uuid.uuid4().hex[:8]}"
        await self.made("POST", f"/v1/admin/projects?organization={organization}", {"id": project})
        await self.made("PATCH", f"/v1/admin/projects/{project}", {"max_active": MOST_ACTIVE, **changes})
        return project

    async def new_key(self, project: str, role: str = "developer") -> str:
        made = await self.made("POST", "/v1/admin/keys", {"name": "attack", "project": project, "role": role})
        return made["key"]

    async def cancel(self, task_id: str, key: str) -> Answer:
        return await self.ask("DELETE", f"/v1/tasks/{task_id}", key=key)


def address_of(url: str) -> Address:
    """Where a service listens. Raises NotOurs unless that is an address of this machine's loopback interface."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    try:
        ours = parts.scheme == "http" and ip_address(host).is_loopback
    except ValueError:
        ours = False
    if not ours:
        raise NotOurs(f"{url} is not on this machine: only http:// addresses of the loopback interface are attacked")
    return Address(host, parts.port or 80)


@asynccontextmanager
async def staged(url: str, operator: str, *, proxied: bool) -> AsyncIterator[Stage]:
    """A service that runs, with three organizations made for the attack. Raises NotOurs."""
    address = address_of(url)
    async with listening() as origin:
        stage = Stage(address, operator, proxied, origin)
        await stage.settle_in()
        yield stage


@contextmanager
def started(folder: Path, repository: Path) -> Iterator[LocalService]:
    """The whole service, with models that only take time: what is attacked stands before them."""
    names = yaml.safe_load((repository / "configs" / "local.yaml").read_text())["models"]
    models = {name: {"checkpoint": "simulated/100ms"} for name in names}
    service = LocalService(folder, repository, models=models, **SETTINGS)
    try:
        service.start()
        yield service
    finally:
        service.close()
