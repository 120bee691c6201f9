"""Real pictures from the real model, over HTTP, as a client gets them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gen_serve_client import Refused
from PIL import Image
from support.local_service import LocalService
from support.outcomes import outcome, polled
from support.pictures import sent

from serve_app.cli.service import Client

ENDPOINT = "gen-3-image-klein"
Make = Callable[..., tuple[dict[str, Any], Image.Image]]


@pytest.fixture
def make(client: Client) -> Make:
    def make(**body: Any) -> tuple[dict[str, Any], Image.Image]:
        task = outcome(client, client.submit(ENDPOINT, {"prompt": "a red circle", "steps": 2} | body)["id"])
        assert task["status"] == "Ready", task
        return task, Image.open(io.BytesIO(client.fetch(task["result"]["sample"])))

    return make


@pytest.mark.parametrize("output_format", ["jpeg", "png", "webp"])
def test_every_format_and_a_size_off_the_grid(make: Make, output_format: str) -> None:
    task, picture = make(width=130, height=77, output_format=output_format)
    assert picture.format == output_format.upper()
    assert picture.size == (130, 77)
    assert task["result"]["sample"].split("?")[0].endswith(f".{output_format}")
    assert task["progress"] == 1.0
    assert task["cost"] == 0.9


@pytest.mark.parametrize(
    ("prompt", "size"), [("a lighthouse", (1360, 768)), ("a square picture of a lighthouse", (1024, 1024))]
)
def test_the_ratio_is_chosen_from_the_prompt(make: Make, prompt: str, size: tuple[int, int]) -> None:
    _, picture = make(prompt=prompt, steps=1)
    assert picture.size == size


def test_the_same_seed_gives_the_same_picture_and_another_one_does_not(make: Make) -> None:
    size = {"width": 128, "height": 128, "output_format": "png"}
    (first, a), (_, b), (_, c) = make(seed=7, **size), make(seed=7, **size), make(seed=8, **size)
    assert first["result"]["seed"] == 7
    assert int(np.abs(np.asarray(a, int) - np.asarray(b, int)).max()) <= 1
    assert np.asarray(a).tobytes() != np.asarray(c).tobytes()


def test_a_seed_that_was_left_out_is_reported_and_gives_the_picture_again(make: Make) -> None:
    first, a = make(width=64, height=64, output_format="png")
    _, b = make(width=64, height=64, output_format="png", seed=first["result"]["seed"])
    assert int(np.abs(np.asarray(a, int) - np.asarray(b, int)).max()) <= 1


def test_an_edit_keeps_the_size_of_its_first_reference_and_depends_on_both(make: Make) -> None:
    red, blue = Image.new("RGB", (150, 90), "red"), Image.new("RGB", (64, 64), "blue")
    body = {"prompt": "put the second into the first", "seed": 1, "output_format": "png"}
    _, one = make(images=[sent(red)], **body)
    _, two = make(images=[sent(red), sent(blue)], **body)
    _, swapped = make(images=[sent(red), sent(red.resize((64, 64)))], **body)
    assert one.size == two.size == (150, 90)
    assert len({np.asarray(picture).tobytes() for picture in (one, two, swapped)}) == 3


def test_tasks_of_many_shapes_at_once(service: LocalService, client: Client) -> None:
    bodies = [{"prompt": "p", "width": 64 + 16 * n, "height": 64, "steps": 1 + n} for n in range(12)]
    ids = [client.submit(ENDPOINT, body)["id"] for body in bodies]
    for task_id, body in zip(ids, bodies, strict=True):
        task = outcome(client, task_id)
        assert task["status"] == "Ready"
        picture = Image.open(io.BytesIO(client.fetch(task["result"]["sample"])))
        assert picture.size == (body["width"], body["height"])


def test_cancelling_stops_work_and_leaves_no_result(service: LocalService, client: Client) -> None:
    ids = [client.submit(ENDPOINT, {"prompt": "p", "resolution": "1k", "steps": 16})["id"] for _ in range(24)]
    # The last first: on a busy machine some may be ready before they can be cancelled.
    cancelled = [task_id for task_id in reversed(ids) if was_cancelled(client, task_id)]
    assert ids[-1] in cancelled
    for task_id in cancelled:
        assert polled(client, task_id)["details"] == {"error": "Cancelled by the client"}
    # Whatever comes next finds the engine free of them.
    following = client.submit(ENDPOINT, {"prompt": "p", "width": 64, "height": 64, "steps": 1})
    assert outcome(client, following["id"])["status"] == "Ready"
    # Previews that were shown go when the task is swept, as inputs do.
    for task_id in cancelled:
        kept = (service.folder / "data" / "objects").glob(f"results/{task_id}/**/*.*")
        assert [file for file in kept if not file.name.startswith("preview-")] == []


def was_cancelled(client: Client, task_id: str) -> bool:
    """False where the task was ready first."""
    try:
        return client.cancel(task_id)["status"] == "Error"
    except Refused:
        assert polled(client, task_id)["status"] == "Ready"
        return False


def gen_serve(service: LocalService, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "gen-serve"), *words]
    return subprocess.run(command, cwd=service.folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_line_makes_keys_pictures_and_lists(service: LocalService, tmp_path: Path) -> None:
    at = ["--base-url", service.base_url]
    operator = [*at, "--key", service.operator_key]
    assert gen_serve(service, "projects", "create", "cli", *operator).returncode == 0
    made = gen_serve(service, "keys", "create", "laptop", "--project", "cli", *operator)
    key = made.stdout.strip()
    assert key.startswith("gen_"), made.stderr
    listed = gen_serve(service, "keys", "list", "--project", "cli", *operator).stdout
    assert "laptop" in listed
    assert key not in listed

    target = tmp_path / "edit.png"
    reference = tmp_path / "in.png"
    Image.new("RGB", (80, 64), "green").save(reference)
    words = ["prompt=make it blue", "steps=1", "output_format=png", f"images=@{reference}", f"images=@{reference}"]
    done = gen_serve(service, "generate", ENDPOINT, *words, "-o", str(target), "--key", key, *at)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(target)
    with Image.open(target) as edited:
        assert edited.size == (80, 64)

    tasks = gen_serve(service, "tasks", "list", "--key", key, *at).stdout
    assert tasks.count("Ready") == 1
    task_id = tasks.splitlines()[1].split()[0]
    shown = gen_serve(service, "tasks", "show", task_id, "--json", *at).stdout
    assert json.loads(shown)["status"] == "Ready"
    refused = gen_serve(service, "tasks", "cancel", task_id, "--key", key, *at)
    assert (refused.returncode, "ended already" in refused.stderr) == (1, True)

    key_id = next(line.split()[0] for line in listed.splitlines() if "laptop" in line)
    assert gen_serve(service, "keys", "revoke", key_id, *operator).returncode == 0
    assert gen_serve(service, "keys", "revoke", key_id, *operator).returncode == 1


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["generate", ENDPOINT, "prompt=x", "steps=99"], 1, "body.steps"),
        (["generate", "gen-none", "prompt=x"], 1, "404"),
        (["generate", ENDPOINT, "prompt"], 2, "name=value"),
        (["generate", ENDPOINT, "images=@nowhere.png"], 2, "no such file"),
        (["tasks", "show", "unknown"], 1, "no such task"),
    ],
)
def test_the_command_line_says_what_is_wrong(service: LocalService, words: list[str], code: int, message: str) -> None:
    key = ["--key", (service.folder / "data" / "key").read_text().strip()] if words[0] == "generate" else []
    done = gen_serve(service, *words, "--base-url", service.base_url, *key)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
