from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from support.images import encode_image
from support.jobs import change_job, encode_jobs, make_job
from support.virtual_backend import Listener

from deployments.backend import JobError
from deployments.backends.restoration import RestorerBackend
from deployments.contract.events import Done, Event, Failed, Progress
from deployments.contract.job import GenerationJob
from deployments.contract.objects import ObjectStore
from deployments.engine.loop import Engine
from deployments.images import Pixels

JOB = change_job(make_job("a"), width=64, height=48, steps=20, references=("inputs/image",))


class Negative:
    """A fake restorer that inverts images and rejects black ones."""

    def __init__(self) -> None:
        self.calls = 0

    def restore(self, image: Pixels, mask: Pixels | None) -> Pixels:
        self.calls += 1
        if not image.any():
            raise JobError("black")
        return 255 - image


def put_image(store: ObjectStore, key: str, pixels: npt.NDArray[np.uint8]) -> None:
    store.put_blocking(key, encode_image(Image.fromarray(pixels)), "image/png")


def image() -> Pixels:
    return np.random.default_rng(0).integers(0, 90, (48, 64, 3), dtype=np.uint8)


@pytest.fixture
def store() -> ObjectStore:
    store = ObjectStore("memory:///")
    put_image(store, "inputs/image", image())
    put_image(store, "inputs/black", np.zeros((48, 64, 3), np.uint8))
    mask = np.zeros((48, 64), np.uint8)
    mask[10:20, 10:30] = 255
    put_image(store, "inputs/mask", mask)
    put_image(store, "inputs/small", mask[:24, :32])
    store.put_blocking("inputs/text", b"hello", "image/png")
    return store


def results(store: ObjectStore, *jobs: GenerationJob, restorer: Negative | None = None) -> list[list[Event]]:
    engine = Engine(RestorerBackend(restorer or Negative(), store), max_running=8, max_batch=8)
    listeners = [Listener() for _ in jobs]
    for job, listener in zip(jobs, listeners, strict=True):
        engine.submit(job, listener)
    engine.run_until_idle()
    return [listener.events for listener in listeners]


def restore(store: ObjectStore, job: GenerationJob) -> Pixels:
    [events] = results(store, job)
    event = events[-1]
    assert isinstance(event, Done), event
    with Image.open(io.BytesIO(store.get_blocking(event.output.key))) as pil_image:
        return np.array(pil_image)


def test_first_reference_is_restored_in_one_step(store: ObjectStore) -> None:
    assert np.array_equal(restore(store, JOB), 255 - image())
    [events] = results(store, JOB)
    assert [event for event in events if isinstance(event, Progress)][-1].fraction == 1.0


def test_only_masked_pixels_differ(store: ObjectStore) -> None:
    result = restore(store, change_job(JOB, mask="inputs/mask"))
    differs = np.zeros((48, 64), bool)
    differs[10:20, 10:30] = True
    assert np.array_equal((result != image()).any(-1), differs)


def test_result_has_the_requested_size(store: ObjectStore) -> None:
    assert restore(store, change_job(JOB, width=96, height=72)).shape == (72, 96, 3)
    assert restore(store, change_job(JOB, width=96, height=72, mask="inputs/mask")).shape == (72, 96, 3)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"references": ()}, "this model needs an image"),
        ({"references": ("inputs/gone",)}, "an input is no longer available"),
        ({"references": ("inputs/text",)}, "an input image cannot be read"),
        ({"mask": "inputs/small"}, "the mask must have the size of the image"),
        ({"references": ("inputs/black",)}, "black"),
    ],
)
def test_invalid_job_fails_alone(store: ObjectStore, fields: dict[str, object], text: str) -> None:
    bad = change_job(JOB, id="bad", output_prefix="results/bad/1", **fields)
    [failed, events] = results(store, bad, JOB)
    assert failed[-1] == Failed(text)
    assert isinstance(events[-1], Done)


def test_image_beside_a_failing_one_is_restored_once(store: ObjectStore) -> None:
    restorer = Negative()
    backend = RestorerBackend(restorer, store)
    states = encode_jobs(backend, [JOB, change_job(JOB, id="b", references=("inputs/black",))])
    good = [state for state in states if not isinstance(state, JobError)]
    for _ in range(2):
        with pytest.raises(JobError):
            backend.step(good)
    assert restorer.calls == 3
    assert [state.done_steps for state in good] == [0, 0]
