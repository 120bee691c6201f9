"""Videos as tasks: what a submission answers and leaves behind, what it costs, what its result has."""

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
from video_requests import FILE, IMAGE, MODES, VIDEO, create_draft, minimal, problem, video_file

from serve_app.config.settings import TaskSettings
from serve_app.tasks.rejections import NeededTaskGone
from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status

KEYS = {"id", "polling_url", "cost", "input_mp", "output_mp"}


def make_body(client: Client, service: Service, mode: str) -> dict[str, Any]:
    body = minimal(mode)
    return body | {"draft_cache": create_draft(client, service)} if mode == "draft_enhance" else body


@promise(
    "Decided: submission",
    'Numbers on endpoints whose response lists them; `null` on those marked "`id`, `polling_url` only" and on video.',
)
@pytest.mark.parametrize("mode", MODES)
def test_a_submission_tells_no_price(client: Client, service: Service, mode: str) -> None:
    body = make_body(client, service, mode)
    plain = client.order(VIDEO, **body).json()
    assert set(plain) == KEYS
    assert str(uuid.UUID(plain["id"], version=4)) == plain["id"]
    assert [plain[name] for name in ("cost", "input_mp", "output_mp")] == [None] * 3
    hooked = client.order(VIDEO, **body, webhook_url=HOOK, webhook_secret="x", user="u" * 256).json()
    assert set(hooked) == KEYS | {"status", "webhook_url"}
    assert (hooked["status"], hooked["webhook_url"]) == ("Pending", HOOK)


@promise("10. gen-3-video", "The final polling response carries `cost`, the settled cost in credits.")
@pytest.mark.parametrize("mode", MODES)
def test_the_way_of_a_video(client: Client, service: Service, mode: str) -> None:
    task_id = client.order_task(VIDEO, **make_body(client, service, mode))
    assert client.poll(task_id).json()["status"] == "Pending"
    service.worker.deliver_video(task_id, FILE)
    polled = client.poll(task_id).json()
    assert (polled["status"], polled["progress"]) == ("Ready", 1.0)
    assert set(polled["result"]) == {"sample", "prompt", "seed", "start_time", "end_time", "duration"}
    assert polled["result"]["prompt"] == "waves"
    listed = client.get("/v1/tasks").json()["tasks"]
    assert {task["endpoint"] for task in listed} == {VIDEO}


@promise("Decided: polling", "signed query, no header needed, CORS open, right `Content-Type`, range requests")
def test_a_file_is_served_as_a_video_with_ranges(client: Client, worker: Worker) -> None:
    task_id = client.order_task(VIDEO, **minimal("t2v"))
    worker.deliver_video(task_id, FILE)
    link = client.poll(task_id).json()["result"]["sample"]
    whole, part = client.get(link), client.get(link, headers={"Range": "bytes=4-7"})
    assert (whole.status_code, whole.content, whole.headers["content-type"]) == (200, FILE, "video/mp4")
    assert (part.status_code, part.content) == (206, b"ftyp")
    assert part.headers["content-range"] == f"bytes 4-7/{len(FILE)}"


