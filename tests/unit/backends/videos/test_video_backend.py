from __future__ import annotations

import io
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from support import video_encoding, video_inspection
from support.bundle import copy_bundle, cpu_config, poison
from support.jobs import encode_jobs, make_video_job
from support.promises import promise
from video_jobs import (
    CHECKPOINT,
    FRAMES,
    HEIGHT,
    JOB,
    START_FRAMES,
    STEPS,
    WIDTH,
    collect_events,
    generate,
    gradient_image,
    make_backend,
    png,
    psnr,
)

from deployments import native_loading
from deployments.backends.video_checkpoints import unpack_latents
from deployments.backends.videos import ActiveVideo, VideoBackend
from deployments.contract.events import Done, Preview
from deployments.contract.job import GenerationJob
from deployments.contract.model import Enlarge
from deployments.contract.objects import ObjectStore
from deployments.contract.request import FPS
from deployments.engine.requests import NOTHING_USABLE
from deployments.families.video_family import VideoFamily
from deployments.images import Pixels

pytestmark = pytest.mark.usefixtures("temporary")


def test_video_has_previews_and_the_requested_size_and_length(family: VideoFamily, store: ObjectStore) -> None:
    events = collect_events(make_backend(family, store), JOB, preview_every=0.25)
    previews = [event for event in events if isinstance(event, Preview)]
    assert [(preview.step, preview.steps) for preview in previews] == [(1, 4), (2, 4), (3, 4)]
    with Image.open(io.BytesIO(store.get_blocking(previews[-1].key))) as image:
        assert (image.format, image.size) == ("JPEG", (WIDTH, HEIGHT))
    done = events[-1]
    assert isinstance(done, Done)
    output = done.output
    assert (output.key, output.content_type) == ("results/job/1/video.mp4", "video/mp4")
    assert (output.width, output.height, output.draft) == (WIDTH, HEIGHT, None)
    data = store.get_blocking(output.key)
    assert output.size == len(data)
    report = video_inspection.inspect(data)
    assert (report.width, report.height, report.frames, report.fps) == (WIDTH, HEIGHT, FRAMES, FPS)
    assert report.audio_channels == 2
    assert report.audio_seconds == pytest.approx(FRAMES / FPS, abs=0.03)
    assert report.faststart


def test_small_render_side_is_enlarged(store: ObjectStore) -> None:
    small = native_loading.load(cpu_config("bundled/ltx2", render_side=64)).family
    assert isinstance(small, VideoFamily)
    job = make_video_job(width=200, height=104, video={"frames": 9})
    frames = []
    for enlarge in get_args(Enlarge):
        data = store.get_blocking(generate(make_backend(small, store, enlarge=enlarge), job).key)
        frames.append(video_inspection.decode_frames(data))
        assert frames[-1].shape == (9, 104, 200, 3)
    assert not np.array_equal(*frames)


def test_first_keyframe_is_the_first_frame(family: VideoFamily, store: ObjectStore) -> None:
    job = make_video_job(references=("inputs/image",), video={"times": (0.0,)})
    frames = video_inspection.decode_frames(store.get_blocking(generate(make_backend(family, store), job).key))
    assert len(frames) == FRAMES
    assert psnr(frames[0], gradient_image()) > 22


def sound_correlation(start: bytes, whole: np.ndarray, end: int) -> float:
    """Returns the correlation of the continued video's sound with its beginning in the whole."""
    own = video_inspection.decode_audio(start)
    return float(np.corrcoef(own[0, 2048:end], whole[0, 2048:end])[0, 1])


def test_continuation_joins_frames_and_audio(family: VideoFamily, store: ObjectStore, start: bytes) -> None:
    data = store.get_blocking(generate(make_backend(family, store), make_video_job(start_video="inputs/start")).key)
    report = video_inspection.inspect(data)
    assert report.frames == START_FRAMES + FRAMES
    assert report.audio_seconds == pytest.approx((START_FRAMES + FRAMES) / FPS, abs=0.03)
    start_frames = video_inspection.decode_frames(start)
    frames = video_inspection.decode_frames(data)
    assert len(start_frames) == START_FRAMES
    assert min(psnr(frame, own) for frame, own in zip(frames[:START_FRAMES], start_frames, strict=True)) > 22
    assert psnr(frames[START_FRAMES], frames[START_FRAMES - 1]) < 60, "the new frame repeats the old"
    end = round(START_FRAMES / FPS * video_inspection.AUDIO_RATE)
    assert sound_correlation(start, video_inspection.decode_audio(data), end - 2048) > 0.98


