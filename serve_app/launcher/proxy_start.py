"""Start of HAProxy with this service's configuration, in place of the binary that Ray would start.

    python proxy_start.py [--bind HOST] BINARY ARGUMENT...

It dies with the process that started it, also when that one is killed; by itself it would serve on. And its
configuration is changed where Ray's serves clients worse, or strangers better, than it should:

- For as long as it knows of no application it answers 503, to be tried again. Ray's 404 says that there is no such
  path, after every restart of the proxy, and clients would believe that their tasks are gone.
- When no replica can be reached it answers the same, where Ray has 500; all its other errors are JSON, too, and so is
  what a replica's server says of a request that never came to the app.
- A GET whose replica died before it answered is sent to another one; Ray does so only for what was never sent. A POST
  is never repeated: that would be two tasks.
- Slow connections end (`ProxyLimits`), and there is room for thousands of them. They never reach a replica: headers
  and the beginning of a body are waited for here. The app bounds the rest of a large body (`api/bodies.py`).
- One key can't fill all places of a replica with bodies that come slowly.
- What names no path, a method that no route has, or too much in its URL or headers, is answered here. (What is no HTTP
  at all, or has not sent its headers in time, gets a page that is built into HAProxy.)
- With `--bind` clients are served on that address, whatever Ray and its replicas listen on. Statistics and metrics of
  the proxy are on loopback always, and its control socket is its owner's.

A script of its own, without imports of the service: the proxy is back sooner.
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
_OWN_FILES = 200
"""Open files that are no connections: listeners, logs, health checks."""
_CONNECTIONS = 20_000
_URL_BYTES = 8 * 1024
_HEADER_BYTES = 16 * 1024
_BUFFER_BYTES = 32 * 1024
"""Of a connection each way; what is refused by a rule has to fit in."""


@dataclass(frozen=True)
class ProxyLimits:
    """Limits of the proxy. Times are in seconds."""

    request: int = 10
    """For a request's headers, and again for the beginning of its body: 32 KiB, or all if it is smaller."""
    idle: int = 75
    """Without a byte from or to a client who should send or read. Not while an answer is waited for."""
    answer: int = 180
    """Until the answer begins, and between its parts: more than the longest poll, and a slow submission."""
    keep_alive: int = 75
    """Seconds between two requests of a connection. Load balancers keep idle ones for 60 s: with less here, they would
    send requests into connections that are just being closed."""
    posts: int = 512
    """That one key, or token, has on its way: a quarter of what one ingress replica works on at a time."""


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_UNAVAILABLE = "The service is starting or out of reach; try again"
_ERRORS = {
    400: "Not a valid HTTP request",
    403: "Forbidden",
    408: "The request came too slowly",
    413: "Request body too large",
    500: "Internal Server Error",
    501: "Not Implemented",
    # The file of 502 says 503, too.
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
"""As the service's own errors have them."""


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
    # An id that long is nobody's: the service makes one of its own.
    f"http-request del-header x-request-id if {{ req.hdr(x-request-id),length gt {_REQUEST_ID_CHARS} }}",
    _return_rule(414, f"The URL is too long: at most {_URL_BYTES} bytes", f"if {{ url,length gt {_URL_BYTES} }}"),
    _return_rule(
        431,
        f"The headers are too large: at most {_HEADER_BYTES} bytes in all",
        f"if {{ req.hdrs,length gt {_HEADER_BYTES} }}",
    ),
)


_NO_REQUEST = (
    # A replica's server has pages of its own for headers that it reads otherwise; the app's are all JSON.
    f"http-response return status 400 content-type application/json string '{_body(400, _ERRORS[400])}'"
    " if { status 400 } { res.hdr(content-type) -m beg text/plain }"
)


def rewrite_config(config: str, errors: Path, *, bind: str | None = None, limits: ProxyLimits | None = None) -> str:
    """HAProxy's configuration, as Ray wrote it, with the changes above. `errors` is the folder of the error files."""
    limits = limits or ProxyLimits()
    defaults = (
        f"timeout http-request {limits.request}s",
        f"timeout client {limits.idle}s",
        f"timeout client-fin {limits.request}s",
        f"timeout server {limits.answer}s",
        f"timeout http-keep-alive {limits.keep_alive}s",
        "option forwardfor",  # whose sign-ins fail is counted by address
        "option http-ignore-probes",  # browsers open connections in advance: no 408 for these
        *(f"errorfile {status} {errors / f'{status}.http'}" for status in _ERRORS),
    )
    many = f"Too many requests of this key at a time: at most {limits.posts}; try again shortly"
    rules = (
        *_RULES,
        "stick-table type binary len 20 size 100k expire 1m store conn_cur",
        "http-request track-sc0 req.hdr(x-key),sha1 if METH_POST { req.hdr(x-key) -m found }",
        "http-request track-sc0 req.hdr(authorization),sha1 if METH_POST { req.hdr(authorization) -m found }",
        _return_rule(429, many, f"if {{ sc0_conn_cur gt {limits.posts} }}", "hdr Retry-After 1"),
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
        (r"^( +)maxconn .*", rf"\1maxconn {_connections()}\n    tune.http.maxhdr 512"),
        (r"^( +tune.bufsize) .*", rf"\1 {_BUFFER_BYTES}"),
        (r"^(frontend prometheus\n +bind ):", r"\g<1>127.0.0.1:"),
        (r"^(listen stats\n +bind )\*:", r"\g<1>127.0.0.1:"),
        (r"^( +stats socket .*)mode 666", r"\1mode 600"),
    )
    for pattern, replacement in changes:
        config, count = re.subn(pattern, replacement, config, flags=re.MULTILINE)
        if not count:
            # Ray's template has changed: without limits for slow and many requests the proxy must not run.
            raise LookupError(f"HAProxy's configuration has nothing like {pattern!r}")
    if bind is not None:
        address = f"[{bind}]" if ":" in bind else bind
        config = re.sub(r"^(frontend http_frontend\n +bind ).*:", rf"\g<1>{address}:", config, flags=re.MULTILINE)
    return config


def write_errors(folder: Path) -> None:
    """What HAProxy answers by itself, as it goes over the wire, a file each."""
    for code, detail in _ERRORS.items():
        status = HTTPStatus(503 if code == 502 else code)
        head = [f"HTTP/1.1 {status.value} {status.phrase}", "Content-Type: application/json", "Connection: close"]
        head += ["Retry-After: 1"] * (status == 503)
        body = _body(code, detail)
        (folder / f"{code}.http").write_text("\r\n".join([*head, f"Content-Length: {len(body)}", "", body]), newline="")


def _lines(directives: tuple[str, ...]) -> str:
    return "".join(f"    {directive}\n" for directive in directives).replace("\\", r"\\")


def _connections() -> int:
    """As many as the open files that this process may have allow; HAProxy starts with no more.

    It reckons with two and a half each: to the client, to a replica, and a pipe for a quarter of them.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if most == resource.RLIM_INFINITY else min(_CONNECTIONS, (most - _OWN_FILES) * 2 // 5)


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
