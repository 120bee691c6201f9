"""Reference images: files, URLs, limits, and fetching."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.http_client import ENDPOINT, Client, problems, refusal
from support.http_service import Service, StartService, replace_services
from support.images import image_file, to_base64
from support.input_images import stored_as
from support.promises import promise
from support.website import Website
from support.worker import Worker

from serve_app.config.settings import NetworkSettings, ServiceSettings
from serve_app.inputs.fetch import FetchLimiter
from serve_app.inputs.inputs import Inputs

MB = 2**20


def get_inputs(worker: Worker, task_id: str) -> list[bytes]:
    """Returns the files that the model reads."""
    keys = worker.job(task_id)["references"]
    return [worker.run(worker.objects.get(key)) for key in keys]


def pad_image(size: int) -> bytes:
    """Returns an image file of exactly `size` bytes: PNG readers skip what follows the end."""
    data = image_file()
    return data + bytes(size - len(data))


@promise("1. gen-3-image-klein", "1 to 10 items, each http(s) URL or base64")
def test_order_of_urls_and_base64_is_kept(client: Client, worker: Worker, web: Website) -> None:
    files = [image_file(64 + n, 64) for n in range(10)]
    images = [web.set_page(f"/order/{n}", data) if n % 2 else to_base64(data) for n, data in enumerate(files)]
    assert get_inputs(worker, client.create_task(images=images)) == [stored_as(data) for data in files]


@promise("Decided: submission", "EXIF orientation applied")
def test_orientation_of_the_camera_is_applied(client: Client, worker: Worker) -> None:
    task_id = client.create_task(images=[to_base64(image_file(120, 80, "JPEG", orientation=6))])
    job = worker.job(task_id)
    assert (job["width"], job["height"]) == (80, 120)


@promise("Decided: submission", "not an image, truncated, or too large: 422 naming the field")
@pytest.mark.parametrize(
    "image",
    [
        "nonsense!",
        to_base64(image_file(form="TIFF")),
        to_base64(image_file(form="PNG")[:-30]),
        to_base64(image_file(5121, 4096, mode="1")),
        "file:///etc/passwd",
    ],
    ids=lambda image: image[:24],
)
def test_invalid_image_is_rejected_at_its_place(client: Client, service: Service, image: str) -> None:
    with service.assert_unchanged():
        response = client.submit(images=[to_base64(image_file()), image])
    assert problems(response) == [(["body", "images", "1"], "image_invalid")]
    assert image not in response.text
    (entry,) = response.json()["detail"]
    assert "JPEG, PNG or WebP" in entry["msg"]


@promise("Decided: submission", "At most 20 MB decoded and 20 MP each")
def test_image_of_twenty_megabytes_is_accepted(client: Client) -> None:
    client.create_task(images=[to_base64(pad_image(20 * MB))])


@promise("Decided: webhooks", "`webhook_url` and image URLs go through one guard")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "unknown.test"])
def test_url_to_the_inside_is_not_called(client: Client, service: Service, web: Website, host: str) -> None:
    web.set_page("/inside.png", image_file())
    before = len(web.paths)
    with service.assert_unchanged():
        response = client.submit(images=[web.url("/inside.png", host)])
    assert problems(response) == [(["body", "images", "0"], "image_invalid")]
    assert len(web.paths) == before


@promise(
    "Decided: webhooks",
    "the resolved address must be public (private, loopback, link-local, metadata ranges refused, also after "
    "redirects and against DNS rebinding: connect to the address that was checked)",
)
def test_redirect_to_the_inside_is_not_followed(client: Client, service: Service, web: Website) -> None:
    web.set_page("/secret", image_file())
    before = len(web.paths)
    with service.assert_unchanged():
        url = web.set_page("/away", status=302, location=web.url("/secret", "127.0.0.1"))
        assert problems(client.submit(images=[url])) == [(["body", "images", "0"], "image_invalid")]
    assert web.paths[before:] == ["/away"]


def test_rejected_webhook_leaves_no_images(client: Client, service: Service) -> None:
    with service.assert_unchanged():
        response = client.submit(images=[to_base64(image_file())], webhook_url="http://127.0.0.1/")
        assert problems(response) == [(["body", "webhook_url"], "url_refused")]


@pytest.fixture
def slow(web: Website) -> list[str]:
    """URLs of two images that arrive slowly."""
    return [web.set_page(f"/{uuid.uuid4().hex}", image_file(), delay_s=0.2) for _ in range(2)]


@contextmanager
def with_fetch_limiter(service: Service, limiter: FetchLimiter) -> Iterator[None]:
    submission = service.app.state.services.inputs.submission
    inputs = Inputs(submission.guard, decoders=1, limiter=limiter)
    before = replace_services(service.app, "inputs", submission=dataclasses.replace(submission, inputs=inputs))
    try:
        yield
    finally:
        service.app.state.services = before
        inputs.close()


def test_fetches_above_the_limit_wait(start_service: StartService, slow: list[str]) -> None:
    service = start_service(network=NetworkSettings(fetches_per_organization=1, fetches_per_origin=1))
    with service.client() as client:
        client.create_task(images=slow)


def test_fetches_that_wait_too_long_are_429(service: Service, client: Client, slow: list[str]) -> None:
    with with_fetch_limiter(service, FetchLimiter(per_owner=1, max_wait_s=0.01)):
        requests = {ENDPOINT: {"prompt": "x", "images": slow}}
        requests["/v1/pricing"] = {"path": ENDPOINT, "body": requests[ENDPOINT]}
        for path, body in requests.items():
            with service.assert_unchanged():
                response = client.post(path, json=body)
            assert refusal(response, 429).startswith("Too many images and videos are being fetched")
            assert int(response.headers["retry-after"]) >= 1
        client.create_task(images=slow[:1])


def test_fetched_images_count_as_large_bodies(start_service: StartService, web: Website) -> None:
    service = start_service(service=ServiceSettings(max_body_mb=1, max_inflight_mb=1))
    large = [web.set_page(f"/{uuid.uuid4().hex}", image_file().ljust(400_000, b"\0")) for _ in range(3)]
    with service.client() as client:
        for _ in range(3):
            client.create_task(images=large[:2])
        with service.assert_unchanged():
            response = client.submit(images=large)
            assert refusal(response, 503).startswith("Too many large requests at a time")
        assert response.headers["retry-after"]
        client.create_task(images=large[:2])
