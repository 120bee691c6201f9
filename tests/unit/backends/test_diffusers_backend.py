"""The diffusers backend on tiny checkpoints of diffusers' own classes."""

from __future__ import annotations

import gc
import io
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.autoencoder_tiny import AutoencoderTiny
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from PIL import Image
from support.adapters import adapter_file, random_matrices
from support.images import image_file
from support.jobs import change_job, make_job
from support.tiny_pipelines import PIPELINES, build

from deployments.backend import JobError, OutOfMemory
from deployments.backends.diffusers import DiffusersBackend, PipelineState
from deployments.contract.events import Done, Event, Failed, Progress
from deployments.contract.job import Adapter, GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from deployments.diffusers_loading import image_processor
from deployments.engine.loop import Engine
from deployments.lora.segments import AdaptedLayers, AppliedAdapter
from deployments.video.reader import probe

VIDEOS = frozenset(("wan-t2v", "wan-i2v", "hunyuan-video", "ltx2"))
EDITS = frozenset(("qwen-image-edit", "qwen-image-edit-plus", "wan-i2v"))
pytestmark = pytest.mark.filterwarnings("ignore")  # pipelines call their own deprecated functions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipelines")


def pipeline_in(folder: Path, name: str) -> Any:
    place = folder / name
    place = place if place.exists() else build(name, place)
    return DiffusionPipeline.from_pretrained(str(place), **image_processor(place))


@pytest.fixture
def store() -> ObjectStore:
    store = ObjectStore("memory:///")
    store.put_blocking("inputs/a", image_file(64, 64), "image/png")
    return store


def job_for(name: str, number: int = 0, **fields: Any) -> GenerationJob:
    own: dict[str, Any] = {"prompt": f"{number + 1} red circles", "seed": number, "steps": 3, "size": 64}
    if name in EDITS:
        own["references"] = ("inputs/a",)
    if name in VIDEOS:
        own |= {"output_format": "mp4", "video": VideoParams(frames=9, fps=16)}
    return make_job(f"{name}-{number}", **own | fields)


def results(backend: DiffusersBackend, jobs: list[GenerationJob]) -> dict[str, list[Event]]:
    """Runs jobs together. Returns their events by id."""
    engine = Engine(backend, max_running=8, max_batch=4, batching=backend)
    events: dict[str, list[Event]] = {job.id: [] for job in jobs}
    for job in jobs:
        engine.submit(job, events[job.id].append)
    engine.run_until_idle()
    return events


def refuse(*arguments: Any) -> None:
    raise ValueError("not like this")


def stored(store: ObjectStore, events: list[Event]) -> np.ndarray:
    done = events[-1]
    assert isinstance(done, Done), done
    with Image.open(io.BytesIO(store.get_blocking(done.output.key))) as image:
        return np.asarray(image)


@pytest.mark.parametrize("name", [name for name in PIPELINES if name not in VIDEOS])
def test_single_image_equals_stock(name: str, folder: Path, store: ObjectStore) -> None:
    pipeline, job = pipeline_in(folder, name), job_for(name)
    events = results(DiffusersBackend(pipeline, store), [job])[job.id]
    assert any(isinstance(event, Progress) for event in events)
    arguments: dict[str, Any] = {"image": Image.new("RGB", (64, 64))} if name in EDITS else {}
    if "qwen" in name:
        arguments["negative_prompt"] = " "
    stock = pipeline_in(folder, name)(
        prompt=job.request.prompt,
        width=64,
        height=64,
        num_inference_steps=3,
        generator=torch.Generator("cpu").manual_seed(job.request.seed),
        output_type="np",
        **arguments,
    )
    assert (stored(store, events) == (stock.images[0] * 255).round().astype(np.uint8)).all()


@pytest.mark.parametrize("name", sorted(VIDEOS))
def test_pipeline_makes_a_video(name: str, folder: Path, store: ObjectStore, tmp_path: Path) -> None:
    job = job_for(name)
    done = results(DiffusersBackend(pipeline_in(folder, name), store), [job])[job.id][-1]
    assert isinstance(done, Done), done
    file = tmp_path / "video.mp4"
    file.write_bytes(store.get_blocking(done.output.key))
    info = probe(file)
    assert (info.width, info.height, info.has_audio) == (64, 64, name == "ltx2")


@pytest.mark.parametrize("name", ["sdxl", "qwen-image", "z-image"])
def test_images_in_one_call_nearly_equal_single_ones(name: str, folder: Path, store: ObjectStore) -> None:
    backend = DiffusersBackend(pipeline_in(folder, name), store)
    jobs = [job_for(name, number) for number in range(3)]
    states = backend.encode([backend.fetch(job) for job in jobs])
    assert all(isinstance(state, PipelineState) for state in states)
    assert len({id(state.call) for state in states if isinstance(state, PipelineState)}) == 1
    together = results(backend, jobs)
    for job in jobs:
        alone = results(backend, [change_job(job, id=f"{job.id}-alone", output_prefix="alone")])
        [events] = alone.values()
        difference = stored(store, together[job.id]).astype(int) - stored(store, events)
        assert abs(difference).max() <= 2


@pytest.mark.parametrize("name", ["sdxl", "flux-schnell"])
def test_tiny_autoencoder_makes_previews(name: str, folder: Path, store: ObjectStore) -> None:
    widths: dict[str, Any] = {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8)}
    blocks: dict[str, Any] = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
    pipeline = pipeline_in(folder, name)
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
    assert (preview.step, preview.steps) == (1, 3)
    with Image.open(io.BytesIO(store.get_blocking(preview.key))) as image:
        assert image.format == "JPEG"


