"""Uploads: files that are stored before the request that names them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx2
from redis import Redis
from support.http_client import Client, problems, refusal
from support.http_service import Service, StartService
from support.images import image_file
from support.video_encoding import make_video
from support.worker import Worker

from serve_app.config.settings import TaskSettings
from serve_app.inputs.settings import IMAGES

INVALID = [(["body", "images", "0"], "image_invalid")]


def create(client: Client, content_type: str = "image/png") -> dict[str, object]:
    response = client.post("/v1/uploads", json={"content_type": content_type})
    assert response.status_code == 200, response.text
    return response.json()


def send(upload: dict[str, object], data: bytes) -> httpx2.Response:
    return httpx2.put(str(upload["url"]), content=data, headers=upload["headers"], trust_env=False)  # type: ignore[arg-type]


def test_upload_is_an_input_of_its_project_only(client: Client, worker: Worker, service: Service) -> None:
    upload = create(client)
    for reference in (upload["upload"], "upload://", "upload://../../x.png"):
        assert problems(client.submit(images=[reference])) == INVALID, "no file came yet"
    assert send(upload, image_file(80, 64)).status_code == 204
    for _ in range(2):
        job = worker.job(client.create_task(images=[upload["upload"]]))
        assert (job["width"], job["height"]) == (80, 64)
    with service.client(organization=client.organization) as other:
        assert problems(other.submit(images=[upload["upload"]])) == INVALID
    upload_id = str(upload["upload"]).removeprefix("upload://").partition(".")[0]
    assert upload_id in worker.run(worker.reservations()), "the sweep deletes it"


def test_video_can_be_uploaded(client: Client) -> None:
    upload = create(client, "video/mp4")
    assert send(upload, make_video("testsrc=s=128x96:d=1:r=24")).status_code == 204
    client.order_task("gen-3-video", mode="v2v", prompt="x", start_video=upload["upload"])


def test_upload_that_is_no_image_is_rejected_at_submission(client: Client) -> None:
    upload = create(client)
    assert send(upload, b"no image").status_code == 204
    assert problems(client.submit(images=[upload["upload"]])) == INVALID


def test_only_the_signed_address_takes_a_file(client: Client) -> None:
    upload = create(client)
    forged = upload | {"url": str(upload["url"]).replace("inputs/", "results/")}
    assert refusal(send(forged, bytes(10)), 403)
    assert refusal(send(forged, bytes(100_000)), 403)
    assert client.get(str(upload["url"]).replace("/v1/uploads/", "/v1/results/")).status_code == 403
    assert problems(client.submit(images=[upload["upload"]])) == INVALID


def test_address_takes_one_whole_file(client: Client) -> None:
    upload = create(client)
    assert refusal(send(upload, bytes(IMAGES.max_bytes + 1)), 413)
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda _: send(upload, image_file(80, 64)).status_code, range(3)))
    assert sorted(answers) == [204, 409, 409]


def test_declared_size_bounds_the_file(client: Client) -> None:
    response = client.post("/v1/uploads", json={"content_type": "image/png", "size": 10})
    upload = response.json()
    assert upload["max_bytes"] == 10
    assert refusal(send(upload, bytes(11)), 413)
    larger = upload | {"url": str(upload["url"]).replace("/10?", "/1000?")}
    assert refusal(send(larger, bytes(11)), 403)
    for size in (0, IMAGES.max_bytes + 1):
        problem = client.post("/v1/uploads", json={"content_type": "image/png", "size": size})
        assert problems(problem)[0][0] == ["body", "size"]


def test_uploads_of_a_project_are_limited_by_number_and_bytes(start_service: StartService) -> None:
    service = start_service(tasks=TaskSettings(max_uploads=3, max_uploads_mb=64))
    with service.client() as client, service.client() as other:
        uploads = [create(client) for _ in range(3)]
        refused = client.post("/v1/uploads", json={"content_type": "image/png"})
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_uploads")
        assert int(refused.headers["retry-after"]) > 0
        create(other, "video/mp4")
        assert other.post("/v1/uploads", json={"content_type": "image/png"}).status_code == 429, "of 50 and 20 MiB"
        assert other.post("/v1/uploads", json={"content_type": "image/png", "size": 1000}).status_code == 200
        # A file counts with its own size; a deleted one makes room.
        assert send(uploads[0], image_file(80, 64)).status_code == 204
        upload_id = str(uploads[0]["upload"])[len("upload://") :].partition(".")[0]
        prefix = service.settings.redis.prefix
        with Redis.from_url(service.settings.redis_url) as redis:
            assert redis.hget(f"{prefix}uploads:{client.project}", upload_id) == str(len(image_file(80, 64))).encode()
            redis.zrem(f"{prefix}reserved:{client.project}", upload_id)
        create(client)


def test_organization_without_credits_cannot_upload(service: Service, worker: Worker) -> None:
    with service.client(organization=worker.new_organization(credits=0)) as client:
        response = client.post("/v1/uploads", json={"content_type": "image/png"})
        assert refusal(response, 402) == "Insufficient credits"


def test_uploads_have_the_rate_limit_of_requests(start_service: StartService) -> None:
    with start_service(tasks=TaskSettings(requests_per_s=0.01, burst=1)).client() as client:
        create(client)
        assert "Too many requests" in refusal(client.post("/v1/uploads", json={"content_type": "image/png"}), 429)


def test_closed_project_cannot_upload(client: Client, worker: Worker, service: Service) -> None:
    project = worker.new_project(client.organization)
    worker.set_project(project, closed=True)
    with service.client(project=project) as closed:
        assert refusal(closed.post("/v1/uploads", json={"content_type": "image/png"}), 403)
