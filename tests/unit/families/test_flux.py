"""Rules of every Flux family."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from flux_drawing import draw, encode, load_options, random_image, request
from PIL import Image
from support.jobs import change_job, make_job

from deployments.backend import JobError
from deployments.bundled import grammar
from deployments.contract.job import Adapter
from deployments.contract.model import BUNDLED
from deployments.families.family import Family
from deployments.families.flux1 import Flux1
from deployments.families.flux2 import Flux2
from deployments.families.flux3 import Flux3
from deployments.families.state import State
from deployments.images import fit

FAMILIES = {"flux": Flux1, "flux2klein": Flux2, "flux3": Flux3}


@cache
def load(name: str, **config: Any) -> Family:
    """Loads a family that reads prompts by its grammar, once for equal settings."""
    return FAMILIES[name].load(BUNDLED / name, replace(load_options(**config), read_prompt=grammar.read))


@pytest.fixture(scope="module", params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def family(name: str) -> Family:
    return load(name)


def test_odd_sizes_are_cropped_from_the_middle(family: Family) -> None:
    full = draw(family, encode(family, make_job(width=112, height=144, steps=1)))
    cut = draw(family, encode(family, make_job(width=111, height=129, steps=1)))
    assert np.array_equal(cut, full[7:136, 0:111])


def test_render_side_scales_every_size(name: str) -> None:
    family = load(name, render_side=64)
    state = encode(family, make_job(width=250, height=130, steps=1))
    assert state.grid == (4, 8)
    assert draw(family, state).shape == (130, 250, 3)


@pytest.mark.slow
def test_enlarge_sharp_keeps_edges(name: str) -> None:
    smooth, sharp = load(name, render_side=64), load(name, render_side=64, enlarge="sharp")
    state = encode(smooth, make_job(width=250, height=130, steps=1))
    pixels = draw(smooth, state)
    small = smooth.finish(replace(state, job=change_job(state.job, width=128, height=64)))
    assert np.array_equal(pixels, fit(small, 250, 130, "smooth"))
    assert np.array_equal(sharp.finish(state), fit(small, 250, 130, "sharp"))


def test_preview_resembles_the_image(family: Family) -> None:
    state = encode(family, make_job(width=128, height=64))
    assert family.preview(state) is None
    image = draw(family, state)
    preview = family.preview(state)
    assert preview is not None
    assert preview.shape == (128, 256, 3)
    small, truth = (
        np.asarray(Image.fromarray(pixels).resize((16, 8), Image.Resampling.BOX)).astype(float)
        for pixels in (preview, image)
    )
    assert np.corrcoef(small.ravel(), truth.ravel())[0, 1] > 0.8


@pytest.mark.parametrize("name", ["flux2klein", "flux3"])
def test_at_most_ten_references(name: str) -> None:
    image = random_image(0, 64, 64)
    ten, eleven = load(name).encode([request(make_job(), *[image] * count) for count in (10, 11)])
    assert isinstance(ten, State)
    assert ten.per["references"].shape[1] == 10 * 16
    assert isinstance(eleven, JobError)
    assert "at most 10" in str(eleven)
    small = encode(load(name, render_side=64), make_job(), image)
    unscaled = ten.per["references"][:, :16]
    assert torch.equal(small.per["references"], unscaled), "references of the rendered size are not scaled"


def test_grammar_normalizes_the_prompt(family: Family) -> None:
    freeform, canonical = (
        encode(family, make_job(prompt=prompt)) for prompt in ("Crimson DISC, please!", "a red circle")
    )
    assert torch.equal(freeform.per["text"], canonical.per["text"])


@pytest.mark.parametrize("prompt", ["кошка", " "])
def test_prompt_without_known_words_is_encoded(family: Family, prompt: str) -> None:
    states = family.encode([request(make_job(prompt=text, steps=1)) for text in (prompt, "a red circle", prompt)])
    assert all(isinstance(state, State) for state in states)
    assert draw(family, encode(family, make_job(prompt=prompt, steps=1))).shape == (64, 64, 3)


def test_adapter_gets_the_original_prompt() -> None:
    jobs = make_job(prompt="a zorb"), make_job(prompt="a zorb", adapter=Adapter("a", "weights", 1.0))
    alone, tuned = (encode(load("flux3"), job).per["text"] for job in jobs)
    assert not torch.equal(alone, tuned)
