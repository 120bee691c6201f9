"""What an accepted submission answers."""

from __future__ import annotations

from typing import Any

import pytest
from support.client import Client, problems
from support.http_service import Service
from support.pictures import encoded, picture
from support.promises import promise
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
        ({"resolution": "768sq"}, 0.9, 0.56),
        ({"resolution": "1k", "aspect_ratio": "21:9"}, 0.9, 1.0),
        ({"resolution": "1.5k"}, 0.9 + 2 * 0.18, 2.25),
        ({"resolution": "2k"}, 0.9 + 3 * 0.18, 4.0),
        # Of what is delivered, not of the tier: 1152x912, 2736x1536, 4736x3552 and 5456x3072.
        ({"aspect_ratio": "5:4"}, 0.9, 1.0),
        ({"aspect_ratio": "16:9", "resolution": "2k"}, 0.9 + 4 * 0.18, 4.01),
        ({"aspect_ratio": "4:3", "resolution": "4k"}, 0.9 + 16 * 0.18, 16.04),
        ({"aspect_ratio": "16:9", "resolution": "4k"}, 0.9 + 15 * 0.18, 15.98),
        ({"resolution": "4k"}, 0.9 + 15 * 0.18, 16.0),
        ({"width": 64, "height": 64}, 0.9, 0.0),
        ({"width": 1024, "height": 1024}, 0.9, 1.0),
        ({"width": 1025, "height": 1024}, 0.9, 1.0),
        ({"width": 1040, "height": 1024}, 0.9 + 0.18, 1.02),
        ({"width": 1280, "height": 720}, 0.9, 0.88),
        ({"width": 4736, "height": 3552}, 0.9 + 16 * 0.18, 16.04),
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
        ([(1024, 1024)], {}, 0.9 + 0.1, 1.0, 1.0),
        ([(1040, 1024)], {}, 0.9 + 0.18 + 2 * 0.1, 1.02, 1.02),
        ([(512, 512)] * 4, {}, 0.9 + 0.1, 1.0, 0.25),
        ([(512, 512)] * 5, {}, 0.9 + 2 * 0.1, 1.25, 0.25),
        ([(512, 512)], {"resolution": "2k"}, 0.9 + 3 * 0.18 + 0.1, 0.25, 4.0),
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
    images = [encoded(picture(*size)) for size in sizes]
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
        with service.unchanged():
            assert problems(client.submit(webhook_url=url)) == [(["body", "webhook_url"], "url_refused")], url
