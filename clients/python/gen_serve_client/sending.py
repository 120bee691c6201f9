"""A step's request and answer in the terms of the HTTP library."""

from __future__ import annotations

from typing import Any

import httpx2

from gen_serve_client.exchange import Answer, NoAnswer, Request


def options(request: Request) -> dict[str, Any]:
    """All but the content, which is read in different ways. Nobody is led to another place: the key would go along."""
    return {
        "method": request.method,
        "url": request.url,
        "params": dict(request.params) or None,
        "headers": dict(request.headers),
        "timeout": request.timeout_s,
        "follow_redirects": False,
    }


def to_answer(response: httpx2.Response) -> Answer:
    return Answer(response.status_code, dict(response.headers), response.content)


def no_answer(problem: httpx2.HTTPError) -> NoAnswer:
    """Raises ValueError for what can't be sent at all, so that it is not tried again."""
    if isinstance(problem, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        raise ValueError(str(problem)) from None
    connected = not isinstance(problem, httpx2.ConnectError | httpx2.ConnectTimeout)
    return NoAnswer(str(problem) or type(problem).__name__, connected)
