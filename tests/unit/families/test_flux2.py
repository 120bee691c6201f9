from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flux2_stock import assert_same_as_stock
from flux_drawing import (
    a_picture,
    encoded,
    placement,
    stock_pipeline,
)
from support.bundle import copied
from support.jobs import make_job

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import BUNDLED, TrueGuidance
from deployments.families.conditioning import trim_language_model
from deployments.families.flux2 import Flux2

FOLDER = BUNDLED / "flux2klein"


@pytest.fixture(scope="module")
def stock() -> Any:
    return stock_pipeline(FOLDER)


@pytest.fixture(scope="module")
def family() -> Flux2:
    return Flux2.load(FOLDER, placement())


@pytest.mark.parametrize(("width", "height", "steps"), [(96, 64, 5), (64, 128, 16)])
def test_alone_it_draws_what_the_stock_pipeline_draws(
    stock: Any, family: Flux2, width: int, height: int, steps: int
) -> None:
    assert_same_as_stock(family, stock, make_job(width=width, height=height, steps=steps))


def test_references_are_read_as_the_stock_pipeline_reads_them(stock: Any, family: Flux2) -> None:
    references = [a_picture(1, 90, 70), a_picture(2, 64, 100)]
    assert_same_as_stock(family, stock, make_job(prompt="combine them", width=96, height=64), *references)


def test_of_the_text_encoder_only_what_is_read_is_computed() -> None:
    pipeline = stock_pipeline(FOLDER)
    whole = pipeline.encode_prompt("a red circle", device="cpu", text_encoder_out_layers=(3, 6, 9))[0]
    trim_language_model(pipeline.text_encoder, 9)
    assert len(pipeline.text_encoder.model.layers) == 10
    trimmed = pipeline.encode_prompt("a red circle", device="cpu", text_encoder_out_layers=(3, 6, 9))[0]
    assert torch.equal(trimmed, whole)


@pytest.mark.slow
def test_a_reference_of_more_than_a_megapixel_is_scaled_as_the_stock_pipeline_does(stock: Any, family: Flux2) -> None:
    assert_same_as_stock(family, stock, make_job(steps=1), a_picture(1, 1250, 900))


def test_the_distilled_kind_has_no_guidance(family: Flux2) -> None:
    assert encoded(family, make_job(guidance=7.0)).guidance is None


@pytest.mark.parametrize("size", [(10, 200), (1, 1), (17, 15)])
def test_references_narrower_than_a_token_are_widened(family: Flux2, size: tuple[int, int]) -> None:
    state = encoded(family, make_job(), a_picture(0, *size))
    assert state.per["references"].shape[1] == max(size[0] // 16, 1) * max(size[1] // 16, 1)


def test_a_checkpoint_whose_tokenizer_knows_short_texts_reads_short_texts() -> None:
    pipeline = stock_pipeline(FOLDER)
    for known, length in ((48, 48), (int(1e30), 512)):
        pipeline.tokenizer.model_max_length = known
        assert encoded(Flux2(pipeline, placement()), make_job(prompt="word " * 90)).per["text"].shape[1] == length


def test_a_base_model_is_refused_without_true_guidance(tmp_path: Path) -> None:
    folder = copied("flux2klein", tmp_path)
    index = folder / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"is_distilled": False}))
    with pytest.raises(CheckpointError, match="needs true_guidance"):
        Flux2.load(folder, placement())
    family = Flux2.load(folder, replace(placement(), true_guidance=TrueGuidance(2.0)))
    assert encoded(family, make_job()).wordless is not None


@pytest.mark.parametrize("component", ["transformer", "text_encoder", "vae"])
def test_a_cut_off_file_is_a_broken_checkpoint(tmp_path: Path, component: str) -> None:
    folder = copied("flux2klein", tmp_path)
    place = tmp_path / "autoencoders" / "flux2" if component == "vae" else folder / component
    [weights] = place.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError):
        Flux2.load(folder, placement())
