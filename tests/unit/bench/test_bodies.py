"""What is sent is what the interface takes: the service's own models of its requests say so."""

from __future__ import annotations

import base64
import io

import pytest
from gen_serve_bench.bodies import body_of, path_of
from gen_serve_bench.workload import Request, Shape, Size
from PIL import Image

from serve_app.schemas import REQUESTS


def request(endpoint: str, shape: Shape, **body: object) -> Request:
    return Request(0, 0.0, endpoint, shape, "all", "a red star", 7, Size(96, 64), body)


def size_of(picture: str) -> tuple[int, int]:
    return Image.open(io.BytesIO(base64.b64decode(picture))).size


SHAPES = {
    "gen-3-image-klein": ("image-klein", Shape(Size(256, 128), steps=4, references=2)),
    "gen-2-max": ("gen2-max", Shape(Size(256, 128), steps=4, references=8)),
    "gen-kontext-pro": ("kontext", Shape(Size(1024, 512), steps=4, references=1)),
    "gen-pro": ("pro", Shape(Size(512, 256), steps=4, references=1)),
    "gen-pro-1.0-fill": ("fill", Shape(Size(256, 128), steps=15, references=1)),
    "gen-pro-1.0-canny": ("canny", Shape(Size(256, 128), steps=15, references=1)),
    "gen-tools/erase-v1": ("erase", Shape(Size(256, 128))),
    "gen-tools/outpainting-v1": ("outpainting", Shape(Size(256, 128), references=1)),
    "gen-tools/vto-v2": ("vto-v2", Shape(Size(256, 128), references=2)),
    "gen-tools/deblur-v1": ("deblur", Shape(Size(256, 128), references=1)),
    "gen-3-video": ("video", Shape(Size(1280, 704), steps=8, references=2, seconds=5)),
}
"""With the names of their models."""


@pytest.mark.parametrize("endpoint", SHAPES)
def test_every_endpoint_takes_what_is_sent_and_knows_all_of_it(endpoint: str) -> None:
    name, shape = SHAPES[endpoint]
    body = body_of(request(endpoint, shape))
    taken = REQUESTS[name].model_validate(body)
    known = set(type(taken).model_fields) | set(type(getattr(taken, "root", taken)).model_fields)
    assert name == "video" or set(body) <= known


def test_a_video_is_asked_for_by_its_ratio_and_area() -> None:
    body = body_of(request("gen-3-video", Shape(Size(704, 1280), seconds=5)))
    assert (body["mode"], body["aspect_ratio"], body["resolution"], body["draft"]) == ("t2v", "9:16", "hd", False)


def test_pictures_have_the_size_that_is_asked_for() -> None:
    fill = body_of(request("gen-pro-1.0-fill", Shape(Size(256, 128))))
    assert size_of(fill["mask"]) == size_of(fill["image"]) == (256, 128)
    assert size_of(body_of(request("gen-tools/outpainting-v1", Shape(Size(256, 192))))["input_image"]) == (128, 96)
    assert [size_of(each) for each in body_of(request("gen-any", Shape(references=2)))["images"]] == [(96, 64)] * 2


def test_further_fields_go_before_what_the_shape_says() -> None:
    assert body_of(request("gen-3-image-klein", Shape(steps=4), steps=2))["steps"] == 2


def test_a_tuned_endpoint_is_asked_with_a_tuned_model_or_its_base_is() -> None:
    tuned = request("gen-pro-finetuned", Shape(tuned=True))
    assert (path_of(tuned), "finetune_id" in body_of(tuned)) == ("/v1/gen-pro", False)
    assert (path_of(tuned, "ft_1"), body_of(tuned, "ft_1")["finetune_id"]) == ("/v1/gen-pro-finetuned", "ft_1")


def test_more_pictures_than_an_endpoint_takes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gen-pro takes 1 pictures at most, not 2 \(references\)"):
        body_of(request("gen-pro", Shape(references=2)))
