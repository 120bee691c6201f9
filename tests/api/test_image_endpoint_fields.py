"""Every field of the image endpoints before generation 3: both sides of its range, its default, its name in errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from image_endpoints import ENDPOINTS, GEN_2, MASK, MINIMAL, PHOTO
from support.client import HOOK, Client, problems
from support.http_service import Service
from support.pictures import encoded, picture
from support.promises import promise
from support.worker import Worker

FILL, CANNY = "gen-pro-1.0-fill", "gen-pro-1.0-canny"
REQUIRED_PROMPT = [*GEN_2, "gen-kontext-pro", CANNY]
OPTIONAL_PROMPT = ["gen-pro", FILL]
LONGEST_URL = "https://hooks.test/" + "x" * (2083 - len("https://hooks.test/"))
MAX_SEED = 2**64 - 1
PICTURES = {f"input_image_{n}": PHOTO for n in range(2, 9)}

TAKEN: list[tuple[list[str], dict[str, Any]]] = [
    (OPTIONAL_PROMPT, {"prompt": ""}),
    (OPTIONAL_PROMPT, {"prompt": " \n"}),
    (ENDPOINTS, {"prompt": "x" * 32_768}),
    (ENDPOINTS, {"seed": 0}),
    (ENDPOINTS, {"seed": MAX_SEED}),
    (ENDPOINTS, {"seed": -1}),
    (ENDPOINTS, {"safety_tolerance": 0}),
    (GEN_2, {"safety_tolerance": 5}),
    (ENDPOINTS[3:], {"safety_tolerance": 6}),
    (ENDPOINTS, {"output_format": "jpeg"}),
    (ENDPOINTS, {"output_format": "png"}),
    (ENDPOINTS, {"output_format": "webp"}),
    (ENDPOINTS, {"output_format": "jpg"}),
    (ENDPOINTS, {"webhook_url": LONGEST_URL, "webhook_secret": "x" * 512, "user": "u" * 256}),
    (ENDPOINTS, {"webhook_url": HOOK, "webhook_secret": "x", "user": "u"}),
    (GEN_2, {"width": 64, "height": 64}),
    (GEN_2, {"width": 6256, "height": 2688}),
    (GEN_2, {"width": 0, "height": 0}),
    (GEN_2, {"width": 0, "height": None}),
    (GEN_2, {"input_image": PHOTO, **PICTURES}),
    (["gen-2-max"], {"disable_pup": True, "transparent_bg": True}),
    (
        ["gen-kontext-pro"],
        {"input_image": PHOTO, "input_image_2": PHOTO, "input_image_3": PHOTO, "input_image_4": PHOTO},
    ),
    (["gen-kontext-pro"], {"aspect_ratio": "21:9"}),
    (["gen-kontext-pro"], {"aspect_ratio": "9:21"}),
    (["gen-kontext-pro"], {"aspect_ratio": "47:31"}),
    (["gen-kontext-pro"], {"aspect_ratio": "1.85:1"}),
    (ENDPOINTS[3:], {"prompt_upsampling": True}),
    (["gen-pro"], {"width": 256, "height": 256}),
    (["gen-pro"], {"width": 1440, "height": 1440}),
    (["gen-pro"], {"width": 288}),
    (["gen-pro"], {"steps": 1, "guidance": 1.5, "interval": 1}),
    (["gen-pro"], {"steps": 50, "guidance": 5, "interval": 4.0}),
    (["gen-pro"], {"interval": 2.5, "image_prompt": PHOTO}),
    ([FILL], {"steps": 15, "guidance": 1.5}),
    ([FILL], {"steps": 50, "guidance": 100}),
    ([CANNY], {"steps": 15, "guidance": 1}),
    ([CANNY], {"steps": 50, "guidance": 100.0}),
    ([CANNY], {"canny_low_threshold": 0, "canny_high_threshold": 0}),
    ([CANNY], {"canny_low_threshold": 500, "canny_high_threshold": 500}),
]

REFUSED: list[tuple[list[str], dict[str, Any], str, str]] = [
    (ENDPOINTS, {"prompt": 3}, "prompt", "string_type"),
    (REQUIRED_PROMPT, {"prompt": None}, "prompt", "string_type"),
    (REQUIRED_PROMPT, {"prompt": ""}, "prompt", "string_too_short"),
    (REQUIRED_PROMPT, {"prompt": " \n\t\u3000"}, "prompt", "prompt_blank"),
    (ENDPOINTS, {"prompt": "x" * 32_769}, "prompt", "string_too_long"),
    (ENDPOINTS, {"seed": MAX_SEED + 1}, "seed", "less_than_equal"),
    (["gen-pro"], {"seed": "7"}, "seed", "int_type"),
    (["gen-pro"], {"seed": 1.5}, "seed", "int_from_float"),
    (ENDPOINTS, {"safety_tolerance": -1}, "safety_tolerance", "greater_than_equal"),
    (GEN_2, {"safety_tolerance": 6}, "safety_tolerance", "safety_tolerance_not_approved"),
    (GEN_2, {"safety_tolerance": 7}, "safety_tolerance", "less_than_equal"),
    (ENDPOINTS[3:], {"safety_tolerance": 7}, "safety_tolerance", "less_than_equal"),
    (ENDPOINTS, {"output_format": "gif"}, "output_format", "literal_error"),
    (ENDPOINTS, {"webhook_url": LONGEST_URL + "x"}, "webhook_url", "string_too_long"),
    (ENDPOINTS, {"webhook_url": ""}, "webhook_url", "string_too_short"),
    (["gen-pro"], {"webhook_secret": "whsec_!"}, "webhook_secret", "webhook_secret"),
    (["gen-pro"], {"user": "u" * 257}, "user", "string_too_long"),
    (GEN_2, {"width": 63, "height": 64}, "width", "greater_than_equal"),
    (GEN_2, {"width": 64, "height": 63}, "height", "greater_than_equal"),
    (["gen-2-pro"], {"width": -1, "height": 64}, "width", "greater_than_equal"),
    (["gen-2-pro"], {"width": 6257, "height": 64}, "width", "less_than_equal"),
    (["gen-2-pro"], {"width": False, "height": 64}, "width", "int_type"),
    (["gen-2-pro"], {"width": 6256, "height": 2689}, "height", "area_too_large"),
    (GEN_2, {"width": 64}, "height", "missing"),
    (GEN_2, {"height": 64, "width": 0}, "width", "missing"),
    (["gen-2-max"], {"transparent_bg": "yes"}, "transparent_bg", "bool_type"),
    (["gen-2-max"], {"disable_pup": 1}, "disable_pup", "bool_type"),
    (ENDPOINTS[3:], {"prompt_upsampling": "true"}, "prompt_upsampling", "bool_type"),
    (["gen-kontext-pro"], {"aspect_ratio": "22:9"}, "aspect_ratio", "ratio_out_of_range"),
    (["gen-kontext-pro"], {"aspect_ratio": "9:22"}, "aspect_ratio", "ratio_out_of_range"),
    (["gen-kontext-pro"], {"aspect_ratio": "1:0"}, "aspect_ratio", "ratio_out_of_range"),
    (["gen-kontext-pro"], {"aspect_ratio": "16x9"}, "aspect_ratio", "string_pattern_mismatch"),
    (["gen-kontext-pro"], {"aspect_ratio": "-16:9"}, "aspect_ratio", "string_pattern_mismatch"),
    (["gen-kontext-pro"], {"aspect_ratio": 1.5}, "aspect_ratio", "string_type"),
    (["gen-pro"], {"width": 255}, "width", "multiple_of"),
    (["gen-pro"], {"width": 224}, "width", "greater_than_equal"),
    (["gen-pro"], {"height": 1472}, "height", "less_than_equal"),
    (["gen-pro"], {"height": 1000}, "height", "multiple_of"),
    (["gen-pro"], {"steps": 0}, "steps", "greater_than_equal"),
    (["gen-pro"], {"steps": 51}, "steps", "less_than_equal"),
    (["gen-pro"], {"guidance": 1.49}, "guidance", "greater_than_equal"),
    (["gen-pro"], {"guidance": 5.01}, "guidance", "less_than_equal"),
    (["gen-pro"], {"guidance": "3"}, "guidance", "float_type"),
    (["gen-pro"], {"interval": 0.99}, "interval", "greater_than_equal"),
    (["gen-pro"], {"interval": 4.01}, "interval", "less_than_equal"),
    ([FILL, CANNY], {"steps": 14}, "steps", "greater_than_equal"),
    ([FILL, CANNY], {"steps": 51}, "steps", "less_than_equal"),
    ([FILL], {"guidance": 1.49}, "guidance", "greater_than_equal"),
    ([CANNY], {"guidance": 0.99}, "guidance", "greater_than_equal"),
    ([FILL, CANNY], {"guidance": 100.01}, "guidance", "less_than_equal"),
    ([CANNY], {"canny_low_threshold": -1}, "canny_low_threshold", "greater_than_equal"),
    ([CANNY], {"canny_low_threshold": 501}, "canny_low_threshold", "less_than_equal"),
    ([CANNY], {"canny_high_threshold": -1}, "canny_high_threshold", "greater_than_equal"),
    ([CANNY], {"canny_high_threshold": 501}, "canny_high_threshold", "less_than_equal"),
    ([FILL], {"image": None}, "image", "string_type"),
    ([FILL], {"image": ""}, "image", "string_too_short"),
    ([CANNY], {"control_image": None}, "control_image", "missing"),
]


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [(name, body) for names, body in TAKEN for name in names],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:40],
)
def test_taken(client: Client, endpoint: str, body: dict[str, Any]) -> None:
    client.ordered(endpoint, **MINIMAL[endpoint] | body)


@pytest.mark.parametrize(
    ("endpoint", "body", "field", "kind"),
    [(name, body, field, kind) for names, body, field, kind in REFUSED for name in names],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:40],
)
def test_refused(client: Client, endpoint: str, body: dict[str, Any], field: str, kind: str) -> None:
    assert problems(client.order(endpoint, **MINIMAL[endpoint] | body)) == [(["body", field], kind)]


@pytest.mark.parametrize(
    ("endpoint", "missing"),
    [(name, "prompt") for name in (*GEN_2, "gen-kontext-pro", CANNY)] + [(FILL, "image"), (CANNY, "control_image")],
)
def test_required(client: Client, service: Service, endpoint: str, missing: str) -> None:
    body = {name: value for name, value in MINIMAL[endpoint].items() if name != missing}
    with service.unchanged():
        assert problems(client.order(endpoint, **body)) == [(["body", missing], "missing")]


COMMON = {"safety_tolerance": 2, "output_format": "jpeg", "canny": None, "transparent": False, "structured": False}
GEN_2_DEFAULTS = {"width": 1024, "height": 1024, "area": 1024**2, "guidance": None, "rewrite": True, "references": []}
DEFAULTS: dict[str, dict[str, Any]] = {
    "gen-2-max": GEN_2_DEFAULTS | {"steps": 28, "guidance": 4.0},
    "gen-2-pro-preview": GEN_2_DEFAULTS | {"steps": 4},
    "gen-2-pro": GEN_2_DEFAULTS | {"steps": 4},
    "gen-kontext-pro": GEN_2_DEFAULTS | {"steps": 28, "guidance": 2.5, "rewrite": False, "output_format": "png"},
    "gen-pro": {"prompt": "", "width": 1024, "height": 768, "steps": 40, "guidance": 2.5, "guidance_interval": 2},
    FILL: {"prompt": "", "width": 96, "height": 64, "steps": 50, "guidance": 60, "rewrite": False},
    CANNY: {"width": 96, "height": 64, "steps": 50, "guidance": 30, "canny": [50, 200], "rewrite": False},
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_defaults_and_nulls(client: Client, worker: Worker, service: Service, endpoint: str) -> None:
    request = service.app.state.services.catalog.endpoints[endpoint].request_type
    nulls = dict.fromkeys(set(request.model_fields) - {"prompt", "image"}) | {"prompt_upsampling": None}
    if endpoint in ("gen-pro", FILL):
        nulls["prompt"] = None
    expected = COMMON | DEFAULTS[endpoint]
    for body in (MINIMAL[endpoint], nulls | MINIMAL[endpoint]):
        job = worker.job(client.ordered(endpoint, **body))
        assert {name: job[name] for name in expected} == expected
        assert 0 <= job["seed"] < 2**32


@promise("Decided: submission", "ignored on the gen-1/gen-2/kontext-style routes")
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_unknown_fields_are_ignored(client: Client, worker: Worker, endpoint: str) -> None:
    unknown = {"num_images": 2, "raw": True, "negative_prompt": "x", "input_image_9": "no picture", "images": ["x"]}
    job = worker.job(client.ordered(endpoint, **MINIMAL[endpoint], **unknown, seed=MAX_SEED))
    assert job["seed"] == MAX_SEED


def test_a_prompt_that_ends_with_json_is_plain_text(client: Client, worker: Worker) -> None:
    prompt = 'a scene [{"subject": "a cat"}]'
    assert worker.job(client.ordered("gen-2-pro", prompt=prompt))["prompt"] == prompt


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


@pytest.mark.parametrize(("low", "high"), [(10, 20), (20, 10)])
def test_thresholds_are_put_in_order(client: Client, worker: Worker, low: int, high: int) -> None:
    body = MINIMAL[CANNY] | {"canny_low_threshold": low, "canny_high_threshold": high}
    assert worker.job(client.ordered(CANNY, **body))["canny"] == [10, 20]


def test_a_mask_alone_is_no_picture(client: Client) -> None:
    assert problems(client.order(FILL, mask=MASK)) == [(["body", "image"], "missing")]


@promise("Common field types", "`seed`: integer or null, reproducibility; random when omitted.")
@pytest.mark.parametrize("seed", [-1, -7, -1.0, -(10**30)])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_negative_seed_is_a_random_one(client: Client, worker: Worker, endpoint: str, seed: float) -> None:
    seeds = {worker.job(client.ordered(endpoint, **MINIMAL[endpoint], seed=seed))["seed"] for _ in range(2)}
    assert len(seeds) == 2
    assert all(0 <= each < 2**32 for each in seeds)


@pytest.mark.parametrize("sent", ["jpg", "JPG", "Jpeg"])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_other_spellings_of_jpeg(client: Client, worker: Worker, endpoint: str, sent: str) -> None:
    job = worker.job(client.ordered(endpoint, **MINIMAL[endpoint], output_format=sent))
    assert job["output_format"] == "jpeg"


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


def test_a_ratio_is_refused_with_an_example(client: Client) -> None:
    [entry] = client.order("gen-kontext-pro", prompt="a cat", aspect_ratio="16/9").json()["detail"]
    assert entry["msg"].startswith("Input should be a ratio like 16:9, from 21:9 to 9:21")
