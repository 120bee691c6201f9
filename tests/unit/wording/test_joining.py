"""What becomes of two pictures, in people's words."""

from __future__ import annotations

import pytest
from support.bundle import WORDS

from deployments.wording.items import items
from deployments.wording.joining import read


def joined(prompt: str) -> str:
    return read(items(WORDS.pieces(prompt), WORDS))


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        (["add the star from image 2 to image 1 on the left", "take the star of the second picture and put it on the "
          "left of the first one", "second photo's star goes to the left of the first photo",
          "from image 2 the star, on the left of image 1"],
         "add the star from image 2 to image 1 on the left"),
        (["whatever sits in the middle of image two belongs in image one, at the bottom",
          "put the one in the center of image 2 into image 1, at the bottom"],
         "add the thing in the center from image 2 to image 1 at the bottom"),
        (["picture 2 gets the pink one from picture 1"], "add the pink thing from image 1 to image 2"),
        (["picture two gets the ring of picture one, in the middle"],
         "add the ring from image 1 to image 2 in the center"),
        (["put the heart from image 1 into image 2", "heart of <ref_image_0> into <ref_image_1>",
          "img1.heart → img2", "the heart in image 1 to image 2"],
         "add the heart from image 1 to image 2"),
        (["the red heart of the first image, large, in the second image, top right"],
         "add the red heart from image 1 to image 2 in the top right and make the heart large"),
        (["the star on the left from image 2 to image 1 at the top"],
         "add the star on the left from image 2 to image 1 at the top"),
        (["combine the two images: ring of image 1, background of image 2", "ring from 1, background from 2"],
         "the ring from image 1 on the background of image 2"),
        (["add the small one from the other image on the left"], "add it from image 2 to image 1 on the left"),
        (["the ring from pic 1 on the background of pic 2", "keep the ring of picture 1 but with the background of "
          "picture 2", "ring from image 1, background from image 2"],
         "the ring from image 1 on the background of image 2"),
        (["the ring of image 2 in the middle, background from image 1, nothing else"],
         "the ring from image 2 on the background of image 1 in the center"),
        (["the first picture with the background of the second", "change image 1's background to the one of image 2",
          "replace the background of image 1 with the one from image 2",
           "use image 2's background for image 1"],
         "image 1 on the background of image 2"),
        (["combine both", "a star", "", "the star and the heart of image 1 in image 2"], ""),
    ],
)  # fmt: skip
def test_what_comes_from_where_is_told_as_it_was_learnt(prompts: list[str], said: str) -> None:
    assert {prompt: joined(prompt) for prompt in prompts} == dict.fromkeys(prompts, said)
