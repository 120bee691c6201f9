"""Records of jobs outlive the release that wrote them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.job_records import new_job

from deployments.contract.job import Adapter
from serve_app.schemas.plan import ClipPlan
from serve_app.tasks.task import VERSION, Job, NewerJob

# As releases have stored them; never to be edited, only added to.
OF_VERSION_1 = (
    '{"v": 1, "prompt": "a wave", "steps": 8, "seed": 18446744073709551615, "output_format": "mp4", "area": 921600, '
    '"width": null, "height": null, "input_pixels": 7, "guidance": 2.5, "guidance_interval": 2, "canny": [50, 200], '
    '"transparent": true, "rewrite": true, "structured": true, "clip": {"seconds": 5, "sound": true, '
    '"times": [0.0, 2.5], "draft": true, "enhance": null}, "references": ["inputs/t/0.png", "inputs/t/1.png"], '
    '"mask": "inputs/t/2.png", "control": null, "image_prompt": null, "start_video": "inputs/t/3.mp4", '
    '"safety_tolerance": 2, "safety_ceilings": {"violence": 1}, "adapter": {"id": "f", "key": '
    '"finetunes/f/weights.safetensors", "strength": 1.1}, "warnings": ["it is a wave"]}'
)
STORED = Job(
    prompt="a wave",
    steps=8,
    seed=2**64 - 1,
    output_format="mp4",
    area=921_600,
    input_pixels=7,
    guidance=2.5,
    guidance_interval=2,
    canny=(50, 200),
    transparent=True,
    rewrite=True,
    structured=True,
    clip=ClipPlan(seconds=5, sound=True, times=(0.0, 2.5), draft=True),
    references=("inputs/t/0.png", "inputs/t/1.png"),
    mask="inputs/t/2.png",
    start_video="inputs/t/3.mp4",
    safety_tolerance=2,
    safety_ceilings={"violence": 1},
    adapter=Adapter("f", "finetunes/f/weights.safetensors", 1.1),
    warnings=("it is a wave",),
)


def test_what_releases_stored_is_read() -> None:
    assert Job.decode(OF_VERSION_1) == STORED
    assert json.loads(STORED.encode()) == json.loads(OF_VERSION_1), "a new version needs a stored record of its own"


@pytest.mark.parametrize("job", [new_job(), new_job(width=None, height=None), STORED])
def test_a_job_comes_back_as_it_was_written(job: Job) -> None:
    assert Job.decode(job.encode()) == job


def test_a_record_of_a_later_release_is_left_alone() -> None:
    with pytest.raises(NewerJob, match=f"version {VERSION + 1}"):
        Job.decode(json.dumps({"v": VERSION + 1, "scene": "of another shape"}))


@pytest.mark.parametrize(
    "change",
    [{"prompt": None}, {"steps": "many"}, {"clip": {"seconds": 1}}, {"canny": [1]}, {"surprise": 1}],
    ids=lambda change: next(iter(change)),
)
def test_what_is_no_record_is_refused(change: dict[str, Any]) -> None:
    record = json.loads(new_job().encode()) | change
    with pytest.raises(ValueError, match=next(iter(change))):
        Job.decode(json.dumps(record))
