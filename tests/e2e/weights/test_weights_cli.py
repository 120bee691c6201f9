"""`gen-serve weights` on a fake hub, and replicas' own code on the fetched weights."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.ldm_files import build_ldm_file
from support.model_hub import (
    MAIN,
    NETWORK,
    PIPELINE,
    REWRITER,
    Hub,
    Profiles,
    Repository,
    State,
    pipeline_files,
    read_files,
    sibling_files,
)

from deployments.contract.model import BUNDLED

pytestmark = pytest.mark.slow

TOKEN = "hf_only-for-those-who-may"
IMAGE, ERASER = {"checkpoint": PIPELINE}, {"backend": "onnx", "checkpoint": NETWORK}
LOADED = """
from deployments import native_loading
from deployments.contract.model import ModelConfig
config = ModelConfig(checkpoint="owner/pipeline", device="cpu", dtype="float32")
print(type(native_loading.load(config).family).__name__)
"""
GENERIC = """
from deployments.contract.model import ModelConfig
from deployments.diffusers_loading import load_pipeline
config = ModelConfig(checkpoint="owner/pipeline", device="cpu", backend="diffusers")
print(load_pipeline(config).setup["pipeline"])
"""
ONE_FILE = GENERIC.replace('checkpoint="owner/pipeline"', 'checkpoint="owner/mine/mine.safetensors"').replace(
    'backend="diffusers"', 'config_from="owner/base"'
)
REWRITTEN = """
from deployments.contract.model import RewriterSpec
from deployments.rewriting.rewriter import Rewriter
print(Rewriter(RewriterSpec("owner/rewriter", dtype="float32")).rewrite("a red star", 1))
"""
CLUSTER = """
import json, os, subprocess, sys

import ray

ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
operator = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
operator["GEN_RAY__ADDRESS"] = ray.get_runtime_context().gcs_address

@ray.remote(num_cpus=0)
def is_offline():
    from huggingface_hub.constants import HF_HUB_OFFLINE
    return HF_HUB_OFFLINE

def weights(*words):
    command = [sys.executable, "-c", "from serve_app.cli import main; main()", "weights", *words, "--json"]
    ran = subprocess.run([*command, "--config", sys.argv[1]], env=operator, capture_output=True, text=True)
    return ran.returncode, json.loads(ran.stdout or "null"), ran.stderr

