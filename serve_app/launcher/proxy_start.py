"""Start of HAProxy with this service's configuration, in place of the binary that Ray would start.

    python proxy_start.py [--bind HOST] BINARY ARGUMENT...

The proxy dies with the process that started it, also if that is killed; by itself it would serve on. The script
changes Ray's configuration in these points:

- While the proxy knows no application it answers 503, so that clients try again. Ray's 404, after every restart of the
  proxy, would tell clients that their tasks do not exist.
- It answers 503 when no replica can be reached, where Ray has 500. All its other errors are JSON, too, as is the
  server's answer to a request that never reached the app.
- It repeats a GET whose replica died before the answer on another replica; Ray repeats only requests that were never
  sent. It never repeats a POST, which could make a second task.
- It ends slow connections (`ProxyLimits`) and has capacity for thousands of them. Slow headers and the beginning of a
  slow body never reach a replica. The app limits the rest of a large body (`api/bodies.py`).
- One key can't fill all slots of a replica with slow bodies.
- It rejects requests without a path, with a method that no route has, or with too long URL or headers. (HAProxy answers
  with built-in pages if a request is not HTTP, or if its headers are late.)
- With `--bind` it serves clients on that address, wherever Ray and its replicas listen. Its statistics and metrics are
  on loopback, and its control socket is private to its owner.

The script imports nothing of the service, so that a proxy restarts sooner.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import sys
from dataclasses import dataclass
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_OTHER_FILES = 200
"""Open files for listeners, logs and health checks."""
_CONNECTIONS = 20_000
_URL_BYTES = 8 * 1024
_HEADER_BYTES = 16 * 1024
_BUFFER_BYTES = 32 * 1024
"""Buffer of a connection in each direction. A request must fit in for a rule to reject it."""


@dataclass(frozen=True)
class ProxyLimits:
    """Limits of the proxy. Times in seconds."""

    request: int = 10
    """Time for a request's headers, and again for the first 32 KiB of its body."""
    idle: int = 75
    """Time without a byte from or to a client that should send or read. It does not count while a replica works."""
    answer: int = 180
    """Time until the answer begins, and between its parts; longer than any poll or submission."""
    keep_alive: int = 75
    """Time between two requests of a connection. It exceeds the 60 s of load balancers, which would otherwise send
    requests into closing connections."""
    posts: int = 512
    """Concurrent POSTs of a key or token; far fewer than the slots of an ingress replica."""


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_UNAVAILABLE = "The service is starting or out of reach; try again"
_ERRORS = {
    400: "Not a valid HTTP request",
    403: "Forbidden",
    408: "The request came too slowly",
    413: "Request body too large",
    500: "Internal Server Error",
    501: "Not Implemented",
    # Sent with status 503, as 503 is.
    502: _UNAVAILABLE,
    503: _UNAVAILABLE,
    504: "No answer came in time; what was asked may have been done all the same: GET /v1/tasks lists the tasks",
}


_CODES = {
    400: "bad_request",
    403: "forbidden",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "body_too_large",
    414: "url_too_long",
    429: "rate_limited",
    431: "headers_too_large",
    500: "internal_error",
    501: "not_implemented",
    502: "unavailable",
    503: "unavailable",
    504: "outcome_unknown",
}
"""Codes of the service's own errors."""


def _body(status: int, detail: str) -> str:
    return json.dumps({"detail": detail, "code": _CODES[status]})


def _return_rule(status: int, detail: str, condition: str, header: str = "") -> str:
    action = f"status {status} content-type application/json {header} string '{_body(status, detail)}'"
    return f"http-request return {action} {condition}"


_REQUEST_ID_CHARS = 128
_METHOD_LIST = ", ".join(_METHODS)
_ALLOW = f"hdr Allow '{_METHOD_LIST}'"
_RULES = (
    "http-request disable-l7-retry if !METH_GET",
    f"http-request return status 204 {_ALLOW} if METH_OPTIONS {{ url -m str * }}",
    _return_rule(405, f"Method Not Allowed: only {_METHOD_LIST}", f"if !{{ method {' '.join(_METHODS)} }}", _ALLOW),
    _return_rule(400, "The request names no path: it has to begin with /", "if !{ path_beg / }"),
    # The service makes a request id of its own if that of the client is too long.
    f"http-request del-header x-request-id if {{ req.hdr(x-request-id),length gt {_REQUEST_ID_CHARS} }}",
    _return_rule(414, f"The URL is too long: at most {_URL_BYTES} bytes", f"if {{ url,length gt {_URL_BYTES} }}"),
    _return_rule(
        431,
        f"The headers are too large: at most {_HEADER_BYTES} bytes in all",
        f"if {{ req.hdrs,length gt {_HEADER_BYTES} }}",
    ),
)


