"""Pipelines of diffusers as models of the service, each by one entry in the catalog."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from support.images import image_file
from support.local_service import LocalService
from support.polling import poll_result, wait_for_end
from support.tiny_pipelines import PIPELINES, build

from deployments.video.reader import probe
from serve_app.cli.service import Client

FORMS = {
    "qwen-image-edit": "edit",
    "qwen-image-edit-plus": "edit",
    "wan-t2v": "text-to-video",
    "wan-i2v": "image-to-video",
    "hunyuan-video": "text-to-video",
    "ltx2": "text-to-video",
}
LIVELY = "z-image"
"""Model for tests of cancellation, kills and fairness."""


def _catalog(folder: Path, repository: Path) -> dict[str, Any]:
    """Returns the shipped catalog with an entry for each pipeline."""
    catalog = yaml.safe_load((repository / "configs/catalog.yaml").read_text())
    for name in PIPELINES:
        fields = {"side": 64, "max_side": 128, "multiple": 32, "duration": {"min": 1, "max": 2, "default": 1}}
        catalog["models"][f"tiny-{name}"] = {"checkpoint": str(build(name, folder / name)), "steps": 3, "fps": 8}
        catalog["endpoints"][f"gen-tiny-{name}"] = {
            "summary": f"A tiny {name}",
            "request": FORMS.get(name, "text-to-image"),
            "model": f"tiny-{name}",
            "fields": fields,
            "price": {"first": 1},
            "safety": {"default": 2, "approved": 5},
        }
    return catalog


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[LocalService]:
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "catalog.yaml").write_text(yaml.safe_dump(_catalog(folder, repository)))
    on_demand = {"min_replicas": 0, "upscale_delay_s": 0, "downscale_delay_s": 15}
    models = {f"tiny-{name}": {"autoscaling_config": on_demand, "threads": 1} for name in PIPELINES}
    models["flux3-klein"] = {"autoscaling_config": on_demand}
    tasks = {"lease_s": 3, "max_active": 200}
    service = LocalService(folder, repository, catalog=str(folder / "catalog.yaml"), models=models, tasks=tasks)
    try:
        service.start()
        yield service
    finally:
        service.close()


@pytest.fixture
def client(service: LocalService) -> Iterator[Client]:
    with service.client() as client:
        yield client


def until_running(client: Client, task_id: str) -> float:
    """Returns a running task's first progress above 0."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        progress = poll_result(client, task_id).get("progress") or 0.0
        if progress:
            return float(progress)
        time.sleep(0.05)
    raise TimeoutError(task_id)


def body(name: str, **fields: Any) -> dict[str, Any]:
    image = base64.b64encode(image_file(64, 64)).decode()
    inputs = {"edit": {"images": [image]}, "image-to-video": {"image": image}}
    own = inputs.get(FORMS.get(name, ""), {})
    return {"prompt": "a red circle", "seed": 7, **own, **fields}


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_catalog_entry_serves_a_pipeline(name: str, client: Client, tmp_path: Path) -> None:
    task = wait_for_end(client, client.submit(f"gen-tiny-{name}", body(name))["id"])
    assert task["status"] == "Ready", task
    data = client.fetch(task["result"]["sample"])
    if "video" in FORMS.get(name, ""):
        (tmp_path / "video.mp4").write_bytes(data)
        assert probe(tmp_path / "video.mp4").width >= 64
    else:
        with Image.open(io.BytesIO(data)) as image:
            assert image.size == (64, 64)


def test_running_task_shows_progress_and_can_be_cancelled(client: Client) -> None:
    wait_for_end(client, client.submit(f"gen-tiny-{LIVELY}", body(LIVELY))["id"])  # starts the replica
    task_id = client.submit(f"gen-tiny-{LIVELY}", body(LIVELY, steps=100, width=128, height=128))["id"]
    assert until_running(client, task_id) < 1
    client.cancel(task_id)
    assert wait_for_end(client, task_id)["status"] == "Error"


def test_killed_replica_loses_no_task(service: LocalService, client: Client) -> None:
    tasks = [
        client.submit(f"gen-tiny-{LIVELY}", body(LIVELY, seed=n, steps=60, width=128, height=128))["id"]
        for n in range(4)
    ]
    until_running(client, tasks[0])
    service.kill_one(f"tiny-{LIVELY}")
    outcomes = [wait_for_end(client, task)["status"] for task in tasks]
    assert outcomes == ["Ready"] * 4


def test_projects_share_the_model(service: LocalService, client: Client) -> None:
    """A project's only task runs before most of another project's many tasks."""
    with Client(service.base_url, service.operator_key) as operator:
        operator.admin("POST", "projects", {"id": "other"})
        key = operator.admin("POST", "keys", {"name": "other", "project": "other"})["key"]
    long = body(LIVELY, steps=100, width=128, height=128)  # some still wait after a slow submission
    many = [client.submit(f"gen-tiny-{LIVELY}", long | {"seed": n})["id"] for n in range(60)]
    with Client(service.base_url, key) as other:
        one = other.submit(f"gen-tiny-{LIVELY}", body(LIVELY, seed=99, steps=40))["id"]
        assert wait_for_end(other, one)["status"] == "Ready"
    waiting = [task for task in many if poll_result(client, task)["status"] == "Pending"]
    for task in waiting:
        client.cancel(task)
    assert len(waiting) > 10
