"""Endpoints that `gen-serve workflow add` makes of files, and checks of workflows against their servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.comfy_server import ComfyServer, serving_comfy

from serve_app.cli.workflow import add
from serve_app.cluster.checks.result import CheckResult, Verdict
from serve_app.cluster.checks.workflows import check_workflows
from serve_app.config import catalog
from serve_app.config.settings import load

GRAPH: dict[str, Any] = {
    "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "tiny.safetensors"}},
    "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a star", "clip": ["1", 1]}},
    "3": {
        "class_type": "KSampler",
        "inputs": {"seed": 1, "steps": 4, "cfg": 7.0, "sampler_name": "euler", "model": ["1", 0], "positive": ["2", 0]},
    },
    "9": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "mine"}},
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ComfyServer]:
    async with serving_comfy(ComfyServer(tmp_path / "comfy")) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "portrait.json").write_text(json.dumps(GRAPH))
    return tmp_path


async def add_endpoint(url: str, name: str | None = None) -> None:
    await asyncio.to_thread(add, Path("portrait.json"), url, name, Path("workflows-catalog.yaml"))


async def check() -> list[CheckResult]:
    """Checks the written profile."""
    settings = load(Path("workflows.yaml"))
    return await asyncio.to_thread(lambda: list(check_workflows(settings, catalog.load(settings))))


def change_engine(folder: Path, **settings: Any) -> None:
    file = folder / "workflows-catalog.yaml"
    written = yaml.safe_load(file.read_text())
    written["models"]["portrait"]["engine"] |= settings
    file.write_text(yaml.safe_dump(written))


async def test_workflow_becomes_an_endpoint_that_passes_its_check(server: ComfyServer, folder: Path) -> None:
    await add_endpoint(server.url)
    served = catalog.load(load(Path("workflows.yaml"))).endpoints["gen-portrait"]
    assert served.request_type.model_fields.keys() >= {"prompt", "seed", "steps", "guidance"}
    assert [each.verdict for each in await check()] == [Verdict.FINE]


async def test_second_workflow_joins_the_same_files(server: ComfyServer, folder: Path) -> None:
    await add_endpoint(server.url)
    with pytest.raises(ValueError, match="already"):
        await add_endpoint(server.url)
    (folder / "portrait.json").rename(folder / "landscape.json")
    (folder / "portrait.json").write_text(json.dumps(GRAPH))
    await asyncio.to_thread(add, Path("landscape.json"), server.url, "gen-wide", Path("workflows-catalog.yaml"))
    assert list(catalog.load(load(Path("workflows.yaml"))).endpoints) == ["gen-wide", "gen-portrait"]


async def test_each_wrong_place_is_named(server: ComfyServer, folder: Path) -> None:
    await add_endpoint(server.url)
    strange = GRAPH | {"7": {"class_type": "FancyNode", "inputs": {}}}
    (folder / "portrait.json").write_text(json.dumps(strange))
    change_engine(folder, output=["Save", "9"])
    results = await check()
    assert [each.verdict for each in results] == [Verdict.REFUSED] * 2
    assert "there is no node 'Save'" in results[0].message
    assert "the server has no node class FancyNode" in results[1].message


async def test_server_that_is_away_is_a_warning(folder: Path) -> None:
    await add_endpoint("http://127.0.0.1:9")
    change_engine(folder, url=["http://127.0.0.1:9", "http://127.0.0.1:9"])
    assert [each.verdict for each in await check()] == [Verdict.WARNING], "each is told once"
