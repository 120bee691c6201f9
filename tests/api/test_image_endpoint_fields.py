"""Every field of the image endpoints before generation 3: both sides of its range, its default, its name in errors."""

from __future__ import annotations

from typing import Any

import pytest
from image_endpoints import ENDPOINTS, GEN_2, MINIMAL, PHOTO
from support.client import Client
from support.pictures import encoded, picture
from support.promises import promise
from support.worker import Worker

FILL, CANNY = "gen-pro-1.0-fill", "gen-pro-1.0-canny"
MAX_SEED = 2**64 - 1


@promise("Decided: submission", "ignored on the gen-1/gen-2/kontext-style routes")
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_unknown_fields_are_ignored(client: Client, worker: Worker, endpoint: str) -> None:
    unknown = {"num_images": 2, "raw": True, "negative_prompt": "x", "input_image_9": "no picture", "images": ["x"]}
    job = worker.job(client.ordered(endpoint, **MINIMAL[endpoint], **unknown, seed=MAX_SEED))
    assert job["seed"] == MAX_SEED


@promise("Decided: submission", "`prompt_upsampling` and `disable_pup` accepted as opposites on non-strict routes.")
@pytest.mark.parametrize(
    ("endpoint", "body", "rewrite"),
    [
        *((name, {"disable_pup": True}, False) for name in GEN_2),
        *((name, {"prompt_upsampling": False}, False) for name in GEN_2),
        *((name, {"prompt_upsampling": True}, True) for name in GEN_2),
        *((name, {"prompt_upsampling": True}, True) for name in ENDPOINTS[3:]),
        *((name, {"disable_pup": False}, True) for name in ENDPOINTS[3:]),
        *((name, {"disable_pup": True}, False) for name in ENDPOINTS[3:]),
        # The endpoint's own field counts.
        ("gen-2-max", {"disable_pup": True, "prompt_upsampling": True}, False),
        ("gen-2-max", {"disable_pup": False, "prompt_upsampling": False}, True),
        ("gen-pro", {"disable_pup": False, "prompt_upsampling": False}, False),
        # An unknown field of the wrong kind is still only an unknown field.
        ("gen-2-pro", {"disable_pup": "x"}, True),
        ("gen-pro", {"disable_pup": "x"}, False),
    ],
)
def test_rewriting_the_prompt(
    client: Client, worker: Worker, endpoint: str, body: dict[str, Any], rewrite: bool
) -> None:
    assert worker.job(client.ordered(endpoint, **MINIMAL[endpoint], **body))["rewrite"] is rewrite


@promise("2. gen-2-max", "removes the background and returns a transparent RGBA PNG")
def test_a_transparent_picture_is_a_png(client: Client, worker: Worker) -> None:
    job = worker.job(client.ordered("gen-2-max", prompt="x", transparent_bg=True, output_format="jpeg"))
    assert (job["transparent"], job["output_format"]) == (True, "png")
    assert worker.job(client.ordered("gen-2-pro", prompt="x", transparent_bg=True))["transparent"] is False


@pytest.mark.parametrize(
    ("endpoint", "body", "size"),
    [
        ("gen-2-max", {"width": 1001, "height": 67}, (1001, 67)),
        ("gen-2-max", {"input_image": encoded(picture(301, 203))}, (301, 203)),
        ("gen-2-max", {"input_image": encoded(picture(301, 203)), "width": 640, "height": 480}, (640, 480)),
        ("gen-2-max", {"input_image_3": encoded(picture(70, 90)), "input_image_7": PHOTO}, (70, 90)),
        ("gen-2-max", {"input_image": encoded(picture(32, 48))}, (64, 96)),
        ("gen-2-max", {"aspect_ratio": "16:9"}, (1024, 1024)),
        ("gen-kontext-pro", {"aspect_ratio": "16:9"}, (1360, 768)),
        ("gen-kontext-pro", {"aspect_ratio": "21:9"}, (1568, 672)),
        ("gen-kontext-pro", {"input_image": encoded(picture(300, 200))}, (1254, 836)),
        ("gen-kontext-pro", {"input_image": encoded(picture(300, 200)), "aspect_ratio": "1:1"}, (1024, 1024)),
        ("gen-pro", {"width": 1440, "height": 256}, (1440, 256)),
        (FILL, {"image": encoded(picture(333, 77)), "mask": encoded(picture(333, 77, white=True))}, (333, 77)),
        (CANNY, {"control_image": encoded(picture(333, 77))}, (333, 77)),
        (CANNY, {"preprocessed_image": encoded(picture(80, 70))}, (80, 70)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_sizes(client: Client, worker: Worker, endpoint: str, body: dict[str, Any], size: tuple[int, int]) -> None:
    job = worker.job(client.ordered(endpoint, **MINIMAL[endpoint] | body))
    assert (job["width"], job["height"]) == size


@pytest.mark.parametrize(
    ("endpoint", "field", "value", "advice"),
    [
        ("gen-kontext-pro", "image_url", "https://example.com/cat.png", "did you mean input_image?"),
        ("gen-2-pro", "images", ["https://example.com/cat.png"], "did you mean input_image?"),
        ("gen-kontext-pro", "aspect_ration", "16:9", "did you mean aspect_ratio?"),
        ("gen-2-pro", "num_images", 4, "a task makes one image; send several, or n to /v1/images/generations"),
    ],
)
def test_what_is_ignored_though_it_is_meant_is_warned_of(
    client: Client, endpoint: str, field: str, value: object, advice: str
) -> None:
    answer = client.order(endpoint, prompt="a cat", **{field: value}).json()
    assert answer["warnings"] == [f"{field} is not a field of this endpoint and was ignored: {advice}"]


@pytest.mark.parametrize(
    ("value", "told"), [("42", '"42" is a string; send 42'), ("x", "Input should be a valid integer")]
)
def test_a_number_in_quotes_is_said_to_be_a_string(client: Client, value: str, told: str) -> None:
    [entry] = client.order("gen-2-pro", prompt="a cat", seed=value).json()["detail"]
    assert entry["msg"] == told
