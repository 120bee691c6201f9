"""The HTTP client of commands, and their shared options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote

import gen_serve_client
import httpx2
import typer
from gen_serve_client import GenServeError, OutOfReach, Refused, Retries, TaskNotFound, UnexpectedAnswer
from gen_serve_client.exchange import Param

from serve_app.cli.fields import Description
from serve_app.config.sections import is_loopback
from serve_app.launcher.running import RunningService, running

_RETRIES: Final = Retries(tries=3, too_many_tries=1, first_wait_s=0.2, longest_wait_s=5)
"""Short, since a person waits at the command line."""


class ServiceError(Exception):
    """The command is valid but failed. The message is for a person."""


class Client(gen_serve_client.Client):
    """A client of one service that uses no proxy. It is a context manager."""

    def __init__(self, base_url: str, key: str = "") -> None:
        self._direct = httpx2.Client(trust_env=False)
        super().__init__(base_url, key, retries=_RETRIES, http=self._direct)

    def close(self) -> None:
        self._direct.close()

    def description(self) -> Description:
        """Returns the service's OpenAPI description; an empty one if it has none."""
        try:
            return Description(self.openapi())
        except (Refused, UnexpectedAnswer):
            return Description({})

    def admin(self, method: str, path: str, body: Mapping[str, object] | None = None, **params: Param | None) -> Any:
        return self.request(method, f"/v1/admin/{quote(path)}", body, **params)

    def request(self, method: str, path: str, body: Mapping[str, object] | None = None, **params: Param | None) -> Any:
        """Calls a path, without the parameters that are None. Returns the JSON, None for an empty body."""
        query = {name: value for name, value in params.items() if value is not None}
        return self._run(self._calls.request(method, path, params=query, body=body, repeatable=method != "POST"))


def explain(problem: GenServeError) -> str:
    """Describes an error, with a hint if another command or option helps."""
    match problem:
        case OutOfReach(status=None, connected=False):
            return (
                f"{problem.base_url} can't be reached ({problem.reason}); "
                "start a service with gen-serve up, or name another with --base-url"
            )
        case OutOfReach(status=int(status)):
            return f"HTTP {status}: {problem.reason}"
        case UnexpectedAnswer():
            return f"{problem}; see --base-url"
        case TaskNotFound():
            return "there is no such task, or it has been deleted"
        case _:
            return str(problem)


DEFAULT_BASE_URL = "http://127.0.0.1:8000"


def connect(base_url: str | None, key: str) -> Client:
    """Returns a client with a key. Raises ValueError without one."""
    return Client(*address_and_key(base_url, key))


def connect_as_operator(base_url: str | None, key: str) -> Client:
    """Returns a client with the key given, else the operator key of this machine. Raises ValueError without either."""
    return Client(*address_and_key(base_url, key, "operator-key"))


def call_admin(
    base_url: str | None,
    key: str,
    method: str,
    path: str,
    body: Mapping[str, object] | None = None,
    **params: Param | None,
) -> Any:
    """Makes one call of `/v1/admin`, as `Client.admin` does, with the key of `connect_as_operator`."""
    with connect_as_operator(base_url, key) as client:
        return client.admin(method, path, body, **params)


def address_and_key(base_url: str | None, key: str, file: str = "key") -> tuple[str, str]:
    """Returns the service's address, and the key given, else that in `file` of its data folder. Raises ValueError."""
    url, service = find_service(base_url)
    return url, key or _read_key(url, service, file)


def connect_without_key(base_url: str | None) -> Client:
    return Client(find_service(base_url)[0])


def find_service(base_url: str | None) -> tuple[str, RunningService | None]:
    """Returns the address, and the service behind it if this user runs it on this machine. Raises ValueError."""
    services = running()
    if base_url is not None:
        url = _check_url(base_url)
        return base_url, next((service for service in services if _is_same(httpx2.URL(service.base_url), url)), None)
    if len(services) > 1:
        addresses = ", ".join(service.base_url for service in services)
        raise ValueError(f"several services run on this machine; choose one with --base-url: {addresses}")
    return (services[0].base_url, services[0]) if services else (DEFAULT_BASE_URL, None)


def _check_url(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"--base-url {base_url} is not a URL like {DEFAULT_BASE_URL} or https://media.example.com")
    return url


def _is_same(one: httpx2.URL, other: httpx2.URL) -> bool:
    is_same_host = one.host == other.host or (is_loopback(one.host) and is_loopback(other.host))
    return is_same_host and (one.scheme, one.port) == (other.scheme, other.port)


def _read_key(base_url: str, service: RunningService | None, file: str) -> str:
    """Reads a key of this machine, which is sent to a service on this machine only."""
    path = (service.data_dir if service else Path(os.environ.get("GEN_DATA_DIR", ".gen"))) / file
    if (service or is_loopback(httpx2.URL(base_url).host)) and path.is_file():
        return path.read_text().strip()
    raise ValueError(
        "no API key: pass --key or set GEN_KEY"
        + ("" if service else f" (no service of yours runs at {base_url}; gen-serve up starts one)")
    )


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="Settings file; by default that of the running service on this machine, or configs/local.yaml.",
        envvar="GEN_CONFIG",
        show_default=False,
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        help="Address of the service; by default the one on this machine, or http://127.0.0.1:8000.",
        envvar="GEN_BASE_URL",
        show_default=False,
    ),
]
Key = Annotated[
    str,
    typer.Option(
        "--key",
        help="API key; by default that of the service on this machine.",
        envvar=["GEN_KEY", "GEN_API_KEY"],
        show_default=False,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.")]
