"""Versions, deprecated and removed endpoints, and endpoints for adapters."""

from __future__ import annotations

from functools import partial
from typing import Final

import httpx2
import pytest
from sent_images import open_image
from server_under_test import (
    KLEIN,
    NO_FINETUNE,
    OUTPAINTING,
    SUBMITTED,
    Json,
    ServerUnderTest,
    error_detail,
    minimal_body,
)
from support.promises import promise

_versioning = partial(promise, "Versioning")
_decided = partial(promise, "Decided: tuned models")
_tuned = partial(promise, "12. Tuned-model endpoints")
_BASES: Final = [name for name in SUBMITTED if "tools" not in name]


def _post_invalid(server: ServerUnderTest, name: str) -> httpx2.Response:
    """Sends an invalid body, which costs nothing. The 422 shows that the path is served."""
    response = server.post(f"/v1/{name}", {"seed": "no number", "safety_tolerance": "none"})
    assert response.status_code == 422, f"{name}: {response.text}"
    return response


@_versioning("The API version is part of the path: `/v1/`.")
def test_path_has_the_version(server: ServerUnderTest) -> None:
    _post_invalid(server, KLEIN)
    assert server.post(f"/{KLEIN}", {}).status_code == 404


@_versioning("`vto-v2` is the recommended try-on version; `vto-v1` remains available.")
@_versioning("`gen-2-pro` is a fixed snapshot for reproducible workflows.")
@_versioning(
    "`gen-2-pro-preview` is an endpoint on which the newest improvements land first and that keeps receiving updates"
)
@_versioning("Migration targets for the first group: `gen-pro-1.1` and `gen-kontext-pro`.")
@_versioning("Tuned-model (LoRA) inference via `-finetuned` endpoints is a separate self-serve path in public beta.")
@pytest.mark.parametrize(
    "name",
    [
        "gen-tools/vto-v1",
        "gen-tools/vto-v2",
        "gen-2-pro",
        "gen-2-pro-preview",
        "gen-pro-1.1",
        "gen-kontext-pro",
        "gen-2-max-finetuned",
    ],
)
def test_current_endpoint_is_not_deprecated(server: ServerUnderTest, name: str) -> None:
    assert "deprecation" not in _post_invalid(server, name).headers


@_versioning("Outpainting `mode` omitted keeps the `high` behaviour.")
def test_outpainting_mode_defaults_to_high(server: ServerUnderTest) -> None:
    body = minimal_body(OUTPAINTING)
    body.pop("mode")
    priced = [
        server.post_until_accepted("/v1/pricing", {"path": f"/v1/{OUTPAINTING}", "body": body | change}).json()
        for change in ({}, {"mode": "high"})
    ]
    assert priced[0] == priced[1]


@_versioning("The usage-reporting interface description carries the version number 0.0.1.")
def test_usage_endpoint_has_its_version(server: ServerUnderTest) -> None:
    described = server.get("/openapi.json", key="").json()["paths"]
    assert described["/v1/licenses/models/{model_slug}/usage"]["post"]["x-version"] == "0.0.1"


@_decided(
    "Deprecated endpoints answer as before and add the headers `Deprecation` and, where a date is set, `Sunset` (RFC "
    "9745, RFC 8594)."
)
@pytest.mark.parametrize(
    "name", ["gen-pro-1.0-canny", "gen-pro-1.0-canny-finetuned", "gen-pro-1.0-fill-finetuned", "gen-pro-finetuned"]
)
def test_deprecated_endpoint_has_the_header(server: ServerUnderTest, name: str) -> None:
    assert _post_invalid(server, name).headers["deprecation"].startswith("@")


@_decided("`gen-pro-1.1` serves what `gen-pro` serves")
@_decided('`gen-pro-1.0` too, deprecated, with `Link: rel="successor-version"`.')
def test_older_name_links_to_its_successor(server: ServerUnderTest) -> None:
    _post_invalid(server, "gen-pro-1.1")
    older = _post_invalid(server, "gen-pro-1.0")
    assert "deprecation" in older.headers
    assert "successor-version" in older.headers["link"]
    assert "gen-pro-1.1" in older.headers["link"]


@_decided(
    "What is not served any more (`gen-pro-1.0-depth`, `/v1/finetune`, `gen-pro-1.1-ultra-finetuned`, "
    "`gen-pro-1.0-depth-finetuned`) answers 410 with a `detail` that names the target (`gen-pro-1.1`, "
    "`gen-kontext-pro`) or says that there is none and how a tuned model is uploaded."
)
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("gen-pro-1.0-depth", "gen-pro-1.1"),
        ("finetune", "finetunes"),
        ("gen-pro-1.1-ultra-finetuned", "finetune"),
        ("gen-pro-1.0-depth-finetuned", "finetune"),
    ],
)
def test_removed_endpoint_names_the_replacement(server: ServerUnderTest, name: str, target: str) -> None:
    assert target in error_detail(server.post(f"/v1/{name}", {}), 410)


# Adapters


@_tuned("Each matches the request of its base endpoint and adds `finetune_id` and `finetune_strength`.")
@_decided("`POST /v1/{base}-finetuned` exists for every base endpoint whose catalog entry allows LoRA")
@_decided('Unknown or foreign id: 400 `"Finetune not found or not ready"`.')
@_decided("Adds `finetune_id` (required) and `finetune_strength` (0 to 2, default 1.1).")
@pytest.mark.parametrize("base", _BASES)
def test_every_base_has_a_tuned_endpoint(server: ServerUnderTest, base: str) -> None:
    endpoint = f"{base}-finetuned"
    server.expect_rejected(endpoint, without="finetune_id")
    server.expect_rejected(endpoint, finetune_strength=2.01)
    server.expect_rejected(endpoint, seed="no number")
    assert error_detail(server.submit(endpoint, minimal_body(endpoint)), 400) == "Finetune not found or not ready"


@_decided("`GET /v1/my_finetunes`")
@_decided("`GET /v1/finetune_details?finetune_id=`")
@_decided("`POST /v1/delete_finetune`")
def test_tuned_models_are_listed(server: ServerUnderTest) -> None:
    assert isinstance(server.get("/v1/my_finetunes").json()["finetunes"], list)
    details = server.get("/v1/finetune_details", params={"finetune_id": NO_FINETUNE})
    deleted = server.post("/v1/delete_finetune", {"finetune_id": NO_FINETUNE})
    assert {details.status_code, deleted.status_code} <= {400, 404}


@pytest.mark.needs("finetune")
@_tuned("During the beta such requests are billed at the base endpoint's rate.")
def test_tuned_model_costs_as_its_base(server: ServerUnderTest) -> None:
    base, finetune_id = server.finetune
    tuned = server.create_task(f"{base}-finetuned", {"finetune_id": finetune_id})
    assert tuned["cost"] == server.create_task(base)["cost"]


@pytest.mark.needs("finetune", "results")
@promise("8. gen-pro-1.0-fill-finetuned", "0 no influence, 1 full influence")
def test_finetune_strength_changes_the_image(server: ServerUnderTest) -> None:
    base, finetune_id = server.finetune
    body: Json = {"seed": 7, "output_format": "png"}
    tasks = [server.run_task(base, **body)]
    for strength in (0, 2):
        changed = body | {"finetune_id": finetune_id, "finetune_strength": strength}
        tasks.append(server.run_task(f"{base}-finetuned", **changed))
    plain, none, full = (open_image(server.download(task)).convert("RGB").tobytes() for task in tasks)
    assert plain == none
    assert plain != full
