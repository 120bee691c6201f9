"""Uploads: files that are stored ahead of the request that names them."""

from __future__ import annotations

import httpx2
import pytest
from support.client import Client, problems, refusal
from support.http_service import Service
from support.images import image_file
from support.worker import Worker
from video_making import make_video

from serve_app.inputs.settings import IMAGES

INVALID = [(["body", "images", "0"], "image_invalid")]


def create(client: Client, content_type: str = "image/png") -> dict[str, object]:
    response = client.post("/v1/uploads", json={"content_type": content_type})
    assert response.status_code == 200, response.text
    return response.json()


def send(upload: dict[str, object], data: bytes) -> httpx2.Response:
    return httpx2.put(str(upload["url"]), content=data, headers=upload["headers"], trust_env=False)  # type: ignore[arg-type]


def test_an_upload_is_an_input_of_its_project_as_often_as_it_is_named(
    client: Client, worker: Worker, service: Service
) -> None:
    upload = create(client)
    for reference in (upload["upload"], "upload://", "upload://../../x.png"):
        assert problems(client.submit(images=[reference])) == INVALID, "nothing came yet"
    assert send(upload, image_file(80, 64)).status_code == 204
    for _ in range(2):
        job = worker.job(client.create_task(images=[upload["upload"]]))
        assert (job["width"], job["height"]) == (80, 64)
    with service.client(organization=client.organization) as other:
        assert problems(other.submit(images=[upload["upload"]])) == INVALID
    upload_id = str(upload["upload"]).removeprefix("upload://").partition(".")[0]
    assert upload_id in worker.run(worker.reservations()), "the sweep and erasures know it"


def test_videos_are_uploaded_too(client: Client) -> None:
    upload = create(client, "video/mp4")
    assert send(upload, make_video("testsrc=s=128x96:d=1:r=24")).status_code == 204
    client.order_task("gen-3-video", mode="v2v", prompt="x", start_video=upload["upload"])


@pytest.mark.parametrize("data", [b"", b"no image"])
def test_what_is_no_image_is_refused_as_behind_a_url(client: Client, data: bytes) -> None:
    upload = create(client)
    assert send(upload, data).status_code == 204
    assert problems(client.submit(images=[upload["upload"]])) == INVALID


def test_only_the_signed_address_takes_a_file_and_no_larger_one(client: Client, worker: Worker) -> None:
    upload = create(client)
    forged = upload | {"url": str(upload["url"]).replace("inputs/", "results/")}
    assert refusal(send(forged, bytes(10)), 403)
    assert refusal(send(forged, bytes(100_000)), 403)
    assert client.get(str(upload["url"]).replace("/v1/uploads/", "/v1/results/")).status_code == 403
    assert refusal(send(upload, bytes(IMAGES.max_bytes + 1)), 413)
    assert problems(client.submit(images=[upload["upload"]])) == INVALID


def test_a_closed_project_takes_none(client: Client, worker: Worker, service: Service) -> None:
    project = worker.new_project(client.organization)
    worker.set_project(project, closed=True)
    with service.client(project=project) as closed:
        assert refusal(closed.post("/v1/uploads", json={"content_type": "image/png"}), 403)
