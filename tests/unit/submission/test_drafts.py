"""Drafts of videos: references to them, and the tasks that may continue them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.payloads import new_payload, new_result

from deployments.contract.job import InputKeys
from deployments.contract.objects import ObjectStore
from deployments.contract.request import VideoParams
from serve_app.schemas.defaults import Draft
from serve_app.submission.input_storage import DraftProblem, find_draft, parse_draft_reference
from serve_app.tasks.result import DraftResult
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status, Task

ID = "0b54cf7e-93a5-4a5e-8f36-1d6b9f0d2c11"
KEY = f"results/{ID}/2/draft.safetensors"
RESULT = new_result(
    f"results/{ID}/2/video.mp4", prompt="waves", seed=7, draft=DraftResult(KEY, 144, 640, 352, audio=False)
)
VIDEO = VideoParams(frames=144, audio=False, times=(0, 2.5), draft=True)
JOB = new_payload(references=("inputs/a/0.png", "inputs/a/1.png"), video=VIDEO).encode()
TASK = Task(ID, "mine", "ltx2", "gen-3-video", Status.READY, 2, 0, 0.0, result=RESULT, payload=JOB)


async def _find(tmp_path: Path, reference: str = ID, exists: bool = True, **changes: Any) -> Draft:
    task, objects = replace(TASK, **changes), ObjectStore(tmp_path.as_uri())

    async def get(task_id: str) -> Task | None:
        return task if task_id == ID else None

    if exists:
        await objects.put(KEY, b"latents", "application/octet-stream")
    store = cast(TaskStore, SimpleNamespace(reads=SimpleNamespace(get=get)))
    return await find_draft(store, objects, "mine", "gen-3-video", reference)


S3 = "https://bucket.s3.amazonaws.com"


@pytest.mark.parametrize(
    "reference",
    [
        *(ID, ID.upper(), f"  {ID}\n", f"http://127.0.0.1:8000/v1/results/{KEY}?se=1&sig=x"),
        *(f"{S3}/{KEY}?X-Amz-Signature=x&X-Amz-Expires=3600", f"{S3}/bucket/{KEY.replace('/', '%2F')}"),
    ],
)
def test_id_or_link_names_the_task(reference: str) -> None:
    assert parse_draft_reference(reference) == ID


@pytest.mark.parametrize(
    "reference",
    [
        *("", f"{ID}0", KEY, "https://[/", f"ftp://example.com/{KEY}"),
        *(f"{S3}/#{KEY}", f"{S3}/{KEY}.png", f"{S3}/other{KEY}"),
        *(f"{S3}/results/{ID}/x/draft.safetensors", f"{S3}/results/../{ID}/2/draft.safetensors"),
    ],
)
def test_other_reference_names_no_task(reference: str) -> None:
    assert parse_draft_reference(reference) is None


async def test_draft_has_the_fields_of_its_task(tmp_path: Path) -> None:
    inputs = InputKeys(references=("inputs/a/0.png", "inputs/a/1.png"), draft=KEY)
    expected = Draft(ID, "waves", 7, 6, 640, 352, audio=False, inputs=inputs, times=(0, 2.5))
    assert await _find(tmp_path) == expected
    assert await _find(tmp_path, reference=f"https://example.com/{KEY.replace('/2/', '/1/')}") == expected


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"project": "theirs"}, "draft_unknown"),
        ({"endpoint": "gen-2-max", "payload": ""}, "not_a_draft"),
        ({"endpoint": "gen-4-video"}, "not_a_draft"),
        ({"payload": new_payload(video=replace(VIDEO, draft=False)).encode()}, "not_a_draft"),
        ({"status": Status.GENERATING, "result": None}, "draft_not_ready"),
        ({"status": Status.ERROR, "result": None}, "draft_failed"),
        ({"result": new_result("video.mp4")}, "draft_failed"),
    ],
)
async def test_task_without_a_finished_draft_is_refused(tmp_path: Path, changes: dict[str, Any], kind: str) -> None:
    with pytest.raises(DraftProblem) as refused:
        await _find(tmp_path, **changes)
    assert refused.value.kind == kind


async def test_deleted_draft_is_expired(tmp_path: Path) -> None:
    with pytest.raises(DraftProblem, match="no longer kept") as refused:
        await _find(tmp_path, exists=False)
    assert refused.value.kind == "draft_expired"


@pytest.mark.parametrize("reference", ["nonsense", ID.replace("0", "1")])
async def test_unknown_draft_is_refused_like_a_foreign_one(tmp_path: Path, reference: str) -> None:
    with pytest.raises(DraftProblem) as unknown:
        await _find(tmp_path, reference=reference)
    with pytest.raises(DraftProblem) as foreign:
        await _find(tmp_path, project="theirs")
    assert (str(unknown.value), unknown.value.kind) == (str(foreign.value), foreign.value.kind)
