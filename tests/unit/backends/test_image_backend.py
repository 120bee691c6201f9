from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.adapters import adapter_file, random_matrices
from support.bundle import copy_bundle, cpu_config, poison
from support.jobs import change_job, encode_jobs, make_job
from torch import Tensor
from transformers import AutoTokenizer

from deployments import native_loading
from deployments.backend import Backend, JobError, OutOfMemory, Unavailable
from deployments.backends import images
from deployments.backends.images import NO_SUBJECT, DiffusionBackend, FetchedJob
from deployments.checkpoint_files import CheckpointError
from deployments.contract.events import Done, Event
from deployments.contract.job import Adapter, GenerationJob
from deployments.contract.model import MattingConfig, ModelConfig
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from deployments.engine.requests import NOTHING_USABLE
from deployments.families.family import Family
from deployments.families.state import State
from deployments.images import Pixels

JOB = make_job(width=70, height=50, steps=2, seed=5, output_format="webp")


@pytest.fixture(scope="module")
def family() -> Family:
    return native_loading.for_images(native_loading.load(cpu_config("bundled/flux3")).family)


def test_job_stores_previews_and_image(family: Family, store: ObjectStore) -> None:
    backend: Backend[FetchedJob, State] = DiffusionBackend(family, store)
    [state] = encode_jobs(backend, [change_job(JOB, references=("inputs/a",))])
    assert isinstance(state, State)
    assert backend.preview(state) is None
    backend.step([state])
    store_preview = backend.preview(state)
    assert store_preview is not None
    preview = store_preview()
    assert (preview.key, preview.step, preview.steps) == ("results/job/1/preview-1.jpeg", 1, 2)
    backend.step([state])
    output = backend.finish(state)()
    assert (output.key, output.width, output.height) == ("results/job/1/image.webp", 70, 50)
    assert output.warnings == ()
    with Image.open(io.BytesIO(store.get_blocking(output.key))) as pil_image:
        assert pil_image.size == (70, 50)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"references": ("inputs/a", "inputs/gone")}, "an input is no longer available"),
        ({"references": ("inputs/text",)}, "an input image cannot be read"),
        ({"adapter": Adapter("x", "inputs/text", 1)}, "safetensors"),
    ],
)
def test_unusable_input_fails_only_its_job(
    family: Family, store: ObjectStore, fields: dict[str, Any], message: str
) -> None:
    good, bad = encode_jobs(DiffusionBackend(family, store), [JOB, change_job(JOB, **fields)])
    assert isinstance(good, State)
    assert isinstance(bad, JobError)
    assert message in str(bad)


def run_to_end(backend: DiffusionBackend) -> State:
    [state] = encode_jobs(backend, [change_job(JOB, steps=1, transparent=True)])
    assert isinstance(state, State)
    backend.step([state])
    return state


