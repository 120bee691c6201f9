"""Models of an operator's catalog: inference servers, a pipeline of diffusers, and one that scales; a moderator."""

from __future__ import annotations

import io
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
from PIL import Image
from support.local_service import LocalService
from support.polling import poll_result, wait_for_end
from support.redis_process import until
from support.tiny_classifier import moderation_settings

from deployments.video.reader import probe
from serve_app.cli.service import Client
from serve_app.launcher.embedded_redis import free_port

pytestmark = pytest.mark.slow

SERVER = f"{sys.executable} -m support.inference_server"
COMFYUI = f"{sys.executable} -m support.comfy_server"
MAX_REPLICAS = 3
ON_DEMAND: dict[str, Any] = {"min_replicas": 0, "upscale_delay_s": 0, "downscale_delay_s": 600}
BURST: dict[str, Any] = {**ON_DEMAND, "max_replicas": MAX_REPLICAS, "target_wait_s": 10, "target_ongoing_requests": 1}


def write_catalog(folder: Path, repository: Path, url: str) -> None:
    """Writes the example catalog, whose demo model runs in a second gen-serve, with further models.

    The replica of `child` starts its inference server; that of `fixed` is at `url`.
    """
    from support.tiny_pipelines import build  # imports diffusers

    text = (repository / "configs/engines-catalog.yaml").read_text()
    catalog = yaml.safe_load(text.replace("configs/local.yaml", str(repository / "configs/local.yaml")))
    child = {"kind": "sglang", "command": f"{SERVER} {{port}} sglang 1"}
    fixed = {"kind": "vllm-omni", "url": url, "health_timeout_s": 2}
    catalog["models"] |= {
        "child": {"backend": "engine", "steps": 4, "engine": child},
        "fixed": {"backend": "engine", "steps": 4, "fps": 8, "engine": fixed},
        "pipeline": {"checkpoint": str(build("z-image", folder / "z-image")), "steps": 3},
        "burst": {"checkpoint": "simulated/500ms", "steps": 4},
        **{name: {"checkpoint": "bundled/flux2klein", "steps": 4} for name in ("one", "other")},
    }
    for model in ("child", "fixed", "pipeline", "burst", "one", "other"):
        catalog["endpoints"][f"gen-{model}"] = {
            "request": "text-to-video" if model == "fixed" else "text-to-image",
            "model": model,
            "fields": {"side": 64, "max_side": 128, "multiple": 32, "duration": {"min": 1, "max": 2, "default": 1}},
            "price": {"first": 1},
            "safety": {"default": 2, "approved": 5},
        }
    workflow = folder / "workflow.json"
    workflow.write_text((repository / "configs/workflows/text-to-image.json").read_text())
    engine = {"kind": "comfyui", "workflow": str(workflow), "command": f"{COMFYUI} {{port}} {{folder}} 0.02"}
    catalog["models"]["workflow"] = {"backend": "engine", "engine": engine}
    catalog["endpoints"]["gen-workflow"] = {
        "request": "workflow",
        "model": "workflow",
        "inputs": {
            "prompt": {"at": "Positive.text", "role": "prompt"},
            "seed": {"at": "Sampler.seed", "role": "seed"},
            "size": {"at": ["Size.width", "Size.height"], "role": "size"},
        },
        "price": {"first": 1},
        "safety": {"default": 2, "approved": 5},
    }
    (folder / "catalog.yaml").write_text(yaml.safe_dump(catalog))


@pytest.fixture(scope="module")
def url() -> str:
    return f"http://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def own_service(url: str, tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[LocalService]:
    folder = tmp_path_factory.mktemp("catalog")
    write_catalog(folder, repository, url)
    service = LocalService(folder, repository, {"PYTHONPATH": str(repository / "tests")})
    settings = yaml.safe_load((repository / "configs/engines.yaml").read_text())
    settings |= {"data_dir": str(folder / "data"), "catalog": str(folder / "catalog.yaml")}
    settings |= {"service": {"port": service.port}, "metrics": {"port": service.metrics_port}}
    settings |= {"tasks": {"lease_s": 3, "max_active": 200}}
    encoded = {"dtype": "float32", "threads": 1, "text_encoder": "shared", "autoscaling_config": ON_DEMAND}
    settings["models"]["demo"]["autoscaling_config"] = ON_DEMAND  # its engine is a second gen-serve
    settings["models"] |= {
        "child": {"max_running": 8, "autoscaling_config": ON_DEMAND},
        "workflow": {"max_running": 8, "autoscaling_config": ON_DEMAND},
        "fixed": {"max_running": 8},
        "pipeline": {"threads": 1, "autoscaling_config": ON_DEMAND},
        "burst": {"max_batch": 1, "max_running": 2, "autoscaling_config": BURST},
        **dict.fromkeys(("one", "other"), encoded),
    }
    settings["text_encoders"] = {"shared": {"checkpoint": "bundled/flux2klein", "dtype": "float32"}}
    settings["moderation"] = moderation_settings(folder / "classifier")  # a classifier runs in a deployment of its own
    service.config.write_text(yaml.safe_dump(settings))
    try:
        service.start()
        yield service
    finally:
        service.close()


@pytest.fixture
def own_client(own_service: LocalService) -> Iterator[Client]:
    with own_service.client() as client:
        yield client


def submit(client: Client, model: str, number: int) -> list[str]:
    bodies = [{"prompt": f"number {seed}", "seed": seed, "width": 64, "height": 64} for seed in range(number)]
    return [client.submit(f"gen-{model}", body)["id"] for body in bodies]


def generate(client: Client, model: str) -> bytes:
    task = wait_for_end(client, submit(client, model, 1)[0])
    assert task["status"] == "Ready", task
    return client.fetch(task["result"]["sample"])


