"""The guided kind of the family, with a checkpoint that is built here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from flux2_stock import assert_same_as_stock
from flux_drawing import (
    a_picture,
    assert_near,
    drawn,
    drawn_together,
    encoded,
    placement,
    request,
    stock_pipeline,
)
from support.jobs import make_job
from transformers import AutoConfig, AutoTokenizer, Mistral3Config, Mistral3ForConditionalGeneration

from deployments.contract.model import BUNDLED
from deployments.families.flux2 import Flux2


@pytest.fixture(scope="module")
def dev_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the family's guided kind, as small as the bundled one."""
    folder = tmp_path_factory.mktemp("checkpoints") / "flux2dev"
    klein = BUNDLED / "flux2klein"
    transformer: Any = Flux2Transformer2DModel
    guided = {**transformer.load_config(klein / "transformer"), "guidance_embeds": True}
    scheduler: Any = FlowMatchEulerDiscreteScheduler.from_pretrained(klein / "scheduler")
    # In place of a processor around one.
    tokenizer = AutoTokenizer.from_pretrained(BUNDLED / "flux3" / "tokenizer")
    vision = {
        "model_type": "pixtral",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 8,
        "image_size": 32,
        "patch_size": 16,
    }
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
            tokenizer=tokenizer,
            transformer=transformer.from_config(guided),
        ).save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def dev(dev_folder: Path) -> Flux2:
    return Flux2.load(dev_folder, placement())


@pytest.fixture(scope="module")
def stock(dev_folder: Path) -> Any:
    return stock_pipeline(dev_folder)


def test_guided_it_draws_what_the_stock_pipeline_draws(stock: Any, dev: Flux2) -> None:
    job, reference = make_job(steps=3, guidance=1.5), a_picture(1, 64, 80)
    assert_same_as_stock(dev, stock, job, reference, guidance_scale=1.5)
    assert_same_as_stock(dev, stock, make_job(steps=2, guidance=None))


def test_every_picture_of_a_batch_keeps_its_own_guidance(dev: Flux2) -> None:
    jobs = [make_job(guidance=strength) for strength in (1.0, 3.0, 10.0)]
    alone = [drawn(dev, encoded(dev, job)) for job in jobs]
    assert np.abs(alone[0].astype(int) - alone[2]).max() > 2
    assert_near(drawn_together(dev, *map(request, jobs)), alone)