def test_out_of_memory_is_raised_to_the_engine(
    family: Family, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust(*_: object) -> None:
        raise torch.OutOfMemoryError("too much")

    backend = DiffusionBackend(family, store)
    state = run_to_end(backend)
    monkeypatch.setattr(family, "finish", exhaust)
    monkeypatch.setattr(family, "encode", exhaust)
    with pytest.raises(OutOfMemory):
        backend.finish(state)()
    with pytest.raises(OutOfMemory):
        encode_jobs(backend, [JOB, JOB])


def test_unreachable_store_is_not_the_jobs_fault(
    family: Family, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = DiffusionBackend(family, store)
    state = run_to_end(backend)

    def down(*_: object) -> None:
        raise PermissionError("/srv/objects")

    monkeypatch.setattr(store, "put_blocking", down)
    monkeypatch.setattr(store, "get_blocking", down)
    with pytest.raises(Unavailable):
        backend.finish(state)()
    with pytest.raises(Unavailable):
        encode_jobs(backend, [change_job(JOB, references=("inputs/x/0.png",))])


def test_transparent_image_has_an_alpha_channel(family: Family, store: ObjectStore) -> None:
    backend = DiffusionBackend(family, store)
    output = backend.finish(run_to_end(backend))()
    with Image.open(io.BytesIO(store.get_blocking(output.key))) as pil_image:
        assert pil_image.mode == "RGBA"


class _FakeRemover:
    """A background remover with a given alpha value in the first rows."""

    def __init__(self, alpha: int) -> None:
        self._alpha = alpha

    def alpha(self, image: Pixels) -> Pixels:
        cut = np.full(image.shape[:2], 255, np.uint8)
        cut[:5] = self._alpha
        return cut


@pytest.mark.parametrize(("alpha", "warnings"), [(0, ()), (254, ()), (255, (NO_SUBJECT,))])
def test_image_without_subject_has_a_warning(
    family: Family, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, alpha: int, warnings: tuple[str, ...]
) -> None:
    monkeypatch.setattr(images, "load_background_remover", lambda spec: _FakeRemover(alpha))
    backend = DiffusionBackend(family, store)
    assert backend.finish(run_to_end(backend))().warnings == warnings


def test_background_remover_is_loaded_on_demand(
    family: Family, store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    backend = DiffusionBackend(family, store, matting=MattingConfig(backend="onnx", checkpoint="/nowhere/network.onnx"))
    state = run_to_end(backend)
    with pytest.raises(JobError, match="the background can't be removed here"):
        backend.finish(state)()
    assert "/nowhere/network.onnx" in caplog.text


def denoise(backend: DiffusionBackend, jobs: list[GenerationJob]) -> list[Tensor]:
    states = encode_jobs(backend, jobs)
    assert all(isinstance(state, State) for state in states)
    ready = [state for state in states if isinstance(state, State)]
    for _ in range(JOB.request.steps):
        backend.step(ready)
    return [state.x.clone() for state in ready]


def test_requests_with_different_adapters_share_a_batch(family: Family, store: ObjectStore) -> None:
    for seed, name in enumerate("ab"):
        data = adapter_file(random_matrices(family.transformer, seed))
        store.put_blocking(f"adapters/{name}", data, "application/octet-stream")
    backend = DiffusionBackend(family, store)
    a, b = (Adapter(name, f"adapters/{name}", 0.5) for name in "ab")
    adapters = (None, a, b, replace(a, strength=1.5), replace(a, strength=0.0))
    jobs = [change_job(JOB, adapter=adapter) for adapter in adapters]
    together = denoise(backend, jobs)
    alone = [denoise(backend, [job])[0] for job in jobs]
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
    assert torch.equal(alone[0], alone[4]), "strength 0 is the base, bit by bit"
    for changed in alone[1:4]:
        assert not torch.allclose(alone[0], changed, atol=1e-3)


def run_jobs(checkpoint: Path, objects: Path, *jobs: GenerationJob) -> list[Event]:
    """Runs jobs together. Returns the last event of each."""
    family = native_loading.for_images(native_loading.load(cpu_config(str(checkpoint))).family)
    backend = DiffusionBackend(family, ObjectStore(objects.as_uri()))
    engine = Engine(backend, max_running=8, max_batch=8)
    event_lists: list[list[Event]] = [[] for _ in jobs]
    for job, events in zip(jobs, event_lists, strict=True):
        engine.submit(job, events.append)
    engine.run_until_idle()
    return [events[-1] for events in event_lists]


def test_broken_decoder_fails_the_load(tmp_path: Path) -> None:
    folder = copy_bundle("flux", tmp_path / "bundle")
    weights = tmp_path / "bundle" / "autoencoders" / "flux1" / "diffusion_pytorch_model.safetensors"
    poison(weights, "decoder.conv_out.weight")
    with pytest.raises(CheckpointError, match="it can make no image here"):
        native_loading.load(ModelConfig(checkpoint=str(folder), device="cpu"))


def test_word_that_gives_nan_fails_only_its_job(tmp_path: Path) -> None:
    folder, objects = copy_bundle("flux3", tmp_path / "bundle"), tmp_path / "objects"
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    [word] = set(tokenizer(" red").input_ids) - set(tokenizer(" blue").input_ids)
    poison(folder / "text_encoder" / "model.safetensors", "model.language_model.embed_tokens.weight", word)
    jobs = [make_job(colour, prompt=f"a {colour} circle", steps=2) for colour in ("blue", "red")]
    blue, red = run_jobs(folder, objects, *jobs)
    assert isinstance(blue, Done)
    assert red == NOTHING_USABLE
    assert {path.parent.parent.name for path in objects.rglob("image.png")} == {"blue"}
