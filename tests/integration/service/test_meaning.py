"""Pictures show what was asked for, over HTTP, read from their pixels alone."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from deployments.bundled.evaluation.pictures import drawn
from deployments.bundled.evaluation.sizes import canvas_of
from deployments.bundled.world.judge import Pixels, Verdict, judge
from deployments.bundled.world.keeping import judge_edit
from deployments.bundled.world.scene import Background, Scene, Thing
from serve_app.client import Client

ENDPOINT = "gen-3-image-klein"


def picture(client: Client, **body: Any) -> Pixels:
    request = {"seed": 1, "steps": 8, "output_format": "png"} | body
    task = client.wait(client.submit(ENDPOINT, request)["id"])
    assert task["status"] == "Ready", task
    return np.asarray(Image.open(io.BytesIO(client.fetch(task["result"]["sample"]))).convert("RGB"))


def seen(found: Pixels, expected: Scene) -> Verdict:
    return judge(found, canvas_of((found.shape[1], found.shape[0])), expected)


def encoded(pixels: Pixels) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.mark.parametrize(
    ("prompt", "shape", "colour", "background"),
    [
        ("a green triangle", "triangle", "green", "white"),
        ("A large yellow star on a navy background", "star", "yellow", "navy"),
        ("a red ring against a black background", "ring", "red", "black"),
    ],
)
@pytest.mark.parametrize("size", [(1024, 1024), (1360, 768)])
def test_a_prompt_is_obeyed(
    client: Client, prompt: str, shape: str, colour: str, background: str, size: tuple[int, int]
) -> None:
    thing = Thing(shape, colour, "large" if "large" in prompt else "medium")
    verdict = seen(
        picture(client, prompt=prompt, width=size[0], height=size[1]), Scene((thing,), Background(background))
    )
    assert verdict.right, verdict.faults()


def test_places_are_obeyed(client: Client) -> None:
    prompt = "a small blue square in the top left and a small red circle in the bottom right, on a white background"
    things = Thing("square", "blue", "small", "top left"), Thing("circle", "red", "small", "bottom right")
    verdict = seen(picture(client, prompt=prompt), Scene(things, Background("white")))
    assert verdict.place, verdict.faults()
    assert verdict.colour, verdict.faults()


def test_a_recoloured_thing_stays_where_it_is(client: Client) -> None:
    before = Scene((Thing("circle", "red", "large", "left"),), Background("white"))
    after = Scene((Thing("circle", "blue", "large", "left"),), Background("white"))
    size = (1024, 1024)
    found = picture(client, prompt="make the circle blue", images=[encoded(drawn(before, canvas_of(size), size))])
    verdict = judge_edit(found, canvas_of(size), before, after)
    assert verdict.asked, verdict.faults()
    assert verdict.kept, verdict.faults()
