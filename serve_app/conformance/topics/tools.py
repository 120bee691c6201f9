"""The tools: every field, and what comes of them."""

from __future__ import annotations

from functools import partial
from typing import Final

from serve_app.conformance import pictures
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import DEBLUR, ERASE, OUTPAINTING, TRY_ON, TRY_ON_2
from serve_app.conformance.session import Session, minimal
from serve_app.conformance.tables.tools import TOOLS
from serve_app.conformance.verdicts import expect

topic = Topic("tools")

_SECTION: Final = "11. Tool endpoints"
_DECIDED: Final = "Decided: tools"

for endpoint, fields in TOOLS.items():
    for field in fields:
        topic.holds(_DECIDED, f"{endpoint.rpartition('/')[2]}: {field.sentence}")(
            partial(field.check, endpoint=endpoint)
        )


@topic.holds(
    _SECTION,
    "Prompt-free removal of masked content from an image; input is an image and a binary mask; optional edge expansion",
)
async def erasing_needs_a_picture_and_a_mask(session: Session) -> None:
    await session.takes(ERASE, {})
    await session.refuses(ERASE, {}, "image", without="image")
    await session.refuses(ERASE, {}, "mask", without="mask")


@topic.holds(_SECTION, "Extends an image beyond its borders; no prompt; direct `width` / `height`")
async def outpainting_needs_a_size(session: Session) -> None:
    await session.takes(OUTPAINTING, {})
    await session.refuses(OUTPAINTING, {}, "width", without="width")


@topic.holds(_SECTION, "placement of the reference via `reference_offset_x` / `reference_offset_y`")
async def outpainting_places_its_reference(session: Session) -> None:
    await session.takes(OUTPAINTING, {"reference_offset_x": 0, "reference_offset_y": 32})
    await session.refuses(OUTPAINTING, {"reference_offset_x": "left"}, "reference_offset_x")


@topic.holds(_SECTION, "`mode` parameter with values `fast` and `high` (default `high`)")
async def outpainting_has_two_modes(session: Session) -> None:
    for mode in ("fast", "high"):
        await session.takes(OUTPAINTING, {"mode": mode})
    await session.refuses(OUTPAINTING, {"mode": "slow"}, "mode")


@topic.holds(_SECTION, "up to 4 MP output; both modes share request fields and response format", credits=20)
async def outpainting_has_a_largest_size(session: Session) -> None:
    await session.takes(OUTPAINTING, {"width": 2048, "height": 2048})
    response = await session.submit(OUTPAINTING, minimal(OUTPAINTING) | {"width": 2064, "height": 2048})
    expect(response.status_code == 422, "422 for 2064 x 2048")


@topic.holds(_SECTION, "inputs up to 2 MP, larger inputs are downscaled to about 1 MP")
async def the_first_try_on_scales_down(session: Session) -> None:
    await session.takes(TRY_ON, {"person": pictures.plain(1800, 1400)})


@topic.holds(_SECTION, "Same request and response format as `vto-v1`; inputs up to 4 MP used as-is")
async def the_second_try_on_takes_more(session: Session) -> None:
    await session.takes(TRY_ON_2, {"person": pictures.plain(2000, 2000)})


@topic.holds(_SECTION, "result follows the model image's resolution", credits=5)
async def a_try_on_has_the_persons_size(session: Session) -> None:
    task = await session.finished(TRY_ON_2, {"person": pictures.photo(128, 160)})
    size = pictures.size_of(await session.picture(task))
    expect(size == (128, 160), f"128 x 160 pixels, not {size[0]} x {size[1]}")


@topic.holds(_SECTION, "Sharpens one image, no prompt, no mask; input up to 4 MP as base64 or image URL", credits=3)
async def deblurring_keeps_the_size(session: Session) -> None:
    task = await session.finished(DEBLUR)
    size = pictures.size_of(await session.picture(task))
    expect(size == (96, 64), f"96 x 64 pixels, not {size[0]} x {size[1]}")


@topic.holds(_DECIDED, "`auto_crop` false (an overflow is then a 422)")
async def overflow_is_refused(session: Session) -> None:
    over = {"reference_offset_x": -8}
    response = await session.submit(OUTPAINTING, minimal(OUTPAINTING) | over)
    expect(response.status_code == 422, "422 for a reference that sticks out")
    await session.takes(OUTPAINTING, over | {"auto_crop": True})


@topic.holds(_DECIDED, "outpainting rejects unknown fields.")
async def outpainting_is_strict(session: Session) -> None:
    await session.refuses(OUTPAINTING, {"prompt": "a field"}, "prompt")
