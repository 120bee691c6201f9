"""Concurrent and consecutive calls of diffusers pipelines do not affect each other."""

from __future__ import annotations

import functools
import gc
import io
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.images import image_file
from support.jobs import make_job
from support.tiny_pipelines import build

from deployments.backends.diffusers import DiffusersBackend, PipelineState
from deployments.backends.pipeline_output import PipelineOutput
from deployments.backends.pipeline_run import PipelineRun
from deployments.contract.events import LAST, Done, Event, Failed, Progress
from deployments.contract.job import GenerationJob
from deployments.contract.model import ModelConfig, StepCache, Trial
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from deployments.diffusers_loading import load_pipeline
from deployments.engine.loop import Engine

pytestmark = pytest.mark.filterwarnings("ignore")  # pipelines call their own deprecated functions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipelines")


@pytest.fixture
def store() -> ObjectStore:
    store = ObjectStore("memory:///")
    store.put_blocking("inputs/a", image_file(64, 64), "image/png")
    return store


def load(folder: Path, name: str, **settings: Any) -> Any:
    place = folder / name
    place = place if place.exists() else build(name, place)
    probe = Trial(width=64, height=64)
    return load_pipeline(ModelConfig(checkpoint=str(place), device="cpu", probe=probe, **settings))


def run_job(backend: DiffusersBackend, job: Any, cancel_after: int | None = None) -> list[Event]:
    """Runs a job alone, cancelled after a number of rounds. Returns its events."""
    engine = Engine(backend, max_running=4, max_batch=4, batching=backend)
    events: list[Event] = []
    handle = engine.submit(job, events.append)
    rounds = 0
    while engine.step_once():
        rounds += 1
        if rounds == cancel_after:
            engine.cancel(handle)
            break
    return events


def run_together(backend: DiffusersBackend, store: ObjectStore, jobs: list[GenerationJob]) -> list[bytes]:
    engine, events = Engine(backend, max_running=4, max_batch=4, batching=backend), dict[str, list[Event]]()
    for job in jobs:
        engine.submit(replace(job, id=f"{job.id}-together"), events.setdefault(job.id, []).append)
    engine.run_until_idle()
    return [stored(store, events[job.id]) for job in jobs]


def stored(store: ObjectStore, events: list[Event]) -> bytes:
    assert isinstance(events[-1], Done), events[-1]
    return store.get_blocking(events[-1].output.key)


def test_encoding_does_not_disturb_another_decoding(folder: Path, store: ObjectStore) -> None:
    """Wan's autoencoder keeps features of the last frame in the module, and `encode` clears them."""
    pipeline = load(folder, "wan-i2v").pipeline
    vae, decoded = pipeline.vae, list[int]()
    inside, original = threading.Event(), vae.decoder.forward

    def slow(*arguments: Any, **options: Any) -> Any:
        inside.set()
        time.sleep(0.02)  # the other job is encoded meanwhile
        return original(*arguments, **options)

    vae.decoder.forward = slow
    backend = DiffusersBackend(pipeline, store, max_batch=1)
    whole = vae.decode
    vae.decode = lambda *arguments, **options: _noted(whole(*arguments, **options), decoded)
    video = VideoParams(frames=17, fps=16)
    job = make_job("a", steps=1, size=64, references=("inputs/a",), output_format="mp4", video=video)
    [state] = backend.encode([backend.fetch(job)])
    assert isinstance(state, PipelineState)
    backend.step([state])
    finishing = threading.Thread(target=backend.finish, args=(state,))
    finishing.start()
    assert inside.wait(60)
    backend.encode([backend.fetch(replace(job, id="b"))])
    finishing.join()
    assert decoded == [17]


def _noted(output: Any, frames: list[int]) -> Any:
    frames.append((output[0] if isinstance(output, tuple) else output.sample).shape[2])
    return output


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("first_block", {"threshold": 0.5}),
        ("taylor", {}),
        ("mag", {"mag_ratios": [1.0] * 8, "num_inference_steps": 8}),
    ],
)
def test_cancelled_job_leaves_nothing_in_the_step_cache(
    method: Any, options: dict[str, Any], folder: Path, store: ObjectStore
) -> None:
    loaded = load(folder, "flux-schnell", cache=StepCache(method=method, options=options))
    backend = DiffusersBackend(loaded.pipeline, store, interleaves=loaded.interleaves)
    job = make_job("a", seed=1, steps=8, size=64)
    alone = stored(store, run_job(backend, job))
    run_job(backend, replace(job, id="cancelled"), cancel_after=5)
    gc.collect()
    assert stored(store, run_job(backend, replace(job, id="b"))) == alone
    run_job(backend, replace(job, id="cancelled"), cancel_after=5)
    gc.collect()
    stored(store, run_job(backend, make_job("c", seed=1, steps=8, size=128)))


