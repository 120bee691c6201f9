"""What an accepted submission answers."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from support.http_client import ENDPOINT, HOOK, Client, problems, refusal
from support.http_service import Service
from support.images import image_file, to_base64
from support.promises import promise
from support.website import Gate, Website
from support.worker import Worker

from serve_app.tasks.task import Status


@promise(
    "Decided: money, accounts",
    "megapixels rounded up to whole ones, per endpoint from the price table in the catalog",
)
@pytest.mark.parametrize(
    ("body", "cost", "output_mp"),
    [
        ({}, 0.9, 1.0),
        ({"resolution": "1.5k"}, 0.9 + 2 * 0.18, 2.25),
        ({"resolution": "2k"}, 0.9 + 3 * 0.18, 4.0),
        # Of what is delivered, not of the tier: 1152x912 and 4736x3552.
        ({"aspect_ratio": "5:4"}, 0.9, 1.0),
        ({"aspect_ratio": "4:3", "resolution": "4k"}, 0.9 + 16 * 0.18, 16.04),
        ({"resolution": "4k"}, 0.9 + 15 * 0.18, 16.0),
        ({"width": 64, "height": 64}, 0.9, 0.0),
        ({"width": 1025, "height": 1024}, 0.9, 1.0),
        ({"width": 1040, "height": 1024}, 0.9 + 0.18, 1.02),
        # An exact size wins over tier and ratio, in the price as well.
        ({"width": 512, "height": 512, "resolution": "4k", "aspect_ratio": "1:1"}, 0.9, 0.25),
    ],
)
def test_text_to_image_is_priced_by_output_megapixels(
    client: Client, body: dict[str, Any], cost: float, output_mp: float
) -> None:
    reply = client.submit(**body).json()
    assert (reply["cost"], reply["input_mp"], reply["output_mp"]) == (pytest.approx(cost), 0, output_mp)


@promise(
    "Decided: money, accounts",
    "megapixels rounded up to whole ones, per endpoint from the price table in the catalog",
)
@pytest.mark.parametrize(
    ("sizes", "body", "cost", "input_mp", "output_mp"),
    [
        ([(512, 512)], {}, 0.9 + 0.1, 0.25, 0.25),
        ([(1040, 1024)], {}, 0.9 + 0.18 + 2 * 0.1, 1.02, 1.02),
        ([(512, 512)] * 4, {}, 0.9 + 0.1, 1.0, 0.25),
        ([(512, 512)] * 5, {}, 0.9 + 2 * 0.1, 1.25, 0.25),
        ([(700, 700)], {"aspect_ratio": "16:9"}, 0.9 + 0.1, 0.47, 0.56),
        ([(512, 512)], {"width": 2048, "height": 1024}, 0.9 + 0.18 + 0.1, 0.25, 2.0),
    ],
)
def test_edits_are_priced_by_input_and_output_megapixels(
    client: Client,
    sizes: list[tuple[int, int]],
    body: dict[str, Any],
    cost: float,
    input_mp: float,
    output_mp: float,
) -> None:
    images = [to_base64(image_file(*size)) for size in sizes]
    reply = client.submit(images=images, **body).json()
    assert (reply["cost"], reply["input_mp"], reply["output_mp"]) == (pytest.approx(cost), input_mp, output_mp)


@promise(
    "Decided: submission",
    "`user` (string 1 to 256 or null: the caller's own end-user id, kept with the task, never shown to others)",
)
@pytest.mark.parametrize("length", [1, 256])
def test_the_end_users_id_is_kept_and_shown_to_no_one(client: Client, worker: Worker, length: int) -> None:
    user = "\N{GREEK SMALL LETTER OMEGA}" * length
    response = client.submit(user=user)
    task_id = response.json()["id"]
    worker.end(task_id, Status.ERROR, details={"error": "over"})
    listed = client.get("/v1/tasks")
    assert user not in response.text + client.poll(task_id).text + listed.text


@promise(
    "Decided: webhooks",
    "the resolved address must be public (private, loopback, link-local, metadata ranges refused, also after "
    "redirects and against DNS rebinding: connect to the address that was checked)",
)
def test_a_refused_webhook_is_named(client: Client, service: Service) -> None:
    for url in ("http://127.0.0.1/hook", "http://[::1]/", "http://169.254.169.254/latest", "http://nowhere.test/"):
        with service.assert_unchanged():
            assert problems(client.submit(webhook_url=url)) == [(["body", "webhook_url"], "url_refused")], url


REUSED = [(["header", "Idempotency-Key"], "idempotency_key_reused")]


@pytest.fixture
def key() -> str:
    return str(uuid.uuid4())


def submit(client: Client, key: str, **body: Any) -> httpx2.Response:
    return client.post(ENDPOINT, json={"prompt": "a cat", **body}, headers={"Idempotency-Key": key})


def count(client: Client) -> int:
    return len(client.get("/v1/tasks", params={"limit": 100}).json()["tasks"])


@promise("Decided: submission", "N parallel submits with one key make one task")
@pytest.mark.parametrize("body", [{}, {"images": [to_base64(image_file())] * 2}], ids=["plain", "images"])
def test_many_at_once_make_one_task(client: Client, worker: Worker, key: str, body: dict[str, Any]) -> None:
    before = len(worker.run(worker.objects.keys("inputs")))
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: submit(client, key, **body), range(16)))
    assert {reply.status_code for reply in replies} <= {200, 409}, "409 to those that came before the first was through"
    (task_id,) = {reply.json()["id"] for reply in replies if reply.status_code == 200}
    assert submit(client, key, **body).json()["id"] == task_id
    assert count(client) == 1
    keys = worker.run(worker.objects.keys("inputs"))
    assert set(worker.job(task_id)["references"]) <= set(keys)
    assert len(keys) - before == len(body.get("images", ())), "only the images of the one task are kept"


@promise("Decided: submission", "Same key, other body: 422.")
def test_another_body_is_refused(client: Client, service: Service, key: str) -> None:
    submit(client, key)
    images = [to_base64(image_file())]
    for body in ({"prompt": "a dog"}, {"steps": 4}, {"images": images}, {"webhook_url": HOOK}, {"user": "u"}):
        with service.assert_unchanged():
            assert problems(submit(client, key, **body)) == REUSED, body


@promise("Decided: submission", "Same key and same body within 24 h: the first response again, one task.")
def test_the_order_of_the_fields_does_not_matter(client: Client, key: str) -> None:
    fields = [("prompt", "a cat"), ("steps", 4), ("seed", 7)]
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    answers = [
        client.post(ENDPOINT, content=json.dumps(dict(order), indent=indent), headers=headers).json()
        for order, indent in ((fields, None), (fields[::-1], 4))
    ]
    assert answers[0] == answers[1]
    assert count(client) == 1


@promise("Decided: submission", "Same key and same body within 24 h: the first response again, one task.")
def test_a_repeat_is_answered_though_its_image_is_gone(
    client: Client, service: Service, web: Website, key: str
) -> None:
    images = [web.set_page(f"/{key}", image_file()), to_base64(image_file())]
    first = submit(client, key, images=images)
    del web.pages[f"/{key}"]
    with service.assert_unchanged():
        assert submit(client, key, images=images).json() == first.json()


@promise("Decided: errors", "409: an idempotency key whose first request is still being handled")
def test_a_repeat_of_what_is_in_work_is_told_when_to_come_again(client: Client, web: Website, key: str) -> None:
    gate = Gate()
    url = web.set_page(f"/{key}", image_file(), gate=gate)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(submit, client, key, images=[url])
        try:
            assert gate.reached.wait(20)
            repeat, other = submit(client, key, images=[url]), submit(client, key, prompt="a dog")
        finally:
            gate.opened.set()
        reply = first.result()
    assert "is still being processed" in refusal(repeat, 409)
    assert int(repeat.headers["retry-after"]) >= 1
    assert problems(other) == REUSED
    assert submit(client, key, images=[url]).json() == reply.json()
    assert count(client) == 1


@promise("Decided: errors", "409: an idempotency key whose first request is still being handled")
def test_a_key_is_free_again_once_its_first_request_is_refused(service: Service, web: Website, key: str) -> None:
    with service.client(organization=service.worker.new_organization(credits=1)) as client:
        with service.assert_unchanged():
            response = submit(client, key, images=[web.url("/no-such-image")])
        assert problems(response) == [(["body", "images", "0"], "image_invalid")]
        # More than the least that it may cost, so that only the step which decides refuses it.
        refused = submit(client, key, resolution="4k", images=[to_base64(image_file())])
        assert refusal(refused, 402) == "Insufficient credits"
        assert submit(client, key).status_code == 200
