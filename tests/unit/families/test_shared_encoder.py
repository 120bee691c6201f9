"""Images whose prompts a text encoder elsewhere reads are the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from flux_drawing import run_steps
from support.bundle import cpu_config
from support.jobs import make_job

from deployments import native_loading
from deployments.backend import TextEncoderUnavailable
from deployments.checkpoint_files import CheckpointError
from deployments.contract.job import GenerationJob
from deployments.contract.model import CfgConfig, ModelConfig
from deployments.families.conditioning import PreparedRequest, as_bytes
from deployments.families.family import Family
from deployments.families.state import State
from deployments.images import Pixels

pytestmark = pytest.mark.slow

NAMES = ["flux", "flux2klein", "flux3"]


class Elsewhere:
    """What a deployment of text encoders answers, in this process."""

    def __init__(self, checkpoint: str) -> None:
        self._encoder, self._fingerprint = native_loading.load_prompt_encoder(checkpoint, device="cpu", dtype="float32")
        self.prompts: list[str] = []

    @torch.inference_mode()
    def __call__(self, prompt: str) -> bytes:
        self.prompts.append(prompt)
        return as_bytes(self._encoder.encode([prompt])[0])

    def fingerprint(self) -> str:
        return self._fingerprint


class DeadEncoder:
    def __call__(self, prompt: str) -> bytes:
        raise TextEncoderUnavailable("no answer")

    def fingerprint(self) -> str:
        return self("")  # type: ignore[return-value]  # raises


def family(name: str, text_encoder: Any = None, **options: Any) -> Family:
    loaded = native_loading.load(cpu_config(f"bundled/{name}", render_side=64, **options), text_encoder)
    return native_loading.for_images(loaded.family)


def draw(family: Family, job: GenerationJob) -> Pixels:
    [state] = family.encode([family.fetch(PreparedRequest(job))])
    assert isinstance(state, State)
    run_steps(family, state)
    return family.finish(state)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_is_the_same_bit_by_bit(name: str) -> None:
    job = make_job(prompt="a red star on a white background", width=64, height=64, steps=2, seed=3)
    elsewhere = Elsewhere(f"bundled/{name}")
    shared = family(name, text_encoder=elsewhere)
    assert np.array_equal(draw(shared, job), draw(family(name), job))
    before = list(elsewhere.prompts)
    draw(shared, job)
    assert elsewhere.prompts == before, "what was read is kept"


@pytest.mark.parametrize("name", ["flux", "flux2klein"])
def test_no_words_are_read_there_too_once(name: str) -> None:
    job, elsewhere = make_job(prompt="a red star", width=64, height=64, steps=2), Elsewhere(f"bundled/{name}")
    shared = family(name, text_encoder=elsewhere, cfg=CfgConfig(scale=2.0))
    own = family(name, cfg=CfgConfig(scale=2.0))
    assert np.array_equal(draw(shared, job), draw(own, job))
    draw(shared, make_job("other", prompt="a blue star", steps=1))
    assert elsewhere.prompts.count("") == 1


def test_the_models_own_text_encoders_are_not_loaded() -> None:
    shared = native_loading.load(cpu_config("bundled/flux"), text_encoder=Elsewhere("bundled/flux"))
    assert getattr(shared.family, "_encoder") is None  # noqa: B009  # of one family
    assert shared.setup["text_encoder"] == "shared"


def test_other_weights_are_refused() -> None:
    with pytest.raises(CheckpointError, match="other weights than the shared one"):
        family("kontext", text_encoder=Elsewhere("bundled/flux"))


def test_videos_share_none() -> None:
    with pytest.raises(CheckpointError, match="for videos"):
        native_loading.load(
            ModelConfig(checkpoint="bundled/ltx2", device="cpu"), text_encoder=Elsewhere("bundled/flux")
        )
    with pytest.raises(CheckpointError, match="for videos"):
        native_loading.load_prompt_encoder("bundled/ltx2", device="cpu")


def test_an_encoder_that_is_away_is_waited_for_in_no_other_thread() -> None:
    """Fetching says so, where an engine ends the attempt without blame; an image that was not fetched is a mistake."""
    shared = family("flux3", text_encoder=Elsewhere("bundled/flux3"))
    job = make_job(prompt="something new", steps=1)
    with pytest.raises(ValueError, match="fetched first"):
        shared.encode([PreparedRequest(job)])
    setattr(shared, "_shared_encoder", DeadEncoder())  # noqa: B010  # of one family
    with pytest.raises(TextEncoderUnavailable):
        shared.fetch(PreparedRequest(job))
