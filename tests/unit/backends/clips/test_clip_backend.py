from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
import video_inspection
import video_making
from clip_jobs import (
    FRAMES,
    HEIGHT,
    JOB,
    START_FRAMES,
    STEPS,
    WIDTH,
    a_backend,
    a_picture,
    events_of,
    made,
    psnr,
)
from PIL import Image
from support.jobs import make_clip_job
from support.promises import promise
from support.stages import encoded

from deployments import loading
from deployments.backends.video_checkpoints import unpack_latents
from deployments.backends.videos import ActiveClip
from deployments.contract.events import Preview, Started
from deployments.contract.job import FPS
from deployments.contract.model import Enlarge
from deployments.contract.objects import ObjectStore
from deployments.families.video_family import ClipFamily
from deployments.images import Pixels

pytestmark = pytest.mark.usefixtures("temporary")


def test_a_clip_from_words_has_exactly_what_was_asked_for(family: ClipFamily, store: ObjectStore) -> None:
    output = made(a_backend(family, store), JOB)
    assert (output.key, output.content_type) == ("results/job/1/clip.mp4", "video/mp4")
    assert (output.width, output.height, output.draft) == (WIDTH, HEIGHT, None)
    data = store.get_blocking(output.key)
    assert output.size == len(data)
    seen = video_inspection.inspect(data)
    assert (seen.width, seen.height, seen.frames, seen.fps) == (WIDTH, HEIGHT, FRAMES, FPS)
    assert seen.sound_channels == 2
    assert seen.sound_seconds == pytest.approx(FRAMES / FPS, abs=0.03)
    assert seen.faststart


def test_a_clip_without_sound_has_no_sound_track(family: ClipFamily, store: ObjectStore) -> None:
    output = made(a_backend(family, store), make_clip_job(clip={"sound": False}))
    seen = video_inspection.inspect(store.get_blocking(output.key))
    assert seen.sound_codec is None
    assert seen.frames == FRAMES


@pytest.mark.parametrize("enlarge", ["smooth", "sharp"])
def test_clips_that_are_rendered_small_are_enlarged(store: ObjectStore, enlarge: Enlarge) -> None:
    small = loading.load("bundled/ltx2", device="cpu", dtype="float32", render_side=64).family
    assert isinstance(small, ClipFamily)
    job = make_clip_job(width=200, height=104, clip={"frames": 9})
    seen = video_inspection.inspect(store.get_blocking(made(a_backend(small, store, enlarge=enlarge), job).key))
    assert (seen.width, seen.height, seen.frames) == (200, 104, 9)


def test_progress_and_previews_on_the_way(family: ClipFamily, store: ObjectStore) -> None:
    events = events_of(a_backend(family, store), JOB, preview_every=0.25)
    assert events[0] == Started()
    previews = [event for event in events if isinstance(event, Preview)]
    assert [(preview.step, preview.steps) for preview in previews] == [(1, 4), (2, 4), (3, 4)]
    with Image.open(io.BytesIO(store.get_blocking(previews[-1].key))) as picture:
        assert picture.format == "JPEG"
        assert picture.size == (WIDTH, HEIGHT)


def test_the_first_keyframe_is_the_first_frame(family: ClipFamily, store: ObjectStore) -> None:
    job = make_clip_job(references=("inputs/picture",), clip={"times": (0.0,)})
    frames = video_inspection.decoded(store.get_blocking(made(a_backend(family, store), job).key))
    assert len(frames) == FRAMES
    assert psnr(frames[0], a_picture()) > 22


def test_a_clip_that_goes_on_has_frames_and_sound_of_both(family: ClipFamily, store: ObjectStore, start: bytes) -> None:
    data = store.get_blocking(made(a_backend(family, store), make_clip_job(clip={"start": "inputs/start"})).key)
    seen = video_inspection.inspect(data)
    assert seen.frames == START_FRAMES + FRAMES
    assert seen.sound_seconds == pytest.approx((START_FRAMES + FRAMES) / FPS, abs=0.03)
    given = video_inspection.decoded(start)
    frames = video_inspection.decoded(data)
    assert len(given) == START_FRAMES
    assert min(psnr(frame, own) for frame, own in zip(frames[:START_FRAMES], given, strict=True)) > 22
    assert psnr(frames[START_FRAMES], frames[START_FRAMES - 1]) < 60, "what follows is new"
    own, whole = video_inspection.heard(start), video_inspection.heard(data)
    length = round(START_FRAMES / FPS * video_inspection.HEARD_RATE) - 2048
    assert np.corrcoef(own[0, 2048:length], whole[0, 2048:length])[0, 1] > 0.98


