"""Rules of every Flux family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from flux_drawing import draw, encode, load_afresh, load_family, load_options, random_image, request
from PIL import Image
from support.jobs import change_job, make_job

from deployments.backend import JobError
from deployments.bundled import grammar
from deployments.contract.job import Adapter
from deployments.contract.model import BUNDLED, CacheSizes
from deployments.families.family import Family
from deployments.families.flux3 import Flux3
from deployments.families.state import State
from deployments.families.vae import _blend
from deployments.images import fit
from deployments.lru_cache import CacheStats


@pytest.fixture(params=["flux", "flux2klein", "flux3"])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def family(name: str) -> Family:
    return load_family(name)


def test_odd_sizes_are_cropped_from_the_middle(family: Family) -> None:
    full = draw(family, encode(family, make_job(width=112, height=144, steps=1)))
    cut = draw(family, encode(family, make_job(width=101, height=129, steps=1)))
    assert np.array_equal(cut, full[7:136, 5:106])


def test_render_side_scales_every_size(name: str) -> None:
    family = load_family(name, render_side=64)
    state = encode(family, make_job(width=250, height=130, steps=1))
    assert state.grid == (4, 8)
    assert draw(family, state).shape == (130, 250, 3)


@pytest.mark.slow
def test_enlarge_sharp_keeps_edges(name: str) -> None:
    smooth, sharp = load_family(name, render_side=64), load_family(name, render_side=64, enlarge="sharp")
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
    ten, eleven = load_family(name).encode([request(make_job(), *[image] * count) for count in (10, 11)])
    assert isinstance(ten, State)
    assert ten.per["references"].shape[1] == 10 * 16
    assert isinstance(eleven, JobError)
    assert "at most 10" in str(eleven)
    small = encode(load_family(name, render_side=64), make_job(), image)
    unscaled = ten.per["references"][:, :16]
    assert torch.equal(small.per["references"], unscaled), "references of the rendered size are not scaled"


@pytest.fixture(scope="module")
def reader() -> Flux3:
    """Returns a family that reads prompts by the bundled grammar."""
    return Flux3.load(BUNDLED / "flux3", replace(load_options(), read_prompt=grammar.read))


def test_grammar_normalizes_the_prompt(reader: Flux3) -> None:
    freeform, canonical = (
        encode(reader, make_job(prompt=prompt)) for prompt in ("Crimson DISC, please!", "a red circle")
    )
    assert torch.equal(freeform.per["text"], canonical.per["text"])


@pytest.mark.parametrize("prompt", ["кошка", " "])
def test_prompt_without_known_words_is_encoded(reader: Flux3, prompt: str) -> None:
    states = reader.encode([request(make_job(prompt=text, steps=1)) for text in (prompt, "a red circle", prompt)])
    assert all(isinstance(state, State) for state in states)
    assert draw(reader, encode(reader, make_job(prompt=prompt, steps=1))).shape == (64, 64, 3)


def test_adapter_gets_the_original_prompt(reader: Flux3) -> None:
    jobs = make_job(prompt="a zorb"), make_job(prompt="a zorb", adapter=Adapter("a", "weights", 1.0))
    alone, tuned = (encode(reader, job).per["text"] for job in jobs)
    assert not torch.equal(alone, tuned)


EDITORS = pytest.mark.parametrize("name", ["kontext", "flux2klein", "flux3"])
"""Families that take references."""


@pytest.mark.slow
@EDITORS
def test_channels_last_changes_only_rounding(name: str) -> None:
    families = [load_family(name, channels_last=last) for last in (False, True)]
    states = [encode(family, make_job(steps=1), random_image(1, 96, 64)) for family in families]
    torch.testing.assert_close(states[1].per["references"], states[0].per["references"], rtol=1e-4, atol=1e-4)
    plain, last = (draw(family, states[0]).astype(int) for family in families)
    assert np.abs(plain - last).max() <= 1


@pytest.mark.slow
@EDITORS
def test_tiles_give_nearly_the_same_image(name: str) -> None:
    whole, tiled = load_family(name), load_family(name, tile_above=256)
    state = encode(whole, make_job(width=448, height=320, steps=1))
    plain = draw(whole, state).astype(int)
    assert np.abs(plain - tiled.finish(state)).max() <= 8
    small = encode(whole, make_job(steps=1))
    assert np.array_equal(draw(whole, small), tiled.finish(small)), "a small image has one tile"


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("extent", [1, 7, 40])
def test_blend_of_tiles_equals_diffusers(dim: int, extent: int) -> None:
    random = torch.Generator().manual_seed(extent)
    first, second = (torch.randn((1, 3, 24, 20), generator=random) for _ in range(2))
    stock = {2: AutoencoderKL.blend_v, 3: AutoencoderKL.blend_h}[dim](cast(Any, None), first, second.clone(), extent)
    torch.testing.assert_close(_blend(first, second, extent, dim=dim), stock, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@EDITORS
def test_equal_prompt_and_images_hit_the_caches(name: str) -> None:
    family = load_afresh(name)
    uncached = load_family(name, caches=CacheSizes(prompts_mb=0, references_mb=0, adapters_mb=0))
    first, second, third = (random_image(seed, 64 + 16 * seed, 64) for seed in range(3))
    for images in ((first, second), (second, first), (second, first, third), (third,)):
        actual, expected = (encode(each, make_job(), *images) for each in (family, uncached))
        for one, other in ((actual.per, expected.per), (actual.ids, expected.ids)):
            assert one.keys() == other.keys()
            assert all(torch.equal(one[part], other[part]) for part in one)
    assert (family.caches["prompts"].hits, family.caches["prompts"].misses) == (3, 1)
    references = family.caches["references"]
    counts = (4, 4) if name == "flux3" else (5, 3)
    assert (references.hits, references.misses) == counts, "a job's only reference can have another size"
    assert references.bytes > 0
    family.forget()
    assert family.caches["references"].bytes == family.caches["prompts"].bytes == 0
    assert all(stats == CacheStats(misses=stats.misses) for stats in uncached.caches.values())


@pytest.mark.slow
@EDITORS
def test_equal_prompts_in_a_batch_are_encoded_once(name: str) -> None:
    prompts = ["a red circle", "a blue star", "a red circle"]
    states = load_afresh(name).encode([request(make_job(str(n), prompt=prompt)) for n, prompt in enumerate(prompts)])
    texts = [state.per["text"] for state in states if isinstance(state, State)]
    assert texts[0] is texts[2]
    assert not torch.equal(texts[0], texts[1])
    assert all(text.untyped_storage().nbytes() == text.nbytes for text in texts), "caches keep only their part"
