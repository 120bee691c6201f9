"""Becomes HAProxy, in place of the binary that Ray would start: `python proxy_start.py BINARY ARGUMENT...`.

It dies with the process that started it, also when that one is killed; by itself it would serve on. And its
configuration is changed in three places, so that clients see less of what happens behind it:

- For as long as it knows of no application it answers 503, to be tried again. Ray's 404 says that there is no such
  path, after every restart of the proxy, and clients would believe that their tasks are gone.
- When no replica can be reached it answers the same, where Ray has 500.
- A GET whose replica died before it answered is sent to another one; Ray does so only for what was never sent. A POST
  is never repeated: that would be two tasks.

A script of its own, without imports of the service: the proxy is back sooner.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
from itertools import pairwise
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_BODY = '{"detail": "The service is starting or out of reach; try again"}'
_ERROR_FILE = (
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
    f"Content-Length: {len(_BODY)}\r\n\r\n{_BODY}"
)
_CHANGES = (
    (
        r"http-request return status 404 .*for available routes.*",
        f"http-request return status 503 content-type application/json hdr Retry-After 1 string '{_BODY}'",
    ),
    (r"^( +retry-on conn-failure)$", r"\1 empty-response"),
    (r"^(frontend http_frontend\n +bind .*\n)", r"\1    http-request disable-l7-retry if !METH_GET\n"),
)


def changed(config: str, error_file: Path) -> str:
    """HAProxy's configuration, as Ray wrote it, with the changes above."""
    for pattern, replacement in _CHANGES:
        config = re.sub(pattern, replacement, config, flags=re.MULTILINE)
    return re.sub(r"^( +errorfile \d+) .*$", rf"\1 {error_file}", config, flags=re.MULTILINE)


def main() -> None:
    command = sys.argv[1:]
    for option, value in pairwise(command):
        if option == "-f":
            file = Path(value)
            error_file = file.with_name("503.http")
            error_file.write_text(_ERROR_FILE)
            file.write_text(changed(file.read_text(), error_file))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
