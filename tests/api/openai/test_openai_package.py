"""The published package `openai`, and its examples in the documents."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support import published_clients
from support.http_client import Client
from support.http_service import Service
from support.images import image_base64, image_file
from support.markdown import scripts
from support.openai_client import active
from support.worker import Worker

STAR = image_file(64, 64)
VIDEO = b"\0\0\0\x18ftypmp42 and so on"


@pytest.fixture(scope="module")
def python(repository: Path) -> Path:
    return published_clients.python_environment(repository, "openai")


def serve_until(answer: Future[dict[str, Any]], client: Client, worker: Worker) -> None:
    """Ends the client's tasks until it has its answer; an abandoned one may be gone."""
    while not answer.done():
        for task_id in active(client):
            job = worker.job(task_id)
            if job["prompt"] == "nothing":
                continue
            if job["output_format"] == "mp4":
                worker.deliver_video(task_id, VIDEO)
            else:
                worker.deliver(task_id, STAR, job["output_format"])


@pytest.mark.slow
def test_package_and_examples_run(
    service: Service, client: Client, worker: Worker, python: Path, repository: Path, tmp_path: Path
) -> None:
    hole = Image.new("RGBA", (64, 64))
    example = scripts(repository / "docs/api.md", "python")
    payload = {"example": example, "folder": str(tmp_path), "mask": image_base64(hole)}
    environment = {"OPENAI_BASE_URL": f"{service.base_url}/v1", "OPENAI_API_KEY": client.secret}
    script = repository / "tests/clients/openai/generate.py"
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(published_clients.run_python, python, script, payload, **environment)
        serve_until(answer, client, worker)
    output = answer.result()

    assert (tmp_path / "star.png").read_bytes() == (tmp_path / "red.png").read_bytes() == STAR
    assert (tmp_path / "star.mp4").read_bytes() == VIDEO
    assert {"gen-3-image-klein", "gen-3-video"} <= set(output["models"])
    assert output["model"] == "gen-tools/erase-v1"
    assert output["masked"] == "jpeg"
    assert len(output["both"]) == 2
    assert client.get(output["both"][0]).content == STAR
    assert len(output["videos"]) == 1
    assert output["unwanted"] is True
    quality, no_model, no_key = output["quality"], output["no model"], output["no key"]
    assert (quality["kind"], quality["param"], quality["code"]) == ("BadRequestError", "quality", "invalid_value")
    assert (no_model["kind"], no_model["code"]) == ("NotFoundError", "model_not_found")
    assert (no_key["kind"], no_key["code"]) == ("AuthenticationError", "invalid_api_key")
    assert (output["no video"]["kind"], output["no video"]["status"]) == ("NotFoundError", 404)
