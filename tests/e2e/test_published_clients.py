"""Published clients make images on the service with only another address, at the versions that `tests/clients` pins."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image, ImageDraw
from support import published_clients, website
from support.images import image_base64
from support.local_service import LocalService
from support.polling import wait_for_end
from support.redis_process import until
from support.website import Website

from serve_app.cli.service import Client
from serve_app.config.settings import ServiceSettings

pytestmark = pytest.mark.slow

AI_SDKS = ["ai-sdk-6", "ai-sdk-7"]
PROMPT = "a red star"
OPTIONS = {"steps": 4, "pollTimeoutMillis": 240_000, "pollIntervalMillis": 20, "outputFormat": "png"}
"""Options of the AI SDK. It polls so often that it sees every status."""


def draw_photo() -> Image.Image:
    image = Image.new("RGB", (320, 256), "teal")
    ImageDraw.Draw(image).ellipse((60, 40, 220, 200), fill="orange")
    return image


def draw_mask() -> Image.Image:
    image = Image.new("L", draw_photo().size, 0)
    ImageDraw.Draw(image).rectangle((100, 80, 200, 160), fill=255)
    return image


def open_image(result: dict[str, Any]) -> Image.Image:
    assert "error" not in result, result
    return Image.open(io.BytesIO(base64.b64decode(result["base64"])))


@pytest.fixture
def hooks() -> Iterator[Website]:
    with website.serving() as site:
        site.set_page("/done")
        yield site


@pytest.mark.parametrize("package", AI_SDKS)
def test_ai_sdk_makes_images(service: LocalService, hooks: Website, package: str) -> None:
    def build_call(model: str, prompt: Any = PROMPT, abort: bool = False, **call: Any) -> dict[str, Any]:
        options = {**OPTIONS, **call.pop("options", {})}
        call = {"prompt": prompt, "providerOptions": {"blackForestLabs": options}, **call}
        return {"model": model, "call": call, "abort": abort}

    klein, kontext = "gen-3-image-klein", "gen-kontext-pro"
    fill = {"text": PROMPT, "images": [image_base64(draw_photo())], "mask": image_base64(draw_mask())}
    requests = {
        "prompt": build_call(klein),
        "ratio": build_call(klein, aspectRatio="1:1"),
        "size": build_call(klein, size="512x384", seed=7),
        "same seed": build_call(klein, size="512x384", seed=7),
        "webhook": build_call(klein, options={"webhookUrl": hooks.url("/done"), "webhookSecret": "hush"}),
        "edit": build_call(kontext, {"text": "make it winter", "images": [image_base64(draw_photo())]}, seed=7),
        "fill": build_call("flux-pro-1.0-fill", fill, options={"steps": 15}),
        "alias": build_call("flux-3-image-klein"),
        "abort": build_call(klein, abort=True),
        "refused": build_call(klein, options={"steps": 99}),
        # The SDK sends `input_image`, which this strict endpoint rejects; kontext and `gen-2-*` accept it.
        "no such field": build_call(klein, {"text": PROMPT, "images": [image_base64(draw_photo())]}),
    }
    answer = run_ai_sdk(service, package, requests)
    results = answer["results"]

    assert open_image(results["prompt"]).size == (1360, 768)
    ratio = open_image(results["ratio"])
    assert ratio.width == ratio.height
    assert open_image(results["size"]).size == (512, 384)
    assert results["size"]["metadata"]["seed"] == 7
    assert results["size"]["base64"] == results["same seed"]["base64"]
    assert results["prompt"]["metadata"]["cost"] > 0
    edited = open_image(results["edit"])
    assert edited.width > edited.height
    assert open_image(results["fill"]).size == draw_photo().size
    open_image(results["alias"])
    open_image(results["webhook"])
    assert results["abort"]["error"] == "AbortError"
    for name, field in (("refused", "steps"), ("no such field", "input_image")):
        assert results[name]["status"] == 422
        assert field in results[name]["message"]

    until(lambda: bool(hooks.received))
    headers, _ = hooks.received[0]
    assert headers["webhook-signature"].startswith("v1,")

    for agent in answer["userAgents"]:
        assert any(name in agent for name in ServiceSettings().basic_status_clients), agent


def run_ai_sdk(service: LocalService, package: str, requests: dict[str, Any]) -> dict[str, Any]:
    folder = published_clients.node_package(service.repository, package)
    payload = {"baseURL": f"{service.base_url}/v1", "apiKey": service.key, "requests": requests}
    return published_clients.run_node(folder, service.repository / "tests/clients/ai-sdk.mjs", payload)


def test_blackforest_makes_images(service: LocalService, client: Client) -> None:
    image, hole = image_base64(draw_photo()), image_base64(draw_mask())
    requests: dict[str, dict[str, Any]] = {
        "flux-pro": {"prompt": PROMPT, "width": 256, "height": 256, "steps": 4, "seed": 7},
        "flux-pro-1.1": {"prompt": PROMPT, "width": 256, "height": 256, "seed": 7},
        "flux-kontext-pro": {"prompt": "make it winter", "input_image": image, "aspect_ratio": "1:1"},
        "flux-pro-1.0-fill": {"prompt": PROMPT, "image": image, "mask": hole, "steps": 15},
        "flux-pro-1.0-canny": {"prompt": PROMPT, "control_image": image, "steps": 15},
    }
    python = published_clients.python_environment(service.repository, "blackforest")
    payload = {
        "base_url": service.base_url,
        "key": service.key,
        "requests": {model: {"model": model, "inputs": inputs} for model, inputs in requests.items()},
    }
    script = service.repository / "tests/clients/blackforest/generate.py"
    results = published_clients.run_python(python, script, payload)["results"]
    for model in requests:
        assert "error" not in results[model], (model, results[model])
        sample = client.fetch(results[model]["result"]["sample"])
        assert min(Image.open(io.BytesIO(sample)).size) >= 256
    assert results["flux-pro"]["result"]["seed"] == 7


def test_litellm_rejects_the_polling_url(service: LocalService, client: Client) -> None:
    """LiteLLM submits, but only polls the hosted service."""
    python = published_clients.python_environment(service.repository, "litellm")
    script = service.repository / "tests/clients/litellm/generate.py"
    output = published_clients.run_python(
        python,
        script,
        {"model": "flux-kontext-pro", "prompt": PROMPT},
        BFL_API_BASE=service.base_url,
        BFL_API_KEY=service.key,
        LITELLM_LOCAL_MODEL_COST_MAP="True",  # otherwise it downloads prices at import
    )
    assert "Rejected polling URL" in output["error"]
    newest = client.tasks(limit=1)["tasks"][0]
    assert wait_for_end(client, newest["id"])["status"] == "Ready"
