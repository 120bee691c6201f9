"""HTTP proxies of the environment: calls inside the network are direct."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.website import Website, serving

from deployments.contract.model import EngineConfig
from deployments.contract.objects import ObjectStore
from deployments.proxies import ENVIRONMENT, NONE, apply_proxy, object_store_options, proxy_for
from deployments.remote_engine.client import EngineClient

PROXY = "http://proxy.example.com:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Sets `http_proxy` and `https_proxy` and no other variable of proxies."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("http_proxy", PROXY)
    monkeypatch.setenv("https_proxy", PROXY)
    return monkeypatch


@pytest.fixture
def proxy(environment: pytest.MonkeyPatch) -> Iterator[Website]:
    with serving() as site:
        environment.setenv("http_proxy", site.url(host="127.0.0.1"))
        yield site


@pytest.mark.parametrize(
    ("url", "no_proxy", "expected"),
    [
        ("https://hooks.example.com/", "", PROXY),
        ("http://8.8.8.8/", "", PROXY),
        ("http://127.0.0.1:8350/", "", None),
        ("http://[::1]/", "", None),
        ("http://localhost/", "", None),
        ("http://10.1.2.3/", "", None),
        ("http://[fd00::1]/", "", None),
        ("http://minio:9000/", "", None),
        ("http://minio.store.svc.cluster.local/", "", None),
        ("http://vllm.models.svc:8000/", "", None),
        ("http://[2606:4700::1111]/", "", PROXY),
        ("https://a.svc.example.com/", "", PROXY),
        ("https://hooks.example.com/", "example.com", None),
        ("https://hooks.example.com/", ".EXAMPLE.com, other", None),
        ("https://hooks.example.com/", "*.example.com", None),
        ("https://hooks.example.com:8443/", "hooks.example.com:8443", None),
        ("https://hooks.example.com/", "hooks.example.com:8443", PROXY),
        ("https://badexample.com/", "example.com", PROXY),
        ("http://8.8.8.8/", "8.8.8.0/24", None),
        ("https://hooks.example.com/", "*", None),
        ("https://hooks.example.com/", "hooks.example.com:443", None),
        ("https://hooks.example.com./", "hooks.example.com.", None),
        ("http://[2606:4700::1111]/", "[2606:4700::1111]", None),
    ],
)
def test_only_calls_outward_go_through_the_proxy(
    environment: pytest.MonkeyPatch, url: str, no_proxy: str, expected: str | None
) -> None:
    environment.setenv("no_proxy", no_proxy)
    assert proxy_for(url) == expected


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("https_proxy", "proxy.example.com:3128", PROXY),
        ("https_proxy", "socks5://127.0.0.1:1080", None),
        ("https_proxy", "", None),
    ],
)
def test_address_of_a_proxy_may_lack_its_scheme(
    environment: pytest.MonkeyPatch, variable: str, value: str, expected: str | None
) -> None:
    environment.setenv(variable, value)
    assert proxy_for("https://hooks.example.com/") == expected


def test_setting_overrides_the_environment() -> None:
    environ = {"HTTPS_PROXY": PROXY, "no_proxy": "inside.example.com"}
    apply_proxy(ENVIRONMENT, environ)
    assert environ["HTTPS_PROXY"] == PROXY
    excluded = environ["no_proxy"].split(",")
    assert excluded[0] == "inside.example.com"
    assert {"localhost", "127.0.0.1", "::1", "169.254.169.254", ".internal", "10.0.0.0/8"} <= set(excluded)
    apply_proxy("http://other:3128", environ)
    assert "HTTPS_PROXY" not in environ
    assert (environ["http_proxy"], environ["https_proxy"]) == ("http://other:3128", "http://other:3128")
    apply_proxy(NONE, environ)
    assert not {"http_proxy", "https_proxy", "HTTPS_PROXY"} & environ.keys()


async def test_local_inference_server_is_called_directly(proxy: Website) -> None:
    with serving() as server:
        server.set_page("/health")
        client = EngineClient(EngineConfig(kind="vllm-omni", url="http://127.0.0.1"), server.url(host="127.0.0.1"))
        assert await client.is_healthy()
        await client.close()
    assert not proxy.paths


@pytest.mark.parametrize(
    "url", ["s3://bucket", "gs://bucket", "az://c", "abfss://c@a.dfs.core.windows.net", "memory:///"]
)
def test_proxies_of_provider_stores_are_left_to_the_environment(environment: pytest.MonkeyPatch, url: str) -> None:
    apply_proxy(ENVIRONMENT)
    assert object_store_options(url, {"region": "x"}) == {"region": "x"}
    environment.delenv("http_proxy")
    environment.delenv("https_proxy")
    assert object_store_options("s3://b", {"endpoint": "http://minio:9000"}) == {"endpoint": "http://minio:9000"}


def test_store_without_a_dot_is_called_directly() -> None:
    apply_proxy(ENVIRONMENT)
    options = object_store_options("s3://b", {"endpoint": "http://minio:9000"})["client_options"]
    assert options["proxy_url"] == PROXY
    assert {"minio", "169.254.169.254"} <= set(options["proxy_excludes"].split(","))


async def test_local_object_store_is_called_directly(proxy: Website) -> None:
    with serving() as server:
        server.set_page("/bucket/key", b"x", etag='"1"', last_modified="Sat, 01 Jan 2000 00:00:00 GMT")
        options = {"region": "x", "skip_signature": "true", "client_options": {"allow_http": True}}
        store = ObjectStore("s3://bucket", {**options, "endpoint": server.url(host="127.0.0.1")})
        assert await store.get("key") == b"x"
        assert not proxy.paths
        public = ObjectStore("s3://bucket", {**options, "endpoint": "http://store.example.com"})
        head = {"etag": '"1"', "last_modified": "Sat, 01 Jan 2000 00:00:00 GMT"}
        proxy.set_page("http://store.example.com/bucket/key", b"y", 200, 0.0, None, **head)
        assert await public.get("key") == b"y"


_CALL = """
import grpc, sys
from concurrent import futures
from deployments.proxies import apply_proxy
apply_proxy("environment")
server = grpc.server(futures.ThreadPoolExecutor())
port = server.add_insecure_port("127.0.0.1:0")
server.start()
grpc.channel_ready_future(grpc.insecure_channel(f"127.0.0.1:{port}")).result(timeout=60)
"""


def test_replicas_are_called_directly(proxy: Website) -> None:
    # gRPC reads the environment once in a process.
    subprocess.run([sys.executable, "-c", _CALL], check=True, timeout=120)
    assert not proxy.paths
