from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline
from diffusers.pipelines.flux2.pipeline_flux2_klein_kv import Flux2KleinKVPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from flux_drawing import (
    assert_near,
    draw,
    draw_together,
    encode,
    load_family,
    load_options,
    random_image,
    request,
    run_steps,
    stock_pipeline,
)
from flux_stock import assert_same_as_stock
from support.adapters import adapter_file, random_matrices
from support.bundle import copy_bundle
from support.jobs import change_job, make_job
from transformers import AutoConfig, AutoTokenizer, Mistral3Config, Mistral3ForConditionalGeneration

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import BUNDLED, CfgConfig
from deployments.families.conditioning import trim_language_model
from deployments.families.flux2 import Flux2, Flux2KV
from deployments.families.pipeline import load_pipeline
from deployments.families.state import State
from deployments.lora.segments import AppliedAdapter
from deployments.lora.weights import read_weights
from deployments.native_loading import find_family

FOLDER = BUNDLED / "flux2klein"


@pytest.fixture(scope="module")
def stock() -> Any:
    return stock_pipeline(FOLDER)


@pytest.fixture
def family() -> Flux2:
    return load_family("flux2klein")


def test_image_with_and_without_references_equals_stock(stock: Any, family: Flux2) -> None:
    assert_same_as_stock(family, stock, make_job(width=96, height=64, steps=3))
    references = [random_image(1, 90, 70), random_image(2, 64, 100)]
    assert_same_as_stock(family, stock, make_job(width=64, height=128, steps=5), *references)


def test_trimmed_text_encoder_gives_the_same_output() -> None:
    pipeline = stock_pipeline(FOLDER)
    whole = pipeline.encode_prompt("a red circle", device="cpu", text_encoder_out_layers=(3, 6, 9))[0]
    trim_language_model(pipeline.text_encoder, 9)
    assert len(pipeline.text_encoder.model.layers) == 10
    trimmed = pipeline.encode_prompt("a red circle", device="cpu", text_encoder_out_layers=(3, 6, 9))[0]
    assert torch.equal(trimmed, whole)


@pytest.mark.slow
def test_large_reference_is_scaled_as_stock(stock: Any, family: Flux2) -> None:
    assert_same_as_stock(family, stock, make_job(steps=1), random_image(1, 1250, 900))


@pytest.mark.parametrize("size", [(10, 200), (1, 1)])
def test_narrow_reference_is_padded_to_a_token(family: Flux2, size: tuple[int, int]) -> None:
    state = encode(family, make_job(), random_image(0, *size))
    assert state.per["references"].shape[1] == max(size[0] // 16, 1) * max(size[1] // 16, 1)


def test_text_length_follows_the_tokenizer() -> None:
    pipeline = stock_pipeline(FOLDER)
    for max_length, length in ((48, 48), (int(1e30), 512)):
        pipeline.tokenizer.model_max_length = max_length
        assert encode(Flux2(pipeline, load_options()), make_job(prompt="word " * 90)).per["text"].shape[1] == length


def test_base_model_needs_cfg(tmp_path: Path) -> None:
    folder = copy_bundle("flux2klein", tmp_path)
    index = folder / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"is_distilled": False}))
    with pytest.raises(CheckpointError, match="needs cfg"):
        Flux2.load(folder, load_options())
    assert encode(Flux2.load(folder, load_options(cfg=CfgConfig(scale=2.0))), make_job()).uncond is not None


@pytest.mark.parametrize("component", ["transformer", "text_encoder", "vae"])
def test_truncated_weights_are_a_checkpoint_error(tmp_path: Path, component: str) -> None:
    folder = copy_bundle("flux2klein", tmp_path)
    place = tmp_path / "autoencoders" / "flux2" if component == "vae" else folder / component
    [weights] = place.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError):
        Flux2.load(folder, load_options())


