"""Names that are nearly right: the error says which one may have been meant."""

from __future__ import annotations

from typing import Any

import pytest
from support.client import ENDPOINT, Client, problems, refusal
from tool_endpoints import MINIMAL, OUTPAINTING
from video_requests import VIDEO, minimal

KLEIN = ENDPOINT.removeprefix("/v1/")


@pytest.mark.parametrize(
    ("endpoint", "body", "field", "meant"),
    [
        (KLEIN, {"prompt": "x"}, "image", "images"),
        (KLEIN, {"prompt": "x"}, "aspectRatio", "aspect_ratio"),
        (KLEIN, {"prompt": "x"}, "Prompt", "prompt"),
        (KLEIN, {"prompt": "x"}, "safety_tolerence", "safety_tolerance"),
        (f"{KLEIN}-finetuned", {"prompt": "x", "finetune_id": "x"}, "finetune_strenght", "finetune_strength"),
        (OUTPAINTING, MINIMAL[OUTPAINTING], "autocrop", "auto_crop"),
        (VIDEO, minimal("i2v"), "keyframe", "keyframes"),
        (VIDEO, minimal("t2v"), "durations", "duration"),
    ],
)
def test_an_unknown_field_that_is_nearly_one(
    client: Client, endpoint: str, body: dict[str, Any], field: str, meant: str
) -> None:
    response = client.order(endpoint, **body, **{field: 1})
    assert problems(response) == [(["body", field], "extra_forbidden")]
    assert response.json()["detail"][0]["msg"].endswith(f": did you mean {meant}?")
    priced = client.post("/v1/pricing", json={"path": f"/v1/{endpoint}", "body": {**body, field: 1}})
    assert priced.json()["detail"][0]["msg"] == response.json()["detail"][0]["msg"]


@pytest.mark.parametrize(
    ("endpoint", "body", "field"),
    [
        (KLEIN, {"prompt": "x"}, "negative_prompt"),
        (KLEIN, {"prompt": "x"}, "zzz"),
        (KLEIN, {"prompt": "x"}, "prompt" * 2000),
        (VIDEO, minimal("t2v"), "keyframe"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_an_unknown_field_that_is_like_none(client: Client, endpoint: str, body: dict[str, Any], field: str) -> None:
    (entry,) = client.order(endpoint, **body, **{field: 1}).json()["detail"]
    assert (entry["type"], entry["msg"]) == ("extra_forbidden", "Extra inputs are not permitted")


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("POST", "/v1/gen-2-maxx", "/v1/gen-2-max"),
        ("POST", "/v1/gen-kontext-max", "/v1/gen-kontext-pro"),
        ("POST", "/v1/gen-pro-1.2", "/v1/gen-pro-1.1"),
        ("POST", "/v1/GEN-2-PRO", "/v1/gen-2-pro"),
        ("POST", "/v1/gen-3-image", "/v1/gen-3-image-klein"),
        ("POST", "/gen-2-max", "/v1/gen-2-max"),
        ("GET", "/v1/get_results", "/v1/get_result"),
        ("GET", "/v1/tasks/", "/v1/tasks"),
        ("GET", "/health", "/healthz"),
    ],
)
def test_an_unknown_path_that_is_nearly_one(client: Client, method: str, path: str, meant: str) -> None:
    assert refusal(client.request(method, path, json={}), 404) == f"Not Found: did you mean {meant}?"