def until_running(client: Client, task_id: str) -> None:
    until(lambda: poll_result(client, task_id)["status"] == "Generating")


def find_engines(service: LocalService, module: str = "inference_server") -> list[psutil.Process]:
    """Returns the replicas' inference servers without their supervisors."""
    return [each for each in service.processes(f"support.{module}") if "-c" not in each.cmdline()]


def test_burst_on_a_cold_model_starts_all_replicas(own_service: LocalService, own_client: Client) -> None:
    assert own_service.processes("ServeReplica:gen:burst") == []
    with Client(own_service.base_url, own_service.operator_key) as operator:
        fleet = operator.admin("GET", "fleet")
    (row,) = [each for each in fleet["models"] if each["model"] == "burst"]
    assert [row[f"{name}_replicas"] for name in ("target", "min", "max")] == [0, 0, MAX_REPLICAS]
    tasks = submit(own_client, "burst", 12)
    assert [wait_for_end(own_client, task)["status"] for task in tasks] == ["Ready"] * len(tasks)
    (controller,) = own_service.processes("ServeController")
    log = Path(f"/tmp/ray/session_latest/logs/serve/controller_{controller.pid}.log").read_text()
    decisions = [line for line in log.splitlines() if "name='burst'" in line and "Upscaling" in line]
    # An earlier decision can come amid the submissions. The last one must not wait for a first replica.
    assert f"to {MAX_REPLICAS} replicas" in decisions[-1]
    assert "current running replicas: 0" in decisions[-1]


def test_killed_engine_or_replica_loses_no_task(own_service: LocalService, own_client: Client) -> None:
    for killed in ("engine", "replica"):
        credits = own_client.credits()
        tasks = submit(own_client, "child", 12)
        until_running(own_client, tasks[0])
        (engine,) = find_engines(own_service)
        if killed == "engine":
            engine.kill()
        else:
            own_service.kill_one("ServeReplica:gen:child")
            engine.wait(20)
        results = [wait_for_end(own_client, task) for task in tasks]
        assert [result["status"] for result in results] == ["Ready"] * 12, killed
        assert len({result["result"]["sample"].partition("?")[0] for result in results}) == 12
        assert credits - own_client.credits() == pytest.approx(12)
        assert len(find_engines(own_service)) == 1


def test_killed_comfyui_loses_no_task(own_service: LocalService, own_client: Client) -> None:
    credits = own_client.credits()
    tasks = submit(own_client, "workflow", 15)
    until_running(own_client, tasks[0])
    (server,) = find_engines(own_service, "comfy_server")
    server.kill()
    results = [wait_for_end(own_client, task) for task in tasks]
    assert [result["status"] for result in results] == ["Ready"] * 15
    assert credits - own_client.credits() == pytest.approx(15)
    with Image.open(io.BytesIO(own_client.fetch(results[0]["result"]["sample"]))) as image:
        assert image.size == (64, 64)


def test_cancelled_workflow_stops_no_other(own_service: LocalService, own_client: Client) -> None:
    tasks = submit(own_client, "workflow", 6)
    until_running(own_client, tasks[0])
    cancelled = {tasks[1], tasks[4]}
    for task in cancelled:
        own_client.cancel(task)
    statuses = {task: wait_for_end(own_client, task)["status"] for task in tasks}
    assert {task for task, status in statuses.items() if status == "Ready"} == set(tasks) - cancelled


def test_engine_finishes_a_video_after_the_dispatcher_dies(
    own_service: LocalService, own_client: Client, url: str, tmp_path: Path, repository: Path
) -> None:
    environment = {"PYTHONPATH": f"{repository}:{repository / 'tests'}", "PATH": "/usr/bin"}
    with subprocess.Popen([*SERVER.split(), url.rpartition(":")[2], "vllm-omni", "3"], env=environment) as server:
        (task,) = submit(own_client, "fixed", 1)
        until_running(own_client, task)
        time.sleep(0.5)
        for process in own_service.processes("ServeReplica:gen:Dispatcher"):
            process.kill()
        result = wait_for_end(own_client, task)
        assert result["status"] == "Ready", result
        requests = httpx2.get(f"{url}/requests").json()
        server.kill()
    (tmp_path / "video.mp4").write_bytes(own_client.fetch(result["result"]["sample"]))
    assert probe(tmp_path / "video.mp4").frames
    assert len(requests) == 1, "the second attempt started the video again"


def test_shared_text_encoder_is_restarted_after_a_kill(own_service: LocalService, own_client: Client) -> None:
    assert generate(own_client, "one") == generate(own_client, "other"), "one checkpoint, one seed"
    own_service.kill_one("TextEncoder-shared")
    task = own_client.submit("gen-one", {"prompt": "a blue circle", "width": 64, "height": 64})["id"]
    assert wait_for_end(own_client, task)["status"] == "Ready"


def test_tasks_wait_for_a_killed_moderator(own_service: LocalService, own_client: Client) -> None:
    killed = own_service.kill_one("ServeReplica:gen:Moderator")
    body = {"width": 64, "height": 64, "prompt": "a red circle"}
    violent = body | {"prompt": "a very bloody murder scene"}
    harmless, harmful = (own_client.submit("gen-burst", each)["id"] for each in (body, violent))
    assert wait_for_end(own_client, harmless)["status"] == "Ready"
    assert wait_for_end(own_client, harmful)["status"] == "Request Moderated"
    assert killed not in {process.pid for process in own_service.processes("ServeReplica:gen:Moderator")}


@pytest.mark.parametrize("model", ["pipeline", "demo"])
def test_catalog_entry_serves_a_model(own_client: Client, model: str) -> None:
    with Image.open(io.BytesIO(generate(own_client, model))) as image:
        assert image.size == (64, 64)
