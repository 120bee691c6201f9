"""Images do not depend on whether a shared text encoder reads the prompt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from flux_drawing import run_steps
from support.bundle import cpu_config
from support.jobs import change_job, make_job

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


class SharedEncoder:
    """A deployment of text encoders in this process."""

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
    loaded = native_loading.load(cpu_config(f"bundled/{name}", **options), text_encoder)
    return native_loading.for_images(loaded.family)


def draw(family: Family, job: GenerationJob) -> Pixels:
    [state] = family.encode([family.fetch(PreparedRequest(job))])
    assert isinstance(state, State)
    run_steps(family, state)
    return family.finish(state)


@pytest.mark.parametrize(
    ("name", "cfg"), [("flux", CfgConfig(scale=2.0)), ("flux2klein", CfgConfig(scale=2.0)), ("flux3", None)]
)
def test_image_with_shared_encoder_is_identical(name: str, cfg: CfgConfig | None) -> None:
    job, encoder = make_job(prompt="a red star on white", steps=2, seed=3), SharedEncoder(f"bundled/{name}")
    loaded = native_loading.load(cpu_config(f"bundled/{name}", cfg=cfg), encoder)
    assert loaded.setup["text_encoder"] == "shared"
    shared, own = native_loading.for_images(loaded.family), family(name, cfg=cfg)
    assert getattr(shared, "_encoder") is None  # noqa: B009 - of one family
    encoder.prompts.clear()
    for prompt in (job.request.prompt, "a blue star", job.request.prompt):
        again = change_job(job, prompt=prompt)
        assert np.array_equal(draw(shared, again), draw(own, again))
    assert len(encoder.prompts) == len(set(encoder.prompts)), "each prompt is encoded once"


def test_encoder_with_other_weights_is_rejected() -> None:
    with pytest.raises(CheckpointError, match="other weights than the shared one"):
        family("kontext", text_encoder=SharedEncoder("bundled/flux"))


def test_video_models_cannot_share_an_encoder() -> None:
    with pytest.raises(CheckpointError, match="for videos"):
        native_loading.load(
            ModelConfig(checkpoint="bundled/ltx2", device="cpu"), text_encoder=SharedEncoder("bundled/flux")
        )
    with pytest.raises(CheckpointError, match="for videos"):
        native_loading.load_prompt_encoder("bundled/ltx2", device="cpu")


def test_unavailable_encoder_fails_the_fetch() -> None:
    """A failed fetch ends the attempt without blame. Encoding a job that was not fetched is a bug."""
    shared = family("flux3", text_encoder=SharedEncoder("bundled/flux3"))
    job = make_job(prompt="something new", steps=1)
    with pytest.raises(ValueError, match="fetched first"):
        shared.encode([PreparedRequest(job)])
    setattr(shared, "_shared_encoder", DeadEncoder())  # noqa: B010  # of one family
    with pytest.raises(TextEncoderUnavailable):
        shared.fetch(PreparedRequest(job))
