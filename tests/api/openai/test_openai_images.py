"""`POST /v1/images/generations` and `/v1/images/edits`: images of OpenAI's clients."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from PIL import Image
from support.http_client import Client
from support.http_service import Service, StartService, running
from support.images import encode_image, image_file, to_base64
from support.openai_client import EDITS, GENERATIONS, PATIENCE_S, active, error, waiting
from support.worker import Worker

from serve_app.config.settings import OpenAISettings, ServiceSettings, TaskSettings
from serve_app.tasks.task import Status

IMAGE = image_file(form="PNG")


@pytest.fixture(scope="module")
def limited_service(redis_url: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    limits: dict[str, Any] = {
        "tasks": TaskSettings(max_active=2),
        "openai": OpenAISettings(wait_s=0.05),
        "service": ServiceSettings(max_body_mb=1),
    }
    with running(tmp_path_factory.mktemp("limited"), redis_url, repository, **limits) as service:
        yield service


def generate(client: Client, headers: dict[str, str] | None = None, **body: Any) -> httpx2.Response:
    return client.post(GENERATIONS, json={"prompt": "a red star", **body}, headers=headers)


def edit(client: Client, files: Any = None, **fields: Any) -> httpx2.Response:
    uploads = {"image": ("photo.png", IMAGE, "image/png")} if files is None else files
    return client.post(EDITS, data={"prompt": "make it winter", **fields}, files=uploads)


def to_data_uri(file: bytes) -> str:
    return "data:image/png;base64," + to_base64(file)


DATA = to_data_uri(IMAGE)


def test_image_is_answered_in_base64_or_as_a_link(client: Client, worker: Worker) -> None:
    with waiting(client, lambda: generate(client)) as (answer, (task_id,)):
        worker.deliver(task_id, IMAGE, "png")
    response = answer.result()
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    assert "ratelimit" in response.headers
    body = response.json()
    assert body.pop("created") == pytest.approx(time.time(), abs=PATIENCE_S)
    assert body == {
        "data": [{"id": task_id, "b64_json": to_base64(IMAGE)}],
        "output_format": "png",
    }
    assert client.poll(task_id).json()["cost"] == 0.9
    with waiting(client, lambda: generate(client, response_format="url")) as (answer, (task_id,)):
        worker.deliver(task_id, IMAGE, "png")
    (entry,) = answer.result().json()["data"]
    assert set(entry) == {"id", "url"}
    assert httpx2.get(entry["url"], trust_env=False, timeout=60).content == IMAGE


@pytest.mark.parametrize(
    ("body", "job", "endpoint"),
    [
        (
            {"size": "512x384", "seed": 7, "output_format": "webp", "num_inference_steps": 4},
            {"prompt": "a red star", "width": 512, "height": 384, "seed": 7, "output_format": "webp", "steps": 4},
            "gen-3-image-klein",
        ),
        ({"steps": 3}, {"steps": 3}, "gen-3-image-klein"),
        ({"model": "2-max", "background": "transparent"}, {"transparent": True}, "gen-2-max"),
        ({"model": "gen-pro-1.1"}, {}, "gen-pro"),
    ],
)
def test_fields_reach_the_task(
    client: Client, worker: Worker, body: dict[str, Any], job: dict[str, Any], endpoint: str
) -> None:
    body = {**body, "webhook_url": "https://hooks.test/done"}
    with waiting(client, lambda: generate(client, **body)) as (_, (task_id,)):
        (task,) = client.get("/v1/tasks").json()["tasks"]
        actual = worker.job(task_id)
        destination = client.get(f"/v1/tasks/{task_id}/deliveries").json()["destination"]
        client.delete(f"/v1/tasks/{task_id}")
    assert actual.items() >= job.items()
    assert (task["endpoint"], destination) == (endpoint, "https://hooks.test:443")


def test_unfit_default_model_prevents_the_start(start_service: StartService) -> None:
    for name in ("gen-9", "gen-3-video"):
        with pytest.raises(ValueError, match=r"openai\.image_model"):
            start_service(openai=OpenAISettings(image_model=name))


def test_several_images_have_consecutive_seeds(client: Client, worker: Worker) -> None:
    with waiting(client, lambda: generate(client, n=3, seed=7), count=3) as (answer, ids):
        seeds = {task_id: worker.job(task_id)["seed"] for task_id in ids}
        for number, task_id in enumerate(ids):
            worker.deliver(task_id, image_file(10 + number), "png")
    entries = answer.result().json()["data"]
    assert [seeds[each["id"]] for each in entries] == [7, 8, 9]


def test_request_for_several_images_is_accepted_as_a_whole(limited_service: Service) -> None:
    organization = limited_service.worker.new_organization(credits=100)
    with limited_service.client(organization=organization) as client:
        body = error(generate(client, n=3), 429)
        assert "2 at a time" in body["message"]
        assert active(client) == []
        assert client.get("/v1/credits").json() == {"credits": 100}


def test_ready_images_are_answered_beside_failed_ones(client: Client, worker: Worker) -> None:
    with waiting(client, lambda: generate(client, n=2), count=2) as (answer, (first, second)):
        worker.end(first, Status.CONTENT_MODERATED, details={"Moderation Reasons": ["violence"]})
        worker.deliver(second, IMAGE, "png")
    assert [each["id"] for each in answer.result().json()["data"]] == [second]


def test_moderated_or_failed_image_is_an_error(client: Client, worker: Worker) -> None:
    with waiting(client, lambda: generate(client)) as (answer, (task_id,)):
        worker.end(task_id, Status.CONTENT_MODERATED, details={"Moderation Reasons": ["violence"]})
    body = error(answer.result(), 400)
    assert (body["code"], "violence" in body["message"]) == ("moderation_blocked", True)
    with waiting(client, lambda: generate(client)) as (answer, (task_id,)):
        worker.end(task_id, Status.ERROR, details={"error": "out of paint"})
    response = answer.result()
    body = error(response, 500)
    assert body["type"] == "server_error"
    assert all(part in body["message"] for part in ("out of paint", task_id))
    assert response.headers["x-should-retry"] == "false"


def test_timed_out_tasks_continue_and_are_named(limited_service: Service) -> None:
    with limited_service.client() as client:
        response = generate(client, n=2)
        body = error(response, 504)
        assert response.headers["x-should-retry"] == "false"
        ids = active(client)
        assert len(ids) == 2
        assert all(task_id in body["message"] for task_id in ids)


def hang_up(service: Service, client: Client, *headers: str) -> str:
    """Returns the task of a client that disconnects while it waits."""
    body = b'{"prompt": "a red star"}'
    lines = [f"POST {GENERATIONS} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {client.secret}", *headers]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
    with socket.create_connection(service.address) as wire:
        wire.sendall("\r\n".join(lines).encode() + body)
        give_up = time.monotonic() + PATIENCE_S
        while not (ids := active(client)):
            assert time.monotonic() < give_up, "no task was accepted"
    return ids[0]


def test_disconnect_cancels_the_task(client: Client, service: Service) -> None:
    task_id = hang_up(service, client)
    ended = client.poll(task_id, wait=PATIENCE_S).json()
    assert (ended["status"], ended["details"]) == ("Error", {"error": "Cancelled by the client"})


def test_idempotency_key_keeps_the_task_after_a_disconnect(client: Client, service: Service) -> None:
    task_id = hang_up(service, client, "Idempotency-Key: again")
    with waiting(client, lambda: generate(client, {"Idempotency-Key": "again"})) as (answer, ids):
        assert ids == [task_id]
        service.worker.deliver(task_id, IMAGE, "png")
    assert [each["id"] for each in answer.result().json()["data"]] == [task_id]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({"prompt": None}, "prompt", "invalid_value"),
        ({"n": 11}, "n", "invalid_value"),
        ({"size": "huge"}, "size", "invalid_value"),
        ({"size": "16x16"}, "size", "invalid_value"),
        ({"size": "1024x1024", "model": "gen-kontext-pro"}, "size", "invalid_value"),
        ({"size": "512x512", "width": 512}, "width", "invalid_value"),
        ({"seed": 2**32 - 1, "n": 2}, "seed", "invalid_value"),
        ({"quality": "high"}, "quality", "invalid_value"),
        ({"style": "vivid"}, "style", "unknown_parameter"),
        ({"background": "transparent", "output_format": "jpeg", "model": "2-max"}, "background", "invalid_value"),
        ({"moderation": "low"}, "moderation", "invalid_value"),
        ({"stream": True}, "stream", "invalid_value"),
        ({"num_inference_steps": 99}, "num_inference_steps", "invalid_value"),
        ({"model": "gen-pro-1.0-fill"}, "model", "invalid_value"),
    ],
)
def test_invalid_field_is_named(client: Client, service: Service, body: dict[str, Any], param: str, code: str) -> None:
    with service.assert_unchanged():
        details = error(generate(client, **body), 400)
    assert (details["param"], details["code"], details["type"]) == (param, code, "invalid_request_error")
    assert param in details["message"] or param == "model"


def test_all_errors_have_the_form_of_openai(client: Client, service: Service) -> None:
    for model in ("gpt-image-1", "-"):
        body = error(generate(client, model=model), 404)
        assert (body["param"], body["code"]) == ("model", "model_not_found")
    for content, kind in ((b"{", "application/json"), (b"[1]", "application/json"), (b"a=b", "text/plain")):
        error(client.post(GENERATIONS, content=content, headers={"Content-Type": kind}), 400)
    error(client.get(GENERATIONS), 405)
    error(client.post("/v1/images/variations"), 404)
    with Client(service.base_url, "", "") as nobody:
        for headers in ({}, {"Authorization": "Bearer EMPTY"}):
            body = error(nobody.post(GENERATIONS, json={"prompt": "x"}, headers=headers), 401)
            assert body["code"] == "invalid_api_key"


@pytest.mark.parametrize(("field", "model"), [("image", "gen-3-image-klein"), ("image[]", "gen-kontext-pro")])
def test_edit_reads_several_images_in_order(client: Client, worker: Worker, field: str, model: str) -> None:
    files = [(field, (f"{width}.png", image_file(width), "image/png")) for width in (100, 200, 300)]
    with waiting(client, lambda: edit(client, files, model=model, seed="7", n="1")) as (answer, (task_id,)):
        job = worker.job(task_id)
        stored = [worker.run(worker.objects.get(key)) for key in job["references"]]
        worker.deliver(task_id, IMAGE, "png")
    assert answer.result().json()["data"][0]["id"] == task_id
    assert (job["prompt"], job["seed"]) == ("make it winter", 7)
    assert [Image.open(io.BytesIO(data)).width for data in stored] == [100, 200, 300]


def make_mask(box: tuple[int, int, int, int] | None) -> bytes:
    """Returns a mask in OpenAI's form: transparent in the box, opaque and black around it."""
    mask = Image.new("RGBA", (96, 64), (0, 0, 0, 255))
    if box is not None:
        mask.paste((0, 0, 0, 0), box)
    return encode_image(mask)


