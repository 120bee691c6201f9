"""Small video jobs, and engines to run them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import psutil
from PIL import Image
from support.images import encode_image
from support.jobs import make_video_job

from deployments.backend import Backend
from deployments.backends.videos import ActiveVideo, FetchedVideo, VideoBackend
from deployments.contract.events import Done, Event
from deployments.contract.job import GenerationJob, Output, checkpoint_key
from deployments.contract.model import Enlarge
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from deployments.families.video_family import VideoFamily
from deployments.images import Pixels

WIDTH, HEIGHT, FRAMES, STEPS = 96, 64, 17, 3
START_FRAMES = 30
CHECKPOINT = checkpoint_key("job")
JOB = make_video_job()


def gradient_image() -> Pixels:
    """Returns a gradient: red to the right, blue to the bottom."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[..., 0] = np.linspace(0, 255, WIDTH, dtype=np.uint8)
    pixels[..., 2] = np.linspace(0, 255, HEIGHT, dtype=np.uint8)[:, None]
    return pixels


def png(pixels: Pixels) -> bytes:
    return encode_image(Image.fromarray(pixels))


def psnr(one: Pixels, other: Pixels) -> float:
    error = np.square(one.astype(float) - other).mean()
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def make_backend(
    family: VideoFamily, store: ObjectStore, model: str = "m", enlarge: Enlarge = "smooth"
) -> VideoBackend:
    return VideoBackend(family, store, model, enlarge=enlarge, threads=1)


Videos: TypeAlias = Backend[FetchedVideo, ActiveVideo]


def make_engine(backend: Videos, preview_every: float | None = None) -> Engine[FetchedVideo, ActiveVideo]:
    return Engine(backend, max_running=2, max_batch=1, preview_every=preview_every)


def collect_events(backend: Videos, job: GenerationJob, preview_every: float | None = None) -> list[Event]:
    engine, events = make_engine(backend, preview_every), list[Event]()
    engine.submit(job, events.append)
    engine.run_until_idle()
    return events


def generate(backend: Videos, job: GenerationJob) -> Output:
    event = collect_events(backend, job)[-1]
    assert isinstance(event, Done), event
    return event.output


def ffmpeg_processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "ffmpeg" in child.name()]
