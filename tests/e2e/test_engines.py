"""Models in inference servers: kills lose no task and charge none twice."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
import yaml
from support.local_service import LocalService
from support.polling import poll_result, wait_for_end

from deployments.video.reader import probe
from serve_app.cli.service import Client
from serve_app.launcher.embedded_redis import free_port

SERVER = f"{sys.executable} -m support.inference_server"
FIELDS = {"side": 64, "max_side": 128, "duration": {"min": 1, "max": 2, "default": 1}}


def _catalog(command_kind: str, url: str) -> dict[str, Any]:
    """Returns a catalog with an image model whose replica starts its server, and a video model on a running server."""

    def endpoint(model: str, request: str) -> dict[str, Any]:
        safety = {"default": 2, "approved": 5}
        return {"request": request, "model": model, "fields": FIELDS, "price": {"first": 1}, "safety": safety}

    child = {"kind": command_kind, "command": f"{SERVER} {{port}} {command_kind} 1"}
    fixed = {"kind": "vllm-omni", "url": url, "health_timeout_s": 2}
    return {
        "models": {
            "child": {"backend": "engine", "steps": 4, "engine": child},
            "fixed": {"backend": "engine", "steps": 4, "fps": 8, "engine": fixed},
        },
        "endpoints": {
            "gen-child": endpoint("child", "text-to-image"),
            "gen-fixed": endpoint("fixed", "text-to-video"),
        },
    }


@pytest.fixture(scope="module")
def url() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def service(url: str, tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[LocalService]:
    folder = tmp_path_factory.mktemp("engines")
    (folder / "catalog.yaml").write_text(yaml.safe_dump(_catalog("sglang", url)))
    environment = {"PYTHONPATH": str(repository / "tests")}
    service = LocalService(
        folder, repository, environment, catalog=str(folder / "catalog.yaml"), tasks={"lease_s": 3, "max_active": 200}
    )
    # Replaces the shipped profile's models, which are not in this catalog.
    settings = yaml.safe_load(service.config.read_text())
    settings["models"] = {"child": {"max_running": 8}, "fixed": {"max_running": 8}}
    settings["rewriter"] = {"enabled": False}
    settings["moderation"] = {"enabled": False}
    service.config.write_text(yaml.safe_dump(settings))
    try:
        service.start()
        yield service
    finally:
        service.close()


@pytest.fixture(scope="module")
def server(url: str, repository: Path) -> Iterator[None]:
    """The video model's server."""
    with subprocess.Popen(
        [*SERVER.split(), url.rpartition(":")[2], "vllm-omni", "3"],
        cwd=repository / "tests",
        env={"PYTHONPATH": f"{repository}:{repository / 'tests'}", "PATH": "/usr/bin"},
    ) as process:
        yield
        process.kill()


@pytest.fixture
def client(service: LocalService) -> Iterator[Client]:
    with service.client() as client:
        yield client


def submit(client: Client, endpoint: str, n: int) -> list[str]:
    bodies = [{"prompt": f"number {number}", "seed": number, "width": 64, "height": 64} for number in range(n)]
    return [client.submit(endpoint, body)["id"] for body in bodies]


def until_running(client: Client, task_id: str) -> None:
    deadline = time.monotonic() + 60
    while poll_result(client, task_id)["status"] != "Generating":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def find_engines(service: LocalService) -> list[psutil.Process]:
    """Returns the replicas' inference servers without their supervisors."""
    return [each for each in service.processes("support.inference_server") if "-c" not in each.cmdline()]


@pytest.mark.parametrize("killed", ["the engine", "its replica"])
def test_kill_loses_no_task_and_charges_none_twice(killed: str, service: LocalService, client: Client) -> None:
    credits = client.credits()
    tasks = submit(client, "gen-child", 24)
    until_running(client, tasks[0])
    (engine,) = find_engines(service)
    if killed == "the engine":
        engine.kill()
    else:
        service.kill_one("ServeReplica:gen:child")
        engine.wait(20)
    results = [wait_for_end(client, task) for task in tasks]
    assert [result["status"] for result in results] == ["Ready"] * 24
    assert len({result["result"]["sample"].partition("?")[0] for result in results}) == 24
    assert credits - client.credits() == pytest.approx(24)
    assert len(find_engines(service)) == 1


@pytest.mark.usefixtures("server")
def test_engine_finishes_a_video_after_the_dispatcher_dies(
    service: LocalService, client: Client, url: str, tmp_path: Path
) -> None:
    (task,) = submit(client, "gen-fixed", 1)
    until_running(client, task)
    time.sleep(0.5)
    for process in service.processes("ServeReplica:gen:Dispatcher"):
        process.kill()
    result = wait_for_end(client, task)
    assert result["status"] == "Ready", result
    (tmp_path / "video.mp4").write_bytes(client.fetch(result["result"]["sample"]))
    assert probe(tmp_path / "video.mp4").frames
    requests = httpx2.get(f"{url}/requests").json()
    assert len(requests) == 1, "the second attempt started the video again"


@pytest.mark.slow
def test_example_profile_runs_a_service_as_engine(tmp_path: Path, repository: Path) -> None:
    service = LocalService(tmp_path, repository)
    settings = yaml.safe_load((repository / "configs/engines.yaml").read_text())
    catalog = (repository / "configs/engines-catalog.yaml").read_text()
    catalog = catalog.replace(".gen/engine", str(tmp_path / "engine")).replace("9465", str(free_port()))
    (tmp_path / "catalog.yaml").write_text(
        catalog.replace("configs/local.yaml", str(repository / "configs/local.yaml"))
    )
    settings |= {"data_dir": str(tmp_path / "data"), "catalog": str(tmp_path / "catalog.yaml")}
    settings |= {"service": {"port": service.port}, "metrics": {"port": service.metrics_port}}
    service.config.write_text(yaml.safe_dump(settings))
    try:
        service.start()
        with service.client() as client:
            result = wait_for_end(client, submit(client, "gen-demo", 1)[0])
            assert result["status"] == "Ready", result
            assert client.fetch(result["result"]["sample"])
    finally:
        service.close()