def test_calls_with_a_step_cache_run_one_by_one(folder: Path, store: ObjectStore) -> None:
    loaded = load(folder, "flux-schnell", cache=StepCache(method="first_block", options={"threshold": 0.5}))
    backend = DiffusersBackend(loaded.pipeline, store, interleaves=loaded.interleaves)
    jobs = [make_job(f"job-{size}", seed=1, steps=6, size=size) for size in (128, 64)]
    alone = [stored(store, run_job(backend, job)) for job in jobs]
    assert run_together(backend, store, jobs) == alone


def test_failed_batch_with_a_step_cache_is_made_singly(folder: Path, store: ObjectStore) -> None:
    loaded = load(folder, "flux-schnell", cache=StepCache(method="first_block", options={"threshold": 0.5}))
    backend = DiffusersBackend(loaded.pipeline, store, interleaves=loaded.interleaves)
    jobs = [make_job(f"job-{seed}", prompt=f"{seed} red circles", seed=seed, steps=4, size=64) for seed in range(2)]
    alone = [stored(store, run_job(backend, job)) for job in jobs]
    network = loaded.pipeline.transformer
    forward = network.forward

    def fails_for_two(hidden_states: Any, *rest: Any, **options: Any) -> Any:
        if len(hidden_states) > 1:
            raise RuntimeError("one at a time")
        return forward(hidden_states, *rest, **options)

    network.forward = fails_for_two
    assert run_together(backend, store, jobs) == alone


