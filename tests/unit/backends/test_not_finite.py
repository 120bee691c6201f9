"""Checkpoints with numbers in them that are none, all the way from their files: nothing they make is stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bundle import copied, poison
from support.jobs import make_job
from transformers import AutoTokenizer

from deployments import loading
from deployments.backends.images import DiffusionBackend
from deployments.checkpoint_files import CheckpointError
from deployments.contract.events import Done, Event
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from deployments.engine.requests import NOTHING_USABLE

WEIGHTS = "diffusion_pytorch_model.safetensors"


def outcome(checkpoint: Path, objects: Path, *jobs: GenerationJob) -> list[Event]:
    """The last event of each job."""
    family = loading.for_pictures(loading.load(str(checkpoint), device="cpu", dtype="float32").family)
    backend = DiffusionBackend(family, ObjectStore(objects.as_uri()))
    engine = Engine(backend, max_running=8, max_batch=8)
    told: list[list[Event]] = [[] for _ in jobs]
    for job, events in zip(jobs, told, strict=True):
        engine.submit(job, events.append)
    engine.run_until_idle()
    return [events[-1] for events in told]


@pytest.mark.parametrize(
    ("checkpoint", "autoencoder"), [("flux", "flux1"), pytest.param("flux3", "flux2", marks=pytest.mark.slow)]
)
def test_a_checkpoint_with_a_broken_decoder_is_not_served(tmp_path: Path, checkpoint: str, autoencoder: str) -> None:
    folder = copied(checkpoint, tmp_path / "bundle")
    poison(tmp_path / "bundle" / "autoencoders" / autoencoder / WEIGHTS, "decoder.conv_out.weight")
    with pytest.raises(CheckpointError, match="it can make no picture here"):
        loading.load(str(folder), device="cpu")


def test_a_word_that_breaks_the_numbers_ends_its_job_alone(tmp_path: Path) -> None:
    folder, objects = copied("flux3", tmp_path / "bundle"), tmp_path / "objects"
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    [word] = set(tokenizer(" red").input_ids) - set(tokenizer(" blue").input_ids)
    poison(folder / "text_encoder" / "model.safetensors", "model.language_model.embed_tokens.weight", word)
    jobs = [make_job(colour, prompt=f"a {colour} circle", steps=2) for colour in ("blue", "red")]
    blue, red = outcome(folder, objects, *jobs)
    assert isinstance(blue, Done)
    assert red == NOTHING_USABLE
    assert {path.parent.parent.name for path in objects.rglob("picture.png")} == {"blue"}


def test_a_checkpoint_whose_every_step_is_not_finite_is_not_served(tmp_path: Path) -> None:
    folder = copied("flux3", tmp_path)
    poison(folder / "transformer" / WEIGHTS, "proj_out.weight")
    with pytest.raises(CheckpointError, match="not finite"):
        loading.load(str(folder), device="cpu")
