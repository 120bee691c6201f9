"""The default checkpoint draws prompts that people wrote.

Three people who had not seen the training data wrote `people.txt` by hand. The twenty prompts to try are those of
deployments/bundled/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.bundle import cpu_config
from support.images import encode_image
from support.jobs import make_job
from support.prompt_cases import PromptCase, read_cases
from support.scenes import Pixels, ShapeScene

from deployments import native_loading
from deployments.families.conditioning import PreparedRequest
from deployments.families.family import Family
from deployments.families.state import State
from deployments.families.step import step

CASES = read_cases(Path(__file__).with_name("people.txt"))
TOGETHER, STEPS = 8, 16
CANVASES = ((128, 128), (224, 128), (128, 224))
"""Canvases with the checkpoint's render side, from the smallest."""


@pytest.fixture(scope="module")
def family() -> Family:
    loaded = native_loading.load(cpu_config("bundled/flux3"))
    return native_loading.for_images(loaded.family)


def draw(family: Family, cases: Sequence[PromptCase]) -> Iterator[Pixels]:
    for begin in range(0, len(cases), TOGETHER):
        requests = list(map(request, cases[begin : begin + TOGETHER]))
        states = [state for state in family.encode(requests) if isinstance(state, State)]
        assert len(states) == len(requests)
        for _ in range(STEPS):
            step(family, states)
        yield from map(family.finish, states)


def request(case: PromptCase) -> PreparedRequest:
    """Returns a request on the first canvas with room for all shapes."""
    scenes = (*case.references, case.expected)
    fitting = [size for size in CANVASES if all(fits(scene, *size) for scene in scenes)]
    width, height = (fitting or CANVASES)[0]
    job = make_job(prompt=case.prompt, width=width, height=height, steps=STEPS, seed=1)
    return PreparedRequest(
        job, tuple(encode_image(Image.fromarray(scene.draw(width, height))) for scene in case.references)
    )


def fits(scene: ShapeScene, width: int, height: int) -> bool:
    boxes = [ShapeScene((replace(shape, shape="square"),), None) for shape in scene.shapes if shape.place]
    return sum((box.mask(width, height).astype(int) for box in boxes), np.zeros((height, width), int)).max() <= 1


def test_readme_lists_the_prompts_to_try(repository: Path) -> None:
    listed = re.findall(r"^\d+\. `(.+)`$", (repository / "deployments/bundled/README.md").read_text(), re.MULTILINE)
    assert listed == [case.prompt for case in CASES["twenty to try"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "minimum"),
    [
        *(("twenty to try", 1.0), ("one thing", 0.9), ("two things", 0.8)),
        *(("counts", 0.75), ("edits", 0.65), ("two pictures", 0.65)),
    ],
)
def test_images_show_the_prompts(family: Family, heading: str, minimum: float) -> None:
    cases = CASES[heading]
    images = draw(family, cases)
    wrong = {
        each.prompt: faults
        for each, image in zip(cases, images, strict=True)
        if (faults := each.expected.faults(image))
    }
    assert len(wrong) <= (1 - minimum) * len(cases), wrong
