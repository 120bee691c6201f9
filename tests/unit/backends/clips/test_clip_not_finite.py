"""Clips of checkpoints with numbers in them that are none: neither a clip nor latents of one are stored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from clip_jobs import CHECKPOINT, JOB, a_backend, events_of, made
from support.bundle import copied, poison

from deployments import loading
from deployments.contract.objects import ObjectStore
from deployments.engine.requests import NOTHING_USABLE
from deployments.families.video_family import ClipFamily

pytestmark = pytest.mark.usefixtures("temporary")


@pytest.mark.parametrize(
    ("component", "tensor"), [("vae", "decoder.conv_out.conv.weight"), ("vocoder", "conv_out.weight")]
)
def test_a_broken_decoder_makes_no_clips(tmp_path: Path, component: str, tensor: str) -> None:
    folder, objects = copied("ltx2", tmp_path / "bundle"), tmp_path / "objects"
    poison(folder / component / "diffusion_pytorch_model.safetensors", tensor)
    family = loading.load(str(folder), device="cpu", dtype="float32").family
    assert isinstance(family, ClipFamily)
    assert events_of(a_backend(family, ObjectStore(objects.as_uri())), JOB)[-1] == NOTHING_USABLE
    assert list(objects.rglob("*.mp4")) == []


def test_latents_that_are_not_finite_are_not_kept_for_the_next_attempt(family: ClipFamily, store: ObjectStore) -> None:
    weight: torch.Tensor = family.transformer.proj_out.weight
    right = weight.detach().clone()
    try:
        with torch.no_grad():
            weight[0] = torch.nan
        assert events_of(a_backend(family, store), JOB)[-1] == NOTHING_USABLE
    finally:
        with torch.no_grad():
            weight.copy_(right)
    with pytest.raises(FileNotFoundError):
        store.get_blocking(CHECKPOINT)
    made(a_backend(family, store), JOB)
