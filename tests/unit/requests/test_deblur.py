from __future__ import annotations

import pytest
from support.input_images import picture, sizes

from serve_app.media.geometry import MEGAPIXEL
from serve_app.requests.deblur import DeblurRequest
from serve_app.requests.pictures import Picture, PictureProblem

REQUEST = DeblurRequest(image="a")


@pytest.mark.parametrize(
    ("size", "expected"),
    [((96, 64), (96, 64)), ((2048, 2048), (2048, 2048)), ((4096, 1024), (4096, 1024)), ((30, 20), (96, 64))],
)
def test_the_result_has_the_size_of_the_picture(size: tuple[int, int], expected: tuple[int, int]) -> None:
    sent = [Picture("references", picture(size, "L"))]
    made = REQUEST.prepared(sent)
    assert made == sent
    plan = REQUEST.plan(sizes(made))
    assert (plan.width, plan.height, plan.area) == (*expected, expected[0] * expected[1])


@pytest.mark.parametrize("size", [(2049, 2048), (2048, 2049), (5120, 4096)])
def test_more_than_four_megapixels(size: tuple[int, int]) -> None:
    with pytest.raises(PictureProblem) as refused:
        REQUEST.prepared([Picture("references", picture(size, "L"))])
    assert (refused.value.field, refused.value.kind) == ("image", "picture_too_large")
    for part in ("4 megapixels", str(4 * MEGAPIXEL), f"{size[0]}x{size[1]}"):
        assert part in str(refused.value)