def test_equal_jobs_share_a_call_under_steady_load(
    folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job comes with each step: the first gets its own call, the next ones share calls."""
    pipeline = load(folder, "z-image").pipeline
    backend, sizes = DiffusersBackend(pipeline, store, max_batch=8), list[int]()
    begin = backend._start
    monkeypatch.setattr(backend, "_start", lambda jobs: (sizes.append(len(jobs)), begin(jobs))[1])
    engine = Engine(backend, max_running=16, max_batch=8, batching=backend)
    events: list[Event] = []
    for number in range(16):
        engine.submit(make_job(f"job-{number}", seed=number, steps=9, size=64), events.append)
        engine.step_once()
    engine.run_until_idle()
    assert sizes == [1, 8, 7]
    assert [type(event) for event in events if isinstance(event, LAST)] == [Done] * 16


def test_different_jobs_take_turns(folder: Path, store: ObjectStore) -> None:
    backend = DiffusersBackend(load(folder, "z-image").pipeline, store)
    engine = Engine(backend, max_running=16, max_batch=8, batching=backend)
    ends: list[str] = []

    def submit(name: str, **fields: Any) -> None:
        job = make_job(name, seed=1, **fields)
        engine.submit(job, lambda event: ends.append(name) if isinstance(event, LAST) else None)

    submit("long", steps=30, size=64)
    engine.step_once()
    submit("short", steps=2, size=128)
    engine.run_until_idle()
    assert ends == ["short", "long"]


def test_out_of_memory_in_decoding_repeats_no_step(folder: Path, store: ObjectStore) -> None:
    pipeline = load(folder, "z-image").pipeline
    forwards, decodes = list[None](), list[bool]()
    pipeline.transformer.register_forward_hook(lambda *_: forwards.append(None))
    decode = pipeline.vae.decode

    def short_of_memory(*arguments: Any, **options: Any) -> Any:
        decodes.append(pipeline.vae.use_tiling)
        if len(decodes) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(*arguments, **options)

    pipeline.vae.decode = short_of_memory
    events = run_job(DiffusersBackend(pipeline, store), make_job("a", seed=1, steps=4, size=64))
    assert isinstance(events[-1], Done)
    assert (len(forwards), decodes, pipeline.vae.use_tiling) == (4, [False, True, True], False)


def test_step_waits_for_the_device(folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, waits = DiffusersBackend(load(folder, "z-image").pipeline, store), list[str]()
    monkeypatch.setattr(
        "deployments.backends.pipeline_run.wait_for_devices", lambda: waits.append(threading.current_thread().name)
    )
    [state] = backend.encode([backend.fetch(make_job("a", seed=1, steps=3, size=64))])
    assert isinstance(state, PipelineState)
    before = len(waits)
    backend.step([state])
    assert waits[before:] == ["pipeline"]


FRAMEPACK: Any = {"prompt_template": {"template": "{}", "crop_start": 0}, "latent_window_size": 3}


def test_sections_of_a_video_are_steps(folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress counts the steps of all sections, and the finishing thread takes none."""
    monkeypatch.setattr("deployments.engine.requests.PROGRESS_INTERVAL", 0.0)
    backend = DiffusersBackend(
        load(folder, "framepack", pipeline_kwargs=FRAMEPACK).pipeline, store, pipeline_kwargs=FRAMEPACK
    )
    video = VideoParams(frames=26, fps=30)
    job = make_job("a", seed=1, steps=2, size=64, references=("inputs/a",), output_format="mp4", video=video)
    finish, advances = backend.finish, list[str]()
    advance = PipelineRun.advance
    monkeypatch.setattr(
        PipelineRun, "advance", lambda run: (advances.append(threading.current_thread().name), advance(run))[1]
    )

    def finished(state: PipelineState) -> Callable[[], Any]:
        before = len(advances)
        outcome = finish(state)
        assert len(advances) == before
        return outcome

    monkeypatch.setattr(backend, "finish", finished)
    events = run_job(backend, job)
    stored(store, events)
    fractions = [round(event.fraction, 2) for event in events if isinstance(event, Progress)]
    assert fractions == [0.12, 0.25, 0.38, 0.5, 0.62, 0.75, 0.88, 0.89, 1.0]


def test_video_in_sections_is_cancelled_within_a_step(folder: Path, store: ObjectStore) -> None:
    pipeline = load(folder, "framepack", pipeline_kwargs=FRAMEPACK).pipeline
    backend, forwards = DiffusersBackend(pipeline, store, pipeline_kwargs=FRAMEPACK), list[None]()
    pipeline.transformer.register_forward_hook(lambda *_: forwards.append(None))
    video = VideoParams(frames=26, fps=30)
    job = make_job("a", seed=1, steps=2, size=64, references=("inputs/a",), output_format="mp4", video=video)
    run_job(backend, job, cancel_after=3)
    gc.collect()
    assert len(forwards) == 3


def test_flagged_result_is_withheld(folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = load(folder, "stable-diffusion").pipeline
    backend = DiffusersBackend(pipeline, store)
    job = make_job("a", seed=1, steps=2, size=64)
    monkeypatch.setattr(pipeline.safety_checker, "forward", lambda clip_input, images: (images, [False]))
    stored(store, run_job(backend, job))
    monkeypatch.setattr(pipeline.safety_checker, "forward", lambda clip_input, images: (images, [True]))
    last = run_job(backend, replace(job, id="flagged"))[-1]
    assert isinstance(last, Failed)
    assert last.moderated


def test_kandinsky_answers_with_one_image(folder: Path, store: ObjectStore) -> None:
    backend = DiffusersBackend(load(folder, "kandinsky5").pipeline, store)
    stored(store, run_job(backend, make_job("a", seed=1, steps=2, size=64)))


@pytest.mark.parametrize("pipeline", ["StableDiffusionXLImg2ImgPipeline", None])
def test_input_images_are_scaled_to_the_requested_size(pipeline: str | None, folder: Path, store: ObjectStore) -> None:
    name = "sdxl" if pipeline else "qwen-image-edit"
    loaded = load(folder, name, pipeline=pipeline).pipeline
    store.put_blocking("inputs/large", image_file(512, 512), "image/png")
    sizes, decode = list[tuple[int, ...]](), loaded.vae.decode
    loaded.vae.decode = lambda latents, **options: (sizes.append(tuple(latents.shape)), decode(latents, **options))[1]
    own: dict[str, Any] = {"strength": 0.5} if pipeline else {}
    job = make_job("a", seed=1, steps=4, size=64, references=("inputs/large",), **own)
    stored(store, run_job(DiffusersBackend(loaded, store), job))
    assert sizes[0][-1] * loaded.vae_scale_factor == 64


@pytest.mark.parametrize(
    ("output", "parts", "rate"),
    [
        ({"audio": torch.ones(1, 2, 8)}, {"vocoder": {"output_sampling_rate": 24000}}, 24000),
        ({"audio": torch.ones(1, 8)}, {"audio_sample_rate": 44100}, 44100),
        ({"sound": torch.ones(2, 8)}, {"sound_tokenizer": {"sampling_rate": 48000}}, 48000),
    ],
    ids=["LTX-2", "Kandinsky 6", "Cosmos 3"],
)
def test_audio_has_the_pipelines_rate(output: dict[str, Any], parts: dict[str, Any], rate: int) -> None:
    attributes = {k: SimpleNamespace(config=v) if isinstance(v, dict) else v for k, v in parts.items()}
    audio = PipelineOutput(output).audio(SimpleNamespace(**attributes), 0)
    assert audio is not None
    assert (audio.samples.shape, audio.rate) == ((2, 8), rate)


@pytest.mark.parametrize(("output_format", "mode"), [("jpeg", "RGB"), ("png", "RGBA")])
def test_layers_of_an_image_are_stacked_vertically(
    output_format: Any, mode: str, folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load(folder, "stable-diffusion").pipeline
    layers = torch.zeros(3, 4, 64, 64)
    monkeypatch.setattr(type(pipeline), "__call__", layered(type(pipeline).__call__, [layers]))
    job = make_job("a", seed=1, steps=2, size=64, output_format=output_format)
    with Image.open(io.BytesIO(stored(store, run_job(DiffusersBackend(pipeline, store), job)))) as image:
        assert (image.size, image.mode) == ((64, 192), mode)
        assert image.convert("RGBA").getpixel((0, 0)) == ((255, 255, 255, 255) if mode == "RGB" else (0, 0, 0, 0))


def layered(call: Any, images: list[Any]) -> Any:
    """Returns a pipeline's `__call__` that returns the given images."""

    @functools.wraps(call)
    def answer(*arguments: Any, **options: Any) -> Any:
        return {**call(*arguments, **options), "images": images}

    return answer


def test_pixels_converted_on_the_device_are_the_same() -> None:
    video = torch.rand((2, 5, 3, 16, 24), generator=torch.Generator().manual_seed(0)).bfloat16()
    floats = video.float().permute(0, 1, 3, 4, 2).numpy()
    expected = (floats * 255).round().clip(0, 255).astype(np.uint8)
    assert (PipelineOutput({"frames": video}).pixels(1) == expected[1]).all()
    assert (PipelineOutput({"frames": floats}).pixels(1) == expected[1]).all()


def test_call_without_steps_ends(folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(folder, "flux-schnell", cache=StepCache(method="first_block", options={"threshold": 0.5}))
    call = type(loaded.pipeline).__call__

    @functools.wraps(call)
    def without_steps(self: Any, **arguments: Any) -> Any:
        return {"images": torch.zeros(1, 3, 64, 64)}

    monkeypatch.setattr(type(loaded.pipeline), "__call__", without_steps)
    backend = DiffusersBackend(loaded.pipeline, store, interleaves=loaded.interleaves)
    stored(store, run_job(backend, make_job("a", seed=1, steps=4, size=64)))


def test_batch_that_can_not_be_decoded_is_made_singly(folder: Path, store: ObjectStore) -> None:
    """Calls that run one by one decode in their last step."""
    loaded = load(folder, "flux-schnell", cache=StepCache(method="first_block", options={"threshold": 0.5}))
    backend = DiffusersBackend(loaded.pipeline, store, interleaves=loaded.interleaves)
    jobs = [make_job(f"job-{seed}", prompt=f"{seed} red circles", seed=seed, steps=4, size=64) for seed in range(3)]
    alone = [stored(store, run_job(backend, job)) for job in jobs]
    decode = loaded.pipeline.vae._decode

    def short_of_memory(latents: Any, *arguments: Any, **options: Any) -> Any:
        if beside[0]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(latents, *arguments, **options)

    beside, begin = [False], backend._start
    loaded.pipeline.vae._decode = short_of_memory

    def begun(jobs: Any) -> Any:
        beside[0] = len(jobs) > 1
        return begin(jobs)

    backend._start = begun
    assert run_together(backend, store, jobs) == alone


def test_members_of_a_failed_batch_take_all_their_steps(folder: Path, store: ObjectStore) -> None:
    backend = DiffusersBackend(load(folder, "flux-schnell").pipeline, store)
    jobs = [make_job(f"job-{seed}", prompt=f"{seed} red circles", seed=seed, steps=4, size=64) for seed in range(3)]
    alone = [stored(store, run_job(backend, job)) for job in jobs]
    network = backend._pipeline.transformer
    forward, forwards = network.forward, list[int]()

    def fails_in_the_third_step(hidden_states: Any, *rest: Any, **options: Any) -> Any:
        forwards.append(len(hidden_states))
        if forwards == [3, 3, 3]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(hidden_states, *rest, **options)

    network.forward = fails_in_the_third_step
    assert run_together(backend, store, jobs) == alone
    assert forwards == [3, 3, 3] + 12 * [1]


def test_result_that_cosmos_guards_is_withheld(
    folder: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load(folder, "flux-schnell").pipeline

    def guard(*arguments: Any, **options: Any) -> Any:
        raise ValueError("Cosmos Guardrail detected unsafe content in the generated video. Please ensure ...")

    monkeypatch.setattr(pipeline.image_processor, "postprocess", guard)
    last = run_job(DiffusersBackend(pipeline, store), make_job("a", seed=1, steps=2, size=64))[-1]
    assert isinstance(last, Failed)
    assert last.moderated


def test_dropped_run_of_a_pipeline_without_callback_is_freed(folder: Path) -> None:
    """A result can hold gigabytes of device memory."""
    pipeline = load(folder, "hunyuan-video").pipeline
    run = PipelineRun(pipeline, {"prompt": "a", "num_frames": 5, "height": 64, "width": 64, "num_inference_steps": 1})
    while not run.ended:
        run.advance()
    dropped = weakref.ref(run)
    gc.disable()
    try:
        del run
        assert dropped() is None
    finally:
        gc.enable()