@promise("Decided: polling", "Life: 10 min for images, 1 h for video (configurable); every poll signs anew.")
def test_links_to_videos_live_longer_than_those_to_images(client: Client, service: Service) -> None:
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
def test_the_price_is_by_second_and_resolution(
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


def test_the_price_is_held_and_used(service: Service, administrator: Client) -> None:
    task_id = administrator.order_task(VIDEO, **minimal("t2v"), duration=10)
    assert administrator.get("/v1/credits").json() == {"credits": 20}
    service.worker.deliver_video(task_id, FILE)
    (used,) = administrator.get("/v1/usage").json()["usage"]
    assert (used["endpoint"], used["tasks"], used["cost"]) == (VIDEO, 1, 80)


def test_keyframes_are_stored_for_the_model_in_their_order(client: Client, worker: Worker) -> None:
    files = [image_file(width, 64) for width in (64, 96, 128)]
    keyframes = [[second, to_base64(data)] for second, data in zip((0, 1.5, 8), files, strict=True)]
    job = worker.job(client.order_task(VIDEO, mode="i2v", prompt="x", keyframes=keyframes))
    assert [worker.run(worker.objects.get(key)) for key in job["references"]] == [stored_as(each) for each in files]
    assert (job["video"].times, job["video"].seconds, job["start_video"]) == ((0, 1.5, 8), 8, None)
    assert (job["width"], job["height"]) == (960, 960), "that of the first"


@promise("Decided: video", "URL or base64 mp4, at most 50 MB")
def test_a_video_is_stored_for_the_model(client: Client, worker: Worker, web: Website) -> None:
    for start_video in (
        to_base64(video_file()),
        f"data:video/mp4;base64,{to_base64(video_file())}",
        web.set_page("/start.mp4", video_file()),
    ):
        job = worker.job(client.order_task(VIDEO, **minimal("v2v") | {"start_video": start_video}))
        assert re.fullmatch(r"inputs/[0-9a-f-]{36}/0\.mp4", job["start_video"])
        assert worker.run(worker.objects.get(job["start_video"])) == video_file()
        assert (job["references"], job["width"], job["height"]) == ((), 1088, 832)


@promise("Decided: video", "A union discriminated by `mode`, strict.")
def test_the_endpoint_is_described_as_a_union(client: Client) -> None:
    described = client.get("/openapi.json").json()
    operation = described["paths"][f"/v1/{VIDEO}"]["post"]
    assert set(operation["responses"]) == {"200", "401", "402", "403", "409", "413", "422", "429", "503"}
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema["discriminator"]["propertyName"] == "mode"
    assert set(schema["discriminator"]["mapping"]) == set(MODES)
    for mode, reference in schema["discriminator"]["mapping"].items():
        form = described["components"]["schemas"][reference.removeprefix("#/components/schemas/")]
        required = {*minimal(mode)} | ({"draft_cache"} if mode == "draft_enhance" else set())
        assert set(form["required"]) == required
        assert form["properties"]["mode"]["const"] == mode
        assert form["additionalProperties"] is False


@promise("Decided: video", "A union discriminated by `mode`, strict.")
@pytest.mark.parametrize(
    ("body", "kind"),
    [({"prompt": "x"}, "missing"), ({"mode": None}, "missing"), ({"mode": "video"}, "literal_error")],
)
def test_a_mode_is_needed(client: Client, service: Service, body: dict[str, Any], kind: str) -> None:
    loc, actual_kind, message = problem(client, service, **body)
    assert (loc, actual_kind) == (["mode"], kind)
    assert all(mode in message for mode in MODES)


@pytest.mark.parametrize(
    ("keyframes", "loc"),
    [
        ("AAAA", ["keyframes"]),
        ([IMAGE, "AAAA"], ["keyframes", "1"]),
        ([[0, IMAGE], [1, "AAAA"]], ["keyframes", "1", "1"]),
        ([to_base64(image_file(5, 5000, mode="L"))], ["keyframes", "0"]),
    ],
)
def test_a_keyframe_that_is_no_image(client: Client, service: Service, keyframes: Any, loc: list[str]) -> None:
    actual_loc, kind, _ = problem(client, service, mode="i2v", prompt="x", keyframes=keyframes)
    assert (actual_loc, kind) == (loc, "image_invalid")


@pytest.mark.parametrize(
    "video", ["AAAA", "not base64!", IMAGE, to_base64(video_file()[:-200]), "http://127.0.0.1/a.mp4"]
)
def test_a_start_that_is_no_video(client: Client, service: Service, video: str) -> None:
    loc, kind, _ = problem(client, service, mode="v2v", prompt="x", start_video=video)
    assert (loc, kind) == (["start_video"], "video_invalid")


@promise("Decided: video", "A start video plus `duration` over 20 s is a 422 on `duration`")
@pytest.mark.parametrize(
    ("frames", "duration", "advice"),
    [
        (360, 5, None),
        (360, "auto", None),
        (240, 10, None),
        (241, 10, "at most 9 s may follow"),
        (120, 15, None),
        (144, 15, "at most 14 s may follow"),
        (361, "auto", "at most it may have 15 s"),
        (480, 5, "at most it may have 15 s"),
    ],
)
def test_a_continuation_has_twenty_seconds_with_its_start(
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
def test_the_default_tolerance_is_two(client: Client, service: Service) -> None:
    assert service.worker.job(client.order_task(VIDEO, **minimal("t2v")))["safety"].level == 2
    job = service.worker.job(client.order_task(VIDEO, **minimal("t2v"), safety_tolerance=4))
    assert job["safety"].level == 4


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"mode": "t2v"},
        {"mode": "i2v", "prompt": "x", "keyframes": ["AAAA"]},
        {"mode": "v2v", "prompt": "x", "start_video": "AAAA"},
        {"mode": "draft_enhance", "draft_cache": "x"},
    ],
)
def test_a_price_is_refused_where_a_submission_is(client: Client, service: Service, body: dict[str, Any]) -> None:
    with service.assert_unchanged():
        priced = problems(client.post("/v1/pricing", json={"path": f"/v1/{VIDEO}", "body": body}))
    assert priced == [(["body", *loc], kind) for loc, kind in problems(client.order(VIDEO, **body))]


@promise("10. gen-3-video", "Video continuation (`v2v`) is limited to 15 seconds; the other modes to 20 seconds.")
def test_the_description_tells_which_videos_are_taken(client: Client) -> None:
    fields = client.get("/openapi.json").json()["components"]["schemas"]["VideoToVideoRequest"]["properties"]
    described = fields["start_video"]["description"]
    for limit in ("mp4", "H.264", "50 MB", "1/24 to 20 seconds", "64 to 4096 pixels"):
        assert limit in described
    assert fields["duration"]["anyOf"][0]["anyOf"][0]["maximum"] == 15


def enhance(client: Client, draft: str, **body: object) -> str:
    return client.order_task(VIDEO, mode="draft_enhance", draft_cache=draft, **body)


