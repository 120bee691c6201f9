from __future__ import annotations

import pytest
from support.input_images import picture, sizes

from serve_app.schemas.fields import Picture, PictureProblem
from serve_app.schemas.tools import DeblurRequest

REQUEST = DeblurRequest(image="a")


@pytest.mark.parametrize(
    ("size", "expected"),
    [((2048, 2048), (2048, 2048)), ((30, 20), (96, 64))],
)
def test_the_result_has_the_size_of_the_picture(size: tuple[int, int], expected: tuple[int, int]) -> None:
    sent = [Picture("references", picture(size, "L"))]
    made = REQUEST.prepared(sent)
    assert made == sent
    plan = REQUEST.plan(sizes(made))
    assert (plan.width, plan.height, plan.area) == (*expected, expected[0] * expected[1])


def test_more_than_four_megapixels() -> None:
    with pytest.raises(PictureProblem) as refused:
        REQUEST.prepared([Picture("references", picture((2049, 2048), "L"))])
    assert (refused.value.field, refused.value.kind) == ("image", "picture_too_large")