@pytest.fixture(scope="module")
def dev_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A guided checkpoint as small as the bundled one."""
    folder = tmp_path_factory.mktemp("checkpoints") / "flux2dev"
    klein = BUNDLED / "flux2klein"
    transformer: Any = Flux2Transformer2DModel
    guided = {**transformer.load_config(klein / "transformer"), "guidance_embeds": True}
    scheduler: Any = FlowMatchEulerDiscreteScheduler.from_pretrained(klein / "scheduler")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {"model_type": "pixtral", **sizes, "head_dim": 8, "image_size": 32, "patch_size": 16}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        # The pipeline reads the hidden states 10, 20 and 30.
        layers = AutoConfig.from_pretrained(klein / "text_encoder").to_dict() | {"num_hidden_layers": 30}
        del layers["layer_types"], layers["model_type"]
        config = Mistral3Config(
            text_config={"model_type": "mistral", **layers}, vision_config=vision, image_token_index=5
        )
        Flux2Pipeline(
            scheduler=scheduler,
            vae=AutoencoderKLFlux2.from_pretrained(BUNDLED.parent / "autoencoders" / "flux2"),
            text_encoder=Mistral3ForConditionalGeneration(config),
            tokenizer=AutoTokenizer.from_pretrained(BUNDLED / "flux3" / "tokenizer"),
            transformer=transformer.from_config(guided),
        ).save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def dev(dev_folder: Path) -> Flux2:
    return Flux2.load(dev_folder, load_options())


@pytest.fixture(scope="module")
def stock_dev(dev_folder: Path) -> Any:
    return stock_pipeline(dev_folder)


def test_guided_image_equals_stock(stock_dev: Any, dev: Flux2) -> None:
    job, reference = make_job(steps=2, guidance=1.5), random_image(1, 64, 80)
    assert_same_as_stock(dev, stock_dev, job, reference, guidance_scale=1.5)
    assert_same_as_stock(dev, stock_dev, make_job(steps=1, guidance=None))


def test_batch_keeps_each_jobs_guidance(dev: Flux2) -> None:
    jobs = [make_job(steps=2, guidance=strength) for strength in (1.0, 3.0, 10.0)]
    alone = [draw(dev, encode(dev, job)) for job in jobs]
    assert np.abs(alone[0].astype(int) - alone[2]).max() > 2
    assert_near(draw_together(dev, *map(request, jobs)), alone)


SIZES = [(64, 64), (90, 70)]
JOB = make_job(prompt="combine them", width=96, height=64, steps=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_bundle("flux2klein", tmp_path_factory.mktemp("kv"))
    index = json.loads((folder / "model_index.json").read_text()) | {"_class_name": "Flux2KleinKVPipeline"}
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture(scope="module")
def kv(folder: Path) -> Flux2KV:
    assert find_family(folder) is Flux2KV
    return Flux2KV.load(folder, load_options())


@pytest.mark.parametrize("references", [2, *(pytest.param(few, marks=pytest.mark.slow) for few in (0, 1))])
def test_image_with_kept_references_equals_stock(folder: Path, kv: Flux2KV, references: int) -> None:
    stock: Any = load_pipeline(folder, load_options(), Flux2KleinKVPipeline)
    stock.set_progress_bar_config(disable=True)
    images = [random_image(seed, *size) for seed, size in enumerate(SIZES[:references])]
    assert_same_as_stock(kv, stock, JOB, *images)


def test_batch_does_not_change_an_edit(kv: Flux2KV) -> None:
    """Jobs join and leave between steps, some without references, one with an adapter."""

    def states() -> list[State]:
        edit_states = [
            encode(kv, change_job(JOB, id="a", seed=1), random_image(1, 64, 64)),
            encode(kv, change_job(JOB, id="b", seed=2, steps=4)),
            encode(kv, change_job(JOB, id="c", seed=1), random_image(1, 64, 64)),
        ]
        weights = read_weights(adapter_file(random_matrices(kv.transformer)), {"transformer": kv.transformer})
        edit_states[2].adapter = AppliedAdapter(weights.layers, 1.0)
        return edit_states

    alone, together = states(), states()
    for state in alone:
        run_steps(kv, state)
    run_steps(kv, *together)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one.x, other.x, rtol=1e-4, atol=1e-4)
    assert (alone[0].x - alone[2].x).abs().max() > 1e-3, "the adapter has no effect"
