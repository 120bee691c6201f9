"""Redis servers that answer but refuse commands, and options of Redis URLs."""

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
from support.http_client import refusal
from support.http_service import StartService

from serve_app.launcher.embedded_redis import EmbeddedRedis
from serve_app.storage import connection
from serve_app.storage.refusals import StoreRefused, describe_store_problem, translate_refusals


def fail_snapshots(redis: Redis, folder: Path) -> None:
    (folder / "dump.rdb").mkdir()
    (folder / "dump.rdb" / "file").touch()
    redis.config_set("save", "100000 100000")
    redis.bgsave()
    while redis.info("persistence")["rdb_last_bgsave_status"] == "ok":
        time.sleep(0.05)


def grant(redis: Redis, rule: str) -> None:
    redis.execute_command("ACL", "SETUSER", "default", rule)


FAULTS: Any = {
    "MISCONF": (fail_snapshots, lambda redis: redis.config_set("save", "")),
    "NOREPLICAS": (
        lambda redis, _: redis.config_set("min-replicas-to-write", 1),
        lambda redis: redis.config_set("min-replicas-to-write", 0),
    ),
    "NOPERM": (lambda redis, _: grant(redis, "resetchannels"), lambda redis: grant(redis, "allchannels")),
    "READONLY": (lambda redis, _: redis.replicaof("127.0.0.1", 1), lambda redis: redis.replicaof("NO", "ONE")),
}


def test_refusing_server_is_named_and_used_again(start_service: StartService, doomed_redis: EmbeddedRedis) -> None:
    service = start_service(redis_url=doomed_redis.url)
    with service.client() as client, Redis.from_url(doomed_redis.url) as redis:
        for number, (code, (fail, mend)) in enumerate(FAULTS.items(), 1):
            client.create_task()
            # A submission wakes an idle dispatcher, which needs a permission of its own.
            redis.zadd(f"{service.settings.redis.prefix}idle:flux3-klein", {"dispatcher": 1})
            fail(redis, doomed_redis.folder)
            service.app.state.services.readiness.clear()
            response = client.submit()
            refusal(response, 503)
            assert response.json()["code"] == "store_unavailable", code
            assert int(response.headers["retry-after"]) >= 1
            [problem] = client.get("/readyz").json()["missing"]
            assert code in problem
            mend(redis)
            service.app.state.services.readiness.clear()
            assert code not in client.get("/readyz").text
            assert len(client.get("/v1/tasks").json()["tasks"]) == number, "a refused submission was written"
        client.create_task()


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (ResponseError("MISCONF Errors writing to the AOF file: No space left on device"), "MISCONF"),
        (ResponseError("Command # 1 (SET k MASTERDOWN) of pipeline caused error: NOREPLICAS Not enough"), "NOREPLICAS"),
        (
            ResponseError("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
            "MASTERDOWN",
        ),
        (ClusterDownError("The cluster is down", status_code="CLUSTERDOWN"), "CLUSTERDOWN"),
        (ResponseError("BUSY Valkey is busy running a script."), "BUSY"),
        (
            ResponseError("ERR ACL failure in script: No permissions to access a channel script: on @user_script:1."),
            "NOPERM",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refusal_has_the_code_of_the_server(problem: ResponseError, code: str) -> None:
    with pytest.raises(StoreRefused) as refused, translate_refusals():
        raise problem
    assert refused.value.code == code
    assert f"({code})" in str(describe_store_problem(refused.value))


def test_fault_of_a_script_is_no_refusal() -> None:
    with pytest.raises(ResponseError), translate_refusals():
        raise ResponseError("ERR user_script:3: Script attempted to access nonexistent global variable 'BUSY'")


@pytest.mark.parametrize("problem", [AuthenticationError("no"), BusyLoadingError("loading")])
def test_server_without_access_is_described(problem: Exception) -> None:
    assert describe_store_problem(problem)


def test_probe_runs_every_command_of_the_scripts(repository: Path) -> None:
    command = re.compile(r"redis\.p?call\(\s*'([A-Z]+)'|\{ '([A-Z]+)'")
    scripts = {path.name: path.read_text() for path in (repository / "serve_app").rglob("*.lua")}
    done = {first or second for first, second in command.findall(scripts.pop("probe.lua"))}
    assert {first for text in scripts.values() for first, _ in command.findall(text) if first} <= done


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
async def test_sentinels_use_the_tls_and_users_of_the_url(host: str) -> None:
    first_bytes = bytearray()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host.strip("[]"), 0), family=family) as server:

        def accept() -> None:
            with server.accept()[0] as peer:
                first_bytes.extend(peer.recv(1))

        thread = threading.Thread(target=accept)
        thread.start()
        address = f"{host}:{server.getsockname()[1]}"
        options = "sentinel_username=watch&sentinel_password=other"
        redis = connection.connect(f"rediss+sentinel://user:secret@{address}/main?{options}", retries=0)
        with pytest.raises(connection.ConnectionError):
            await redis.ping()
        thread.join()
    assert first_bytes == b"\x16"
    [sentinel] = getattr(redis.connection_pool, "sentinel_manager").sentinels  # noqa: B009 - of one kind of pool
    kwargs = sentinel.connection_pool.connection_kwargs
    assert (kwargs["username"], kwargs["password"]) == ("watch", "other")


@pytest.mark.parametrize("url", ["redis://localhost/?ssl_ca=x", "redis+sentinel://localhost/main?sentinel_user=x"])
def test_unknown_option_of_a_redis_url_is_named(url: str) -> None:
    with pytest.raises(ValueError, match=url.partition("?")[2].partition("=")[0]):
        connection.connect(url)
