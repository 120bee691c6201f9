"""Rules of every Flux family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from flux_drawing import draw, encode, load_options, random_image, request
from PIL import Image
from support.jobs import change_job, make_job

from deployments.backend import JobError
from deployments.bundled import grammar
from deployments.contract.job import Adapter
from deployments.contract.model import BUNDLED, ModelConfig
from deployments.families.conditioning import PreparedRequest
from deployments.families.family import Family
from deployments.families.flux1 import Flux1
from deployments.families.flux2 import Flux2
from deployments.families.flux3 import Flux3
from deployments.families.pipeline import LoadOptions
from deployments.families.state import State
from deployments.images import fit

FAMILIES = {"flux": Flux1, "flux2klein": Flux2, "flux3": Flux3}
TAKES_TEN_REFERENCES = ("flux2klein", "flux3")


def load(name: str, place: LoadOptions) -> Family:
    return FAMILIES[name].load(BUNDLED / name, place)


@pytest.fixture(scope="module", params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def family(name: str) -> Family:
    return load(name, load_options())


@pytest.mark.parametrize(("width", "height"), [(100, 70), (111, 129)])
def test_odd_sizes_are_cropped_from_the_middle(family: Family, width: int, height: int) -> None:
    full_width, full_height = -(-width // 16) * 16, -(-height // 16) * 16
    full = draw(family, encode(family, make_job(width=full_width, height=full_height, steps=2)))
    cut = draw(family, encode(family, make_job(width=width, height=height, steps=2)))
    left, top = (full_width - width) // 2, (full_height - height) // 2
    assert cut.shape == (height, width, 3)
    assert np.array_equal(cut, full[top : top + height, left : left + width])


@pytest.mark.parametrize(("width", "height"), [(250, 130), (50, 26)])
def test_render_side_scales_every_size(name: str, width: int, height: int) -> None:
    family = load(name, load_options(render_side=64))
    state = encode(family, make_job(width=width, height=height, steps=2))
    assert state.grid == (4, 8)
    assert draw(family, state).shape == (height, width, 3)


@pytest.mark.slow
def test_enlarge_sharp_keeps_edges(name: str) -> None:
    smooth = load(name, load_options(render_side=64))
    sharp = load(name, replace(load_options(), config=ModelConfig(render_side=64, enlarge="sharp")))
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
    small = np.asarray(Image.fromarray(preview).resize((16, 8), Image.Resampling.BOX)).astype(float)
    truth = np.asarray(Image.fromarray(image).resize((16, 8), Image.Resampling.BOX)).astype(float)
    assert np.corrcoef(small.ravel(), truth.ravel())[0, 1] > 0.8


@pytest.mark.parametrize("taking", TAKES_TEN_REFERENCES)
def test_at_most_ten_references(taking: str) -> None:
    editor, small = load(taking, load_options()), load(taking, load_options(render_side=64))
    image = random_image(0, 64, 64)
    ten, eleven = editor.encode([request(make_job(), *[image] * count) for count in (10, 11)])
    assert isinstance(ten, State)
    assert ten.per["references"].shape[1] == 10 * 16
    assert isinstance(eleven, JobError)
    assert "at most 10" in str(eleven)
    [read] = small.encode([request(make_job(), *[image] * 10)])
    assert isinstance(read, State)
    assert torch.equal(ten.per["references"], read.per["references"]), "references of the rendered size are not scaled"


def test_broken_reference_fails_only_its_job() -> None:
    bad, good = load("flux3", load_options()).encode(
        [PreparedRequest(make_job(), (b"no image",)), PreparedRequest(make_job())]
    )
    assert isinstance(bad, JobError)
    assert isinstance(good, State)


@pytest.fixture(scope="module")
def reader(name: str) -> Family:
    """A checkpoint with its own grammar."""
    return load(name, replace(load_options(), read_prompt=grammar.read))


def test_grammar_normalizes_the_prompt(reader: Family) -> None:
    freeform, canonical = (
        encode(reader, make_job(prompt=prompt)) for prompt in ("Crimson DISC, please!", "a red circle")
    )
    assert torch.equal(freeform.per["text"], canonical.per["text"])


@pytest.mark.parametrize("prompt", ["кошка", " "])
def test_prompt_without_known_words_is_encoded(reader: Family, prompt: str) -> None:
    encoded_together = reader.encode([request(make_job(prompt=text)) for text in (prompt, "a red circle", prompt)])
    assert all(isinstance(state, State) for state in encoded_together)
    assert draw(reader, encode(reader, make_job(prompt=prompt, steps=1))).shape == (64, 64, 3)


def test_adapter_gets_the_original_prompt() -> None:
    reader = load("flux3", replace(load_options(), read_prompt=grammar.read))
    jobs = make_job(prompt="a zorb"), make_job(prompt="a zorb", adapter=Adapter("a", "weights", 1.0))
    alone, tuned = (encode(reader, job).per["text"] for job in jobs)
    assert not torch.equal(alone, tuned)
