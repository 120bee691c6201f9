"""Records of tasks, waits of queues, and bodies of results."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.payloads import new_payload

from deployments.contract.events import Preview
from deployments.contract.job import Adapter
from deployments.contract.moderation import Tolerance
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from serve_app.inputs.links import PREFIXES, LinkSigner
from serve_app.tasks import queue_load
from serve_app.tasks.payload import VERSION, NewerPayload, TaskPayload
from serve_app.tasks.queue_load import BUCKETS, QueueLoad
from serve_app.tasks.result import DraftResult, GenerationResult
from serve_app.tasks.serializer import ResultSerializer, encode_body
from serve_app.tasks.task import Status, Task

# As releases have stored them; never to be edited, only added to.
VERSION_1_RECORD = (
    '{"v": 1, "prompt": "a wave", "steps": 8, "seed": 18446744073709551615, "output_format": "mp4", "area": 921600, '
    '"width": null, "height": null, "input_pixels": 7, "guidance": 2.5, "guidance_interval": 2, "canny": [50, 200], '
    '"transparent": true, "rewrite": true, "structured": true, "video": {"seconds": 5, "audio": true, '
    '"times": [0.0, 2.5], "draft": true, "enhance": null, "fps": 24}, "negative_prompt": "", "strength": null, '
    '"references": ["inputs/t/0.png", "inputs/t/1.png"], '
    '"mask": "inputs/t/2.png", "control": null, "image_prompt": null, "start_video": "inputs/t/3.mp4", '
    '"safety_tolerance": 2, "safety_ceilings": {"violence": 1}, "adapter": {"id": "f", "key": '
    '"finetunes/f/weights.safetensors", "strength": 1.1}, "warnings": ["it is a wave"]}'
)
VERSION_2_RECORD = (
    '{"v": 2, "request": {"prompt": "a wave", "width": 1280, "height": 736, "steps": 8, "seed": 18446744073709551615, '
    '"output_format": "mp4", "open_ratio": true, "input_pixels": 7, "guidance": 2.5, "guidance_interval": 2.0, '
    '"canny": [50, 200], "transparent": true, "rewrite": true, "video": {"frames": 120, "audio": true, '
    '"times": [0.0, 2.5], "draft": true, "fps": 24}, "area": 921600}, "inputs": {"references": ["inputs/t/0.png", '
    '"inputs/t/1.png"], "mask": "inputs/t/2.png", "start_video": "inputs/t/3.mp4"}, "adapter": {"id": "f", '
    '"key": "finetunes/f/weights.safetensors", "strength": 1.1}, "safety": {"level": 2, "ceilings": {"violence": 1}}, '
    '"warnings": ["it is a wave"]}'
)
STORED = new_payload(
    prompt="a wave",
    width=1280,
    height=736,
    open_ratio=True,
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
    video=VideoParams(frames=120, audio=True, times=(0.0, 2.5), draft=True),
    references=("inputs/t/0.png", "inputs/t/1.png"),
    mask="inputs/t/2.png",
    start_video="inputs/t/3.mp4",
    safety=Tolerance(2, {"violence": 1}),
    adapter=Adapter("f", "finetunes/f/weights.safetensors", 1.1),
    warnings=("it is a wave",),
)


@pytest.mark.parametrize("record", [VERSION_1_RECORD, VERSION_2_RECORD])
def test_payload_of_an_earlier_release_is_read(record: str) -> None:
    assert TaskPayload.decode(record) == STORED
    assert TaskPayload.decode(STORED.encode()) == STORED


def test_version_1_keeps_layouts_and_drafts() -> None:
    record = json.loads(VERSION_1_RECORD)
    layout = record | {"prompt": 'x [{"id": "a", "bbox": [0, 0, 9, 9], "desc": "b"}]', "video": None}
    assert len(TaskPayload.decode(json.dumps(layout)).request.layout) == 1
    draft = record | {"structured": False, "video": {"seconds": 5, "audio": True, "enhance": "results/t/draft"}}
    payload = TaskPayload.decode(json.dumps(draft))
    assert (payload.request.layout, payload.inputs.draft) == ((), "results/t/draft")


@pytest.mark.parametrize("change", [{"prompt": None}, {"steps": "many"}, {"video": {"fps": 1}}, {"canny": [1]}])
def test_invalid_record_is_refused(change: dict[str, Any]) -> None:
    record = json.loads(new_payload().encode())
    record["request"] |= change
    with pytest.raises(ValueError, match=next(iter(change))):
        TaskPayload.decode(json.dumps(record))


def test_record_of_a_later_release_or_unknown_field_is_refused() -> None:
    with pytest.raises(NewerPayload, match=f"version {VERSION + 1}"):
        TaskPayload.decode(json.dumps({"v": VERSION + 1, "scene": "of another shape"}))
    with pytest.raises(ValueError, match="surprise"):
        TaskPayload.decode(json.dumps({"v": VERSION, "surprise": 1}))


def load(running: int, run_s: float | None) -> QueueLoad:
    return QueueLoad(queued=5, quarantined=1, running=running, counts={}, histograms={}, run_s=run_s)


@pytest.mark.parametrize(("running", "wait_s"), [(0, 12.0), (1, 12.0), (4, 3.0)])
def test_wait_is_the_queued_work_per_running_task(running: int, wait_s: float) -> None:
    queue_load = load(running, 2.0)
    assert (queue_load.queued_s, queue_load.wait_s) == (12.0, wait_s)
    assert (load(1, None).queued_s, load(1, None).wait_s) == (None, None), "before a task has ended"


def test_script_counts_in_the_buckets_that_python_reads() -> None:
    script = Path(queue_load.__file__).with_name("timings.lua").read_text()
    listed = re.search(r"BUCKETS_MS = \{([\d, ]+)\}", script)
    assert listed is not None
    assert tuple(int(bound) for bound in listed[1].split(",")) == BUCKETS.bounds


BASE = "https://media.test"
LINKS = LinkSigner(bytes(32))
METADATA: dict[str, Any] = {"prompt": "waves", "seed": 7, "start_time": 1.0, "end_time": 3.0, "duration": 2.0}
DRAFT = DraftResult("results/t/1/draft.safetensors", 120, 640, 352, audio=True)


async def _body(status: Status = Status.READY, **fields: Any) -> dict[str, Any]:
    serializer = ResultSerializer(ObjectStore("memory:///"), LINKS, image_life_s=100, video_life_s=10_000)
    return await serializer.body(Task("t", "p", "ltx2", "gen-3-video", status, 1, 0, 0.0, **fields), BASE)


def _life_s(link: str) -> float:
    """Returns the remaining seconds of a valid link."""
    url = urlsplit(link)
    assert f"{url.scheme}://{url.netloc}" == BASE
    query = parse_qs(url.query)
    now = time.time()
    assert LINKS.verify(url.path.removeprefix(PREFIXES["GET"]), query["se"][0], query["sig"][0], now)
    return int(query["se"][0]) - now


@pytest.mark.parametrize(("name", "life_s"), [("image.jpeg", 100), ("image.webp", 100), ("video.mp4", 10_000)])
async def test_link_lives_as_long_as_its_media_type(name: str, life_s: int) -> None:
    body = await _body(result=GenerationResult(key=f"results/t/1/{name}", **METADATA))
    assert urlsplit(body["result"]["sample"]).path == f"{PREFIXES['GET']}results/t/1/{name}"
    assert life_s - 1 <= _life_s(body["result"]["sample"]) <= 1.5 * life_s + 2


async def test_draft_has_a_second_link_and_no_more_fields() -> None:
    body = await _body(result=GenerationResult(key="results/t/1/video.mp4", draft=DRAFT, **METADATA))
    assert set(body["result"]) == {"sample", "draft_cache", *METADATA}
    assert urlsplit(body["result"]["draft_cache"]).path == f"{PREFIXES['GET']}{DRAFT.key}"
    assert _life_s(body["result"]["draft_cache"]) >= 9_999
    assert b"frames" not in encode_body(body)
    stored = json.dumps({"key": "results/t/1/video.mp4", "of the next release": 1, **METADATA})
    plain = (await _body(result=GenerationResult.decode(stored)))["result"]
    assert plain == {"sample": plain["sample"], **METADATA}


async def test_preview_has_a_link_with_the_life_of_an_image() -> None:
    body = await _body(Status.GENERATING, preview=Preview("results/t/1/preview-2.jpeg", step=2, steps=8))
    assert (body["preview"]["step"], body["preview"]["steps"], body["result"]) == (2, 8, None)
    assert _life_s(body["preview"]["sample"]) <= 152
