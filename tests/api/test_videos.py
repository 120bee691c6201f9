"""Videos: submissions, prices, inputs, results, and drafts."""

from __future__ import annotations

import re
import time
import uuid
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.http_client import HOOK, Client, problems
from support.http_service import Service, StartService
from support.images import image_file, to_base64
from support.input_images import stored_as
from support.promises import promise
from support.website import Website
from support.worker import Worker
from video_requests import FILE, IMAGE, VIDEO, create_draft, minimal, problem, video_file

from serve_app.config.settings import TaskSettings
from serve_app.tasks.rejections import NeededTaskGone
from serve_app.tasks.store import TaskStore

KEYS = {"id", "polling_url", "cost", "input_mp", "output_mp"}


def make_body(client: Client, service: Service, mode: str) -> dict[str, Any]:
    body = minimal(mode)
    return body | {"draft_cache": create_draft(client, service)} if mode == "draft_enhance" else body


@promise(
    "Decided: submission",
    'Numbers on endpoints whose response lists them; `null` on those marked "`id`, `polling_url` only" and on video.',
)
def test_submission_of_a_video_shows_no_price(client: Client) -> None:
    body = minimal("t2v")
    plain = client.order(VIDEO, **body).json()
    assert set(plain) == KEYS
    assert [plain[name] for name in ("cost", "input_mp", "output_mp")] == [None] * 3
    hooked = client.order(VIDEO, **body, webhook_url=HOOK, webhook_secret="x", user="u" * 256).json()
    assert set(hooked) == KEYS | {"status", "webhook_url"}
    assert (hooked["status"], hooked["webhook_url"]) == ("Pending", HOOK)


@promise("10. gen-3-video", "The final polling response carries `cost`, the settled cost in credits.")
def test_video_ends_with_its_result(client: Client, service: Service) -> None:
    task_id = client.order_task(VIDEO, **make_body(client, service, "draft_enhance"))
    service.worker.deliver_video(task_id, FILE)
    polled = client.poll(task_id).json()
    assert (polled["status"], polled["progress"]) == ("Ready", 1.0)
    assert set(polled["result"]) == {"sample", "prompt", "seed", "start_time", "end_time", "duration"}
    assert polled["result"]["prompt"] == "waves"
    listed = client.get("/v1/tasks").json()["tasks"]
    assert {task["endpoint"] for task in listed} == {VIDEO}


@promise("Decided: polling", "Life: 10 min for images, 1 h for video (configurable); every poll signs anew.")
def test_links_to_videos_live_longer_than_to_images(client: Client, service: Service) -> None:
    def expires(link: str) -> int:
        return int(parse_qs(urlsplit(link).query)["se"][0])

    video, photo = create_draft(client, service), client.create_task()
    service.worker.deliver(photo, image_file(form="JPEG"))
    result = client.poll(video).json()["result"]
    short = expires(client.poll(photo).json()["result"]["sample"])
    assert expires(result["sample"]) > short + 1800
    assert expires(result["draft_cache"]) > short + 1800


@promise("Decided: money, accounts", "video per second and resolution")
@pytest.mark.parametrize(
    ("mode", "body", "cost", "output_mp"),
    [
        ("t2v", {"duration": 20}, 160, 0.86),
        ("t2v", {"resolution": "fhd", "aspect_ratio": "1:1"}, 80, 1.99),
        ("t2v", {"draft": True}, 10, 0.21),
        ("t2v", {"draft": True, "resolution": "fhd", "duration": 10}, 20, 0.5),
        ("i2v", {"keyframes": [[0, IMAGE], [7.5, IMAGE]]}, 64, 0.86),
        ("v2v", {"duration": 15}, 120, 0.86),
        ("draft_enhance", {"resolution": "hd"}, 30, 0.86),
    ],
)
def test_video_is_priced_by_second_and_resolution(
    client: Client, service: Service, mode: str, body: dict[str, Any], cost: float, output_mp: float
) -> None:
    request_body = make_body(client, service, mode) | body
    priced = client.post("/v1/pricing", json={"path": f"/v1/{VIDEO}", "body": request_body})
    assert priced.status_code == 200, priced.text
    assert (priced.json()["cost"], priced.json()["output_mp"]) == (cost, output_mp)
    task_id = client.order_task(VIDEO, **request_body)
    assert "cost" not in client.poll(task_id).json()
    service.worker.deliver_video(task_id, FILE)
    assert client.poll(task_id).json()["cost"] == cost


def test_keyframes_are_stored_in_order(client: Client, worker: Worker) -> None:
    files = [image_file(width, 64) for width in (64, 96, 128)]
    keyframes = [[second, to_base64(data)] for second, data in zip((0, 1.5, 8), files, strict=True)]
    job = worker.job(client.order_task(VIDEO, mode="i2v", prompt="x", keyframes=keyframes))
    assert [worker.run(worker.objects.get(key)) for key in job["references"]] == [stored_as(each) for each in files]
    assert (job["video"].times, job["video"].seconds, job["start_video"]) == ((0, 1.5, 8), 8, None)
    assert (job["width"], job["height"]) == (960, 960), "the ratio of the first"