def test_a_silent_video_goes_on_with_sound_of_its_own(family: ClipFamily, store: ObjectStore) -> None:
    store.put_blocking("inputs/silent", video_making.made(f"testsrc2=size=96x64:rate={FPS}:duration=0.5"), "video/mp4")
    data = store.get_blocking(made(a_backend(family, store), make_clip_job(clip={"start": "inputs/silent"})).key)
    sound = video_inspection.heard(data)
    assert video_inspection.inspect(data).frames == 12 + FRAMES
    assert np.abs(sound[:, : round(0.4 * video_inspection.HEARD_RATE)]).max() < 1e-3


@promise("Decided: video", "v2v returns the continuation joined to the input's own frames and sound.")
def test_a_video_that_goes_on_without_sound_keeps_its_own(family: ClipFamily, store: ObjectStore, start: bytes) -> None:
    mute = make_clip_job(clip={"start": "inputs/start", "sound": False})
    data = store.get_blocking(made(a_backend(family, store), mute).key)
    seen = video_inspection.inspect(data)
    assert seen.sound_seconds == pytest.approx((START_FRAMES + FRAMES) / FPS, abs=0.03)
    own, whole = video_inspection.heard(start), video_inspection.heard(data)
    end = round(START_FRAMES / FPS * video_inspection.HEARD_RATE)
    assert np.corrcoef(own[0, 2048 : end - 2048], whole[0, 2048 : end - 2048])[0, 1] > 0.98
    assert np.abs(whole[:, end + 2048 :]).max() < 1e-3, "what follows is silent"


def test_without_any_sound_there_is_no_track(family: ClipFamily, store: ObjectStore) -> None:
    store.put_blocking("inputs/silent", video_making.made(f"testsrc2=size=96x64:rate={FPS}:duration=0.5"), "video/mp4")
    mute = make_clip_job(clip={"start": "inputs/silent", "sound": False, "frames": 9})
    data = store.get_blocking(made(a_backend(family, store), mute).key)
    assert video_inspection.inspect(data).sound_codec is None


def small_means(data: bytes) -> Pixels:
    return np.stack([cv2.resize(f, (3, 2), interpolation=cv2.INTER_AREA) for f in video_inspection.decoded(data)])


def test_a_draft_is_kept_and_what_is_enhanced_has_its_composition(store: ObjectStore) -> None:
    family = loading.load(
        "bundled/ltx2", device="cpu", dtype="float32", enhance_noise=0.05
    ).family  # keeps most, whatever the weights
    assert isinstance(family, ClipFamily)
    backend = a_backend(family, store)
    drafts = [
        made(backend, make_clip_job(id=f"draft{seed}", seed=seed, output_prefix=f"results/draft{seed}/1", clip=clip))
        for seed in (1, 2)
        for clip in [{"draft": True, "checkpoint": f"checkpoints/draft{seed}"}]
    ]
    key = drafts[0].draft
    assert key == "results/draft1/1/draft.safetensors"
    tensors, metadata = unpack_latents(store.get_blocking(key))
    assert tensors.keys() == {"picture", "sound"}
    assert metadata["model"] == "m"
    enhanced = made(backend, make_clip_job(seed=1, width=2 * WIDTH, height=2 * HEIGHT, clip={"enhance": key}))
    assert enhanced.draft is None
    result = store.get_blocking(enhanced.key)
    seen = video_inspection.inspect(result)
    assert (seen.width, seen.height, seen.frames) == (2 * WIDTH, 2 * HEIGHT, FRAMES)
    mine, other = (psnr(small_means(result), small_means(store.get_blocking(draft.key))) for draft in drafts)
    assert mine > other + 3


def test_steps_beyond_the_last_do_nothing(family: ClipFamily, store: ObjectStore) -> None:
    backend = a_backend(family, store)
    states = [state for state in encoded(backend, [JOB, make_clip_job(steps=1)]) if isinstance(state, ActiveClip)]
    assert [state.total_steps for state in states] == [STEPS + states[0].parts, 1 + states[1].parts]
    for _ in range(states[0].total_steps):
        backend.step(states)
    assert [state.done_steps for state in states] == [state.total_steps for state in states]
    outputs = [backend.finish(state)() for state in states]
    assert all(output.size > 0 for output in outputs)
