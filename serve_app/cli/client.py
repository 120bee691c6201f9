"""The published client as commands use it, and what went wrong with it in the words of the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import gen_serve_client
import httpx2
from gen_serve_client import GenServeError, OutOfReach, Refused, Retries, TaskNotFound, UnexpectedAnswer
from gen_serve_client.exchange import Param

from serve_app.cli.description import Description

_RETRIES: Final = Retries(tries=3, too_many_tries=1, first_wait_s=0.2, longest_wait_s=5)
"""Somebody waits at the command line."""


class ServiceError(Exception):
    """What can't be done though it was asked for rightly. Its text is fit for a person."""


class Client(gen_serve_client.Client):
    """Talks to one service, through no proxy. Use as a context manager."""

    def __init__(self, base_url: str, key: str = "") -> None:
        self._direct = httpx2.Client(trust_env=False)
        super().__init__(base_url, key, retries=_RETRIES, http=self._direct)

    def close(self) -> None:
        self._direct.close()

    def description(self) -> Description:
        """What the service says of itself; one that says nothing has no endpoints in it."""
        try:
            return Description(self.openapi())
        except (Refused, UnexpectedAnswer):
            return Description({})

    def admin(self, method: str, path: str, body: Mapping[str, object] | None = None, **params: Param | None) -> Any:
        """What a route of `/v1/admin` answers."""
        return self.request(method, f"/v1/admin/{quote(path)}", body, **params)

    def request(self, method: str, path: str, body: Mapping[str, object] | None = None, **params: Param | None) -> Any:
        """What the path answers, None where that is empty; without the parameters that are None."""
        given = {name: value for name, value in params.items() if value is not None}
        return self._run(self._calls.request(method, path, params=given, body=body, repeatable=method != "POST"))


def told(problem: GenServeError) -> str:
    """With what to do about it, where the command line can do something."""
    match problem:
        case OutOfReach(status=None, connected=False):
            return (
                f"{problem.base_url} can't be reached ({problem.reason}); "
                "gen-serve up starts a service, --base-url names another"
            )
        case OutOfReach(status=int(status)):
            return f"HTTP {status}: {problem.reason}"
        case UnexpectedAnswer():
            return f"{problem}; see --base-url"
        case TaskNotFound():
            return "there is no such task, or it is no longer kept"
        case _:
            return str(problem)
