"""Submissions: prices and idempotency keys."""

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


@promise(
    "Decided: money, accounts",
    "megapixels rounded up to whole ones, per endpoint from the price table in the catalog",
)
@pytest.mark.parametrize(
    ("body", "cost", "output_mp"),
    [
        ({}, 0.9, 1.0),
        ({"resolution": "1.5k"}, 0.9 + 2 * 0.18, 2.25),
        # The delivered 4736x3552 pixels count, not the tier.
        ({"aspect_ratio": "4:3", "resolution": "4k"}, 0.9 + 16 * 0.18, 16.04),
        ({"width": 64, "height": 64}, 0.9, 0.0),
        ({"width": 1025, "height": 1024}, 0.9, 1.0),
        ({"width": 1040, "height": 1024}, 0.9 + 0.18, 1.02),
        # An exact size overrides tier and ratio.
        ({"width": 512, "height": 512, "resolution": "4k", "aspect_ratio": "1:1"}, 0.9, 0.25),
    ],
)
def test_text_to_image_is_priced_by_output(client: Client, body: dict[str, Any], cost: float, output_mp: float) -> None:
    reply = client.submit(**body).json()
    assert (reply["cost"], reply["input_mp"], reply["output_mp"]) == (pytest.approx(cost), 0, output_mp)


@promise(
    "Decided: money, accounts",
    "megapixels rounded up to whole ones, per endpoint from the price table in the catalog",
)
@pytest.mark.parametrize(
    ("sizes", "body", "cost", "input_mp", "output_mp"),
    [
        ([(1040, 1024)], {}, 0.9 + 0.18 + 2 * 0.1, 1.02, 1.02),
        ([(512, 512)] * 4, {}, 0.9 + 0.1, 1.0, 0.25),
        ([(512, 512)] * 5, {}, 0.9 + 2 * 0.1, 1.25, 0.25),
        ([(512, 512)], {"width": 2048, "height": 1024}, 0.9 + 0.18 + 0.1, 0.25, 2.0),
    ],
)
def test_edit_is_priced_by_input_and_output(
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
def test_user_and_webhook_are_never_shown(client: Client, worker: Worker) -> None:
    body = {"webhook_url": "https://hooks.test/?token=hunter2", "webhook_secret": "hunter3", "user": "hunter4"}
    task_id = client.create_task(images=[to_base64(image_file())], **body)
    worker.deliver(task_id, image_file(form="JPEG"))
    assert "hunter" not in client.poll(task_id).text + client.get("/v1/tasks").text


def test_assert_unchanged_sees_tasks_and_objects(service: Service, client: Client) -> None:
    """Many tests rely on it."""
    with service.assert_unchanged():
        assert client.get("/v1/tasks").status_code == 200
    with pytest.raises(AssertionError, match="task:"), service.assert_unchanged():
        client.create_task()
    with pytest.raises(AssertionError, match="results/unchanged"), service.assert_unchanged():
        service.worker.run(service.worker.objects.put("results/unchanged", b"x", "image/png"))
    service.worker.run(service.worker.objects.delete(["results/unchanged"]))


# Idempotency keys


REUSED = [(["header", "Idempotency-Key"], "idempotency_key_reused")]


@pytest.fixture
def key() -> str:
    return str(uuid.uuid4())


def submit(client: Client, key: str, **body: Any) -> httpx2.Response:
    return client.post(ENDPOINT, json={"prompt": "a cat", **body}, headers={"Idempotency-Key": key})


def count(client: Client) -> int:
    return len(client.get("/v1/tasks", params={"limit": 100}).json()["tasks"])


@promise("Decided: submission", "N parallel submits with one key make one task")
def test_parallel_repeats_make_one_task_and_keep_its_images(client: Client, worker: Worker, key: str) -> None:
    body = {"images": [to_base64(image_file())] * 2}
    before = len(worker.run(worker.objects.keys("inputs")))
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: submit(client, key, **body), range(16)))
    assert {reply.status_code for reply in replies} <= {200, 409}
    (task_id,) = {reply.json()["id"] for reply in replies if reply.status_code == 200}
    assert submit(client, key, **body).json()["id"] == task_id
    assert count(client) == 1
    keys = worker.run(worker.objects.keys("inputs"))
    assert set(worker.job(task_id)["references"]) <= set(keys)
    assert len(keys) - before == 2


@promise("Decided: submission", "Same key, other body: 422.")
def test_key_with_another_body_is_rejected(client: Client, service: Service, key: str) -> None:
    submit(client, key)
    images = [to_base64(image_file())]
    for body in ({"prompt": "a dog"}, {"steps": 4}, {"images": images}, {"webhook_url": HOOK}, {"user": "u"}):
        with service.assert_unchanged():
            assert problems(submit(client, key, **body)) == REUSED, body


def test_another_webhook_secret_is_another_request(client: Client, key: str) -> None:
    submit(client, key, webhook_url=HOOK, webhook_secret="one")
    assert problems(submit(client, key, webhook_url=HOOK, webhook_secret="two")) == REUSED


@promise("Decided: submission", "Same key and same body within 24 h: the first response again, one task.")
def test_order_of_fields_does_not_matter(client: Client, key: str) -> None:
    fields = [("prompt", "a cat"), ("steps", 4), ("seed", 7)]
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    answers = [
        client.post(ENDPOINT, content=json.dumps(dict(order), indent=indent), headers=headers).json()
        for order, indent in ((fields, None), (fields[::-1], 4))
    ]
    assert answers[0] == answers[1]
    assert count(client) == 1


@promise("Decided: submission", "Same key and same body within 24 h: the first response again, one task.")
def test_repeat_needs_no_image_again(client: Client, service: Service, web: Website, key: str) -> None:
    images = [web.set_page(f"/{key}", image_file()), to_base64(image_file())]
    first = submit(client, key, images=images)
    del web.pages[f"/{key}"]
    with service.assert_unchanged():
        assert submit(client, key, images=images).json() == first.json()


@promise("Decided: errors", "409: an idempotency key whose first request is still being handled")
def test_repeat_of_a_running_request_is_409(client: Client, web: Website, key: str) -> None:
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
def test_rejected_request_frees_its_key(service: Service, web: Website, key: str) -> None:
    with service.client(organization=service.worker.new_organization(credits=1)) as client:
        with service.assert_unchanged():
            response = submit(client, key, images=[web.url("/no-such-image")])
        assert problems(response) == [(["body", "images", "0"], "image_invalid")]
        # It costs more than the minimum, so only the last check rejects it.
        refused = submit(client, key, resolution="4k", images=[to_base64(image_file())])
        assert refusal(refused, 402) == "Insufficient credits"
        assert submit(client, key).status_code == 200