print(json.dumps([ray.get(is_offline.remote()), weights("fetch"), weights("list")]))
"""


def test_only_loaded_weights_are_fetched_and_kept(hub: Hub, profile: Profiles) -> None:
    plain = pipeline_files()
    others = sibling_files(plain)
    hub.repositories[PIPELINE] = Repository({MAIN: plain | others})
    machine = profile({"image": IMAGE, "eraser": ERASER}, rewriter=REWRITER)
    checkpoints = (PIPELINE, "owner/network", REWRITER)
    assert machine.fetch()[:2] == (0, dict.fromkeys(checkpoints, "fetched"))
    unread = {"README.md", "all-in-one.safetensors", "pytorch_model.bin", "onnx/model_fp16.onnx", *others}
    assert unread & machine.files == set()
    read = {name for name in plain if name.endswith(".json") or "/" in name}
    assert read | {"onnx/model.onnx", "onnx/model.onnx_data"} <= machine.files
    requests_before, bytes_before = hub.requests.total(), hub.sent_bytes
    assert machine.offline(LOADED + REWRITTEN).startswith("Flux1\n")
    assert hub.requests.total() == requests_before, "a replica asked the hub"
    assert machine.fetch()[1] == dict.fromkeys(checkpoints, "was there")
    assert hub.sent_bytes == bytes_before
    listed = machine.list_checkpoints()
    assert {(row["there"], row["missing"]) for row in listed.values()} == {("here", "")}
    assert sum(row["size"] for row in listed.values()) == bytes_before


def test_other_weight_formats_are_a_fallback(hub: Hub, profile: Profiles) -> None:
    half, pickled = (
        {name.replace(".safetensors", suffix): content for name, content in pipeline_files().items()}
        for suffix in (".fp16.safetensors", ".bin")
    )
    hub.repositories |= {PIPELINE: Repository({MAIN: half}), "owner/pickled": Repository({MAIN: pickled})}
    models = {"half": IMAGE, "pickled": {"checkpoint": "owner/pickled"}}
    machine = profile({name: {**model, "backend": "diffusers"} for name, model in models.items()})
    assert machine.fetch()[:2] == (0, {PIPELINE: "fetched", "owner/pickled": "fetched"})
    assert {name for name in (*half, *pickled) if "/" in name} <= machine.files
    assert machine.offline(GENERIC) == "FluxPipeline"


def test_gguf_replaces_other_weights(hub: Hub, profile: Profiles) -> None:
    hub.repositories["owner/gguf"] = Repository({MAIN: {"q4.gguf": b"few bits", "q8.gguf": b"more bits"}})
    quantization = {"method": "gguf", "file": "owner/gguf/q4.gguf"}
    machine = profile({"image": {**IMAGE, "quantization": quantization}})
    assert machine.fetch()[:2] == (0, {PIPELINE: "fetched", "owner/gguf": "fetched"})
    assert {name for name in machine.files if name.startswith("transformer/")} == {"transformer/config.json"}
    assert {name for name in machine.files if name.endswith(".gguf")} == {"q4.gguf"}


def test_single_file_is_fetched_with_its_configuration(hub: Hub, profile: Profiles, tmp_path: Path) -> None:
    file = build_ldm_file(tmp_path / "base")
    hub.repositories["owner/mine"] = Repository({MAIN: {"mine.safetensors": file.read_bytes(), "README.md": b"mine"}})
    hub.repositories["owner/base"] = Repository({MAIN: read_files(tmp_path / "base", **{"unet/model.bin": b"much"})})
    machine = profile({"image": {"checkpoint": "owner/mine/mine.safetensors", "config_from": "owner/base"}})
    assert machine.fetch()[:2] == (0, {"owner/mine": "fetched", "owner/base": "fetched"})
    assert not {"README.md", "unet/model.bin"} & machine.files
    assert machine.offline(ONE_FILE) == "StableDiffusionPipeline"


def test_broken_fetch_is_resumed(hub: Hub, profile: Profiles) -> None:
    machine = profile({"image": IMAGE})
    hub.max_bytes = 3_000_000
    code, states, errors = machine.fetch()
    assert (code, "etch again" in states[PIPELINE]) == (1, True)
    assert "1 of 1 could not be fetched" in errors
    row = machine.list_checkpoints()[PIPELINE]
    assert (row["there"], row["missing"]) == ("", "here")
    hub.max_bytes, hub.sent_bytes = None, 0
    assert machine.fetch()[:2] == (0, {PIPELINE: "fetched"})
    files = pipeline_files()
    assert 0 < hub.sent_bytes < sum(map(len, files.values())) - 500_000
    (snapshot,) = machine.folder.glob("hub/hub/models--owner--pipeline/snapshots/*")
    assert read_files(snapshot).items() <= files.items()


def test_interrupted_fetch_ends_at_once(hub: Hub, profile: Profiles) -> None:
    machine = profile({"image": IMAGE})
    hub.resumed.clear()
    with subprocess.Popen(
        machine.command("fetch"), env=machine.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert hub.started.wait(120)
        process.send_signal(signal.SIGINT)
        assert (process.wait(120), process.stderr and process.stderr.read().startswith("stopped: ")) == (130, True)


def test_named_revision_is_fetched(hub: Hub, profile: Profiles) -> None:
    states: dict[str, State] = {"v1": {"onnx/model.onnx": b"the first"}, MAIN: {"onnx/model.onnx": b"another"}}
    hub.repositories["owner/network"] = Repository(states)
    commit = hub.repositories["owner/network"].commit("v1")
    machine = profile({"tag": {**ERASER, "revision": "v1"}, "commit": {**ERASER, "revision": commit}})
    assert machine.fetch()[:2] == (0, {"owner/network": "was there"}), "a tag, and then the commit that it names"
    (file,) = machine.folder.glob("hub/hub/models--owner--network/snapshots/*/onnx/model.onnx")
    assert (file.parent.parent.name, file.read_bytes()) == (commit, b"the first")
    code, came, _ = profile({"tag": {**ERASER, "revision": "v2"}}).fetch()
    assert (code, "it has no revision v2" in came["owner/network"]) == (1, True)


def test_unavailable_repositories_are_reported_and_others_fetched(hub: Hub, profile: Profiles) -> None:
    hub.repositories["owner/gated"] = Repository({MAIN: {"model.onnx": b"graph"}}, gated=True, token=TOKEN)
    hub.repositories[PIPELINE] = Repository({MAIN: {"modular_model_index.json": b"{", "vae/config.json": b"{}"}})
    names = ("owner/gated/model.onnx", "owner/nowhere/model.onnx", "owner/network/onnx/nothing.onnx", NETWORK)
    queues = {f"queue-{i}": {"backend": "onnx", "checkpoint": name} for i, name in enumerate(names)}
    machine = profile(queues | {"image": IMAGE})
    code, came, errors = machine.fetch(HF_TOKEN="hf_of-somebody-else")
    assert code == 1
    assert f"owner/gated: it is gated: accept its terms at {hub.url}/owner/gated, and set HF_TOKEN" in errors
    assert "owner/nowhere: the hub has no such repository, or it is private" in errors
    assert "owner/network: it has no files like onnx/nothing.onnx" in errors
    assert "index is not JSON" in came[PIPELINE]
    assert "error: 4 of 5 could not be fetched" in errors
    assert {"onnx/model.onnx", "onnx/model.onnx_data"} <= machine.files
    assert (machine.list_checkpoints()[NETWORK]["there"], machine.list_checkpoints()[PIPELINE]["there"]) == ("here", "")
    assert "hf_" not in f"{came}{errors}"
    assert hub.tokens == {"hf_of-somebody-else"}


def test_token_opens_a_gated_repository(hub: Hub, profile: Profiles, tmp_path: Path) -> None:
    hub.repositories["owner/gated"] = Repository({MAIN: {"model.onnx": b"graph"}}, gated=True, token=TOKEN)
    machine = profile({"model": {"backend": "onnx", "checkpoint": "owner/gated/model.onnx"}})
    (tmp_path / "token").write_text(TOKEN)
    assert machine.fetch(HF_TOKEN_PATH=str(tmp_path / "token"))[:2] == (0, {"owner/gated": "fetched"})


def test_offline_switch_prevents_a_fetch(hub: Hub, profile: Profiles) -> None:
    code, came, _ = profile({"image": IMAGE}).fetch(HF_HUB_OFFLINE="1")
    assert (code, "fetch with HF_HUB_OFFLINE=0" in came[PIPELINE], hub.requests.total()) == (1, True, 0)


def test_components_in_other_repositories_are_fetched(hub: Hub, profile: Profiles) -> None:
    autoencoder, files = read_files(BUNDLED.parent / "autoencoders" / "flux2"), read_files(BUNDLED / "flux3")
    index = json.loads(files["modular_model_index.json"])
    del index["_shared"]
    index["vae"][2] |= {"pretrained_model_name_or_path": "owner/parts", "subfolder": "autoencoder"}
    parts = {f"autoencoder/{name}": it for name, it in autoencoder.items()}
    hub.repositories["owner/parts"] = Repository({MAIN: parts})
    hub.repositories[PIPELINE] = Repository({MAIN: files | {"modular_model_index.json": json.dumps(index).encode()}})
    machine = profile({"image": IMAGE})
    assert machine.fetch()[:2] == (0, {PIPELINE: "fetched", "owner/parts": "fetched"})
    assert machine.offline(LOADED) == "Flux3"


def test_old_incomplete_files_are_deleted(hub: Hub, profile: Profiles) -> None:
    machine = profile({"eraser": ERASER})
    blobs = machine.folder / "hub/hub/models--owner--network/blobs"
    blobs.mkdir(parents=True)
    for name, age in (("old", 2 * 24 * 3600), ("new", 60)):
        (blobs / f"{name}.incomplete").write_bytes(b"half")
        mtime = time.time() - age
        os.utime(blobs / f"{name}.incomplete", (mtime, mtime))
    assert machine.fetch()[0] == 0
    assert [each.name for each in blobs.glob("*.incomplete")] == ["new.incomplete"]


def test_nodes_fetch_weights_of_their_replicas(hub: Hub, profile: Profiles) -> None:
    large = "owner/large/model.onnx"
    queues = {"here": ERASER, "elsewhere": {**ERASER, "checkpoint": large}}
    machine = profile(queues, models={"elsewhere": {"ray_actor_options": {"num_gpus": 8}}})
    marks = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64, "RAY_USAGE_STATS_ENABLED": "0"}
    result = machine.run([sys.executable, "-c", CLUSTER, str(machine.write_config())], HF_HUB_OFFLINE="1", **marks)
    assert result.returncode == 0, result.stderr
    replica_is_offline, (code, rows, errors), listed = json.loads(result.stdout.splitlines()[-1])
    assert replica_is_offline
    assert code == 0, errors
    assert [(row["checkpoint"], row["state"]) for row in rows] == [("owner/network", "fetched")]
    assert rows[0]["where"].startswith("node ")
    assert f"no node of the cluster can run the replicas that load {large}" in errors
    by_checkpoint = {row["checkpoint"]: row for row in listed[1]}
    assert by_checkpoint[NETWORK]["there"] == rows[0]["where"]
    assert by_checkpoint[large]["missing"] == ""
    assert "onnx/model.onnx" in machine.files
