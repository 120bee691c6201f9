"""Examples of the OpenAPI description, the documents and `examples` work, and images show their prompts."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from support import published_clients
from support.local_service import LocalService
from support.markdown import kinds, scripts
from support.polling import wait_for_end
from support.prompt_cases import parse_scene

from serve_app.cli.service import Client
from serve_app.launcher.embedded_redis import free_port
from serve_app.schemas.examples import DRAFT, FINETUNE_FIELDS

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = DOCS.parent / "examples"
EXPECTED = {
    "a small red star in the top left on a dark blue background": "small red star @ top left / dark blue",
    "make the circle blue": "large blue circle @ left / white",
    "change the background to a cyan background": "large red circle @ left / cyan",
    "change the background to a yellow background": "large blue circle @ left / yellow",
    "a green triangle on a white background": "medium green triangle @ center / white",
    "a large blue circle on a yellow background": "large blue circle @ center / yellow",
    "a red square on a white background": "medium red square @ center / white",
    "a green diamond on a yellow background": "medium green diamond @ center / yellow",
    "a large red circle on the left on a white background": "large red circle @ left / white",
    "add the star from image 2 on the right": "large red circle @ left + medium green star @ right / white",
}
"""Expected scenes by prompt."""

OTHERS = {
    *("starts-a-service", "real-checkpoints", "takes-minutes", "your-images", "installs"),
    *("cluster", "compose", "container", "kubernetes", "your-logs"),
}
"""Kinds of `sh` blocks that are not run here."""
DOCUMENTS = sorted(each.name for each in DOCS.glob("*.md") if "sh" in kinds(each))


def assert_shows(client: Client, task: dict[str, Any]) -> None:
    """Checks the image if its prompt is in `EXPECTED`."""
    result = task["result"]
    expected = next(
        (shapes for prompt, shapes in EXPECTED.items() if result.get("prompt", "").startswith(prompt)), None
    )
    if expected is not None:
        image = Image.open(io.BytesIO(client.fetch(result["sample"]))).convert("RGB")
        assert parse_scene(expected).faults(np.asarray(image)) == [], result["prompt"]


def list_examples(service: LocalService) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields path and body of each example in the OpenAPI description."""
    described = httpx2.get(f"{service.base_url}/openapi.json").json()
    for path, methods in described["paths"].items():
        if path.startswith("/v1/gen-") and "requestBody" in methods["post"]:
            for example in methods["post"]["requestBody"]["content"]["application/json"]["examples"].values():
                yield path, example["value"]


def write_adapter(folder: Path, base: str) -> Path:
    """Writes an adapter with random weights for one layer of an endpoint's model."""
    layer = "single_transformer_blocks.0.attn.to_q" if base.startswith("gen-3-") else "transformer_blocks.0.attn.to_q"
    weights = {"lora_A": torch.randn(4, 128), "lora_B": torch.randn(128, 4)}
    file = folder / "random.safetensors"
    safetensors.torch.save_file({f"transformer.{layer}.{name}.weight": each for name, each in weights.items()}, file)
    return file


@pytest.mark.slow
def test_openapi_examples_are_accepted_and_drawn(client: Client, service: LocalService) -> None:
    submitted: list[str] = []
    drawable_ids: list[str] = []
    finetunes: list[str] = []
    draft = ""
    for path, body in list_examples(service):
        plain = "finetune_id" not in body and "mode" not in body
        if "finetune_id" in body:
            assert body["finetune_id"] == FINETUNE_FIELDS["finetune_id"], "the id must be a placeholder"
            base = path.removeprefix("/v1/").removesuffix("-finetuned")
            finetunes.append(client.upload_finetune(write_adapter(service.folder, base), base, "random")["finetune_id"])
            body = body | {"finetune_id": finetunes[-1]}
        if body.get("draft_cache") == DRAFT:
            assert wait_for_end(client, draft)["status"] == "Ready"
            body = body | {"draft_cache": draft}
        submitted.append(client.submit(path, body)["id"])
        if "video" in path and not body.get("draft"):
            client.cancel(submitted.pop())  # docs/api.md makes one of each mode
        elif plain:
            drawable_ids.append(submitted[-1])
        if body.get("draft"):
            draft = submitted[-1]
    assert len(submitted) > 25
    for task_id in submitted:
        task = wait_for_end(client, task_id)
        assert task["status"] == "Ready", task
        if task_id in drawable_ids:
            assert_shows(client, task)
    for finetune_id in finetunes:
        client.delete_finetune(finetune_id)


@pytest.mark.parametrize(
    "document", ["../README.md", *(pytest.param(each, marks=pytest.mark.slow) for each in DOCUMENTS)]
)
def test_commands_of_a_document_work(
    client: Client, service: LocalService, repository: Path, tmp_path: Path, document: str
) -> None:
    before = list_ids(client)
    run_script(service, repository, tmp_path, scripts(DOCS / document))
    for task_id in list_ids(client) - before:
        task = wait_for_end(client, task_id)
        assert task["status"] == "Ready", task
        assert_shows(client, task)


