"""`gen-serve weights`, run as operators run it, on a hub of this machine; replicas' own code on what it fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.model_hub import Hub, Repository, running

from deployments.contract.checkpoint import BUNDLED

pytestmark = pytest.mark.slow

PIPELINE = "owner/pipeline"
REWRITER = "owner/rewriter"
NETWORK = "owner/network/onnx/model.onnx"
TOKEN = "hf_only-for-those-who-may"
MAIN = "main"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as hub:
        hub.repositories[PIPELINE] = Repository({MAIN: pipeline()})
        rewriter = Repository.of(BUNDLED / "rewriter", **{"pytorch_model.bin": b"the same once more"})
        hub.repositories[REWRITER] = Repository({MAIN: rewriter})
        network = {"onnx/model.onnx": b"graph", "onnx/model.onnx_data": b"weights", "onnx/model_fp16.onnx": b"half"}
        hub.repositories["owner/network"] = Repository({MAIN: network})
        yield hub


def pipeline() -> dict[str, bytes]:
    """A bundled checkpoint as it would be on the hub: its autoencoder beside the other components, and files that no
    replica reads."""
    autoencoder = Repository.of(BUNDLED.parent / "autoencoders" / "flux1")
    index = json.loads((BUNDLED / "flux" / "model_index.json").read_bytes())
    del index["_shared"]
    others = {"README.md": b"about it", "all-in-one.safetensors": b"the same once more", "index": b""}
    parts = {f"vae/{name}": content for name, content in autoencoder.items()}
    return Repository.of(BUNDLED / "flux") | parts | others | {"model_index.json": json.dumps(index).encode()}


@dataclass(frozen=True)
class Profile:
    """A profile, the cache of a machine, and the machine's environment."""

    folder: Path
    environment: dict[str, str]
    settings: dict[str, Any]

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        config = self.folder / "config.yaml"
        config.write_text(json.dumps(self.settings))
        command = [sys.executable, "-c", "from serve_app.cli import main; main()", "weights", *words]
        return subprocess.run(
            [*command, "--config", str(config)],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def fetch(self, **environment: str) -> tuple[int, dict[str, str], str]:
        """The exit code, by checkpoint what came of it, and stderr."""
        ran = self.run("fetch", "--json", **environment)
        return ran.returncode, {each["checkpoint"]: each["state"] for each in json.loads(ran.stdout)}, ran.stderr

    def offline(self, script: str) -> str:
        """What a script prints that runs where replicas do, which may not ask the hub."""
        ran = subprocess.run(
            [sys.executable, "-c", script],
            env=self.environment | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    @property
    def files(self) -> set[str]:
        """That are in the cache, by their names in their repositories."""
        folders = (self.folder / "hub").glob("hub/models--*/snapshots/*")
        return {file.relative_to(each).as_posix() for each in folders for file in each.rglob("*") if file.is_file()}


@pytest.fixture
def profile(hub: Hub, tmp_path: Path, repository: Path) -> Callable[..., Profile]:
    """With these models in the catalog, and settings; without anything else to load."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "GEN_", "TRANSFORMERS_"))}
    environment = kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hub"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }

    def made(models: dict[str, Any], *, rewriter: str | None = None, **settings: Any) -> Profile:
        catalog = tmp_path / "catalog.yaml"
        known: dict[str, Any] = {"models": models, "endpoints": {}}
        if rewriter is not None:
            known["rewriter"] = {"checkpoint": rewriter}
        catalog.write_text(json.dumps(known))
        return Profile(tmp_path, environment, {"data_dir": str(tmp_path / "data"), "catalog": str(catalog), **settings})

    return made


LOADED = """
from deployments import checkpoints
print(type(checkpoints.load("owner/pipeline", device="cpu", dtype="float32").family).__name__)
"""
REWRITTEN = """
from deployments.contract.rewriter import RewriterSpec
from deployments.rewriting.rewriter import Rewriter
print(Rewriter(RewriterSpec("owner/rewriter", dtype="float32")).rewrite("a red star", 1))
"""


def test_what_is_fetched_is_what_replicas_load_without_a_hub(hub: Hub, profile: Callable[..., Profile]) -> None:
    lanes = {"picture": {"checkpoint": PIPELINE}, "eraser": {"backend": "onnx", "checkpoint": NETWORK}}
    machine = profile(lanes, rewriter=REWRITER)
    code, came, _ = machine.fetch()
    assert (code, came) == (0, dict.fromkeys((PIPELINE, "owner/network", REWRITER), "fetched"))
    assert {"README.md", "all-in-one.safetensors", "pytorch_model.bin", "onnx/model_fp16.onnx"} & machine.files == set()
    assert {"vae/config.json", "onnx/model.onnx", "onnx/model.onnx_data"} <= machine.files
    asked, sent = hub.asked, hub.sent
    assert machine.offline(LOADED) == "Flux1"
    assert machine.offline(REWRITTEN)
    assert (hub.asked, hub.sent) == (asked, sent), "a replica asked the hub"


def test_what_is_there_is_not_fetched_again(hub: Hub, profile: Callable[..., Profile]) -> None:
    machine = profile({"picture": {"checkpoint": PIPELINE}})
    assert machine.fetch()[1] == {PIPELINE: "fetched"}
    sent = hub.sent
    assert machine.fetch()[1] == {PIPELINE: "was there"}
    assert hub.sent == sent
    (row,) = json.loads(machine.run("list", "--json").stdout)
    assert (row["checkpoint"], row["there"], row["missing"]) == (PIPELINE, "here", "")
    assert row["size"] == sent


def test_what_broke_off_goes_on(hub: Hub, profile: Callable[..., Profile]) -> None:
    machine = profile({"picture": {"checkpoint": PIPELINE}})
    hub.breaks_off_after = 3_000_000
    code, came, errors = machine.fetch()
    assert code == 1
    assert "etch again" in came[PIPELINE]
    assert "1 of 1 could not be fetched" in errors
    (row,) = json.loads(machine.run("list", "--json").stdout)
    assert (row["there"], row["missing"]) == ("", "here"), "part of it is no checkpoint"
    first, hub.breaks_off_after, hub.sent = hub.sent, None, 0
    assert machine.fetch()[:2] == (0, {PIPELINE: "fetched"})
    whole = sum(map(len, pipeline().values()))
    assert 0 < hub.sent < whole - 500_000, f"{first} of {whole} bytes had come before"
    assert machine.offline(LOADED) == "Flux1"


def test_a_revision_is_the_one_that_was_named(hub: Hub, profile: Callable[..., Profile]) -> None:
    state = {"onnx/model.onnx": b"the first"}
    hub.repositories["owner/network"] = Repository({"v1": state, MAIN: {"onnx/model.onnx": b"another"}})
    commit = hub.repositories["owner/network"].commit("v1")
    lane = {"backend": "onnx", "checkpoint": NETWORK}
    machine = profile({"tag": {**lane, "revision": "v1"}, "commit": {**lane, "revision": commit}})
    assert machine.fetch()[:2] == (0, {"owner/network": "was there"}), "a tag, and then the commit that it names"
    (file,) = machine.folder.glob("hub/hub/models--owner--network/snapshots/*/onnx/model.onnx")
    assert (file.parent.parent.name, file.read_bytes()) == (commit, b"the first")
    lost = profile({"tag": {**lane, "revision": "v2"}})
    code, came, _ = lost.fetch()
    assert (code, "it has no revision v2" in came["owner/network"]) == (1, True)


def test_what_is_gated_or_not_there_is_told_and_all_else_comes(hub: Hub, profile: Callable[..., Profile]) -> None:
    hub.repositories["owner/gated"] = Repository({MAIN: {"model.onnx": b"graph"}}, gated=True, token=TOKEN)
    names = ("owner/gated/model.onnx", "owner/nowhere/model.onnx", "owner/network/onnx/nothing.onnx", NETWORK)
    machine = profile({f"lane-{i}": {"backend": "onnx", "checkpoint": name} for i, name in enumerate(names)})
    ran = machine.run("fetch", HF_TOKEN="hf_of-somebody-else")
    assert ran.returncode == 1
    assert f"owner/gated: it is gated: accept its terms at {hub.url}/owner/gated, and set HF_TOKEN" in ran.stderr
    assert "owner/nowhere: the hub has none of this name, or not for everyone" in ran.stderr
    assert "owner/network: it has no files like onnx/nothing.onnx" in ran.stderr
    assert "error: 3 of 4 could not be fetched" in ran.stderr
    assert machine.files == {"onnx/model.onnx", "onnx/model.onnx_data"}
    assert "hf_" not in ran.stdout + ran.stderr
    assert hub.tokens == {"hf_of-somebody-else"}


def test_a_token_opens_what_is_gated(hub: Hub, profile: Callable[..., Profile], tmp_path: Path) -> None:
    hub.repositories["owner/gated"] = Repository({MAIN: {"model.onnx": b"graph"}}, gated=True, token=TOKEN)
    machine = profile({"lane": {"backend": "onnx", "checkpoint": "owner/gated/model.onnx"}})
    (tmp_path / "token").write_text(TOKEN)
    code, came, errors = machine.fetch(HF_TOKEN_PATH=str(tmp_path / "token"))
    assert (code, came) == (0, {"owner/gated": "fetched"})
    assert TOKEN not in errors


def test_a_hub_that_may_not_be_asked_is_not(hub: Hub, profile: Callable[..., Profile]) -> None:
    machine = profile({"picture": {"checkpoint": PIPELINE}})
    code, came, _ = machine.fetch(HF_HUB_OFFLINE="1")
    assert (code, "fetch with HF_HUB_OFFLINE=0" in came[PIPELINE]) == (1, True)
    assert hub.asked == 0


def test_components_in_other_repositories_come_too(hub: Hub, profile: Callable[..., Profile]) -> None:
    autoencoder = Repository.of(BUNDLED.parent / "autoencoders" / "flux2")
    files = Repository.of(BUNDLED / "flux3")
    index = json.loads(files["modular_model_index.json"])
    del index["_shared"]
    index["vae"][2] |= {"pretrained_model_name_or_path": "owner/parts", "subfolder": "autoencoder"}
    hub.repositories["owner/parts"] = Repository(
        {MAIN: {f"autoencoder/{name}": it for name, it in autoencoder.items()}}
    )
    hub.repositories[PIPELINE] = Repository({MAIN: files | {"modular_model_index.json": json.dumps(index).encode()}})
    machine = profile({"picture": {"checkpoint": PIPELINE}})
    assert machine.fetch()[:2] == (0, {PIPELINE: "fetched", "owner/parts": "fetched"})
    asked = hub.asked
    assert machine.offline(LOADED) == "Flux3"
    assert hub.asked == asked


def test_what_was_on_its_way_in_a_process_that_is_gone_is_cleared(hub: Hub, profile: Callable[..., Profile]) -> None:
    machine = profile({"eraser": {"backend": "onnx", "checkpoint": NETWORK}})
    blobs = machine.folder / "hub/hub/models--owner--network/blobs"
    blobs.mkdir(parents=True)
    for name, age in (("old", 2 * 24 * 3600), ("new", 60)):
        (blobs / f"{name}.incomplete").write_bytes(b"half")
        os.utime(blobs / f"{name}.incomplete", (time.time() - age,) * 2)
    assert machine.fetch()[0] == 0
    assert [each.name for each in blobs.glob("*.incomplete")] == ["new.incomplete"]
