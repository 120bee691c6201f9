"""Clients that others published make pictures on the service as it comes, unchanged: only the address is another.

They are installed at the versions that `tests/clients` pins. What a client refuses by itself is here, too.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image, ImageDraw
from support import published_clients, website
from support.local_service import LocalService
from support.outcomes import outcome
from support.pictures import sent
from support.redis_process import until
from support.website import Website

from serve_app.cli.service import Client
from serve_app.config.settings import ServiceSettings

pytestmark = pytest.mark.slow

AI_SDKS = ["ai-sdk-6", "ai-sdk-7"]
PROMPT = "a red star"
OPTIONS = {"steps": 4, "pollTimeoutMillis": 240_000, "pollIntervalMillis": 20, "outputFormat": "png"}
"""Of the AI SDK: so many polls meet every status on the way."""


def photo() -> Image.Image:
    picture = Image.new("RGB", (320, 256), "teal")
    ImageDraw.Draw(picture).ellipse((60, 40, 220, 200), fill="orange")
    return picture


def mask() -> Image.Image:
    picture = Image.new("L", photo().size, 0)
    ImageDraw.Draw(picture).rectangle((100, 80, 200, 160), fill=255)
    return picture


def opened(result: dict[str, Any]) -> Image.Image:
    assert "error" not in result, result
    return Image.open(io.BytesIO(base64.b64decode(result["base64"])))


@pytest.fixture
def hooks() -> Iterator[Website]:
    with website.serving() as site:
        site.put("/done")
        yield site


@pytest.mark.parametrize("package", AI_SDKS)
def test_the_ai_sdk(service: LocalService, hooks: Website, package: str) -> None:
    def asked(model: str, prompt: Any = PROMPT, abort: bool = False, **call: Any) -> dict[str, Any]:
        told = {**OPTIONS, **call.pop("options", {})}
        call = {"prompt": prompt, "providerOptions": {"blackForestLabs": told}, **call}
        return {"model": model, "call": call, "abort": abort}

    klein, kontext = "gen-3-image-klein", "gen-kontext-pro"
    fill = {"text": PROMPT, "images": [sent(photo())], "mask": sent(mask())}
    requests = {
        "prompt": asked(klein),
        "ratio": asked(klein, aspectRatio="1:1"),
        "size": asked(klein, size="512x384", seed=7),
        "same seed": asked(klein, size="512x384", seed=7),
        "webhook": asked(klein, options={"webhookUrl": hooks.url("/done"), "webhookSecret": "hush"}),
        "edit": asked(kontext, {"text": "make it winter", "images": [sent(photo())]}, seed=7),
        "fill": asked("flux-pro-1.0-fill", fill, options={"steps": 15}),
        "alias": asked("flux-3-image-klein"),
        "abort": asked(klein, abort=True),
        "refused": asked(klein, options={"steps": 99}),
        # It sends `input_image`, which this strict endpoint does not have; kontext and `gen-2-*` take it.
        "no such field": asked(klein, {"text": PROMPT, "images": [sent(photo())]}),
    }
    answer = run_ai_sdk(service, package, requests)
    results = answer["results"]

    assert opened(results["prompt"]).size == (1360, 768)
    ratio = opened(results["ratio"])
    assert ratio.width == ratio.height
    assert opened(results["size"]).size == (512, 384)
    assert results["size"]["metadata"]["seed"] == 7
    assert results["size"]["base64"] == results["same seed"]["base64"]
    assert results["prompt"]["metadata"]["cost"] > 0
    edited = opened(results["edit"])
    assert edited.width > edited.height
    assert opened(results["fill"]).size == photo().size
    opened(results["alias"])
    opened(results["webhook"])
    assert results["abort"]["error"] == "AbortError"
    for name, field in (("refused", "steps"), ("no such field", "input_image")):
        assert results[name]["status"] == 422
        assert field in results[name]["message"]

    until(lambda: bool(hooks.received))
    headers, _ = hooks.received[0]
    assert headers["webhook-signature"].startswith("v1,")

    for told in answer["userAgents"]:
        assert any(name in told for name in ServiceSettings().basic_status_clients), told


def run_ai_sdk(service: LocalService, package: str, requests: dict[str, Any]) -> dict[str, Any]:
    folder = published_clients.node_package(service.repository, package)
    asked = {"baseURL": f"{service.base_url}/v1", "apiKey": service.key, "requests": requests}
    return published_clients.run_node(folder, service.repository / "tests/clients/ai-sdk.mjs", asked)


def test_blackforest(service: LocalService, client: Client) -> None:
    picture, hole = sent(photo()), sent(mask())
    requests: dict[str, dict[str, Any]] = {
        "flux-pro": {"prompt": PROMPT, "width": 256, "height": 256, "steps": 4, "seed": 7},
        "flux-pro-1.1": {"prompt": PROMPT, "width": 256, "height": 256, "seed": 7},
        "flux-kontext-pro": {"prompt": "make it winter", "input_image": picture, "aspect_ratio": "1:1"},
        "flux-pro-1.0-fill": {"prompt": PROMPT, "image": picture, "mask": hole, "steps": 15},
        "flux-pro-1.0-canny": {"prompt": PROMPT, "control_image": picture, "steps": 15},
    }
    python = published_clients.python_environment(service.repository, "blackforest")
    asked = {
        "base_url": service.base_url,
        "key": service.key,
        "requests": {model: {"model": model, "inputs": inputs} for model, inputs in requests.items()},
    }
    script = service.repository / "tests/clients/blackforest/generate.py"
    results = published_clients.run_python(python, script, asked)["results"]
    for model in requests:
        assert "error" not in results[model], (model, results[model])
        sample = client.fetch(results[model]["result"]["sample"])
        assert min(Image.open(io.BytesIO(sample)).size) >= 256
    assert results["flux-pro"]["result"]["seed"] == 7


def test_litellm_polls_its_own_provider_only(service: LocalService, client: Client) -> None:
    """It submits, and then refuses any polling address that is not the hosted service's; nothing here can mend that."""
    python = published_clients.python_environment(service.repository, "litellm")
    script = service.repository / "tests/clients/litellm/generate.py"
    told = published_clients.run_python(
        python,
        script,
        {"model": "flux-kontext-pro", "prompt": PROMPT},
        BFL_API_BASE=service.base_url,
        BFL_API_KEY=service.key,
        LITELLM_LOCAL_MODEL_COST_MAP="True",  # else it asks the internet for prices as it is imported
    )
    assert "Rejected polling URL" in told["error"]
    newest = client.tasks(limit=1)["tasks"][0]
    assert outcome(client, newest["id"])["status"] == "Ready"
