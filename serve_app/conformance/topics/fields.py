"""Every field of every endpoint: what it takes, what it refuses, and the types that fields have in common."""

from __future__ import annotations

from functools import partial
from typing import Final

from serve_app.conformance import pictures
from serve_app.conformance.answers import problems
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import ENDPOINTS, FILL, KLEIN, KONTEXT, MAX, PREVIEW, PRO
from serve_app.conformance.session import Session
from serve_app.conformance.tables.pictures import PICTURES
from serve_app.conformance.verdicts import Skipped, expect

topic = Topic("fields")

_DECIDED: Final = "Decided: submission"
_LONGEST_URL: Final = 2083

for endpoint, fields in PICTURES.items():
    for field in fields:
        topic.holds(ENDPOINTS[endpoint].section, field.sentence)(partial(field.check, endpoint=endpoint))


# What fields have in common


@topic.holds("Common field types", "`webhook_url`: string or null, URI format, length 1 to 2083.")
async def webhook_url_has_a_length(session: Session) -> None:
    start = "http://127.0.0.1/"
    await session.refuses(PRO, {"webhook_url": ""}, "webhook_url")
    await session.refuses(PRO, {"webhook_url": start + "x" * (_LONGEST_URL + 1 - len(start))}, "webhook_url")
    await session.refuses(PRO, {"webhook_url": "not a uri"}, "webhook_url")
    await session.takes(PRO, {"webhook_url": None})


@topic.holds("Common field types", "`webhook_secret`: string or null, secret for webhook signature verification.")
async def webhook_secret_is_a_string(session: Session) -> None:
    await session.refuses(PRO, {"webhook_secret": 7}, "webhook_secret")
    await session.takes(PRO, {"webhook_secret": None})
    await session.takes(PRO, {"webhook_secret": "a secret"})


@topic.holds("Common field types", "`seed`: integer or null, reproducibility; random when omitted.")
async def seed_may_be_left_out(session: Session) -> None:
    await session.refuses(PRO, {"seed": "seven"}, "seed")
    await session.takes(PRO, {"seed": None})


@topic.holds("Common field types", "`output_format`: enumerated string or null.")
async def output_format_is_enumerated(session: Session) -> None:
    await session.refuses(KONTEXT, {"output_format": "bmp"}, "output_format")
    await session.takes(KONTEXT, {"output_format": None})


@topic.holds("Common field types", "Image inputs are base64 strings or, on endpoints that say so, http(s) URLs.")
async def pictures_are_base64(session: Session) -> None:
    await session.takes(PREVIEW, {"input_image": pictures.photo()})
    await session.refuses(PREVIEW, {"input_image": {"url": "x"}}, "input_image")


# Endpoint 1


@topic.holds("1. gen-3-image-klein", "`width` x `height` at most 16822272 pixels")
async def klein_has_a_largest_area(session: Session) -> None:
    await session.takes(KLEIN, {"width": 6256, "height": 2688})
    body = {"width": 6256, "height": 2704}
    response = await session.submit(KLEIN, {"prompt": "x", **body})
    expect(response.status_code == 422, "422 for 6256 x 2704, which is 16916224 pixels")
    locations = [part for entry in problems(response) for part in entry["loc"]]
    expect("width" in locations or "height" in locations, "that detail[].loc names width or height")


@topic.holds("1. gen-3-image-klein", "Exact width in pixels; set together with `height`")
async def klein_takes_both_sides_or_none(session: Session) -> None:
    await session.takes(KLEIN, {"width": 64, "height": 64})


@topic.holds("1. gen-3-image-klein", "Ignored when `width` and `height` are set", credits=1)
async def klein_ignores_ratio_and_tier_beside_a_size(session: Session) -> None:
    reply = await session.accepted(KLEIN, {"aspect_ratio": "21:9", "resolution": "4k"})
    expect((reply["output_mp"] or 0) < 0.1, "output_mp of the 64 x 64 pixels asked for, not of 4k")


@topic.holds("1. gen-3-image-klein", "Omitted: `1k` for text-to-image", credits=1)
async def klein_makes_a_megapixel(session: Session) -> None:
    reply = await session.accepted(KLEIN, {"width": None, "height": None, "aspect_ratio": "1:1"})
    expect(0.9 <= (reply["output_mp"] or 0) <= 1.1, "output_mp of about 1")


@topic.holds("1. gen-3-image-klein", "Equal-area size tier.", credits=4)
async def tiers_have_equal_areas(session: Session) -> None:
    areas = []
    for ratio in ("1:1", "21:9", "1:2"):
        reply = await session.accepted(
            KLEIN, {"width": None, "height": None, "aspect_ratio": ratio, "resolution": "768sq"}
        )
        areas.append(reply["output_mp"])
    expect(max(areas) - min(areas) <= 0.06, f"about the same output_mp for every ratio, not {areas}")


@topic.holds("1. gen-3-image-klein", "an unapproved level returns 422 together with the approved levels")
async def unapproved_levels_are_told(session: Session) -> None:
    response = await session.submit(
        KLEIN, {"prompt": "x", "safety_tolerance": 7, "width": 64, "height": 64, "steps": 1}
    )
    if response.status_code == 200:
        raise Skipped("all levels are approved for this key")
    expect(response.status_code == 422, "422, or 200 where level 7 is approved")
    entries = [entry for entry in problems(response) if "safety_tolerance" in entry["loc"]]
    expect(bool(entries), "that detail[].loc names safety_tolerance")
    told = f"{entries[0]['msg']} {entries[0].get('ctx')}"
    expect("0" in told and "1" in told, "the approved levels")


# Endpoints 3, 6 and 9


