"""Klein KV against its stock pipeline, on the bundled Klein's weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.flux2.pipeline_flux2_klein_kv import Flux2KleinKVPipeline
from flux2_stock import assert_same_as_stock
from flux_drawing import a_picture, encoded, placement
from support.adapters import adapter_file, random_matrices
from support.bundle import copied
from support.jobs import make_job

from deployments.families.flux2 import Flux2KV
from deployments.families.pipeline import load_pipeline
from deployments.families.state import State
from deployments.families.step import step
from deployments.loading import family_of
from deployments.lora.segments import AppliedAdapter
from deployments.lora.weights import read_weights

SIZES = [(64, 64), (90, 70)]
JOB = make_job(prompt="combine them", width=96, height=64, steps=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copied("flux2klein", tmp_path_factory.mktemp("kv"))
    index = json.loads((folder / "model_index.json").read_text()) | {"_class_name": "Flux2KleinKVPipeline"}
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture(scope="module")
def family(folder: Path) -> Flux2KV:
    kind = family_of(folder)
    assert kind is Flux2KV
    return Flux2KV.load(folder, placement())


@pytest.mark.parametrize("references", [2, *(pytest.param(few, marks=pytest.mark.slow) for few in (0, 1))])
def test_alone_it_draws_what_the_stock_pipeline_draws(folder: Path, family: Flux2KV, references: int) -> None:
    stock: Any = load_pipeline(folder, placement(), Flux2KleinKVPipeline)
    stock.set_progress_bar_config(disable=True)
    pictures = [a_picture(seed, *size) for seed, size in enumerate(SIZES[:references])]
    assert_same_as_stock(family, stock, JOB, *pictures)


def test_batch_mates_change_nothing_of_an_edit(family: Flux2KV) -> None:
    """They join and leave between steps, some without references, one with a tuned model."""

    def states() -> list[State]:
        made = [
            encoded(family, replace(JOB, id="a", seed=1), a_picture(1, 64, 64)),
            encoded(family, replace(JOB, id="b", seed=2, steps=6)),
            encoded(family, replace(JOB, id="c", seed=1), a_picture(1, 64, 64)),
        ]
        weights = read_weights(adapter_file(random_matrices(family.transformer)), family.transformer)
        made[2].adapter = AppliedAdapter(weights.layers, 1.0)
        return made

    alone, together = states(), states()
    for state in alone:
        while state.done_steps < state.total_steps:
            step(family, [state])
    while waiting := [state for state in together if state.done_steps < state.total_steps]:
        step(family, waiting)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(one.x, other.x, rtol=1e-4, atol=1e-4)
    assert (alone[0].x - alone[2].x).abs().max() > 1e-3, "the tuned model acts"