def run_script(service: LocalService, repository: Path, folder: Path, script: str) -> None:
    """Runs a script as beside `make run`. A rejected request fails it, too."""
    (folder / ".curlrc").write_text("fail-with-body\n")
    (folder / ".gen").symlink_to(service.folder / "data")
    for name in (".venv", "deployments"):
        (folder / name).symlink_to(repository / name)
    environment = {"HOME": str(folder), "PATH": f"{repository / '.venv' / 'bin'}:{os.environ['PATH']}"}
    environment |= {"GEN_CONFIG": str(service.config), "GEN_BASE_URL": service.base_url}
    # Drafts save three quarters of the pixels.
    script = re.sub(r"^(video \S+ mode=(?!draft)\w+)", r"\1 draft=true", script, flags=re.MULTILINE)
    for address in ("localhost:8000", "127.0.0.1:8000"):
        script = script.replace(address, service.base_url.removeprefix("http://"))
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]


PROGRAMS = {
    "submit_and_poll.py": ["image.jpeg"],
    "webhook_receiver.py": [],
    "batch_from_csv.py": ["circle.jpeg", "square.jpeg", "triangle.jpeg"],
    "edit_loop.py": ["step-0.png", "step-1.png", "step-2.png"],
    "upload_lora.py": ["outlined.jpeg"],
    "video_from_image.py": ["video.mp4"],
    "openai_sdk.py": ["red.png", "star.png"],
    "openai_fetch.mjs": ["red.png", "star.png"],
    "load_test.sh": ["load-report"],
}
"""Files that each program leaves behind."""


def find_interpreter(repository: Path, program: str) -> str:
    if program == "openai_sdk.py":
        return str(published_clients.python_environment(repository, "openai"))
    return {".py": sys.executable, ".mjs": published_clients.node(), ".sh": "sh"}[Path(program).suffix]


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_example_program_works(
    client: Client, service: LocalService, repository: Path, tmp_path: Path, program: str
) -> None:
    before = list_ids(client)
    environment = {"GEN_BASE_URL": service.base_url, "GEN_KEY": service.key, "PORT": str(free_port())}
    environment |= {"DURATION": "5", "SLO": "200", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    result = subprocess.run(
        [find_interpreter(repository, program), EXAMPLES / program],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    assert sorted(each.name for each in tmp_path.iterdir()) == PROGRAMS[program]
    made = list_ids(client) - before
    assert made
    for task_id in made:
        task = wait_for_end(client, task_id)
        assert task["status"] == "Ready", task
        if program != "load_test.sh":
            assert_shows(client, task)


def test_every_example_is_tested_and_listed() -> None:
    files = {each.name for each in EXAMPLES.iterdir()} - {"README.md"}
    assert files == {*PROGRAMS, "prompts.csv", "http_node.json"}
    assert files == set(re.findall(r"\]\(([\w.]+)\)", (EXAMPLES / "README.md").read_text()))


def test_workflow_matches_the_openapi_description() -> None:
    workflow = json.loads((EXAMPLES / "http_node.json").read_text())
    described = json.loads((DOCS.parent / "openapi.json").read_text())
    nodes = {node["name"]: node for node in workflow["nodes"]}
    targets = [target for each in workflow["connections"].values() for branch in each["main"] for target in branch]
    assert {*workflow["connections"], *(target["node"] for target in targets)} == set(nodes)
    for name in ("Submit", "Poll"):
        given = nodes[name]["parameters"]
        path = given["url"].removeprefix("={{ $env.GEN_BASE_URL }}")
        operation = described["paths"][path][given.get("method", "GET").lower()]
        parameters = {(each["in"], each["name"].lower()) for each in operation["parameters"]}
        keys = {
            (each["in"], each["name"]) for each in described["components"]["securitySchemes"].values() if "in" in each
        }
        for where in ("header", "query"):
            for each in given.get(f"{where}Parameters", {"parameters": []})["parameters"]:
                assert (where, each["name"]) in parameters | keys
        if body := given.get("jsonBody"):
            (reference,) = operation["requestBody"]["content"]["application/json"]["schema"].values()
            schema = described["components"]["schemas"][reference.rpartition("/")[2]]
            jsonschema.validate(json.loads(body), schema | {"components": described["components"]})
            assert json.loads(body).keys() <= schema["properties"].keys()


def list_ids(client: Client) -> set[str]:
    ids: set[str] = set()
    cursor = None
    while cursor is None or cursor:
        answer = client.tasks(limit=100, cursor=cursor)
        ids |= {task["id"] for task in answer["tasks"]}
        cursor = answer.get("next") or ""
    return ids


def test_every_code_block_has_a_known_kind() -> None:
    allowed_kinds = {"sh", "", "js", "json", "python", "ts", "yaml", *(f"sh {kind}" for kind in OTHERS)}
    documents = [DOCS.parent / "README.md", *DOCS.glob("*.md")]
    assert {(document.name, kind) for document in documents for kind in kinds(document) - allowed_kinds} == set()