@promise("Decided: video", "URL or base64 mp4, at most 50 MB")
def test_start_video_is_stored_for_the_model(client: Client, worker: Worker, web: Website) -> None:
    for start_video in (
        to_base64(video_file()),
        f"data:video/mp4;base64,{to_base64(video_file())}",
        web.set_page("/start.mp4", video_file()),
    ):
        job = worker.job(client.order_task(VIDEO, **minimal("v2v") | {"start_video": start_video}))
        assert re.fullmatch(r"inputs/[0-9a-f-]{36}/0\.mp4", job["start_video"])
        assert worker.run(worker.objects.get(job["start_video"])) == video_file()
        assert (job["references"], job["width"], job["height"]) == ((), 1088, 832)


@pytest.mark.parametrize(
    ("body", "loc", "kind"),
    [
        ({"mode": "i2v", "keyframes": "AAAA"}, ["keyframes"], "image_invalid"),
        ({"mode": "i2v", "keyframes": [IMAGE, "AAAA"]}, ["keyframes", "1"], "image_invalid"),
        ({"mode": "i2v", "keyframes": [[0, IMAGE], [1, "AAAA"]]}, ["keyframes", "1", "1"], "image_invalid"),
        ({"mode": "v2v", "start_video": IMAGE}, ["start_video"], "video_invalid"),
        ({"mode": "v2v", "start_video": to_base64(video_file()[:-200])}, ["start_video"], "video_invalid"),
        ({"mode": "v2v", "start_video": "http://127.0.0.1/a.mp4"}, ["start_video"], "video_invalid"),
    ],
)
def test_invalid_input_of_a_video_is_named(
    client: Client, service: Service, body: dict[str, Any], loc: list[str], kind: str
) -> None:
    assert problem(client, service, prompt="x", **body)[:2] == (loc, kind)


@promise("Decided: video", "A start video plus `duration` over 20 s is a 422 on `duration`")
@pytest.mark.parametrize(
    ("frames", "duration", "advice"),
    [
        (360, "auto", None),
        (361, "auto", "at most it may have 15 s"),
        (240, 10, None),
        (241, 10, "at most 9 s may follow"),
        (144, 15, "at most 14 s may follow"),
    ],
)
def test_continuation_has_twenty_seconds_with_its_start(
    client: Client, service: Service, frames: int, duration: int | str, advice: str | None
) -> None:
    start = to_base64(video_file(64, 64, frames / 24))
    body = {"mode": "v2v", "prompt": "x", "start_video": start, "duration": duration}
    if advice is None:
        client.order_task(VIDEO, **body)
        return
    loc, kind, message = problem(client, service, **body)
    assert (loc, kind) == (["duration"], "video_too_long")
    assert advice in message


@promise("Decided: video", "0 to 4, default 2")
def test_default_tolerance_of_videos_is_two(client: Client, service: Service) -> None:
    assert service.worker.job(client.order_task(VIDEO, **minimal("t2v")))["safety"].level == 2
    job = service.worker.job(client.order_task(VIDEO, **minimal("t2v"), safety_tolerance=4))
    assert job["safety"].level == 4


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"mode": "t2v"},
        {"mode": "v2v", "prompt": "x", "start_video": "AAAA"},
        {"mode": "draft_enhance", "draft_cache": "x"},
    ],
)
def test_price_and_submission_have_the_same_problems(client: Client, service: Service, body: dict[str, Any]) -> None:
    with service.assert_unchanged():
        priced = problems(client.post("/v1/pricing", json={"path": f"/v1/{VIDEO}", "body": body}))
    assert priced == [(["body", *loc], kind) for loc, kind in problems(client.order(VIDEO, **body))]


# Drafts


def enhance(client: Client, draft: str, **body: object) -> str:
    return client.order_task(VIDEO, mode="draft_enhance", draft_cache=draft, **body)


def get_draft_problem(client: Client, service: Service, draft: str) -> tuple[str, str]:
    """Returns kind and message."""
    loc, kind, message = problem(client, service, mode="draft_enhance", draft_cache=draft)
    assert loc == ["draft_cache"]
    return kind, message


@promise("Decided: polling", "Video drafts add `draft_cache` (URL)")
@promise("Decided: video", "the draft's URL or task id")
def test_draft_is_named_by_its_task_or_link(client: Client, service: Service) -> None:
    task_id = create_draft(client, service, b"the latents")
    result = client.poll(task_id).json()["result"]
    assert set(result) == {"sample", "draft_cache", "prompt", "seed", "start_time", "end_time", "duration"}
    assert client.get(result["sample"]).content == FILE
    assert client.get(result["draft_cache"]).content == b"the latents"
    key = f"results/{task_id}/1/draft.safetensors"
    for reference in (task_id, result["draft_cache"]):
        assert service.worker.job(enhance(client, reference))["draft"] == key