@topic.holds("3. gen-2-pro-preview", "`disable_pup` and `transparent_bg` do not exist", credits=3)
async def preview_does_not_know_fields_of_max(session: Session) -> None:
    """What does not exist is ignored: a value that the field would refuse elsewhere passes."""
    await session.refuses(MAX, {"transparent_bg": "perhaps"}, "transparent_bg")
    await session.takes(PREVIEW, {"transparent_bg": "perhaps"})


@topic.holds("6. gen-pro-1.0-fill", "optional when the image has an alpha mask")
async def an_alpha_mask_will_do(session: Session) -> None:
    await session.takes(FILL, {"image": pictures.cut_out(), "mask": None})


@topic.holds("6. gen-pro-1.0-fill", "the service verifies that mask and image dimensions match")
async def masks_fit(session: Session) -> None:
    await session.refuses(FILL, {"mask": pictures.mask(96, 72)}, "mask")


@topic.holds("9. gen-pro-1.0-canny-finetuned", "`preprocessed_image` does not exist")
async def tuned_canny_has_no_preprocessed_image(session: Session) -> None:
    await session.takes("gen-pro-1.0-canny-finetuned", {"preprocessed_image": 7})


# As decided


@topic.holds(
    _DECIDED,
    "ignored on the gen-1/gen-2/kontext-style routes (real clients send `aspect_ratio` beside `width`/`height`, "
    "`guidance`, `user`, …)",
)
async def unknown_fields_are_ignored(session: Session) -> None:
    for name in (MAX, PREVIEW, KONTEXT, PRO, FILL):
        await session.takes(name, {"a_field_that_nobody_knows": 7})


@topic.holds(_DECIDED, "rejected with 422 (`extra_forbidden`) on `gen-3-*` and outpainting")
async def unknown_fields_are_refused(session: Session) -> None:
    for name, each in ENDPOINTS.items():
        if each.strict and not name.endswith("-finetuned"):
            entry = await session.refuses(name, {"a_field_that_nobody_knows": 7}, "a_field_that_nobody_knows")
            expect(entry["type"] == "extra_forbidden", "type extra_forbidden")


@topic.holds(
    _DECIDED,
    "`user` (string 1 to 256 or null: the caller's own end-user id, kept with the task, never shown to others)",
)
async def user_is_taken_everywhere(session: Session) -> None:
    for name in (KLEIN, MAX, KONTEXT, PRO):
        await session.refuses(name, {"user": ""}, "user")
        await session.refuses(name, {"user": "x" * 257}, "user")
        await session.takes(name, {"user": "x" * 256})
        await session.takes(name, {"user": None})


@topic.holds(
    _DECIDED, "`width` without `height`, or the reverse: 422 naming the missing one, wherever the two belong together"
)
async def sides_belong_together(session: Session) -> None:
    for name in (KLEIN, MAX, PREVIEW):
        await session.refuses(name, {"height": None}, "height")
        await session.refuses(name, {"width": None}, "width")
        await session.refuses(name, {}, "height", without="height")


@topic.holds(_DECIDED, '`gen-2-*`: `width`/`height` `0` or null means "not set".')
async def zero_is_not_set(session: Session) -> None:
    for value in (0, None):
        await session.takes(MAX, {"width": value, "height": value})


@topic.holds(_DECIDED, "Fill: `input_image` accepted as a synonym of `image`.")
async def fill_takes_input_image(session: Session) -> None:
    await session.takes(FILL, {"image": None, "input_image": pictures.photo()})


@topic.holds(_DECIDED, "`prompt_upsampling` and `disable_pup` accepted as opposites on non-strict routes.")
async def opposites_are_understood(session: Session) -> None:
    await session.takes(MAX, {"prompt_upsampling": True})
    await session.takes(KONTEXT, {"disable_pup": True})
    await session.takes(PRO, {"disable_pup": False})


@topic.holds(_DECIDED, "`output_format` `webp` accepted on every route")
async def webp_is_a_format(session: Session) -> None:
    for name in (KLEIN, MAX, PREVIEW, KONTEXT, PRO, FILL):
        await session.takes(name, {"output_format": "webp"})


@topic.holds(_DECIDED, "base64, `data:` URI, or http(s) URL, on every endpoint.")
async def data_uris_are_pictures(session: Session) -> None:
    uri = f"data:image/png;base64,{pictures.photo()}"
    await session.takes(KLEIN, {"images": [uri]})
    await session.takes(KONTEXT, {"input_image": uri})
    await session.takes(PRO, {"image_prompt": uri})
    await session.takes(FILL, {"image": uri})


@topic.holds(_DECIDED, "At most 20 MB decoded and 20 MP each")
async def pictures_have_a_largest_size(session: Session) -> None:
    await session.refuses(KONTEXT, {"input_image": pictures.plain(5000, 4400)}, "input_image")


@topic.holds(_DECIDED, "not an image, truncated, or too large: 422 naming the field")
async def what_is_no_picture_is_refused(session: Session) -> None:
    for value in ("bm8gcGljdHVyZQ==", pictures.truncated(), "data:image/png;base64,"):
        await session.refuses(KLEIN, {"images": [value]}, "images")
        await session.refuses(FILL, {"image": value}, "image")


@topic.holds(_DECIDED, "EXIF orientation applied", credits=1)
async def orientation_is_applied(session: Session) -> None:
    body = {"images": [pictures.turned()], "width": None, "height": None, "output_format": "png"}
    task = await session.finished(KLEIN, body)
    width, height = pictures.size_of(await session.picture(task))
    expect(width < height, f"an upright picture, as its reference is, not {width} x {height}")
