"""Fields that several endpoints share, and their combinations."""

from __future__ import annotations

from functools import partial

import pytest
from sent_images import cut_out, make_rotated, make_truncated, open_image, photo, plain
from server_under_test import ENDPOINTS, KLEIN, Json, ServerUnderTest, minimal_body, problems
from support.promises import promise

needs = pytest.mark.needs
_klein = partial(promise, "1. gen-3-image-klein")
_decided = partial(promise, "Decided: submission")


@_klein("`width` x `height` at most 16822272 pixels")
@_klein("Exact width in pixels; set together with `height`")
def test_klein_limits_the_area(server: ServerUnderTest) -> None:
    server.expect_accepted(KLEIN, width=6256, height=2688)
    server.expect_rejected(KLEIN, width=6256, height=2704)


@_klein("Ignored when `width` and `height` are set")
@_klein("Omitted: `1k` for text-to-image")
def test_klein_defaults_to_a_megapixel(server: ServerUnderTest) -> None:
    small = server.create_task(KLEIN, {"aspect_ratio": "21:9", "resolution": "4k"})
    usual = server.create_task(KLEIN, {"width": None, "height": None, "aspect_ratio": "1:1"})
    assert small["output_mp"] < 0.1 < 0.9 <= usual["output_mp"] <= 1.1


@_klein("Equal-area size tier.")
def test_size_tiers_have_equal_areas(server: ServerUnderTest) -> None:
    tier = {"width": None, "height": None, "resolution": "768sq"}
    areas = [server.create_task(KLEIN, tier | {"aspect_ratio": each})["output_mp"] for each in ("1:1", "21:9", "1:2")]
    assert max(areas) - min(areas) <= 0.06


@_klein("an unapproved level returns 422 together with the approved levels")
@promise("Decided: errors", 'the validation entry carries `ctx: {"approved": [0, 1, ..]}`, and the message lists them')
def test_unapproved_safety_level_lists_approved_ones(server: ServerUnderTest) -> None:
    response = server.submit(KLEIN, minimal_body(KLEIN) | {"safety_tolerance": 7})
    if response.status_code == 200:
        pytest.skip("all levels are approved for this key")
    [entry] = [entry for entry in problems(response) if "safety_tolerance" in entry["loc"]]
    approved = entry["ctx"]["approved"]
    assert approved == list(range(len(approved)))
    assert all(str(level) in entry["msg"] for level in approved)


@promise("3. gen-2-pro-preview", "`disable_pup` and `transparent_bg` do not exist")
@promise("9. gen-pro-1.0-canny-finetuned", "`preprocessed_image` does not exist")
@_decided(
    "ignored on the gen-1/gen-2/kontext-style routes (real clients send `aspect_ratio` beside `width`/`height`, "
    "`guidance`, `user`, …)"
)
def test_unknown_fields_are_ignored_on_older_endpoints(server: ServerUnderTest) -> None:
    server.expect_rejected("gen-2-max", transparent_bg="perhaps")
    server.expect_accepted("gen-2-pro-preview", transparent_bg="perhaps", disable_pup="perhaps")
    server.expect_accepted("gen-pro-1.0-canny-finetuned", preprocessed_image=7)
    for name in ("gen-2-max", "gen-2-pro-preview", "gen-kontext-pro", "gen-pro", "gen-pro-1.0-fill"):
        server.expect_accepted(name, a_field_that_nobody_knows=7)


@_decided("rejected with 422 (`extra_forbidden`) on `gen-3-*` and outpainting")
@promise("Decided: tools", "outpainting rejects unknown fields.")
@pytest.mark.parametrize("endpoint", [name for name, each in ENDPOINTS.items() if each.get("strict")])
def test_strict_endpoint_rejects_unknown_fields(server: ServerUnderTest, endpoint: str) -> None:
    assert server.expect_rejected(endpoint, a_field_that_nobody_knows=7)["type"] == "extra_forbidden"


@promise("6. gen-pro-1.0-fill", "optional when the image has an alpha mask")
def test_image_with_alpha_needs_no_mask(server: ServerUnderTest) -> None:
    server.expect_accepted("gen-pro-1.0-fill", image=cut_out(), mask=None)


@promise("Limits", "Input images: up to 8 (`input_image` to `input_image_8`): endpoints 2 and 3")
@promise("Limits", "Input images: up to 4: endpoint 4")
@pytest.mark.parametrize(("endpoint", "count"), [("gen-2-pro-preview", 8), ("gen-kontext-pro", 4)])
def test_all_image_fields_are_accepted_at_once(server: ServerUnderTest, endpoint: str, count: int) -> None:
    names = ["input_image", *(f"input_image_{number}" for number in range(2, count + 1))]
    images: Json = dict.fromkeys(names, photo())
    server.expect_accepted(endpoint, **images)


@_decided("`width` without `height`, or the reverse: 422 naming the missing one, wherever the two belong together")
@pytest.mark.parametrize("endpoint", [KLEIN, "gen-2-max", "gen-2-pro-preview"])
def test_width_and_height_need_each_other(server: ServerUnderTest, endpoint: str) -> None:
    server.expect_rejected(endpoint, height=None)
    server.expect_rejected(endpoint, width=None)
    server.expect_rejected(endpoint, without="height")


@_decided('`gen-2-*`: `width`/`height` `0` or null means "not set".')
@_decided("Fill: `input_image` accepted as a synonym of `image`.")
@_decided("`prompt_upsampling` and `disable_pup` accepted as opposites on non-strict routes.")
def test_synonyms_are_accepted(server: ServerUnderTest) -> None:
    server.expect_accepted("gen-2-max", width=0, height=0)
    server.expect_accepted("gen-2-max", width=None, height=None)
    server.expect_accepted("gen-pro-1.0-fill", image=None, input_image=photo())
    server.expect_accepted("gen-2-max", prompt_upsampling=True)
    server.expect_accepted("gen-kontext-pro", disable_pup=True)


@_decided("At most 20 MB decoded and 20 MP each")
@_decided("not an image, truncated, or too large: 422 naming the field")
def test_invalid_or_large_images_are_rejected(server: ServerUnderTest) -> None:
    server.expect_rejected("gen-kontext-pro", input_image=plain(5000, 4400))
    for value in ("bm8gcGljdHVyZQ==", make_truncated(), "data:image/png;base64,"):
        server.expect_rejected(KLEIN, images=[value])
        server.expect_rejected("gen-pro-1.0-fill", image=value)


@needs("results")
@_decided("EXIF orientation applied")
def test_exif_orientation_is_applied(server: ServerUnderTest) -> None:
    task = server.run_task(images=[make_rotated()], width=None, height=None, output_format="png")
    width, height = open_image(server.download(task)).size
    assert width < height