def get_draft_problem(client: Client, service: Service, draft: str) -> tuple[str, str]:
    """Kind and message."""
    loc, kind, message = problem(client, service, mode="draft_enhance", draft_cache=draft)
    assert loc == ["draft_cache"]
    return kind, message


@promise("Decided: polling", "Video drafts add `draft_cache` (URL)")
@promise("Decided: video", "the draft's URL or task id")
def test_a_draft_is_named_by_its_task_or_its_link(client: Client, service: Service) -> None:
    task_id = create_draft(client, service, b"the latents")
    result = client.poll(task_id).json()["result"]
    assert set(result) == {"sample", "draft_cache", "prompt", "seed", "start_time", "end_time", "duration"}
    assert client.get(result["sample"]).content == FILE
    assert client.get(result["draft_cache"]).content == b"the latents"
    key = f"results/{task_id}/1/draft.safetensors"
    presigned = f"https://bucket.s3.eu-central-1.amazonaws.com/gen/{key}?X-Amz-Signature={'f' * 64}"
    for reference in (task_id, result["draft_cache"], result["draft_cache"].partition("?")[0], presigned):
        assert service.worker.job(enhance(client, reference))["draft"] == key


@promise(
    "10. gen-3-video",
    "`draft_enhance` (re-render of a finished draft at full quality with the same composition, seed and prompt plan)",
)
def test_what_is_made_of_it_takes_it_over(client: Client, service: Service) -> None:
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


def test_a_draft_is_deleted_while_a_video_needs_it(client: Client, service: Service) -> None:
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


def test_what_it_was_made_of_is_used_again(client: Client, service: Service) -> None:
    keyframes = [[0.5, IMAGE], [4, IMAGE]]
    pinned = create_draft(client, service, mode="i2v", keyframes=keyframes)
    going_on = create_draft(client, service, **minimal("v2v"))
    pinned_job, extended_job = (service.worker.job(enhance(client, task_id)) for task_id in (pinned, going_on))
    assert pinned_job["references"] == service.worker.job(pinned)["references"]
    assert (len(pinned_job["references"]), pinned_job["video"].times) == (2, (0.5, 4))
    assert extended_job["start_video"] == service.worker.job(going_on)["start_video"] is not None


def test_draft_that_goes_meanwhile_frees_the_idempotency_key(
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


def test_a_foreign_draft_is_told_as_an_unknown_one(client: Client, other_client: Client, service: Service) -> None:
    task_id = create_draft(other_client, service)
    link = other_client.poll(task_id).json()["result"]["draft_cache"]
    elsewhere = "https://example.com/results/x/1/draft.safetensors"
    (draft_problem,) = {
        get_draft_problem(client, service, reference)
        for reference in (task_id, link, "x", str(uuid.uuid4()), elsewhere)
    }
    assert draft_problem[0] == "draft_unknown"


def test_drafts_that_can_not_be_used(client: Client, service: Service) -> None:
    video, photo = client.order_task(VIDEO, **minimal("t2v")), client.create_task()
    service.worker.deliver_video(video, FILE)
    enhanced = enhance(client, create_draft(client, service))
    assert {get_draft_problem(client, service, reference)[0] for reference in (video, photo, enhanced)} == {
        "not_a_draft"
    }
    task_id = client.order_task(VIDEO, **minimal("t2v"), draft=True)
    assert get_draft_problem(client, service, task_id)[0] == "draft_not_ready"
    service.worker.advance(task_id, Status.GENERATING, progress=0.5)
    assert get_draft_problem(client, service, task_id)[0] == "draft_not_ready"
    service.worker.end(task_id, Status.ERROR, details={"error": "no"})
    assert get_draft_problem(client, service, task_id)[0] == "draft_failed"
    expired = create_draft(client, service)
    service.worker.run(service.worker.objects.delete([f"results/{expired}/1/draft.safetensors"]))
    assert get_draft_problem(client, service, expired)[0] == "draft_expired"


@pytest.mark.parametrize("draft_cache", ["", "x" * 4097, None, 3, ["x"]])
def test_what_can_name_no_draft(client: Client, service: Service, draft_cache: object) -> None:
    loc, _, _ = problem(client, service, mode="draft_enhance", draft_cache=draft_cache)
    assert loc == ["draft_cache"]


def test_a_repeat_is_answered_also_when_the_draft_is_gone(start_service: StartService) -> None:
    service = start_service(tasks=TaskSettings(lease_s=3600))
    with service.client() as client:
        body = {"mode": "draft_enhance", "draft_cache": create_draft(client, service)}
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        first = client.post(f"/v1/{VIDEO}", json=body, headers=headers)
        service.worker.run(service.worker.objects.delete_prefix("results"))
        again = client.post(f"/v1/{VIDEO}", json=body, headers=headers)
        assert (again.status_code, again.json()) == (200, first.json())


def test_a_draft_stays_while_a_task_waits_that_is_made_of_it(client: Client, service: Service) -> None:
    used, unused = create_draft(client, service), create_draft(client, service)
    enhance(client, used)
    until = service.worker.expires_at(used)
    assert until > service.worker.expires_at(unused)
    settings = service.settings.tasks
    assert until > time.time() + settings.queue_s + settings.run_s - 60
