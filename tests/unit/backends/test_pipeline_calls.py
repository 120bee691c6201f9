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
from typing import Any, Final

import numpy as np
import pytest
import torch
from PIL import Image
from pipeline_jobs import build_once, job_for, make_engine, read_result, run_job, run_together
from support.jobs import make_job

from deployments.backend import ContentFlagged
from deployments.backends.diffusers import DiffusersBackend, PipelineState
from deployments.backends.pipeline_output import PipelineOutput
from deployments.backends.pipeline_run import PipelineRun
from deployments.contract.events import LAST, Done, Event, Failed, Progress
from deployments.contract.job import GenerationJob
from deployments.contract.model import ModelConfig, StepCache, Trial
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from deployments.diffusers_loading import load_pipeline

pytestmark = pytest.mark.filterwarnings("ignore")  # pipelines call their own deprecated functions

Load = Callable[[str], Any]
STEP_CACHES: Final[dict[Any, dict[str, Any]]] = {
    "first_block": {"threshold": 0.5},
    "taylor": {},
    "mag": {"mag_ratios": [1.0] * 6, "num_inference_steps": 6},
}


@functools.cache
def load_cached(folder: Path, method: Any) -> Any:
    """Loads Flux with a step cache, so that its calls run one by one."""
    cache = StepCache(method=method, options=STEP_CACHES[method])
    checkpoint = str(build_once(folder, "flux-schnell"))
    return load_pipeline(
        ModelConfig(checkpoint=checkpoint, device="cpu", probe=Trial(width=64, height=64), cache=cache)
    )


@pytest.fixture
def cached_flux(folder: Path) -> Any:
    return load_cached(folder, "first_block").pipeline


def make_jobs(count: int, **fields: Any) -> list[GenerationJob]:
    return [job_for("flux", number, **{"steps": 4} | fields) for number in range(count)]


def results_alone(backend: DiffusersBackend, store: ObjectStore, jobs: list[GenerationJob]) -> list[bytes]:
    return [read_result(store, run_job(backend, job)) for job in jobs]


def results_together(backend: DiffusersBackend, store: ObjectStore, jobs: list[GenerationJob]) -> list[bytes]:
    return [read_result(store, events) for events in run_together(backend, *jobs)]


