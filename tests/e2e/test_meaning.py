"""Pictures show what was asked for: what the small models learnt, read from the pixels that a client gets."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.outcomes import outcome
from support.pictures import encoded, file_of, sent
from support.shapes import Ground, Scene, Thing

from serve_app.cli.service import Client

ENDPOINT = "gen-3-image-klein"

Ask = Callable[..., bytes]


@pytest.fixture
def ask(client: Client) -> Ask:
    """From a request to a PNG."""

    def ask(endpoint: str = ENDPOINT, **body: Any) -> bytes:
        usual: dict[str, Any] = {"output_format": "png", "seed": 11}
        if endpoint == ENDPOINT:
            usual |= {"aspect_ratio": "1:1", "resolution": "768sq", "steps": 4}
        task = outcome(client, client.submit(endpoint, usual | body)["id"])
        assert task["status"] == "Ready", task
        return client.fetch(task["result"]["sample"])

    return ask


def faults(png: bytes, *things: Thing, background: str) -> list[str]:
    """What the picture shows otherwise."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    return Scene(things, Ground(background)).faults(pixels)


def drawing(*things: Thing, background: str) -> bytes:
    """A PNG of what a picture should show."""
    return file_of(Image.fromarray(Scene(things, Ground(background)).drawn()))


@pytest.mark.parametrize(
    ("prompt", "thing", "background"),
    [
        ("a green triangle", Thing("triangle", "green"), "white"),
        ("a large blue circle on a yellow background", Thing("circle", "blue", "large"), "yellow"),
        ("a red square on the left on a white background", Thing("square", "red", place="left"), "white"),
        (
            "a small black heart in the top right corner on a pink background",
            Thing("heart", "black", "small", "top right"),
            "pink",
        ),
    ],
)
def test_a_prompt_is_obeyed(ask: Ask, prompt: str, thing: Thing, background: str) -> None:
    assert faults(ask(prompt=prompt), thing, background=background) == []


def test_an_edit_changes_the_colour_and_keeps_the_place(ask: Ask) -> None:
    first = ask(prompt="a large red circle on the left on a white background")
    assert faults(first, Thing("circle", "red", "large", "left"), background="white") == []
    second = ask(prompt="make the circle blue", images=[encoded(first)])
    assert faults(second, Thing("circle", "blue", "large", "left"), background="white") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompt", "thing", "background"),
    [
        ("change the background to a cyan background", Thing("circle", "red", "large", "left"), "cyan"),
        ("move the circle to the right", Thing("circle", "red", "large", "right"), "white"),
    ],
)
def test_kontext_keeps_what_an_edit_is_not_about(ask: Ask, prompt: str, thing: Thing, background: str) -> None:
    picture = drawing(Thing("circle", "red", "large", "left"), background="white")
    png = ask("gen-kontext-pro", prompt=prompt, input_image=encoded(picture))
    assert faults(png, thing, background=background) == []


@pytest.mark.slow
def test_guidance_says_how_far_the_words_are_followed(ask: Ask) -> None:
    """`guidance`: "higher improves prompt adherence at the cost of realism"."""
    body = {
        "prompt": "a large blue star on a green background",
        "width": 512,
        "height": 512,
        "steps": 20,
        "interval": 1,
    }
    weak, strong = (
        np.asarray(Image.open(io.BytesIO(ask("gen-pro", guidance=guidance, **body))).convert("RGB"), np.float32)
        for guidance in (1.5, 5)
    )
    assert np.abs(strong - weak).mean() > 3  # of 255: colours that are seen to be others
    purer = np.ptp(strong, axis=2) - np.ptp(weak, axis=2)
    assert purer.mean() > 3


@pytest.mark.slow
def test_edges_say_where_and_words_say_which_colours(ask: Ask) -> None:
    control = drawing(Thing("diamond", "black", place="top left"), background="white")
    png = ask(
        "gen-pro-1.0-canny",
        prompt="a green diamond on a yellow background",
        control_image=encoded(control),
    )
    assert faults(png, Thing("diamond", "green", place="top left"), background="yellow") == []


def test_what_was_asked_for_appears_under_the_mask_and_nowhere_else(ask: Ask) -> None:
    kept, mask = Thing("square", "red", place="left"), np.zeros((512, 512), np.uint8)
    mask[150:360, 280:490] = 255
    png = ask(
        "gen-pro-1.0-fill",
        prompt="a blue circle",
        image=encoded(drawing(kept, background="white")),
        mask=sent(Image.fromarray(mask)),
    )
    assert faults(png, kept, Thing("circle", "blue", None, "right"), background="white") == []


def test_words_from_outside_the_little_world_give_a_picture_too(ask: Ask) -> None:
    picture = Image.open(io.BytesIO(ask(prompt="the quiet philosophy of tax returns, in the style of a fjord")))
    assert picture.size == (768, 768)
    assert np.asarray(picture).std() > 1
