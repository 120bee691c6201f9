"""A Redis server that answers, but refuses."""

from __future__ import annotations

import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, BusyLoadingError, ClusterDownError, ResponseError
from support.http_client import ENDPOINT, refusal
from support.http_service import StartService

from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.storage.refusals import StoreRefused, describe_store_problem, translate_refusals


def _fail_snapshots(redis: Redis, folder: Path) -> None:
    (folder / "dump.rdb").mkdir()
    (folder / "dump.rdb" / "file").touch()
    redis.config_set("save", "100000 100000")
    redis.bgsave()
    while redis.info("persistence")["rdb_last_bgsave_status"] == "ok":
        time.sleep(0.05)


BREAKS: Any = {
    "MISCONF": (_fail_snapshots, lambda redis: redis.config_set("save", "")),
    "NOREPLICAS": (
        lambda redis, _: redis.config_set("min-replicas-to-write", 1),
        lambda redis: redis.config_set("min-replicas-to-write", 0),
    ),
    "NOPERM": (
        lambda redis, _: redis.execute_command("ACL", "SETUSER", "default", "resetchannels"),
        lambda redis: redis.execute_command("ACL", "SETUSER", "default", "allchannels"),
    ),
    "READONLY": (lambda redis, _: redis.replicaof("127.0.0.1", 1), lambda redis: redis.replicaof("NO", "ONE")),
    "MASTERDOWN": (
        lambda redis, _: (redis.config_set("replica-serve-stale-data", "no"), redis.replicaof("127.0.0.1", 1)),
        lambda redis: redis.replicaof("NO", "ONE"),
    ),
}


@pytest.mark.parametrize("code", BREAKS)
def test_a_refusing_server_is_named_and_forgiven(
    start_service: StartService, doomed_redis: EmbeddedRedis, code: str
) -> None:
    fail, mend = BREAKS[code]
    service = start_service(redis_url=doomed_redis.url)
    with service.client() as client, Redis.from_url(doomed_redis.url) as redis:
        client.create_task()
        # A dispatcher that waits for work is woken by the next task.
        redis.zadd(f"{service.settings.redis.prefix}idle:flux3-klein", {"dispatcher": 1})
        fail(redis, doomed_redis.folder)
        response = client.submit()
        refusal(response, 503)
        assert response.json()["code"] == "store_unavailable"
        assert int(response.headers["retry-after"]) >= 1
        [problem] = client.get("/readyz").json()["missing"]
        assert code in problem or (code == "MASTERDOWN" and "READONLY" in problem), "it answers writes so"
        mend(redis)
        service.app.state.services.readiness.clear()
        assert code not in client.get("/readyz").text
        assert len(client.get("/v1/tasks").json()["tasks"]) == 1, "what was refused was not written"
        assert client.post(ENDPOINT, json={"prompt": "a cat"}).status_code == 200


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), "MISCONF"),
        (ResponseError("Command # 1 (SET k MASTERDOWN) of pipeline caused error: NOREPLICAS Not enough"), "NOREPLICAS"),
        (ClusterDownError("The cluster is down", status_code="CLUSTERDOWN"), "CLUSTERDOWN"),
        (ResponseError("BUSY Valkey is busy running a script."), "BUSY"),
        (
            ResponseError("ERR ACL failure in script: No permissions to access a channel script: on @user_script:1."),
            "NOPERM",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusals_by_code(problem: ResponseError, code: str) -> None:
    with pytest.raises(StoreRefused) as refused, translate_refusals():
        raise problem
    assert refused.value.code == code
    assert f"({code})" in str(describe_store_problem(refused.value))


def test_faults_of_scripts_are_no_refusals() -> None:
    with pytest.raises(ResponseError), translate_refusals():
        raise ResponseError("ERR user_script:3: Script attempted to access nonexistent global variable 'BUSY'")


@pytest.mark.parametrize("problem", [AuthenticationError("no"), BusyLoadingError("loading")])
def test_servers_that_let_nobody_in_are_described(problem: Exception) -> None:
    assert describe_store_problem(problem)


def test_probe_does_what_the_scripts_do(repository: Path) -> None:
    command = re.compile(r"redis\.p?call\(\s*'([A-Z]+)'|\{ '([A-Z]+)'")
    scripts = {path.name: path.read_text() for path in (repository / "serve_app").rglob("*.lua")}
    done = {first or second for first, second in command.findall(scripts.pop("probe.lua"))}
    assert {first for text in scripts.values() for first, _ in command.findall(text) if first} <= done


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_sentinels_are_asked_by_tls_where_their_server_is(host: str) -> None:
    first_bytes = bytearray()
    with socket.create_server(
        (host.strip("[]"), 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
    ) as server:

        def accept() -> None:
            with server.accept()[0] as peer:
                first_bytes.extend(peer.recv(1))

        thread = threading.Thread(target=accept)
        thread.start()
        port = server.getsockname()[1]
        redis = connection.connect(
            f"rediss+sentinel://user:secret@{host}:{port}/main?sentinel_username=watch&sentinel_password=other",
            retries=0,
        )
        with pytest.raises(connection.ConnectionError):
            await redis.ping()
        thread.join()
    assert first_bytes == b"\x16"
    [sentinel] = getattr(redis.connection_pool, "sentinel_manager").sentinels  # noqa: B009 - of one kind of pool
    options = sentinel.connection_pool.connection_kwargs
    assert (options["username"], options["password"]) == ("watch", "other")


@pytest.mark.parametrize("url", ["redis://localhost/?ssl_ca=x", "redis+sentinel://localhost/main?sentinel_user=x"])
def test_unknown_options_of_the_address_are_named(url: str) -> None:
    with pytest.raises(ValueError, match=url.partition("?")[2].partition("=")[0]):
        connection.connect(url)
