"""What the tools do, as a picture for the docs: `python -m benchmarks.tool_sheet` writes docs/pictures/tools.png.

Starts the local profile, puts one request to every tool and shows what was sent beside what came back. The pictures are
drawn scenes of the little world, which is all that the bundled models know.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.service import Service
from serve_app.cli.client import Client
from training.worlds.pictures.drawing import drawn
from training.worlds.pictures.scene import Background, Scene, Thing

PICTURE: Final = Path(__file__).parents[1] / "docs" / "pictures" / "tools.png"
_GRID: Final = (8, 8)
_SIDE: Final = 512
_SHOWN: Final = 200
"""Height of a picture on the sheet."""
_GAP, _TITLE, _COLUMNS = 12, 20, 3
_PAPER, _INK = "white", (40, 40, 40)


@dataclass(frozen=True, slots=True)
class Shown:
    title: str
    sent: tuple[Image.Image, ...]
    endpoint: str
    body: dict[str, Any]


def requests() -> Iterator[Shown]:
    star, circle = Thing("star", "red", "medium", "top left"), Thing("circle", "white", "medium", "bottom right")
    both = scene(Background("dark blue"), star, circle)
    mask = Image.new("L", both.size, 0)
    ImageDraw.Draw(mask).ellipse((270, 270, 490, 490), fill=255)
    yield Shown("erase-v1", (both, mask), "gen-tools/erase-v1", {"image": b64(both), "mask": b64(mask)})

    banner = {"input_image": b64(both), "width": 896, "height": 512}
    for mode in ("fast", "high"):
        yield Shown(f"outpainting-v1, {mode}", (both,), "gen-tools/outpainting-v1", banner | {"mode": mode})

    blurred = scene(Background("yellow", "dotted", "dark blue"), Thing("heart", "dark green", "large"))
    blurred = blurred.filter(ImageFilter.GaussianBlur(3))
    yield Shown("deblur-v1", (blurred,), "gen-tools/deblur-v1", {"image": b64(blurred)})

    person = scene(Background("light blue"))
    garment = scene(Background("white"), Thing("heart", "purple", "large"))
    body = {"person": b64(person), "garment": b64(garment), "output_format": "png"}
    yield Shown("vto-v2", (person, garment), "gen-tools/vto-v2", body)

    prompt = {"prompt": "a large red star on a yellow background", "disable_pup": True, "width": 512, "height": 512}
    yield Shown("gen-2-max, transparent_bg", (), "gen-2-max", prompt | {"transparent_bg": True})


def scene(background: Background, *things: Thing) -> Image.Image:
    return Image.fromarray(drawn(Scene(things, background), _GRID, (_SIDE, _SIDE)))


def b64(picture: Image.Image) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def main() -> None:
    with Service() as service, Client(service.base_url, service.key) as client:
        strips = [strip(each, answer(client, each)) for each in requests()]
    rows = [strips[start : start + _COLUMNS] for start in range(0, len(strips), _COLUMNS)]
    width = max(sum(each.width + _GAP for each in row) for row in rows)
    sheet = Image.new("RGB", (width, len(rows) * strips[0].height), _PAPER)
    for index, row in enumerate(rows):
        left = 0
        for each in row:
            sheet.paste(each, (left, index * each.height))
            left += each.width + _GAP
    PICTURE.parent.mkdir(exist_ok=True)
    sheet.quantize(256, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    print(PICTURE)


def answer(client: Client, shown: Shown) -> Image.Image:
    result = client.wait(client.submit(shown.endpoint, shown.body | {"seed": 1})["id"])
    return Image.open(io.BytesIO(result.content()))


def strip(shown: Shown, result: Image.Image) -> Image.Image:
    """What was sent, and the result, under a title."""
    pictures = [small(each) for each in (*shown.sent, result)]
    width = sum(each.width for each in pictures) + _GAP * len(pictures)
    whole = Image.new("RGB", (width, _TITLE + _SHOWN + _GAP), _PAPER)
    ImageDraw.Draw(whole).text((0, 4), shown.title, fill=_INK, font=ImageFont.load_default(12))
    left = 0
    for each in pictures:
        whole.paste(each, (left, _TITLE))
        left += each.width + _GAP // 3
    return whole


def small(picture: Image.Image) -> Image.Image:
    """At the sheet's height; what is transparent lies over a chequered ground."""
    picture = picture.resize((round(picture.width * _SHOWN / picture.height), _SHOWN), Image.Resampling.BOX)
    if picture.mode != "RGBA":
        return picture.convert("RGB")
    ground = Image.new("RGBA", picture.size, "white")
    cells = ImageDraw.Draw(ground)
    for x in range(0, picture.width, 20):
        for y in range((x // 20) % 2 * 20, picture.height, 40):
            cells.rectangle((x, y, x + 19, y + 19), fill=(215, 215, 215))
    return Image.alpha_composite(ground, picture).convert("RGB")


if __name__ == "__main__":
    main()