@pytest.mark.parametrize("in_json", [False, True])
def test_transparent_part_of_a_mask_is_edited(client: Client, worker: Worker, in_json: bool) -> None:
    mask = make_mask((10, 10, 30, 20))
    body = {"prompt": "a bench", "images": [{"image_url": DATA}], "mask": {"image_url": to_data_uri(mask)}}
    files = {"image": ("photo.png", IMAGE), "mask": ("mask.png", mask)}
    call = partial(client.post, EDITS, json=body) if in_json else partial(edit, client, files)
    with waiting(client, call) as (_, (task_id,)):
        (task,) = client.get("/v1/tasks").json()["tasks"]
        client.delete(f"/v1/tasks/{task_id}")
    assert task["endpoint"] == "gen-pro-1.0-fill", "the first that takes a mask"
    stored = worker.run(worker.objects.get(worker.job(task_id)["mask"]))
    assert Image.open(io.BytesIO(stored)).convert("L").getbbox() == (10, 10, 30, 20)


@pytest.mark.parametrize(
    ("files", "fields", "param"),
    [
        ({}, {}, "Content-Type"),
        ({"mask": ("m.png", make_mask((1, 1, 9, 9)))}, {}, "image"),
        ({"image": ("i.png", IMAGE), "mask": ("m.png", make_mask(None))}, {}, "mask"),
        ({"image": ("i.png", IMAGE), "mask": ("m.png", image_file(10, mode="RGBA"))}, {}, "mask"),
        ({"image": ("i.png", IMAGE), "mask": ("m.png", make_mask((1, 1, 9, 9)))}, {"model": "gen-2-max"}, "model"),
        ({"image": ("i.png", b"no image")}, {}, "image"),
        ({"image": ("i.png", b"\0" * (20 * 2**20 + 1))}, {}, "image"),
        ({"image": ("i.png", IMAGE), "markup": ("m.png", IMAGE)}, {}, "markup"),
        ([("image[]", ("i.png", IMAGE))] * 5, {"model": "gen-kontext-pro"}, "image"),
        ({"image": ("i.png", IMAGE)}, {"n": "two"}, "n"),
        ({"image": ("i.png", IMAGE)}, {"prompt": ["a", "b"]}, "prompt"),
        ({"image": ("i.png", IMAGE)}, {"prompt": "a\0b"}, "prompt"),
        ({"image": ("i.png", IMAGE), "user": ("u.txt", b"me")}, {}, "user"),
    ],
)
def test_invalid_part_of_an_edit_is_named(
    client: Client, service: Service, files: Any, fields: dict[str, Any], param: str
) -> None:
    with service.assert_unchanged():
        assert error(edit(client, files, **fields), 400)["param"] == param