_NO_REQUEST = (
    # A replica's server answers headers that it can't parse in plain text; the app always answers in JSON.
    f"http-response return status 400 content-type application/json string '{_body(400, _ERRORS[400])}'"
    " if { status 400 } { res.hdr(content-type) -m beg text/plain }"
)


def rewrite_config(config: str, errors: Path, *, bind: str | None = None, limits: ProxyLimits | None = None) -> str:
    """Returns Ray's configuration of HAProxy with the changes above. `errors` is the folder of the error files."""
    limits = limits or ProxyLimits()
    defaults = (
        f"timeout http-request {limits.request}s",
        f"timeout client {limits.idle}s",
        f"timeout client-fin {limits.request}s",
        f"timeout server {limits.answer}s",
        f"timeout http-keep-alive {limits.keep_alive}s",
        "option forwardfor",  # failed sign-ins are counted by address
        "option http-ignore-probes",  # no 408 for connections that browsers open in advance
        *(f"errorfile {status} {errors / f'{status}.http'}" for status in _ERRORS),
    )
    too_many = f"Too many requests of this key at a time: at most {limits.posts}; try again shortly"
    rules = (
        *_RULES,
        "stick-table type binary len 20 size 100k expire 1m store conn_cur",
        "http-request track-sc0 req.hdr(x-key),sha1 if METH_POST { req.hdr(x-key) -m found }",
        "http-request track-sc0 req.hdr(authorization),sha1 if METH_POST { req.hdr(authorization) -m found }",
        _return_rule(429, too_many, f"if {{ sc0_conn_cur gt {limits.posts} }}", "hdr Retry-After 1"),
        f"http-request wait-for-body time {limits.request}s",
        _NO_REQUEST,
    )
    changes = (
        (
            r"http-request return status 404 .*for available routes.*",
            _return_rule(503, _UNAVAILABLE, "", "hdr Retry-After 1"),
        ),
        (r"^( +retry-on conn-failure)$", r"\1 empty-response"),
        (r"^ +timeout (client|server|http-request|http-keep-alive) .*\n", ""),
        (r"^ +errorfile .*\n", ""),
        (r"^(defaults\n +mode http\n)", r"\1" + _lines(defaults)),
        (r"^(frontend http_frontend\n +bind .*\n)", r"\1" + _lines(rules)),
        (r"^( +)maxconn .*", rf"\1maxconn {_max_connections()}\n    tune.http.maxhdr 512"),
        (r"^( +tune.bufsize) .*", rf"\1 {_BUFFER_BYTES}"),
        (r"^(frontend prometheus\n +bind ):", r"\g<1>127.0.0.1:"),
        (r"^(listen stats\n +bind )\*:", r"\g<1>127.0.0.1:"),
        (r"^( +stats socket .*)mode 666", r"\1mode 600"),
    )
    for pattern, replacement in changes:
        config, count = re.subn(pattern, replacement, config, flags=re.MULTILINE)
        if not count:
            # Ray's template has changed. The proxy must not run without its limits.
            raise LookupError(f"HAProxy's configuration does not match {pattern!r}")
    if bind is not None:
        address = f"[{bind}]" if ":" in bind else bind
        config = re.sub(r"^(frontend http_frontend\n +bind ).*:", rf"\g<1>{address}:", config, flags=re.MULTILINE)
    return config


def write_errors(folder: Path) -> None:
    """Writes HAProxy's own responses as raw HTTP, one file each."""
    for code, detail in _ERRORS.items():
        status = HTTPStatus(503 if code == 502 else code)
        head = [f"HTTP/1.1 {status.value} {status.phrase}", "Content-Type: application/json", "Connection: close"]
        head += ["Retry-After: 1"] * (status == 503)
        body = _body(code, detail)
        (folder / f"{code}.http").write_text("\r\n".join([*head, f"Content-Length: {len(body)}", "", body]), newline="")


def _lines(directives: tuple[str, ...]) -> str:
    return "".join(f"    {directive}\n" for directive in directives).replace("\\", r"\\")


def _max_connections() -> int:
    """Returns the number of connections that the limit on open files allows; HAProxy does not start with more.

    HAProxy counts 2.5 files for each: to the client, to a replica, and a pipe for every fourth.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if limit == resource.RLIM_INFINITY else min(_CONNECTIONS, (limit - _OTHER_FILES) * 2 // 5)


def main() -> None:
    bind, command = None, sys.argv[1:]
    if command[0] == "--bind":
        bind, command = command[1], command[2:]
    for option, value in pairwise(command):
        if option == "-f":
            file = Path(value)
            write_errors(file.parent)
            file.write_text(rewrite_config(file.read_text(), file.parent, bind=bind))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