def test_encoding_does_not_disturb_another_decoding(
    load: Load, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wan's autoencoder keeps features of the last frame in the module, and `encode` clears them."""
    pipeline = load("wan-i2v")
    vae, decoded = pipeline.vae, list[int]()
    inside, original = threading.Event(), vae.decoder.forward

    def slow(*arguments: Any, **options: Any) -> Any:
        inside.set()
        time.sleep(0.02)  # the other job is encoded meanwhile
        return original(*arguments, **options)

    monkeypatch.setattr(vae.decoder, "forward", slow)
    backend = DiffusersBackend(pipeline, store, max_batch=1)
    whole = vae.decode

    def record(*arguments: Any, **options: Any) -> Any:
        output = whole(*arguments, **options)
        decoded.append((output[0] if isinstance(output, tuple) else output.sample).shape[2])
        return output

    monkeypatch.setattr(vae, "decode", record)
    job = job_for("wan-i2v", steps=1, video=VideoParams(frames=17, fps=16))
    [state] = backend.encode([backend.fetch(job)])
    assert isinstance(state, PipelineState)
    backend.step([state])
    finishing = threading.Thread(target=backend.finish, args=(state,))
    finishing.start()
    assert inside.wait(60)
    backend.encode([backend.fetch(replace(job, id="b"))])
    finishing.join()
    assert decoded == [17]


@pytest.mark.parametrize("method", STEP_CACHES)
def test_cancelled_job_leaves_nothing_in_the_step_cache(method: str, folder: Path, store: ObjectStore) -> None:
    backend = DiffusersBackend(load_cached(folder, method).pipeline, store, interleaves=False)
    [job] = make_jobs(1, steps=6)
    alone = read_result(store, run_job(backend, job))
    run_job(backend, replace(job, id="cancelled"), cancel_after=4)
    gc.collect()
    assert read_result(store, run_job(backend, replace(job, id="b"))) == alone
    run_job(backend, replace(job, id="cancelled"), cancel_after=4)
    gc.collect()
    read_result(store, run_job(backend, make_job("c", seed=1, steps=6, size=128)))


def test_calls_with_a_step_cache_run_one_by_one(cached_flux: Any, store: ObjectStore) -> None:
    backend = DiffusersBackend(cached_flux, store, interleaves=False)
    jobs = [make_job(f"job-{size}", seed=1, steps=5, size=size) for size in (128, 64)]
    assert results_alone(backend, store, jobs) == results_together(backend, store, jobs)


@pytest.mark.parametrize(
    ("part", "call", "error"),
    [
        ("transformer", "forward", RuntimeError("one at a time")),
        ("vae", "decode", torch.OutOfMemoryError("CUDA out of memory")),
    ],
    ids=["in a step", "in decoding"],
)
def test_failed_batch_with_a_step_cache_is_made_singly(
    part: str, call: str, error: Exception, cached_flux: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, failed, jobs = getattr(cached_flux, part), list[int](), make_jobs(2)
    original = getattr(module, call)

    def fail_for_two(*arguments: Any, **options: Any) -> Any:
        size = len(arguments[0] if arguments else options["hidden_states"])
        if size > 1:
            failed.append(size)
            raise error
        return original(*arguments, **options)

    monkeypatch.setattr(module, call, fail_for_two)
    backend = DiffusersBackend(cached_flux, store, interleaves=False)
    alone = results_alone(backend, store, jobs)
    assert results_together(backend, store, jobs) == alone
    assert failed


def test_equal_jobs_share_a_call_under_steady_load(
    load: Load, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One job comes with each step: the first gets its own call, the next ones share calls."""
    backend, sizes = DiffusersBackend(load("z-image"), store, max_batch=8), list[int]()
    begin = backend._start
    monkeypatch.setattr(backend, "_start", lambda jobs: (sizes.append(len(jobs)), begin(jobs))[1])
    engine, events = make_engine(backend), list[Event]()
    for number in range(8):
        engine.submit(make_job(f"job-{number}", seed=number, steps=5), events.append)
        engine.step_once()
    engine.run_until_idle()
    assert sizes == [1, 4, 3]
    assert [type(event) for event in events if isinstance(event, LAST)] == [Done] * 8


def test_different_jobs_take_turns(load: Load, store: ObjectStore) -> None:
    engine, ends = make_engine(DiffusersBackend(load("z-image"), store)), list[str]()

    def submit(name: str, **fields: Any) -> None:
        job = make_job(name, seed=1, **fields)
        engine.submit(job, lambda event: ends.append(name) if isinstance(event, LAST) else None)

    submit("long", steps=12)
    engine.step_once()
    submit("short", steps=2, size=128)
    engine.run_until_idle()
    assert ends == ["short", "long"]


def test_out_of_memory_in_decoding_repeats_no_step(
    load: Load, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, decodes = load("z-image"), list[bool]()
    decode, forward, forwards = pipeline.vae.decode, pipeline.transformer.forward, list[None]()

    def short_of_memory(*arguments: Any, **options: Any) -> Any:
        decodes.append(pipeline.vae.use_tiling)
        if len(decodes) < 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return decode(*arguments, **options)

    monkeypatch.setattr(pipeline.vae, "decode", short_of_memory)
    monkeypatch.setattr(
        pipeline.transformer, "forward", lambda *args, **options: (forwards.append(None), forward(*args, **options))[1]
    )
    [job] = make_jobs(1)
    read_result(store, run_job(DiffusersBackend(pipeline, store), job))
    assert (len(forwards), decodes, pipeline.vae.use_tiling) == (4, [False, True, True], False)


def test_step_waits_for_the_device(load: Load, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, waits = DiffusersBackend(load("z-image"), store), list[str]()
    monkeypatch.setattr(
        "deployments.backends.pipeline_run.wait_for_devices", lambda: waits.append(threading.current_thread().name)
    )
    [state] = backend.encode([backend.fetch(make_job("a", seed=1, steps=3))])
    assert isinstance(state, PipelineState)
    before = len(waits)
    backend.step([state])
    assert waits[before:] == ["pipeline"]


FRAMEPACK: Any = {"prompt_template": {"template": "{}", "crop_start": 0}, "latent_window_size": 3}
SECTIONS_JOB = job_for("framepack", video=VideoParams(frames=26, fps=30))


def test_sections_of_a_video_are_steps(load: Load, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress counts the steps of all sections, and the finishing thread takes none."""
    monkeypatch.setattr("deployments.engine.requests.PROGRESS_INTERVAL", 0.0)
    backend = DiffusersBackend(load("framepack"), store, pipeline_kwargs=FRAMEPACK)
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
    events = run_job(backend, SECTIONS_JOB)
    read_result(store, events)
    fractions = [round(event.fraction, 2) for event in events if isinstance(event, Progress)]
    assert fractions == [0.12, 0.25, 0.38, 0.5, 0.62, 0.75, 0.88, 0.89, 1.0]


def test_video_in_sections_is_cancelled_within_a_step(load: Load, store: ObjectStore) -> None:
    pipeline, forwards = load("framepack"), list[None]()
    hook = pipeline.transformer.register_forward_hook(lambda *_: forwards.append(None))
    run_job(DiffusersBackend(pipeline, store, pipeline_kwargs=FRAMEPACK), SECTIONS_JOB, cancel_after=3)
    gc.collect()
    hook.remove()
    assert len(forwards) == 3


def raise_guardrail(*arguments: Any, **options: Any) -> Any:
    raise ValueError("Cosmos Guardrail detected unsafe content in the generated video. Please ensure ...")


@pytest.mark.parametrize(
    ("part", "call", "answer", "is_withheld"),
    [
        ("safety_checker", "forward", lambda clip_input, images: (images, [False]), False),
        ("safety_checker", "forward", lambda clip_input, images: (images, [True]), True),
        ("image_processor", "postprocess", raise_guardrail, True),
    ],
    ids=["unflagged", "flagged", "guarded by Cosmos"],
)
def test_flagged_result_is_withheld(
    part: str,
    call: str,
    answer: Any,
    is_withheld: bool,
    load: Load,
    store: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = load("stable-diffusion")
    monkeypatch.setattr(getattr(pipeline, part), call, answer)
    last = run_job(DiffusersBackend(pipeline, store), make_job("a", steps=2))[-1]
    assert isinstance(last, Failed if is_withheld else Done)
    assert not isinstance(last, Failed) or last.moderated


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


def answer_with(images: Any, call: Any) -> Any:
    """Returns a pipeline's `__call__` that answers with the given images, without steps."""

    @functools.wraps(call)
    def answer(*arguments: Any, **options: Any) -> Any:
        return {"images": images}

    return answer


@pytest.mark.parametrize(("output_format", "mode"), [("jpeg", "RGB"), ("png", "RGBA")])
def test_layers_of_an_image_are_stacked_vertically(
    output_format: Any, mode: str, load: Load, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load("stable-diffusion")
    layers = [torch.zeros(3, 4, 64, 64)]
    monkeypatch.setattr(type(pipeline), "__call__", answer_with(layers, type(pipeline).__call__))
    job = make_job("a", steps=2, output_format=output_format)
    with Image.open(io.BytesIO(read_result(store, run_job(DiffusersBackend(pipeline, store), job)))) as image:
        assert (image.size, image.mode) == ((64, 192), mode)
        assert image.convert("RGBA").getpixel((0, 0)) == ((255, 255, 255, 255) if mode == "RGB" else (0, 0, 0, 0))


def test_call_without_steps_ends(cached_flux: Any, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    call = type(cached_flux).__call__
    monkeypatch.setattr(type(cached_flux), "__call__", answer_with(torch.zeros(1, 3, 64, 64), call))
    backend = DiffusersBackend(cached_flux, store, interleaves=False)
    read_result(store, run_job(backend, make_job("a", seed=1, steps=4)))


@pytest.mark.parametrize("field", ["frames", "images", "image", "video"])
def test_pixels_converted_on_the_device_are_the_same(field: str) -> None:
    video = torch.rand((2, 5, 3, 16, 24), generator=torch.Generator().manual_seed(0)).bfloat16()
    floats = video.float().permute(0, 1, 3, 4, 2).numpy()
    expected = (floats * 255).round().clip(0, 255).astype(np.uint8)
    assert (PipelineOutput({field: video}).pixels(1) == expected[1]).all()
    assert (PipelineOutput({field: floats}).pixels(1) == expected[1]).all()


def test_members_of_a_failed_batch_take_all_their_steps(
    load: Load, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load("flux-schnell")
    backend, jobs = DiffusersBackend(pipeline, store), make_jobs(3)
    alone = results_alone(backend, store, jobs)
    forward, forwards = pipeline.transformer.forward, list[int]()

    def fail_in_the_third_step(hidden_states: Any, *rest: Any, **options: Any) -> Any:
        forwards.append(len(hidden_states))
        if forwards == [3, 3, 3]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(hidden_states, *rest, **options)

    monkeypatch.setattr(pipeline.transformer, "forward", fail_in_the_third_step)
    assert results_together(backend, store, jobs) == alone
    assert forwards == [3, 3, 3] + 12 * [1]


def test_dropped_run_of_a_pipeline_without_callback_is_freed(load: Load) -> None:
    """A result can hold gigabytes of device memory."""
    arguments = {"prompt": "a", "num_frames": 5, "height": 64, "width": 64, "num_inference_steps": 1}
    run = PipelineRun(load("hunyuan-video"), arguments)
    while not run.ended:
        run.advance()
    dropped = weakref.ref(run)
    gc.disable()
    try:
        del run
        assert dropped() is None
    finally:
        gc.enable()


def test_flag_withholds_only_its_image() -> None:
    images = [np.zeros((4, 4, 3), np.float32), np.ones((4, 4, 3), np.float32)]
    output = PipelineOutput({"images": images, "nsfw_content_detected": [False, True]})
    assert output.pixels(0).shape == (4, 4, 3)
    with pytest.raises(ContentFlagged):
        output.pixels(1)
