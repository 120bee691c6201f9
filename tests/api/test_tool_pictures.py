"""Pictures of the tools: how they may be sent, what is made of them for the model, and which are too large."""

from __future__ import annotations

from typing import Any

import pytest
from support.client import Client
from support.http_service import Service
from support.input_images import stored_as
from support.pictures import encoded, file_of, picture
from support.promises import promise
from support.website import Website
from support.worker import Worker
from tool_endpoints import (
    DEBLUR,
    ERASE,
    MINIMAL,
    PHOTO,
    PHOTO_FILE,
    PICTURE_FIELDS,
    SPOT_FILE,
    TRY_ON_1,
    TRY_ON_2,
    TRY_ONS,
    coloured,
    large,
    refused,
    stored,
    stored_file,
)

MEGAPIXEL = 2**20

AS_THEY_ARE: dict[str, list[bytes]] = {
    ERASE: [PHOTO_FILE],
    TRY_ON_1: [PHOTO_FILE, PHOTO_FILE],
    TRY_ON_2: [PHOTO_FILE, PHOTO_FILE],
    DEBLUR: [PHOTO_FILE],
}
"""The references of the least request of the tools that pass on what they get."""


# How pictures may be sent.


@promise("Decided: tools", "Images as base64 or URL.")
@pytest.mark.parametrize("way", ["base64", "data", "url"])
@pytest.mark.parametrize(("tool", "field"), PICTURE_FIELDS)
def test_every_way_leads_to_the_same(
    client: Client, worker: Worker, web: Website, tool: str, field: str, way: str
) -> None:
    file = SPOT_FILE if field == "mask" else PHOTO_FILE
    value = {
        "base64": encoded(file),
        "data": f"data:image/png;base64,{encoded(file)}",
        "url": web.put(f"/{tool}/{field}", file),
    }[way]
    plain = worker.job(client.ordered(tool, **MINIMAL[tool]))
    job = worker.job(client.ordered(tool, **MINIMAL[tool] | {field: value}))

    def files(job: dict[str, Any]) -> list[bytes]:
        return [stored_file(worker, key) for key in (*job["references"], job["mask"]) if key]

    assert files(job) == files(plain)
    if tool in AS_THEY_ARE:
        assert files(job)[: len(AS_THEY_ARE[tool])] == [stored_as(each) for each in AS_THEY_ARE[tool]]
    assert (job["width"], job["height"]) == (plain["width"], plain["height"])


BAD = ["nonsense!", encoded(b"<svg/>"), encoded(PHOTO_FILE[:-40]), large(5121, 4096), "http://127.0.0.1/secret.png"]


# Trying on.


@pytest.mark.parametrize("tool", TRY_ONS)
def test_the_person_comes_before_the_garment(client: Client, worker: Worker, tool: str) -> None:
    person, garment = file_of(coloured(80, 100)), file_of(coloured(120, 90))
    job = worker.job(client.ordered(tool, garment=encoded(garment), person=encoded(person)))
    assert [stored_file(worker, key) for key in job["references"]] == [stored_as(person), stored_as(garment)]
    assert (job["width"], job["height"]) == (80, 100)


@promise("11. Tool endpoints", "inputs up to 4 MP used as-is")
@pytest.mark.parametrize(("tool", "size"), [(TRY_ON_1, (2048, 1024)), (TRY_ON_2, (2048, 2048))])
@pytest.mark.parametrize("field", ["person", "garment"])
def test_pictures_up_to_the_limit_are_used_as_they_are(
    client: Client, worker: Worker, tool: str, size: tuple[int, int], field: str
) -> None:
    file = picture(*size, mode="L")
    job = worker.job(client.ordered(tool, **MINIMAL[tool] | {field: encoded(file)}))
    assert stored_as(file) in [stored_file(worker, key) for key in job["references"]]
    assert (job["width"], job["height"]) == (size if field == "person" else (96, 64))


@promise("11. Tool endpoints", "inputs up to 2 MP, larger inputs are downscaled to about 1 MP")
@pytest.mark.parametrize("size", [(2049, 1024), (1024, 2049), (5120, 4096), (8000, 300)])
@pytest.mark.parametrize("field", ["person", "garment"])
def test_larger_ones_are_scaled_to_about_a_megapixel(
    client: Client, worker: Worker, size: tuple[int, int], field: str
) -> None:
    reply = client.order(TRY_ON_1, **MINIMAL[TRY_ON_1] | {field: large(*size)}).json()
    job = worker.job(reply["id"])
    scaled, other = (stored(worker, key) for key in job["references"][:: 1 if field == "person" else -1])
    assert other.size == (96, 64)
    assert scaled.width * scaled.height == pytest.approx(MEGAPIXEL, rel=0.01)
    assert scaled.width / scaled.height == pytest.approx(size[0] / size[1], rel=0.01)
    assert (job["width"], job["height"]) == (scaled.size if field == "person" else (96, 64))
    assert reply["input_mp"] == pytest.approx((size[0] * size[1] + 96 * 64) / MEGAPIXEL, abs=0.01), "as sent"


@pytest.mark.parametrize(
    ("mode", "form", "kept"),
    [
        ("RGB", "JPEG", "RGB"),
        ("L", "JPEG", "L"),
        ("CMYK", "JPEG", "RGB"),
        ("RGB", "WEBP", "RGB"),
        ("RGBA", "PNG", "RGBA"),
        ("P", "PNG", "RGB"),
        ("1", "PNG", "L"),
        ("I;16", "PNG", "L"),
    ],
)
def test_pictures_of_all_kinds_can_be_scaled(client: Client, worker: Worker, mode: str, form: str, kept: str) -> None:
    person = encoded(picture(1600, 1500, form, mode))
    job = worker.job(client.ordered(TRY_ON_1, person=person, garment=PHOTO))
    made = stored(worker, job["references"][0])
    assert made.mode == kept
    assert made.size == (job["width"], job["height"])


# Too large.


@promise("Decided: tools", "v2: up to 4 MP as they are, over that 422")
def test_of_two_that_are_too_large_the_person_is_named(client: Client, service: Service) -> None:
    both = dict.fromkeys(("person", "garment"), large(2049, 2048))
    assert refused(client, service, TRY_ON_2, **both)[:2] == ("person", "picture_too_large")
