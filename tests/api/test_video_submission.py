"""Videos as tasks: what a submission answers and leaves behind, what it costs, what its result has."""

from __future__ import annotations

import re
import uuid
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from support.client import HOOK, Client
from support.http_service import Service
from support.input_images import stored_as
from support.pictures import encoded, picture
from support.promises import promise
from support.website import Website
from support.worker import Worker
from video_requests import FILE, MODES, PICTURE, VIDEO, clip, drafted, minimal

KEYS = {"id", "polling_url", "cost", "input_mp", "output_mp"}


def body_of(client: Client, service: Service, mode: str) -> dict[str, Any]:
    body = minimal(mode)
    return body | {"draft_cache": drafted(client, service)} if mode == "draft_enhance" else body


# Answers.


@promise(
    "Decided: submission",
    'Numbers on endpoints whose response lists them; `null` on those marked "`id`, `polling_url` only" and on video.',
)
@pytest.mark.parametrize("mode", MODES)
def test_a_submission_tells_no_price(client: Client, service: Service, mode: str) -> None:
    body = body_of(client, service, mode)
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
    task_id = client.ordered(VIDEO, **body_of(client, service, mode))
    assert client.poll(task_id).json()["status"] == "Pending"
    service.worker.deliver_clip(task_id, FILE)
    polled = client.poll(task_id).json()
    assert (polled["status"], polled["progress"]) == ("Ready", 1.0)
    assert set(polled["result"]) == {"sample", "prompt", "seed", "start_time", "end_time", "duration"}
    assert polled["result"]["prompt"] == "waves"
    listed = client.get("/v1/tasks").json()["tasks"]
    assert {task["endpoint"] for task in listed} == {VIDEO}


@promise("Decided: polling", "signed query, no header needed, CORS open, right `Content-Type`, range requests")
def test_a_file_is_served_as_a_video_with_ranges(client: Client, worker: Worker) -> None:
    task_id = client.ordered(VIDEO, **minimal("t2v"))
    worker.deliver_clip(task_id, FILE)
    link = client.poll(task_id).json()["result"]["sample"]
    whole, part = client.get(link), client.get(link, headers={"Range": "bytes=4-7"})
    assert (whole.status_code, whole.content, whole.headers["content-type"]) == (200, FILE, "video/mp4")
    assert (part.status_code, part.content) == (206, b"ftyp")
    assert part.headers["content-range"] == f"bytes 4-7/{len(FILE)}"


@promise("Decided: polling", "Life: 10 min for images, 1 h for video (configurable); every poll signs anew.")
def test_links_to_videos_live_longer_than_those_to_pictures(client: Client, service: Service) -> None:
    def expires(link: str) -> int:
        return int(parse_qs(urlsplit(link).query)["se"][0])

    video, photo = drafted(client, service), client.accepted()
    service.worker.deliver(photo, picture(form="JPEG"))
    result = client.poll(video).json()["result"]
    short = expires(client.poll(photo).json()["result"]["sample"])
    assert expires(result["sample"]) > short + 1800
    assert expires(result["draft_cache"]) > short + 1800


# Prices.


@promise("Decided: money, accounts", "video per second and resolution")
@pytest.mark.parametrize(
    ("mode", "body", "cost", "output_mp"),
    [
        ("t2v", {}, 40, 0.86),
        ("t2v", {"duration": 20}, 160, 0.86),
        ("t2v", {"resolution": "fhd"}, 80, 1.99),
        ("t2v", {"resolution": "fhd", "aspect_ratio": "1:1"}, 80, 1.99),
        ("t2v", {"draft": True}, 10, 0.21),
        ("t2v", {"draft": True, "resolution": "fhd", "duration": 10}, 20, 0.5),
        ("i2v", {"keyframes": [PICTURE] * 10}, 40, 0.86),
        ("i2v", {"keyframes": [[0, PICTURE], [7.5, PICTURE]]}, 64, 0.86),
        ("v2v", {"duration": 15}, 120, 0.86),
        ("draft_enhance", {}, 60, 1.99),
        ("draft_enhance", {"resolution": "hd"}, 30, 0.86),
    ],
)
def test_the_price_is_by_second_and_resolution(
    client: Client, service: Service, mode: str, body: dict[str, Any], cost: float, output_mp: float
) -> None:
    sent = body_of(client, service, mode) | body
    priced = client.post("/v1/pricing", json={"path": f"/v1/{VIDEO}", "body": sent})
    assert priced.status_code == 200, priced.text
    assert (priced.json()["cost"], priced.json()["output_mp"]) == (cost, output_mp)
    task_id = client.ordered(VIDEO, **sent)
    assert "cost" not in client.poll(task_id).json()
    service.worker.deliver_clip(task_id, FILE)
    assert client.poll(task_id).json()["cost"] == cost


def test_what_is_made_of_a_draft_costs_the_draft_s_seconds(client: Client, service: Service) -> None:
    task_id = drafted(client, service, duration=12)
    body = {"mode": "draft_enhance", "draft_cache": task_id}
    priced = client.post("/v1/pricing", json={"path": f"/v1/{VIDEO}", "body": body})
    assert priced.json()["cost"] == 12 * 12


def test_the_price_is_held_and_used(service: Service, administrator: Client) -> None:
    task_id = administrator.ordered(VIDEO, **minimal("t2v"), duration=10)
    assert administrator.get("/v1/credits").json() == {"credits": 20}
    service.worker.deliver_clip(task_id, FILE)
    (used,) = administrator.get("/v1/usage").json()["usage"]
    assert (used["endpoint"], used["tasks"], used["cost"]) == (VIDEO, 1, 80)


# Jobs.


def test_keyframes_are_stored_for_the_model_in_their_order(client: Client, worker: Worker) -> None:
    sent = [picture(width, 64) for width in (64, 96, 128)]
    keyframes = [[second, encoded(data)] for second, data in zip((0, 1.5, 8), sent, strict=True)]
    job = worker.job(client.ordered(VIDEO, mode="i2v", prompt="x", keyframes=keyframes))
    assert [worker.run(worker.objects.get(key)) for key in job["references"]] == [stored_as(each) for each in sent]
    assert (job["clip"]["times"], job["clip"]["seconds"], job["start_video"]) == ([0, 1.5, 8], 8, None)
    assert (job["width"], job["height"]) == (960, 960), "that of the first"


@promise("Decided: video", "URL or base64 mp4, at most 50 MB")
def test_a_video_is_stored_for_the_model(client: Client, worker: Worker, web: Website) -> None:
    for sent in (encoded(clip()), f"data:video/mp4;base64,{encoded(clip())}", web.put("/start.mp4", clip())):
        job = worker.job(client.ordered(VIDEO, **minimal("v2v") | {"start_video": sent}))
        assert re.fullmatch(r"inputs/[0-9a-f-]{36}/0\.mp4", job["start_video"])
        assert worker.run(worker.objects.get(job["start_video"])) == clip()
        assert (job["references"], job["width"], job["height"]) == ([], 1088, 832)


# Idempotency.


# Webhooks.


# Paths.


# The description.


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
