"""Twenty prompts to try, with their pictures: `python -m benchmarks.prompts` writes docs/prompts.md and its sheet.

Starts the local profile, asks for what `prompts.yaml` lists, shows each picture with its prompt, and names those that
the judge of the little world finds wrong.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from PIL import Image

from benchmarks.service import Service
from deployments.families.canvas import grid_for
from serve_app.cli.client import Client
from training.worlds.pictures.judge import Verdict, judge
from training.worlds.pictures.scene import CANVAS_SIDE, Background, Scene, Thing
from training.worlds.vocabulary import COLOURS, PLACES, SHAPES, SIZES, UNDERSTOOD

ENDPOINT: Final = "gen-3-image-klein"
ASKED: Final = {"aspect_ratio": "4:3", "resolution": "768sq", "seed": 1, "output_format": "png"}

_DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = _DOCS / "prompts.md"
_SHEET: Final = _DOCS / "pictures" / "prompts.jpeg"
_COLUMNS, _GAP = 4, 8
_SHOWN: Final = (200, 150)
"""Pixels of a picture on the sheet, across and down."""


@dataclass(frozen=True, slots=True)
class Asked:
    prompt: str
    expected: Scene

    def verdict(self, picture: Image.Image) -> Verdict:
        grid = grid_for(picture.width, picture.height, CANVAS_SIDE)
        return judge(np.asarray(picture.convert("RGB")), grid, self.expected)


def prompts() -> list[Asked]:
    listed: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    return [Asked(each["prompt"], _scene(each["things"], each["background"])) for each in listed]


def made(client: Client, prompt: str) -> Image.Image:
    result = client.wait(client.submit(ENDPOINT, {"prompt": prompt, **ASKED})["id"])
    return Image.open(io.BytesIO(result.content()))


def page(asked: Sequence[Asked]) -> str:
    """The text around the sheet; pictures are counted along the rows."""
    rows = "\n".join(f"{number}. `{each.prompt}`" for number, each in enumerate(asked, 1))
    known = [name for name in (*SHAPES, *COLOURS, *SIZES, *PLACES) if name in UNDERSTOOD]
    words = "\n".join(f"| {name} | {', '.join(UNDERSTOOD[name])} |" for name in known)
    return f"""# Twenty prompts to try

What the checkpoints that ship with the project draw, at the first try (`seed` {ASKED["seed"]}), on
`{ENDPOINT}` with `aspect_ratio` {ASKED["aspect_ratio"]}. They know a [little world](bundled-models.md) of coloured
shapes.

![The pictures, in the order of the list]({_SHEET.relative_to(_DOCS)})

{rows}

Written by `python -m benchmarks.prompts`; a test asks for each and has the pictures judged.

## Words

What is known, and what is understood as that. Order, articles, capitals and politeness don't matter, nor does one wrong
letter in a word of five or more; words for anything else are [told back](bundled-models.md#words).

| | understood, too |
|---|---|
{words}
"""


def main() -> None:
    asked = prompts()
    with Service() as service, Client(service.base_url, service.key) as client:
        pictures = [made(client, each.prompt) for each in asked]
    for each, picture in zip(asked, pictures, strict=True):
        if not (verdict := each.verdict(picture)).right:
            print(f"{each.prompt}: {', '.join(verdict.faults())}")
    _sheet(pictures).save(_SHEET, quality=90, optimize=True)
    PAGE.write_text(page(asked))


def _scene(things: list[list[Any]], background: list[Any]) -> Scene:
    return Scene(tuple(Thing(*thing) for thing in things), Background(*background))


def _sheet(pictures: Sequence[Image.Image]) -> Image.Image:
    across, down = _SHOWN[0] + _GAP, _SHOWN[1] + _GAP
    rows = -(-len(pictures) // _COLUMNS)
    sheet = Image.new("RGB", (_COLUMNS * across - _GAP, rows * down - _GAP), "white")
    for number, picture in enumerate(pictures):
        shown = picture.convert("RGB").resize(_SHOWN, Image.Resampling.LANCZOS)
        sheet.paste(shown, (number % _COLUMNS * across, number // _COLUMNS * down))
    return sheet


if __name__ == "__main__":
    main()
