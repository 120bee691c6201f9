"""Drafts: what their result has, how they are named, and what is made of them."""

from __future__ import annotations

import time
import uuid

import pytest
from support.client import Client
from support.http_service import Service, StartService
from support.promises import promise
from video_requests import FILE, PICTURE, VIDEO, drafted, minimal, problem

from serve_app.config.settings import TaskSettings
from serve_app.tasks.task import Status


def enhance(client: Client, draft: str, **body: object) -> str:
    return client.ordered(VIDEO, mode="draft_enhance", draft_cache=draft, **body)


def refused(client: Client, service: Service, draft: str) -> tuple[str, str]:
    """Kind and message."""
    loc, kind, message = problem(client, service, mode="draft_enhance", draft_cache=draft)
    assert loc == ["draft_cache"]
    return kind, message


@promise("Decided: polling", "Video drafts add `draft_cache` (URL)")
def test_a_draft_has_a_link_to_its_latents(client: Client, service: Service) -> None:
    result = client.poll(drafted(client, service, b"the latents")).json()["result"]
    assert set(result) == {"sample", "draft_cache", "prompt", "seed", "start_time", "end_time", "duration"}
    assert client.get(result["sample"]).content == FILE
    assert client.get(result["draft_cache"]).content == b"the latents"


@promise("Decided: video", "the draft's URL or task id")
def test_a_draft_is_named_by_its_task_or_its_link(client: Client, service: Service) -> None:
    task_id = drafted(client, service)
    link = client.poll(task_id).json()["result"]["draft_cache"]
    key = f"results/{task_id}/1/draft.safetensors"
    presigned = f"https://bucket.s3.eu-central-1.amazonaws.com/gen/{key}?X-Amz-Signature={'f' * 64}"
    for named in (task_id, link, link.partition("?")[0], presigned):
        assert service.worker.job(enhance(client, named))["clip"]["enhance"] == key


@promise(
    "10. gen-3-video",
    "`draft_enhance` (re-render of a finished draft at full quality with the same composition, seed and prompt plan)",
)
def test_what_is_made_of_it_takes_it_over(client: Client, service: Service) -> None:
    body = {"prompt": "a storm", "seed": 5, "duration": 9, "aspect_ratio": "9:16", "generate_audio": False}
    task_id = drafted(client, service, **body)
    job = service.worker.job(enhance(client, task_id))
    assert (job["prompt"], job["seed"], job["width"], job["height"]) == ("a storm", 5, 1088, 1920)
    clip = job["clip"]
    assert (clip["seconds"], clip["sound"], clip["draft"], clip["times"]) == (9, False, False, [])
    small = service.worker.job(enhance(client, task_id, resolution="hd"))
    assert (small["width"], small["height"]) == (704, 1280)


def test_what_it_was_made_of_is_used_again(client: Client, service: Service) -> None:
    keyframes = [[0.5, PICTURE], [4, PICTURE]]
    pinned = drafted(client, service, mode="i2v", keyframes=keyframes)
    going_on = drafted(client, service, **minimal("v2v"))
    of_pinned, of_going_on = (service.worker.job(enhance(client, task_id)) for task_id in (pinned, going_on))
    assert of_pinned["references"] == service.worker.job(pinned)["references"]
    assert (len(of_pinned["references"]), of_pinned["clip"]["times"]) == (2, [0.5, 4])
    assert of_going_on["start_video"] == service.worker.job(going_on)["start_video"] is not None


@pytest.mark.parametrize(
    "named", ["x", "3f0c1e9a-7d52-4c0b-9a53-8e1f6b2d4c70", "https://example.com/results/x/1/draft.safetensors"]
)
def test_an_unknown_draft(client: Client, service: Service, named: str) -> None:
    assert refused(client, service, named)[0] == "draft_unknown"


def test_a_foreign_draft_is_told_as_an_unknown_one(client: Client, other_client: Client, service: Service) -> None:
    task_id = drafted(other_client, service)
    link = other_client.poll(task_id).json()["result"]["draft_cache"]
    unknown = refused(client, service, str(uuid.uuid4()))
    assert refused(client, service, task_id) == refused(client, service, link) == unknown


def test_a_task_that_is_no_draft(client: Client, service: Service) -> None:
    video, photo = client.ordered(VIDEO, **minimal("t2v")), client.accepted()
    service.worker.deliver_clip(video, FILE)
    assert refused(client, service, video)[0] == refused(client, service, photo)[0] == "not_a_draft"
    made = enhance(client, drafted(client, service))
    assert refused(client, service, made)[0] == "not_a_draft"


def test_a_draft_on_its_way_and_one_that_came_to_nothing(client: Client, service: Service) -> None:
    task_id = client.ordered(VIDEO, **minimal("t2v"), draft=True)
    assert refused(client, service, task_id)[0] == "draft_not_ready"
    service.worker.advance(task_id, Status.GENERATING, progress=0.5)
    assert refused(client, service, task_id)[0] == "draft_not_ready"
    service.worker.end(task_id, Status.ERROR, details={"error": "no"})
    assert refused(client, service, task_id)[0] == "draft_failed"


def test_latents_that_are_gone(client: Client, service: Service) -> None:
    task_id = drafted(client, service)
    service.worker.run(service.worker.objects.delete([f"results/{task_id}/1/draft.safetensors"]))
    kind, message = refused(client, service, task_id)
    assert kind == "draft_expired"
    assert "no longer kept" in message


@pytest.mark.parametrize("named", ["", "x" * 4097, None, 3, ["x"]])
def test_what_can_name_no_draft(client: Client, service: Service, named: object) -> None:
    loc, _, _ = problem(client, service, mode="draft_enhance", draft_cache=named)
    assert loc == ["draft_cache"]


def test_a_repeat_is_answered_also_when_the_draft_is_gone(start_service: StartService) -> None:
    service = start_service(tasks=TaskSettings(lease_s=3600))
    with service.client() as client:
        body = {"mode": "draft_enhance", "draft_cache": drafted(client, service)}
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        first = client.post(f"/v1/{VIDEO}", json=body, headers=headers)
        service.worker.run(service.worker.objects.delete_prefix("results"))
        again = client.post(f"/v1/{VIDEO}", json=body, headers=headers)
        assert (again.status_code, again.json()) == (200, first.json())


def test_a_draft_stays_while_a_task_waits_that_is_made_of_it(client: Client, service: Service) -> None:
    kept, left = drafted(client, service), drafted(client, service)
    enhance(client, kept)
    until = service.worker.kept_until(kept)
    assert until > service.worker.kept_until(left)
    settings = service.settings.tasks
    assert until > time.time() + settings.queue_s + settings.run_s - 60
