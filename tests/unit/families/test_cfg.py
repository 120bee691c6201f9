"""CFG equals the stock pipelines' true scale, within its interval."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
from flux_drawing import assert_near, draw, draw_together, encode, load_family, random_image, request, stock_pipeline
from flux_stock import assert_same_as_stock, stock_image
from support.bundle import cpu_config
from support.jobs import make_job

from deployments.checkpoint_files import CheckpointError
from deployments.contract.model import BUNDLED, CfgConfig
from deployments.families.step import step
from deployments.native_loading import load

pytestmark = pytest.mark.slow

TWICE: Final = CfgConfig(scale=2.0)
WORDS: Final = "a red star on a white background"


@pytest.mark.parametrize(("checkpoint", "references"), [("flux", 0), ("kontext", 1)])
def test_flux1_with_cfg_equals_stock(checkpoint: str, references: int) -> None:
    images = [random_image(1, 64, 64)] * references
    inputs = {"image": images[0], "max_area": 64 * 64} if images else {}
    stock, job = stock_pipeline(BUNDLED / checkpoint), make_job(prompt=WORDS, steps=3, guidance=2.5)
    expected = stock_image(stock, job, guidance_scale=2.5, true_cfg_scale=2.0, negative_prompt="", **inputs)
    guided = load_family(checkpoint, cfg=TWICE)
    assert np.array_equal(draw(guided, encode(guided, job, *images)), expected)


@pytest.mark.parametrize("references", [0, 2])
def test_flux2_with_cfg_equals_stock(references: int) -> None:
    stock = stock_pipeline(BUNDLED / "flux2klein")
    stock.register_to_config(is_distilled=False)
    images = [random_image(seed, 80, 64) for seed in range(references)]
    guided = load_family("flux2klein", cfg=TWICE)
    assert_same_as_stock(guided, stock, make_job(prompt=WORDS, steps=3), *images, guidance_scale=2.0)


@pytest.mark.parametrize("checkpoint", ["flux", "flux2klein"])
def test_batch_changes_cfg_images_only_by_rounding(checkpoint: str) -> None:
    guided = load_family(checkpoint, cfg=CfgConfig(scale=2.0, interval=(0.3, 0.9)))
    jobs = [make_job(str(seed), prompt=WORDS, steps=3 + seed, seed=seed) for seed in range(3)]
    alone = [draw(guided, encode(guided, job)) for job in jobs]
    assert_near(draw_together(guided, *(request(job) for job in jobs)), alone)


def test_cfg_step_counts_twice() -> None:
    job = make_job(prompt=WORDS, steps=4)
    once = encode(load_family("flux2klein"), job).tokens
    guided = load_family("flux2klein", cfg=CfgConfig(scale=2.0, interval=(0.0, 0.9)))
    state = encode(guided, job)
    times = state.t.tolist()
    assert times[0] == 1
    assert (state.tokens, state.scale, state.steps_alike) == (once, 1.0, sum(t > 0.9 for t in times))
    while state.scale == 1:
        step(guided, [state])
    assert (state.tokens > once, state.scale, state.steps_alike) == (True, 2.0, state.total_steps - state.done_steps)


def test_cfg_outside_its_interval_changes_nothing() -> None:
    job = make_job(prompt=WORDS, steps=3)
    never = load_family("flux", cfg=CfgConfig(scale=5.0, interval=(0.999, 0.9999)))
    plain, unguided = (draw(each, encode(each, job)) for each in (load_family("flux"), never))
    assert np.array_equal(plain, unguided)


@pytest.mark.parametrize("checkpoint", ["flux3", "ltx2"])
def test_other_families_reject_cfg(checkpoint: str) -> None:
    with pytest.raises(CheckpointError, match="cfg must be null"):
        load(cpu_config(f"bundled/{checkpoint}", cfg=TWICE))