def test_continuation_of_a_silent_video_has_audio(family: VideoFamily, store: ObjectStore) -> None:
    store.put_blocking(
        "inputs/silent", video_encoding.make_video(f"testsrc2=size=96x64:rate={FPS}:duration=0.5"), "video/mp4"
    )
    data = store.get_blocking(generate(make_backend(family, store), make_video_job(start_video="inputs/silent")).key)
    audio = video_inspection.decode_audio(data)
    assert video_inspection.inspect(data).frames == 12 + FRAMES
    assert np.abs(audio[:, : round(0.4 * video_inspection.AUDIO_RATE)]).max() < 1e-3
    for start_video in ("inputs/silent", None):
        job = make_video_job(start_video=start_video, video={"audio": False, "frames": 9})
        mute = generate(make_backend(family, store), job)
        assert video_inspection.inspect(store.get_blocking(mute.key)).audio_codec is None


@promise("Decided: video", "v2v returns the continuation joined to the input's own frames and sound.")
def test_continuation_without_audio_keeps_the_inputs(family: VideoFamily, store: ObjectStore, start: bytes) -> None:
    mute = make_video_job(start_video="inputs/start", video={"audio": False})
    data = store.get_blocking(generate(make_backend(family, store), mute).key)
    report = video_inspection.inspect(data)
    assert report.audio_seconds == pytest.approx((START_FRAMES + FRAMES) / FPS, abs=0.03)
    whole, end = video_inspection.decode_audio(data), round(START_FRAMES / FPS * video_inspection.AUDIO_RATE)
    assert sound_correlation(start, whole, end - 2048) > 0.98
    assert np.abs(whole[:, end + 2048 :]).max() < 1e-3, "the new part is silent"


def small_means(data: bytes) -> Pixels:
    return np.stack([cv2.resize(f, (3, 2), interpolation=cv2.INTER_AREA) for f in video_inspection.decode_frames(data)])


def test_enhanced_draft_has_its_composition(store: ObjectStore) -> None:
    # With little noise most of the draft is kept.
    family = native_loading.load(cpu_config("bundled/ltx2", enhance_noise=0.05)).family
    assert isinstance(family, VideoFamily)
    backend = make_backend(family, store)
    drafts = [generate(backend, make_video_job(f"draft{seed}", seed=seed, video={"draft": True})) for seed in (1, 2)]
    key = drafts[0].draft
    assert key == "results/draft1/1/draft.safetensors"
    tensors, metadata = unpack_latents(store.get_blocking(key))
    assert tensors.keys() == {"video", "audio"}
    assert metadata["model"] == "m"
    enhanced = generate(backend, make_video_job(seed=1, width=2 * WIDTH, height=2 * HEIGHT, draft=key))
    assert enhanced.draft is None
    result = store.get_blocking(enhanced.key)
    report = video_inspection.inspect(result)
    assert (report.width, report.height, report.frames) == (2 * WIDTH, 2 * HEIGHT, FRAMES)
    mine, other = (psnr(small_means(result), small_means(store.get_blocking(draft.key))) for draft in drafts)
    assert mine > other + 3


def test_steps_after_the_last_do_nothing(family: VideoFamily, store: ObjectStore) -> None:
    backend = make_backend(family, store)
    states = [state for state in encode_jobs(backend, [JOB, make_video_job(steps=1)]) if isinstance(state, ActiveVideo)]
    assert [state.total_steps for state in states] == [STEPS + states[0].parts, 1 + states[1].parts]
    for _ in range(states[0].total_steps):
        backend.step(states)
    assert [state.done_steps for state in states] == [state.total_steps for state in states]
    outputs = [backend.finish(state)() for state in states]
    assert all(output.size > 0 for output in outputs)


