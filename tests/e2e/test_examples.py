"""What the description and the documents show works as it is shown, and pictures show what they ask for."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from support.asked import scene
from support.documents import kinds, scripts
from support.local_service import LocalService
from support.outcomes import outcome

from serve_app.cli.service import Client
from serve_app.schemas.examples import DRAFT, TUNED

DOCS = Path(__file__).parents[2] / "docs"
SHOWN = {
    "a small red star in the top left on a dark blue background": "small red star @ top left / dark blue",
    "make the circle blue": "large blue circle @ left / white",
    "change the background to a cyan background": "large red circle @ left / cyan",
    "a green triangle on a white background": "medium green triangle @ center / white",
    "a large blue circle on a yellow background": "large blue circle @ center / yellow",
    "a red square on a white background": "medium red square @ center / white",
    "a green diamond on a yellow background": "medium green diamond @ center / yellow",
    "a large red circle on the left on a white background": "large red circle @ left / white",
    "add the star from image 2 on the right": "large red circle @ left + medium green star @ right / white",
}
"""What the results of these prompts must show, wherever they stand."""

OTHERS = {
    *("starts-a-service", "real-checkpoints", "takes-minutes", "your-pictures", "installs"),
    *("cluster", "compose", "container", "kubernetes", "your-logs"),
}
"""Blocks that are not run here, by what stands after `sh` behind their fence."""
DOCUMENTS = sorted(each.name for each in DOCS.glob("*.md") if "sh" in kinds(each))


def assert_shows(client: Client, task: dict[str, Any]) -> None:
    """Moderated where it is known what the prompt asks for."""
    result = task["result"]
    expected = next((seen for prompt, seen in SHOWN.items() if result.get("prompt", "").startswith(prompt)), None)
    if expected is not None:
        picture = Image.open(io.BytesIO(client.fetch(result["sample"]))).convert("RGB")
        assert scene(expected).faults(np.asarray(picture)) == [], result["prompt"]


def bodies(service: LocalService) -> Iterator[tuple[str, dict[str, Any]]]:
    """What the description offers to send, with its endpoint."""
    described = httpx2.get(f"{service.base_url}/openapi.json").json()
    for path, methods in described["paths"].items():
        if path.startswith("/v1/gen-") and "requestBody" in methods["post"]:
            for example in methods["post"]["requestBody"]["content"]["application/json"]["examples"].values():
                yield path, example["value"]


def adapter(folder: Path, base: str) -> Path:
    """A file of random numbers for one layer of the model behind that endpoint."""
    layer = "single_transformer_blocks.0.attn.to_q" if base.startswith("gen-3-") else "transformer_blocks.0.attn.to_q"
    weights = {"lora_A": torch.randn(4, 128), "lora_B": torch.randn(128, 4)}
    file = folder / "random.safetensors"
    safetensors.torch.save_file({f"transformer.{layer}.{name}.weight": each for name, each in weights.items()}, file)
    return file


@pytest.mark.slow
def test_what_the_description_offers_can_be_sent_and_is_drawn(client: Client, service: LocalService) -> None:
    submitted: list[str] = []
    of_known_words: list[str] = []
    finetunes: list[str] = []
    draft = ""
    for path, body in bodies(service):
        plain = "finetune_id" not in body and "mode" not in body
        if "finetune_id" in body:
            assert body["finetune_id"] == TUNED["finetune_id"], "it is that of no tuned model"
            base = path.removeprefix("/v1/").removesuffix("-finetuned")
            finetunes.append(client.upload_finetune(adapter(service.folder, base), base, "random")["finetune_id"])
            body = body | {"finetune_id": finetunes[-1]}
        if body.get("draft_cache") == DRAFT:
            assert outcome(client, draft)["status"] == "Ready"
            body = body | {"draft_cache": draft}
        submitted.append(client.submit(path, body)["id"])
        if "video" in path and not (body.get("draft") or body.get("draft_cache")):
            client.cancel(submitted.pop())  # docs/api.md makes one of each mode
        elif plain:
            of_known_words.append(submitted[-1])
        if body.get("draft"):
            draft = submitted[-1]
    assert len(submitted) > 25
    for task_id in submitted:
        task = outcome(client, task_id)
        assert task["status"] == "Ready", task
        if task_id in of_known_words:
            assert_shows(client, task)
    for finetune_id in finetunes:
        client.delete_finetune(finetune_id)


@pytest.mark.parametrize(
    "document", ["../README.md", *(pytest.param(each, marks=pytest.mark.slow) for each in DOCUMENTS)]
)
def test_a_document_can_be_followed(
    client: Client, service: LocalService, repository: Path, tmp_path: Path, document: str
) -> None:
    before = listed(client)
    follow(service, repository, tmp_path, scripts(DOCS / document))
    for task_id in listed(client) - before:
        task = outcome(client, task_id)
        assert task["status"] == "Ready", task
        assert_shows(client, task)


def follow(service: LocalService, repository: Path, folder: Path, script: str) -> None:
    """Runs the script as it would be beside `make run`; a refused request is a failure, too."""
    (folder / ".curlrc").write_text("fail-with-body\n")
    (folder / ".gen").symlink_to(service.folder / "data")
    for name in (".venv", "deployments"):
        (folder / name).symlink_to(repository / name)
    environment = {"HOME": str(folder), "PATH": f"{repository / '.venv' / 'bin'}:{os.environ['PATH']}"}
    environment |= {"GEN_CONFIG": str(service.config), "GEN_BASE_URL": service.base_url}
    for address in ("localhost:8000", "127.0.0.1:8000"):
        script = script.replace(address, service.base_url.removeprefix("http://"))
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]


def listed(client: Client) -> set[str]:
    found: set[str] = set()
    cursor = None
    while cursor is None or cursor:
        answer = client.tasks(limit=100, cursor=cursor)
        found |= {task["id"] for task in answer["tasks"]}
        cursor = answer.get("next") or ""
    return found


def test_every_block_says_what_it_needs() -> None:
    known = {"sh", "", "js", "json", "python", "ts", "yaml", *(f"sh {kind}" for kind in OTHERS)}
    documents = [DOCS.parent / "README.md", *DOCS.glob("*.md")]
    assert {(document.name, kind) for document in documents for kind in kinds(document) - known} == set()