def test_jobs_of_other_sizes_get_separate_calls(folder: Path, store: ObjectStore) -> None:
    jobs = [job_for("sdxl", 0), job_for("sdxl", 1, size=128), job_for("sdxl", 2, steps=5)]
    events = results(DiffusersBackend(pipeline_in(folder, "sdxl"), store), jobs)
    assert [stored(store, events[job.id]).shape[0] for job in jobs] == [64, 128, 64]


def test_unreferenced_call_ends(folder: Path, store: ObjectStore) -> None:
    backend = DiffusersBackend(pipeline_in(folder, "sdxl"), store)
    engine = Engine(backend, max_running=8, max_batch=4, batching=backend)
    handle = engine.submit(job_for("sdxl", steps=50), lambda event: None)
    engine.step_once()
    assert [thread.name for thread in threading.enumerate()].count("pipeline") == 1
    engine.cancel(handle)
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "pipeline":
            thread.join(10)
    assert "pipeline" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("after", [1, 2])
def test_out_of_memory_splits_a_call_into_single_images(
    after: int, folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipeline_in(folder, "sdxl")
    backend = DiffusersBackend(pipeline, store)
    forward, calls = pipeline.unet.forward, 0

    def short_of_memory(sample: Any, *rest: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if len(sample) > 2 and calls > after:  # CFG doubles a batch
            raise OutOfMemory
        return forward(sample, *rest, **options)

    monkeypatch.setattr(pipeline.unet, "forward", short_of_memory)
    jobs = [job_for("sdxl", number) for number in range(3)]
    events = results(backend, jobs)
    assert all(isinstance(events[job.id][-1], Done) for job in jobs)


@pytest.mark.parametrize("name", ["flux-schnell", "qwen-image"])
def test_adapter_changes_only_its_job(name: str, folder: Path, store: ObjectStore) -> None:
    pipeline = pipeline_in(folder, name)
    backend = DiffusersBackend(pipeline, store)
    store.put_blocking("adapters/a", adapter_file(random_matrices(pipeline.transformer)), "application/octet-stream")
    plain = job_for(name)
    tuned = replace(plain, id="tuned", output_prefix="tuned", adapter=Adapter("a", "adapters/a", 5.0))
    events = results(backend, [plain, tuned])
    assert (stored(store, events[plain.id]) != stored(store, events[tuned.id])).any()
    assert (stored(store, events[plain.id]) == stored(store, results(backend, [plain])[plain.id])).all()


def test_adapter_of_text_encoders_and_unet_equals_stock(folder: Path, store: ObjectStore) -> None:
    layers = (
        "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_out_0",
        "lora_te1_text_model_encoder_layers_0_self_attn_out_proj",
        "lora_te2_text_model_encoder_layers_1_self_attn_out_proj",
    )
    halves = {"lora_down": (2, 16), "lora_up": (16, 2)}
    tensors = {f"{layer}.{half}.weight": torch.randn(*shape) for layer in layers for half, shape in halves.items()}
    store.put_blocking("adapters/a", adapter_file(tensors), "application/octet-stream")
    plain, tuned = job_for("sdxl", 0), job_for("sdxl", 1, adapter=Adapter("a", "adapters/a", 1.0))
    backend = DiffusersBackend(pipeline_in(folder, "sdxl"), store)
    images = {job_id: stored(store, events) for job_id, events in results(backend, [plain, tuned]).items()}
    pipeline = pipeline_in(folder, "sdxl")
    for job in (plain, tuned):
        if job.adapter is not None:
            pipeline.load_lora_weights(dict(tensors))
        generator = torch.Generator("cpu").manual_seed(job.request.seed)
        sizes = {"width": 64, "height": 64, "num_inference_steps": 3, "output_type": "np"}
        stock = (pipeline(prompt=job.request.prompt, generator=generator, **sizes).images[0] * 255).round()
        assert abs(images[job.id].astype(int) - stock).max() <= 1


def test_adapter_is_applied_only_during_steps(
    folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one call is encoded or decoded, steps of other calls must not see its adapter."""
    pipeline = pipeline_in(folder, "flux-schnell")
    backend = DiffusersBackend(pipeline, store)
    store.put_blocking("adapters/a", adapter_file(random_matrices(pipeline.transformer)), "application/octet-stream")
    apply, steps = AdaptedLayers.applied_to_all, 0

    def count(layers: AdaptedLayers, adapter: AppliedAdapter) -> AbstractContextManager[None]:
        nonlocal steps
        steps += 1
        return apply(layers, adapter)

    monkeypatch.setattr(AdaptedLayers, "applied_to_all", count)
    job = job_for("flux-schnell", adapter=Adapter("a", "adapters/a", 1.0))
    stored(store, results(backend, [job])[job.id])
    assert steps == job.request.steps


def test_rejected_job_keeps_the_batch_limit(folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipeline_in(folder, "sdxl")
    backend = DiffusersBackend(pipeline, store)
    jobs = [job_for("sdxl", number) for number in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(type(pipeline), "check_inputs", refuse)
        assert all(isinstance(events[-1], Failed) for _ in range(2) for events in results(backend, jobs).values())
    states = backend.encode([backend.fetch(job_for("sdxl", number)) for number in range(3)])
    assert len({id(state.call) for state in states if isinstance(state, PipelineState)}) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"references": ("inputs/a",)}, "this model takes no images"),
        ({"mask": "inputs/a"}, "this model takes no mask"),
        ({"strength": 0.5}, "this model takes no strength"),
    ],
)
def test_unsupported_fields_are_rejected(
    fields: dict[str, Any], message: str, folder: Path, store: ObjectStore
) -> None:
    backend = DiffusersBackend(pipeline_in(folder, "sdxl"), store)
    with pytest.raises(JobError, match=message):
        backend.fetch(change_job(job_for("sdxl"), **fields))