@pytest.mark.parametrize(
    ("component", "tensor"), [("vae", "decoder.conv_out.conv.weight"), ("vocoder", "conv_out.weight")]
)
def test_broken_decoder_fails_the_job(tmp_path: Path, component: str, tensor: str) -> None:
    folder, objects = copy_bundle("ltx2", tmp_path / "bundle"), tmp_path / "objects"
    poison(folder / component / "diffusion_pytorch_model.safetensors", tensor)
    family = native_loading.load(cpu_config(str(folder))).family
    assert isinstance(family, VideoFamily)
    assert collect_events(make_backend(family, ObjectStore(objects.as_uri())), JOB)[-1] == NOTHING_USABLE
    assert list(objects.rglob("*.mp4")) == []


def test_nan_latents_are_not_checkpointed(family: VideoFamily, store: ObjectStore) -> None:
    weight: torch.Tensor = family.transformer.proj_out.weight
    right = weight.detach().clone()
    try:
        with torch.no_grad():
            weight[0] = torch.nan
        assert collect_events(make_backend(family, store), JOB)[-1] == NOTHING_USABLE
    finally:
        with torch.no_grad():
            weight.copy_(right)
    with pytest.raises(FileNotFoundError):
        store.get_blocking(CHECKPOINT)
    generate(make_backend(family, store), JOB)


class SteppedStore(ObjectStore):
    """A store that releases a semaphore for each written checkpoint."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.checkpoints = threading.Semaphore(0)

    def put_blocking(self, key: str, data: bytes, content_type: str) -> None:
        super().put_blocking(key, data, content_type)
        if key == CHECKPOINT:
            self.checkpoints.release()


def run_steps(backend: VideoBackend, store: SteppedStore, job: GenerationJob, steps: int) -> None:
    """Takes the first steps with a checkpoint each, and drops the state."""
    [state] = encode_jobs(backend, [job])
    assert isinstance(state, ActiveVideo)
    for _ in range(steps):
        backend.step([state])
        store.checkpoints.acquire()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "fields"),
    [(1, {}), (2, {"start_video": "inputs/start"}), (STEPS, {}), (2, {"references": ("inputs/image",)})],
)
def test_resumed_video_is_identical(
    family: VideoFamily, store: ObjectStore, tmp_path: Path, start: bytes, steps: int, fields: dict[str, Any]
) -> None:
    job = make_video_job(video={"draft": True, "times": (0.5,) if "references" in fields else ()}, **fields)
    whole = generate(make_backend(family, store), job)
    assert whole.draft is not None
    other = SteppedStore((tmp_path / "other").as_uri())
    other.put_blocking("inputs/start", start, "video/mp4")
    other.put_blocking("inputs/image", png(gradient_image()), "image/png")
    run_steps(make_backend(family, other), other, job, steps)
    backend, second = make_backend(family, other), replace(job, attempt=2, output_prefix="results/job/2")
    [state] = encode_jobs(backend, [second])
    assert isinstance(state, ActiveVideo)
    assert state.video.i == steps
    resumed = generate(backend, second)
    assert resumed.draft is not None
    assert other.get_blocking(resumed.draft) == store.get_blocking(whole.draft)
    files = [place.get_blocking(output.key) for place, output in ((store, whole), (other, resumed))]
    assert np.array_equal(video_inspection.decode_frames(files[0]), video_inspection.decode_frames(files[1]))


def test_no_checkpoint_follows_the_stored_video(
    family: VideoFamily, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, put_file = store.put_blocking, store.put_file_blocking
    stored, order = threading.Event(), list[str]()

    def slow(key: str, data: bytes, content_type: str) -> None:
        stored.wait(0.5)  # times out, unless the video is stored during this call
        put(key, data, content_type)
        order.append(key)

    def storing(key: str, file: Path, content_type: str) -> None:
        order.append(key)
        stored.set()
        put_file(key, file, content_type)

    monkeypatch.setattr(store, "put_blocking", slow)
    monkeypatch.setattr(store, "put_file_blocking", storing)
    generate(make_backend(family, store), make_video_job(steps=1))
    assert order[0] == CHECKPOINT
    assert sorted(order[1:]) == [f"results/job/1/{name}" for name in ("frames.tiff", "thumbnail.jpeg", "video.mp4")]
