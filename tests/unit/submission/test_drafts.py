"""How a draft is named, and who may go on from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
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


class _Tasks:
    """Knows one task."""

    def __init__(self, **changes: Any) -> None:
        fields = {name: getattr(TASK, name) for name in TASK.__dataclass_fields__}
        self._task = Task(**{**fields, **changes})

    @property
    def reads(self) -> _Tasks:
        return self

    async def get(self, task_id: str) -> Task | None:
        return self._task if task_id == ID else None


async def _find(tmp_path: Path, reference: str = ID, exists: bool = True, **changes: Any) -> Draft:
    objects = ObjectStore(tmp_path.as_uri())
    if exists:
        await objects.put(KEY, b"latents", "application/octet-stream")
    return await find_draft(cast(TaskStore, _Tasks(**changes)), objects, "mine", "gen-3-video", reference)


@pytest.mark.parametrize(
    "reference",
    [
        ID,
        ID.upper(),
        f"  {ID}\n",
        f"http://127.0.0.1:8000/v1/results/{KEY}?se=1&sig=x",
        f"https://bucket.s3.amazonaws.com/{KEY}?X-Amz-Signature=x&X-Amz-Expires=3600",
        f"https://s3.example.com/bucket/{KEY.replace('/', '%2F')}",
    ],
)
def test_ids_and_links_name_the_task(reference: str) -> None:
    assert parse_draft_reference(reference) == ID


@pytest.mark.parametrize(
    "reference",
    [
        "",
        f"{ID}0",
        KEY,
        f"ftp://example.com/{KEY}",
        f"https://example.com/#{KEY}",
        f"https://example.com/{KEY}.png",
        f"https://example.com/other{KEY}",
        f"https://example.com/results/{ID}/x/draft.safetensors",
        f"https://example.com/results/../{ID}/2/draft.safetensors",
        "https://[/",
    ],
)
def test_what_names_no_task(reference: str) -> None:
    assert parse_draft_reference(reference) is None


async def test_a_draft_has_what_its_task_had(tmp_path: Path) -> None:
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
async def test_what_is_no_draft_to_go_on_from(tmp_path: Path, changes: dict[str, Any], kind: str) -> None:
    with pytest.raises(DraftProblem) as refused:
        await _find(tmp_path, **changes)
    assert refused.value.kind == kind


@pytest.mark.parametrize("reference", ["nonsense", ID.replace("0", "1")])
async def test_an_unknown_task_is_told_as_a_foreign_one(tmp_path: Path, reference: str) -> None:
    with pytest.raises(DraftProblem) as unknown:
        await _find(tmp_path, reference=reference)
    with pytest.raises(DraftProblem) as foreign:
        await _find(tmp_path, project="theirs")
    assert (str(unknown.value), unknown.value.kind) == (str(foreign.value), foreign.value.kind)
    with pytest.raises(DraftProblem, match="no longer kept") as gone:
        await _find(tmp_path / "empty", exists=False)
    assert gone.value.kind == "draft_expired"
