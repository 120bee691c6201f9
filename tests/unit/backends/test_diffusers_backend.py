"""The diffusers backend on tiny checkpoints of diffusers' own classes."""

from __future__ import annotations

import gc
import io
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_tiny import AutoencoderTiny
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus
from PIL import Image
from pipeline_jobs import EDITS, VIDEOS, job_for, load_stock, make_engine, read_image, read_result, run_together
from support.adapters import adapter_file, random_matrices
from support.jobs import change_job
from support.tiny_pipelines import PIPELINES

from deployments.backend import JobError
from deployments.backends.diffusers import DiffusersBackend, PipelineState
from deployments.contract.events import Failed, Progress
from deployments.contract.job import Adapter, GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.lora.segments import AdaptedLayers, AppliedAdapter
from deployments.video.reader import probe

pytestmark = pytest.mark.filterwarnings("ignore")  # pipelines call their own deprecated functions

Load = Callable[[str], Any]


def run_stock(pipeline: Any, job: GenerationJob, **arguments: Any) -> np.ndarray:
    result = pipeline(
        prompt=job.request.prompt,
        width=64,
        height=64,
        num_inference_steps=job.request.steps,
        generator=torch.Generator("cpu").manual_seed(job.request.seed),
        output_type="np",
        **arguments,
    )
    return (result.images[0] * 255).round().astype(np.uint8)


@pytest.fixture
def small_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits the references of Qwen-Image-Edit, which it enlarges to a megapixel."""
    for module in (pipeline_qwenimage_edit, pipeline_qwenimage_edit_plus):
        dimensions = module.calculate_dimensions
        monkeypatch.setattr(
            module, "calculate_dimensions", lambda area, ratio, of=dimensions: of(min(area, 128 * 128), ratio)
        )


@pytest.mark.usefixtures("small_edits")
@pytest.mark.parametrize("name", [name for name in PIPELINES if name not in VIDEOS])
def test_single_image_equals_stock(name: str, load: Load, store: ObjectStore) -> None:
    pipeline, job = load(name), job_for(name)
    arguments: dict[str, Any] = {"image": Image.new("RGB", (64, 64))} if name in EDITS else {}
    if "qwen" in name:
        arguments["negative_prompt"] = " "
    stock = run_stock(pipeline, job, **arguments)
    [events] = run_together(DiffusersBackend(pipeline, store), job)
    assert any(isinstance(event, Progress) for event in events)
    assert (read_image(store, events) == stock).all()


@pytest.mark.parametrize("name", sorted(VIDEOS - {"framepack"}))
def test_pipeline_makes_a_video(name: str, load: Load, store: ObjectStore, tmp_path: Path) -> None:
    [events] = run_together(DiffusersBackend(load(name), store), job_for(name))
    file = tmp_path / "video.mp4"
    file.write_bytes(read_result(store, events))
    info = probe(file)
    assert (info.width, info.height, info.has_audio) == (64, 64, name == "ltx2")


def count_calls(backend: DiffusersBackend, jobs: list[GenerationJob]) -> int:
    """Returns the number of calls that the backend starts for jobs which come together."""
    states = backend.encode([backend.fetch(job) for job in jobs])
    assert all(isinstance(state, PipelineState) for state in states)
    return len({id(state.call) for state in states if isinstance(state, PipelineState)})


@pytest.mark.parametrize("name", ["sdxl", "qwen-image", "z-image"])
def test_images_in_one_call_nearly_equal_single_ones(name: str, load: Load, store: ObjectStore) -> None:
    backend = DiffusersBackend(load(name), store)
    jobs = [job_for(name, number) for number in range(2)]
    assert count_calls(backend, jobs) == 1
    together = run_together(backend, *jobs)
    for job, events in zip(jobs, together, strict=True):
        [alone] = run_together(backend, change_job(job, output_prefix=f"alone/{job.id}"))
        assert abs(read_image(store, events).astype(int) - read_image(store, alone)).max() <= 2


@pytest.mark.parametrize("name", ["sdxl", "flux-schnell"])
def test_tiny_autoencoder_makes_previews(name: str, load: Load, store: ObjectStore) -> None:
    widths: dict[str, Any] = {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8)}
    blocks: dict[str, Any] = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
    pipeline = load(name)
    channels = pipeline.vae.config.latent_channels
    decoder = AutoencoderTiny(**widths, **blocks, latent_channels=channels, upsampling_scaling_factor=2)
    backend = DiffusersBackend(pipeline, store, preview_decoder=decoder)
    [state] = backend.encode([backend.fetch(job_for(name))])
    assert isinstance(state, PipelineState)
    assert backend.preview(state) is None, "no step was taken yet"
    backend.step([state])
    store_preview = backend.preview(state)
    assert store_preview is not None
    preview = store_preview()
    assert (preview.step, preview.steps) == (1, 2)
    with Image.open(io.BytesIO(store.get_blocking(preview.key))) as image:
        assert image.format == "JPEG"


def test_jobs_of_other_sizes_get_separate_calls(load: Load, store: ObjectStore) -> None:
    jobs = [job_for("sdxl", 0), job_for("sdxl", 1, width=128, height=128), job_for("sdxl", 2, steps=3)]
    events = run_together(DiffusersBackend(load("sdxl"), store), *jobs)
    assert [read_image(store, each).shape[0] for each in events] == [64, 128, 64]


def test_unreferenced_call_ends(load: Load, store: ObjectStore) -> None:
    backend = DiffusersBackend(load("sdxl"), store)
    engine = make_engine(backend)
    handle = engine.submit(job_for("sdxl", steps=50), lambda event: None)
    engine.step_once()
    assert [thread.name for thread in threading.enumerate()].count("pipeline") == 1
    engine.cancel(handle)
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "pipeline":
            thread.join(10)
    assert "pipeline" not in [thread.name for thread in threading.enumerate()]


def test_adapter_acts_only_in_the_steps_of_its_job(
    load: Load, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one call is encoded or decoded, steps of other calls must not see its adapter."""
    pipeline, applied = load("flux-schnell"), list[AppliedAdapter]()
    backend, apply = DiffusersBackend(pipeline, store), AdaptedLayers.applied_to_all
    store.put_blocking("adapters/a", adapter_file(random_matrices(pipeline.transformer)), "application/octet-stream")

    def count(layers: AdaptedLayers, adapter: AppliedAdapter) -> AbstractContextManager[None]:
        applied.append(adapter)
        return apply(layers, adapter)

    monkeypatch.setattr(AdaptedLayers, "applied_to_all", count)
    plain = job_for("flux-schnell")
    tuned = replace(plain, id="tuned", output_prefix="tuned", adapter=Adapter("a", "adapters/a", 5.0))
    beside, changed = (read_image(store, events) for events in run_together(backend, plain, tuned))
    assert len(applied) == tuned.request.steps
    assert (beside != changed).any()
    assert (beside == read_image(store, run_together(backend, plain)[0])).all()


