"""Every image endpoint once, over HTTP, on its own bundled model; models that are not running are started by it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image, ImageDraw, ImageFilter
from support.local_service import LocalService
from support.outcomes import outcome
from support.pictures import sent

from serve_app.cli.service import Client


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    picture = Image.new("RGB", (96, 64), "teal")
    ImageDraw.Draw(picture).ellipse((20, 10, 60, 50), fill="orange")
    return picture


def make(client: Client, endpoint: str, **body: Any) -> tuple[dict[str, Any], Image.Image]:
    task = outcome(client, client.submit(endpoint, {"output_format": "png", "seed": 1} | body)["id"])
    assert task["status"] == "Ready", task
    return task, Image.open(io.BytesIO(client.fetch(task["result"]["sample"])))


@pytest.mark.slow
def test_gen_2_max_rewrites_cuts_out_and_can_be_told_not_to(client: Client) -> None:
    size = {"prompt": "a red circle", "width": 64, "height": 64}
    rewritten, cut = make(client, "gen-2-max", transparent_bg=True, **size)
    plain, picture = make(client, "gen-2-max", disable_pup=True, **size)
    assert rewritten["result"]["prompt"].startswith("a red circle, ")
    assert (cut.mode, cut.size) == ("RGBA", (64, 64))
    assert plain["result"]["prompt"] == "a red circle"
    assert picture.mode == "RGB"


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", ["gen-2-pro", "gen-2-pro-preview"])
def test_gen_2_pro_edits_with_references(client: Client, photo: Image.Image, endpoint: str) -> None:
    body = {"prompt": "make it blue", "disable_pup": True}
    _, one = make(client, endpoint, input_image=sent(photo), **body)
    _, two = make(client, endpoint, input_image=sent(photo), input_image_2=sent(photo), **body)
    assert one.size == two.size == photo.size
    assert one.tobytes() != two.tobytes()


@pytest.mark.slow
def test_kontext_takes_any_ratio(client: Client, photo: Image.Image) -> None:
    task, picture = make(client, "gen-kontext-pro", prompt="winter", input_image=sent(photo), aspect_ratio="2:1")
    assert abs(picture.width / picture.height - 2) < 0.05
    assert task["cost"] == 4


@pytest.mark.slow
def test_gen_pro_looks_at_its_picture_prompt_its_guidance_and_its_interval(client: Client, photo: Image.Image) -> None:
    body = {"prompt": "a fox", "width": 256, "height": 256, "steps": 4}
    variants = [{}, {"image_prompt": sent(photo)}, {"guidance": 5}, {"interval": 1}]
    pictures = [make(client, "gen-pro", **body, **variant)[1].tobytes() for variant in variants]
    assert len(set(pictures)) == len(variants)


def test_fill_leaves_what_is_outside_the_mask(client: Client, photo: Image.Image) -> None:
    mask = Image.new("L", photo.size, 0)
    ImageDraw.Draw(mask).rectangle((30, 20, 70, 50), fill=255)
    _, filled = make(client, "gen-pro-1.0-fill", image=sent(photo), mask=sent(mask), prompt="x", steps=15)
    outside = np.asarray(mask) < 128
    assert np.abs(np.asarray(filled, int) - np.asarray(photo, int))[outside].max() <= 2
    assert np.abs(np.asarray(filled, int) - np.asarray(photo, int))[~outside].max() > 2


@pytest.mark.slow
def test_canny_follows_its_thresholds(client: Client, photo: Image.Image) -> None:
    soft = photo.filter(ImageFilter.GaussianBlur(1.2))  # hard edges are above any threshold
    body = {"prompt": "a fox", "control_image": sent(soft), "steps": 15}
    _, edges = make(client, "gen-pro-1.0-canny", **body)
    _, none = make(client, "gen-pro-1.0-canny", canny_low_threshold=500, canny_high_threshold=500, **body)
    assert edges.size == photo.size
    assert edges.tobytes() != none.tobytes()


def test_a_tuned_model_is_uploaded_used_and_gone(client: Client, service: LocalService) -> None:
    layer = "single_transformer_blocks.0.attn.to_q"
    file = service.folder / "tuned.safetensors"
    weights = {"lora_A": torch.randn(4, 128), "lora_B": torch.randn(128, 4)}
    safetensors.torch.save_file({f"transformer.{layer}.{name}.weight": w for name, w in weights.items()}, file)
    finetune_id = client.upload_finetune(file, "gen-3-image-klein", "noise")["finetune_id"]
    assert [finetune["status"] for finetune in client.finetunes()] == ["Ready"]

    body = {"prompt": "a red circle", "width": 64, "height": 64, "steps": 4}
    tuned = {"finetune_id": finetune_id, **body}
    _, base = make(client, "gen-3-image-klein", **body)
    _, off = make(client, "gen-3-image-klein-finetuned", finetune_strength=0, **tuned)
    _, on = make(client, "gen-3-image-klein-finetuned", finetune_strength=2, **tuned)
    assert off.tobytes() == base.tobytes()
    assert on.tobytes() != base.tobytes()
    client.delete_finetune(finetune_id)
    assert client.finetunes() == []
