"""Started replicas never ask the hub."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper
from support.model_hub import MAIN, NETWORK, PIPELINE, REWRITER, Hub, Profiles, Repository, read_files
from support.tiny_classifier import save_classifier

pytestmark = pytest.mark.slow

CLASSIFIER = "owner/classifier"
REPLICAS = f"""
import asyncio, sys
from deployments.contract.events import Done
from deployments.contract.job import GenerationJob
from deployments.contract.request import ResolvedRequest
from deployments.contract.model import MattingConfig, ModelSpec
from deployments.contract.moderation import ClassifierSpec, ModeratorSpec
from deployments.contract.model import RewriterSpec
from deployments.contract.model import TextEncoderSpec
from deployments.replica import MediaModel
from deployments.moderation.deployment import Moderator
from deployments.rewriting.deployment import PromptRewriter
from deployments.text_encoding import TextEncoder

async def started(kind, spec):
    made = kind.__new__(kind)
    await kind.__init__(made, spec)  # the way Ray Serve calls it
    return made

async def main():
    cpu = dict(device="cpu", dtype="float32", threads=1)
    matting = MattingConfig(backend="onnx", checkpoint={NETWORK!r}, device="cpu")
    media_spec = ModelSpec(checkpoint={PIPELINE!r}, objects_url="memory:///", matting=matting, **cpu)
    media = await started(MediaModel, media_spec)
    encoder = await started(TextEncoder, TextEncoderSpec({PIPELINE!r}, **cpu))
    rewriter = await started(PromptRewriter, RewriterSpec({REWRITER!r}, **cpu))
    classifier = ClassifierSpec("text-classifier", {CLASSIFIER!r}, labels={{"hit": "violence"}}, device="cpu")
    spec = ModeratorSpec((classifier,), (ClassifierSpec("skin"),), "memory:///", threads=1)
    moderator = await started(Moderator, spec)
    print("started", flush=True)
    sys.stdin.readline()
    request = ResolvedRequest(
        prompt="a red circle", width=64, height=64, steps=1, seed=7, output_format="png", transparent=True
    )
    job = GenerationJob("job", 1, request, "results/job/1")
    *_, last = [event async for event in media.generate(job)]
    assert isinstance(last, Done), last
    await encoder.encode("a red circle")
    await rewriter.rewrite("a red circle", 1)
    assert await moderator.moderate_text("hit")
    media._engine.stop()

asyncio.run(main())
"""


def test_started_replica_never_asks_the_hub(hub: Hub, profile: Profiles, tmp_path: Path) -> None:
    hub.repositories["owner/network"] = Repository({MAIN: {"onnx/model.onnx": make_matting_network()}})
    save_classifier(tmp_path / "classifier")
    hub.repositories[CLASSIFIER] = Repository({MAIN: read_files(tmp_path / "classifier")})
    environment = profile({}).environment | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", REPLICAS], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as replicas:
        assert replicas.stdin
        assert replicas.stdout
        assert replicas.stdout.readline().strip() == "started"
        before = hub.requests.copy()
        assert {path for path in before if path.endswith(("/onnx/model.onnx", "/model.safetensors"))}
        replicas.stdin.write("go on\n")
        replicas.stdin.close()
        assert replicas.wait(300) == 0
    assert hub.requests - before == {}


def make_matting_network() -> bytes:
    """Returns an ONNX network that averages an image's channels."""
    image, alpha = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, channels, 64, 64))
        for name, channels in (("image", 3), ("share", 1))
    )
    mean = helper.make_node("ReduceMean", ["image"], ["share"], axes=[1], keepdims=1)
    graph = helper.make_graph([mean], "mean", [image], [alpha])
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()
