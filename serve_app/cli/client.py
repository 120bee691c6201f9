"""The published client as commands use it, and what went wrong with it in the words of the command line."""

from __future__ import annotations

from typing import Final

import gen_serve_client
import httpx2
from gen_serve_client import GenServeError, OutOfReach, Refused, Retries, TaskNotFound, UnexpectedAnswer

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
