"""How a server is spoken to: one file for each way."""

from __future__ import annotations

from typing import Protocol

import httpx2

from serve_app.load.clock import Clock
from serve_app.load.outcome import Outcome
from serve_app.load.request import Request
from serve_app.load.target import Target


class Adapter(Protocol):
    def prepare(self, request: Request) -> None:
        """Makes beforehand what takes time to make. Raises ValueError where the request can't be sent this way."""
        ...

    async def carry(self, http: httpx2.AsyncClient, request: Request, outcome: Outcome, clock: Clock) -> None:
        """Sends it and follows it to its end, noting times. Raises NotServed unless there is a result, or
        httpx2.HTTPError."""
        ...


def chosen(target: Target) -> Adapter:
    """Raises ValueError where the adapter lacks what it needs."""
    match target.adapter:
        case "gen":
            from serve_app.load.adapters.dialect import Dialect

            return Dialect(target)
        case "openai":
            from serve_app.load.adapters.openai_images import OpenAIImages

            return OpenAIImages(target)
        case "http":
            from serve_app.load.adapters.plain_http import PlainHttp

            return PlainHttp(target)