@promise(
    "10. gen-3-video",
    "`draft_enhance` (re-render of a finished draft at full quality with the same composition, seed and prompt plan)",
)
def test_enhanced_video_has_prompt_and_seed_of_the_draft(client: Client, service: Service) -> None:
    body = {"prompt": "a storm", "seed": 5, "duration": 9, "aspect_ratio": "9:16", "generate_audio": False}
    task_id = create_draft(client, service, **body)
    job = service.worker.job(enhance(client, task_id))
    assert (job["prompt"], job["seed"], job["width"], job["height"]) == ("a storm", 5, 1088, 1920)
    video = job["video"]
    assert (video.seconds, video.audio, video.draft, video.times) == (9, False, False, ())
    body = {"mode": "draft_enhance", "draft_cache": task_id}
    assert client.post("/v1/pricing", json={"path": f"/v1/{VIDEO}", "body": body}).json()["cost"] == 9 * 12
    small = service.worker.job(enhance(client, task_id, resolution="hd"))
    assert (small["width"], small["height"]) == (704, 1280)


def test_deleted_draft_keeps_its_latents_for_waiting_tasks(client: Client, service: Service) -> None:
    draft = create_draft(client, service, b"the latents")
    link, task_id = client.poll(draft).json()["result"]["sample"], enhance(client, draft)
    assert client.delete(f"/v1/tasks/{draft}/result").status_code == 204
    assert client.poll(draft).status_code == 404
    assert client.get(f"/v1/tasks/{draft}").status_code == 404
    assert get_draft_problem(client, service, draft)[0] == "draft_unknown"
    worker, latents = service.worker, f"results/{draft}/1/draft.safetensors"
    worker.sweep()
    assert client.get(link).status_code == 404
    assert worker.run(worker.objects.get(latents)) == b"the latents"
    worker.deliver_video(task_id, FILE)
    worker.sweep()
    assert worker.run(worker.objects.keys(f"results/{draft}")) == []


def test_enhanced_video_has_the_inputs_of_the_draft(client: Client, service: Service) -> None:
    keyframes = [[0.5, IMAGE], [4, IMAGE]]
    pinned = create_draft(client, service, mode="i2v", keyframes=keyframes)
    going_on = create_draft(client, service, **minimal("v2v"))
    pinned_job, extended_job = (service.worker.job(enhance(client, task_id)) for task_id in (pinned, going_on))
    assert pinned_job["references"] == service.worker.job(pinned)["references"]
    assert (len(pinned_job["references"]), pinned_job["video"].times) == (2, (0.5, 4))
    assert extended_job["start_video"] == service.worker.job(going_on)["start_video"] is not None


def test_draft_deleted_meanwhile_frees_the_idempotency_key(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reject(*_: object) -> None:
        raise NeededTaskGone

    body = {"mode": "draft_enhance", "draft_cache": create_draft(client, service)}
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    with monkeypatch.context() as patches:
        patches.setattr(TaskStore, "submit", reject)
        [(loc, kind)] = problems(client.post(f"/v1/{VIDEO}", json=body, headers=headers))
        assert (loc, kind) == (["body", "draft_cache"], "draft_unknown")
    assert client.post(f"/v1/{VIDEO}", json=body, headers=headers).status_code == 200


def test_foreign_draft_is_unknown(client: Client, other_client: Client, service: Service) -> None:
    task_id = create_draft(other_client, service)
    link = other_client.poll(task_id).json()["result"]["draft_cache"]
    [(kind, _)] = {get_draft_problem(client, service, reference) for reference in (task_id, link, str(uuid.uuid4()))}
    assert kind == "draft_unknown"


def test_unfinished_draft_is_not_ready(client: Client, service: Service) -> None:
    task_id = client.order_task(VIDEO, **minimal("t2v"), draft=True)
    assert get_draft_problem(client, service, task_id)[0] == "draft_not_ready"


def test_draft_cache_is_a_text_of_limited_length(client: Client, service: Service) -> None:
    for draft_cache in ("", "x" * 4097, None, ["x"]):
        assert problem(client, service, mode="draft_enhance", draft_cache=draft_cache)[0] == ["draft_cache"]


def test_repeat_needs_no_draft_again(start_service: StartService) -> None:
    service = start_service(tasks=TaskSettings(lease_s=3600))
    with service.client() as client:
        body = {"mode": "draft_enhance", "draft_cache": create_draft(client, service)}
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        first = client.post(f"/v1/{VIDEO}", json=body, headers=headers)
        service.worker.run(service.worker.objects.delete_prefix("results"))
        again = client.post(f"/v1/{VIDEO}", json=body, headers=headers)
        assert (again.status_code, again.json()) == (200, first.json())


def test_draft_is_kept_for_a_waiting_task(client: Client, service: Service) -> None:
    used, unused = create_draft(client, service), create_draft(client, service)
    enhance(client, used)
    until = service.worker.expires_at(used)
    assert until > service.worker.expires_at(unused)
    settings = service.settings.tasks
    assert until > time.time() + settings.queue_s + settings.run_s - 60
