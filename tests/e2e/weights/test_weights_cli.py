"""`gen-serve weights`, run as operators run it, on a hub of this machine; replicas' own code on what it fetched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from support.hub_profile import NETWORK, PIPELINE, REWRITER, Profiles, pipeline
from support.model_hub import MAIN, Hub, Repository

from deployments.contract.model import BUNDLED

pytestmark = pytest.mark.slow

TOKEN = "hf_only-for-those-who-may"

LOADED = """
from deployments import checkpoints
print(type(checkpoints.load("owner/pipeline", device="cpu", dtype="float32").family).__name__)
"""
REWRITTEN = """
from deployments.contract.model import RewriterSpec
from deployments.rewriting.rewriter import Rewriter
print(Rewriter(RewriterSpec("owner/rewriter", dtype="float32")).rewrite("a red star", 1))
"""


def test_what_is_fetched_is_what_replicas_load_without_a_hub(hub: Hub, profile: Profiles) -> None:
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


def test_what_is_there_is_not_fetched_again(hub: Hub, profile: Profiles) -> None:
    machine = profile({"picture": {"checkpoint": PIPELINE}})
    assert machine.fetch()[1] == {PIPELINE: "fetched"}
    sent = hub.sent
    assert machine.fetch()[1] == {PIPELINE: "was there"}
    assert hub.sent == sent
    (row,) = json.loads(machine.run("list", "--json").stdout)
    assert (row["checkpoint"], row["there"], row["missing"]) == (PIPELINE, "here", "")
    assert row["size"] == sent


def test_what_broke_off_goes_on(hub: Hub, profile: Profiles) -> None:
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


def test_a_fetch_that_is_interrupted_ends_at_once(hub: Hub, profile: Profiles) -> None:
    machine = profile({"picture": {"checkpoint": PIPELINE}})
    hub.goes_on.clear()
    with subprocess.Popen(machine.command("fetch"), env=machine.environment, stderr=subprocess.PIPE, text=True) as ran:
        assert hub.begun.wait(120)
        ran.send_signal(signal.SIGINT)
        assert (ran.wait(120), ran.stderr and ran.stderr.read().startswith("stopped: ")) == (130, True)
    hub.goes_on.set()
    assert machine.fetch()[:2] == (0, {PIPELINE: "fetched"})


def test_a_revision_is_the_one_that_was_named(hub: Hub, profile: Profiles) -> None:
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


def test_what_is_gated_or_not_there_is_told_and_all_else_comes(hub: Hub, profile: Profiles) -> None:
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


def test_a_token_opens_what_is_gated(hub: Hub, profile: Profiles, tmp_path: Path) -> None:
    hub.repositories["owner/gated"] = Repository({MAIN: {"model.onnx": b"graph"}}, gated=True, token=TOKEN)
    machine = profile({"lane": {"backend": "onnx", "checkpoint": "owner/gated/model.onnx"}})
    (tmp_path / "token").write_text(TOKEN)
    code, came, errors = machine.fetch(HF_TOKEN_PATH=str(tmp_path / "token"))
    assert (code, came) == (0, {"owner/gated": "fetched"})
    assert TOKEN not in errors


def test_a_hub_that_may_not_be_asked_is_not(hub: Hub, profile: Profiles) -> None:
    machine = profile({"picture": {"checkpoint": PIPELINE}})
    code, came, _ = machine.fetch(HF_HUB_OFFLINE="1")
    assert (code, "fetch with HF_HUB_OFFLINE=0" in came[PIPELINE]) == (1, True)
    assert hub.asked == 0


def test_components_in_other_repositories_come_too(hub: Hub, profile: Profiles) -> None:
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


def test_a_broken_index_keeps_nothing_else_from_coming(hub: Hub, profile: Profiles) -> None:
    hub.repositories[PIPELINE] = Repository({MAIN: {"modular_model_index.json": b"{", "vae/config.json": b"{}"}})
    lanes = {"picture": {"checkpoint": PIPELINE}, "eraser": {"backend": "onnx", "checkpoint": NETWORK}}
    machine = profile(lanes)
    code, came, _ = machine.fetch()
    assert (code, came["owner/network"], "index is no JSON" in came[PIPELINE]) == (1, "fetched", True)
    assert {row["checkpoint"]: row["there"] for row in json.loads(machine.run("list", "--json").stdout)} == {
        PIPELINE: "",
        NETWORK: "here",
    }


def test_what_was_on_its_way_in_a_process_that_is_gone_is_cleared(hub: Hub, profile: Profiles) -> None:
    machine = profile({"eraser": {"backend": "onnx", "checkpoint": NETWORK}})
    blobs = machine.folder / "hub/hub/models--owner--network/blobs"
    blobs.mkdir(parents=True)
    for name, age in (("old", 2 * 24 * 3600), ("new", 60)):
        (blobs / f"{name}.incomplete").write_bytes(b"half")
        written = time.time() - age
        os.utime(blobs / f"{name}.incomplete", (written, written))
    assert machine.fetch()[0] == 0
    assert [each.name for each in blobs.glob("*.incomplete")] == ["new.incomplete"]
