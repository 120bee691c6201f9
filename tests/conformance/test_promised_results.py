"""Statuses of tasks, their results and files."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise
from typing import Final

import pytest
from sent_images import open_image, photo
from server_under_test import KLEIN, TERMINAL, WAITING, Json, ServerUnderTest, is_number, same_origin
from support.promises import promise

pytestmark = pytest.mark.needs("results")
_states = partial(promise, "States and transitions")
_decided = partial(promise, "Decided: polling")
_klein = partial(promise, "1. gen-3-image-klein")
_NEXT: Final = {
    "Pending": {"Reasoning", "Generating"} | TERMINAL,
    "Reasoning": {"Pending", "Generating"} | TERMINAL,
    "Generating": {"Pending"} | TERMINAL,
}
"""Allowed next statuses. A task returns to `Pending` when its worker is lost."""
_STRICT_CLIENT: Final = "ai/7.0.173 ai-sdk/provider-utils/5.0.40 runtime/node.js/v20.19.0"
"""User agent of the AI SDK, which rejects unknown statuses."""
_FORBIDDEN: Final = {"prompt": "a very bloody murder scene", "safety_tolerance": 0}


@_states("The `status` field of a polling response takes these values")
@_states("`Ready`: Output is available")
@_states("`Pending`: Task is queued")
@_decided("`Pending` → `Reasoning` (only when a prompt is rewritten or a ratio is chosen) → `Generating` → `Ready`.")
@_decided("A terminal status never changes")
def test_statuses_follow_the_documented_order(server: ServerUnderTest) -> None:
    reply = server.create_task(KLEIN, {"width": 1024, "height": 1024, "steps": 16})
    polls = [response.json() for response in server.poll_until_end(reply["id"])]
    statuses = [task["status"] for task in polls]
    assert set(statuses) <= WAITING | TERMINAL
    assert statuses[0] in WAITING
    assert "Reasoning" not in statuses, "the request fixes prompt and ratio"
    assert all(before == after or after in _NEXT[before] for before, after in pairwise(statuses))
    assert statuses[-1] == "Ready"
    assert polls[-1]["result"] is not None
    assert server.poll(reply["id"]).json()["status"] == "Ready"


@_states("`Request Moderated`: Input was flagged at submission")
@_states("Both moderated states carry `Moderation Reasons` in `details`.")
@promise("Errors", "Moderation outcomes are not HTTP errors")
def test_forbidden_prompt_is_moderated(server: ServerUnderTest) -> None:
    task = server.wait_for_end(server.create_task(KLEIN, _FORBIDDEN)["id"])
    if task["status"] == "Ready":
        pytest.skip("this server's moderation lets the prompt pass")
    assert task["status"] == "Request Moderated"
    reasons = task["details"]["Moderation Reasons"]
    assert reasons
    assert all(isinstance(reason, str) for reason in reasons)
    assert server.poll(task["id"]).status_code == 200


@_decided(
    "`basic`: `Reasoning` and `Generating` reported as `Pending`, because some published clients reject strings they "
    "don't know."
)
def test_strict_client_gets_only_basic_statuses(server: ServerUnderTest) -> None:
    reply = server.create_task("gen-kontext-pro")
    for response in server.poll_until_end(reply["id"], headers={"User-Agent": _STRICT_CLIENT}):
        assert response.json()["status"] in TERMINAL | {"Pending"}
        assert "user-agent" in response.headers["vary"].lower()


@_decided(
    'Then `{"sample": url, "prompt": str, "seed": int, "start_time": float, "end_time": float, "duration": float}`'
)
@_decided("epoch seconds; `duration` is processing seconds")
@_decided("`prompt` is the one really used (after upsampling).")
@_decided("A key with no value is left out, never null.")
def test_result_has_the_documented_fields(server: ServerUnderTest) -> None:
    result: Json = server.run_task()["result"]
    assert isinstance(result["sample"], str)
    assert result["prompt"].startswith("a red circle")
    assert type(result["seed"]) is int
    start, end, duration = (result[name] for name in ("start_time", "end_time", "duration"))
    assert is_number(start)
    assert time.time() - 7 * 86400 < start <= end <= time.time() + 3600
    assert 0 <= duration <= end - start + 1
    assert all(value is not None for value in result.values())


@promise("Common field types", "reproducibility")
def test_same_seed_makes_the_same_image(server: ServerUnderTest) -> None:
    # `user` differs, so that `run_task` makes two tasks.
    tasks = [server.run_task(seed=7, output_format="png", user=f"conformance-{number}") for number in (1, 2)]
    assert [task["result"]["seed"] for task in tasks] == [7, 7]
    one, other = (open_image(server.download(task)).convert("RGB").tobytes() for task in tasks)
    assert one == other


@_klein("`output_format`: string: `jpeg`")
@_klein("Exact width in pixels")
def test_image_has_the_requested_size(server: ServerUnderTest) -> None:
    image = open_image(server.download(server.run_task()))
    assert (image.format, image.size) == ("JPEG", (64, 64))


@_klein("First item is the image being edited and sets the default output size")
def test_reference_sets_the_size(server: ServerUnderTest) -> None:
    task = server.run_task(images=[photo(128, 80)], width=None, height=None)
    width, height = open_image(server.download(task)).size
    assert abs(width / height - 1.6) < 0.1


@promise("5. gen-pro", "`width`: integer: 1024")
def test_pro_has_a_default_size(server: ServerUnderTest) -> None:
    reply = server.submit("gen-pro", {"prompt": "a red circle", "steps": 1}).json()
    assert open_image(server.download(server.wait_for_end(reply["id"]))).size == (1024, 768)


@_decided("absolute URL, same origin as `polling_url` for the local store")
@_decided("signed query, no header needed, CORS open, right `Content-Type`, range requests")
def test_result_link_serves_the_file(server: ServerUnderTest) -> None:
    link = server.run_task()["result"]["sample"]
    response = server.get(link, key="", headers={"Origin": "https://example.com"})
    assert (response.status_code, response.headers["content-type"]) == (200, "image/jpeg")
    part = server.get(link, key="", headers={"Range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, response.content[:4])
    if same_origin(link, server.base_url):  # otherwise an object store serves results
        assert response.headers["access-control-allow-origin"] == "*"
        assert server.get(link.partition("?")[0], key="").status_code in (401, 403)
