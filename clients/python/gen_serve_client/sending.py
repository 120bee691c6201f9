"""Conversion of requests and answers to and from httpx2."""

from __future__ import annotations

from typing import Any

import httpx2

from gen_serve_client.exchange import Answer, HttpRequest, NoAnswer


def options(request: HttpRequest) -> dict[str, Any]:
    """Returns the arguments of a request except its content, which the two clients read differently."""
    return {
        "method": request.method,
        "url": request.url,
        "params": dict(request.params) or None,
        "headers": dict(request.headers),
        "timeout": request.timeout_s,
        "follow_redirects": False,  # a redirect would take the key along
    }


def to_answer(response: httpx2.Response) -> Answer:
    return Answer(response.status_code, dict(response.headers), response.content)


def no_answer(problem: httpx2.HTTPError) -> NoAnswer:
    """Converts an error. Raises ValueError for a request that can't be sent at all, so that it is not retried."""
    if isinstance(problem, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        raise ValueError(str(problem)) from None
    connected = not isinstance(problem, httpx2.ConnectError | httpx2.ConnectTimeout)
    return NoAnswer(str(problem) or type(problem).__name__, connected)