def test_adapter_of_text_encoders_and_unet_equals_stock(folder: Path, load: Load, store: ObjectStore) -> None:
    layers = (
        "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_out_0",
        "lora_te1_text_model_encoder_layers_0_self_attn_out_proj",
        "lora_te2_text_model_encoder_layers_1_self_attn_out_proj",
    )
    halves = {"lora_down": (2, 16), "lora_up": (16, 2)}
    tensors = {f"{layer}.{half}.weight": torch.randn(*shape) for layer in layers for half, shape in halves.items()}
    store.put_blocking("adapters/a", adapter_file(tensors), "application/octet-stream")
    jobs = job_for("sdxl", 0), job_for("sdxl", 1, adapter=Adapter("a", "adapters/a", 1.0))
    plain, tuned = (
        read_image(store, events).astype(int) for events in run_together(DiffusersBackend(load("sdxl"), store), *jobs)
    )
    stock = load_stock(folder, "sdxl")
    assert abs(plain - run_stock(stock, jobs[0])).max() <= 1
    stock.load_lora_weights(dict(tensors))
    assert abs(tuned - run_stock(stock, jobs[1])).max() <= 1


def test_rejected_job_keeps_the_batch_limit(load: Load, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise ValueError("not like this")

    pipeline = load("sdxl")
    backend = DiffusersBackend(pipeline, store)
    jobs = [job_for("sdxl", number) for number in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(type(pipeline), "check_inputs", refuse)
        assert all(isinstance(events[-1], Failed) for _ in range(2) for events in run_together(backend, *jobs))
    assert count_calls(backend, jobs) == 1


def test_unsupported_job_is_not_fetched(load: Load, store: ObjectStore) -> None:
    backend = DiffusersBackend(load("sdxl"), store)
    with pytest.raises(JobError, match="this model takes no images"):
        backend.fetch(job_for("sdxl", references=("inputs/a",)))
