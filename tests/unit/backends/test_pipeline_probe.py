"""The probe of pipelines at load, on tiny checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from pipeline_jobs import build_once
from safetensors.torch import load_file, save_file

from deployments.backends.pipeline_probe import probe_pipeline
from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import ModelConfig, Trial
from deployments.diffusers_loading import load_pipeline

pytestmark = pytest.mark.filterwarnings("ignore")  # pipelines call their own deprecated functions
SMALL = Trial(width=64, height=64)


@pytest.fixture(scope="module")
def sdxl(folder: Path) -> Path:
    return build_once(folder, "sdxl")


@pytest.fixture
def pipeline(load: Callable[[str], Any]) -> Any:
    return load("sdxl")


def load_and_probe(folder: Path, **settings: Any) -> Any:
    return load_pipeline(ModelConfig(checkpoint=str(folder), device="cpu", probe=SMALL, **settings))


def test_checkpoint_with_nan_output_fails_the_load(sdxl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    decode = AutoencoderKL._decode

    def broken(*arguments: Any, **options: Any) -> Any:
        output = decode(*arguments, **options)
        output[0].fill_(torch.nan)
        return output

    monkeypatch.setattr(AutoencoderKL, "_decode", broken)
    with pytest.raises(CheckpointError, match=r"the pipeline makes nothing here: .* is not finite"):
        load_and_probe(sdxl)


def test_probe_has_the_arguments_of_the_entry(pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    encode = type(pipeline).encode_prompt

    def noted(self: Any, prompt: Any, *arguments: Any, **options: Any) -> Any:
        called.append((self, prompt, options["clip_skip"]))
        return encode(self, prompt, *arguments, **options)

    monkeypatch.setattr(type(pipeline), "encode_prompt", noted)
    shapes: list[Any] = []
    hook = pipeline.unet.register_forward_pre_hook(lambda module, inputs: shapes.append(inputs[0].shape))
    assert probe_pipeline(pipeline, Trial(width=64, height=128, steps=30), {"clip_skip": 1})
    hook.remove()
    assert [len(prompts) if isinstance(prompts, list) else 1 for _, prompts, _ in called] == [2, 1]
    assert {(clip_skip, run.scheduler.num_inference_steps) for run, _, clip_skip in called} == {(1, 30)}
    heights = [shape[2] * pipeline.vae_scale_factor for shape in shapes]
    assert heights == 4 * [128], "the probe takes two steps of thirty"


@pytest.mark.parametrize(
    ("result", "takes_several"),
    [(torch.OutOfMemoryError("CUDA out of memory"), True), (ValueError("one prompt at a time"), False), (3.0, False)],
    ids=["out of memory", "only one prompt", "dependent prompts"],
)
def test_batching_follows_the_probe_of_two_prompts(
    result: float | Exception, takes_several: bool, pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts depend on each other in Kandinsky 5, which pads the shorter one without a mask."""
    forward = pipeline.unet.forward

    def forward_for_one(sample: Any, *arguments: Any, **options: Any) -> Any:
        if len(sample) == 2:  # CFG doubles a batch
            return forward(sample, *arguments, **options)
        if isinstance(result, Exception):
            raise result
        return (result * forward(sample, *arguments, **options)[0],)

    monkeypatch.setattr(pipeline.unet, "forward", forward_for_one)
    assert probe_pipeline(pipeline, SMALL, {}) is takes_several


def test_missing_tensor_is_named(sdxl: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sdxl"
    shutil.copytree(sdxl, folder)
    [file] = (folder / "unet").glob("*.safetensors")
    tensors = load_file(file)
    del tensors["conv_in.bias"]
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=r"conv_in\.bias"):
        load_and_probe(folder)


def test_class_that_changes_its_network_is_rejected(sdxl: Path) -> None:
    with pytest.raises(CheckpointError, match="StableDiffusionXLPAGPipeline can't be served: it changes its network"):
        load_and_probe(sdxl, pipeline="StableDiffusionXLPAGPipeline")


def test_pipeline_that_needs_an_image_gets_one(sdxl: Path) -> None:
    assert load_and_probe(sdxl, pipeline="StableDiffusionXLImg2ImgPipeline").pipeline is not None