@pytest.mark.parametrize(
    ("images", "count"),
    [
        ({"images": [{"image_url": DATA}, {"image_url": DATA, "file_id": ""}]}, 2),
        ({"images": [DATA]}, 1),
        ({"images": {"image_url": DATA}}, 1),
        ({"image": DATA.partition(",")[2], "images": []}, 1),
        ({"image": [DATA, {"image_url": DATA}], "mask": "", "size": "", "n": 0, "quality": None}, 2),
    ],
)
def test_edit_takes_json(client: Client, worker: Worker, images: dict[str, Any], count: int) -> None:
    body = {"prompt": "make it winter", **images}
    with waiting(client, lambda: client.post(EDITS, json=body)) as (answer, (task_id,)):
        assert len(worker.job(task_id)["references"]) == count
        worker.deliver(task_id, IMAGE, "png")
    assert answer.result().status_code == 200, answer.result().text


@pytest.mark.parametrize(
    ("images", "param", "says"),
    [
        ({}, "image", "required"),
        ({"images": [{"file_id": "file-1"}]}, "images.0", "file_id is not supported"),
        ({"images": [DATA, {"image_url": 1}]}, "images.1", "Input should be"),
        ({"images": [DATA], "image": DATA}, "images", "Sent twice"),
        ({"images": ["AAAA"]}, "images.0", "not an image"),
        ({"image": DATA, "mask": {"file_id": "file-1"}}, "mask", "file_id is not supported"),
    ],
)
def test_invalid_json_of_an_edit_is_named(
    client: Client, service: Service, images: dict[str, Any], param: str, says: str
) -> None:
    with service.assert_unchanged():
        body = error(client.post(EDITS, json={"prompt": "make it winter", **images}), 400)
    assert (body["param"], says in body["message"]) == (param, True), body


def test_unset_fields_are_ignored(client: Client, worker: Worker) -> None:
    names = ("model", "size", "user", "quality", "background", "response_format", "output_format", "seed", "steps")
    unset = dict.fromkeys(names, "")
    with waiting(client, lambda: generate(client, **unset, n=0)) as (answer, (task_id,)):
        worker.deliver(task_id, IMAGE, "png")
    assert answer.result().status_code == 200, answer.result().text


def test_form_has_at_most_so_many_parts_and_characters(client: Client, service: Service) -> None:
    with service.assert_unchanged():
        error(edit(client, [("image[]", ("i.png", IMAGE))] * 18), 400)
        error(edit(client, prompt="x" * (256 * 1024 + 1)), 400)
        error(edit(client, **{f"field-{number}": "x" for number in range(65)}), 400)


def test_too_large_form_is_413(limited_service: Service) -> None:
    with limited_service.client() as client:
        body = error(edit(client, {"image": ("i.png", b"x" * 2**20)}), 413)
    assert body["code"] == "request_too_large"
