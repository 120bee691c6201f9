"""Versions, what is deprecated, and what is gone."""

from __future__ import annotations

from typing import Final

import httpx2

from serve_app.conformance.answers import detail, json_of
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import CANNY, FILL, KLEIN, MAX, PREVIEW, PRO, TRY_ON, TRY_ON_2
from serve_app.conformance.session import Session, minimal
from serve_app.conformance.verdicts import Skipped, expect

topic = Topic("versions")

_SECTION: Final = "Versioning"
_DECIDED: Final = "Decided: tuned models"
_DEPRECATED: Final = (CANNY, f"{CANNY}-finetuned", f"{FILL}-finetuned", f"{PRO}-finetuned")
_GONE: Final = {
    "gen-pro-1.0-depth": "gen-pro-1.1",
    "finetune": "finetunes",
    "gen-pro-1.1-ultra-finetuned": "finetune",
    "gen-pro-1.0-depth-finetuned": "finetune",
}


async def _refused(session: Session, name: str) -> httpx2.Response:
    """The answer to an invalid request: it costs nothing, and tells whether the path is served."""
    return await session.post(f"/v1/{name}", {"seed": "no number", "safety_tolerance": "none"})


@topic.holds(_SECTION, "The API version is part of the path: `/v1/`.")
async def the_version_is_in_the_path(session: Session) -> None:
    expect((await _refused(session, KLEIN)).status_code == 422, "422 below /v1/")
    response = await session.post(f"/{KLEIN}", {})
    expect(response.status_code == 404, "404 without /v1/")


@topic.holds(_SECTION, "`gen-2-pro` is a fixed snapshot for reproducible workflows.", credits=3)
async def the_snapshot_is_served(session: Session) -> None:
    response = await session.submit("gen-2-pro", minimal(PREVIEW))
    expect(response.status_code == 200, "200 from gen-2-pro")


@topic.holds(
    _SECTION,
    "`gen-2-pro-preview` is an endpoint on which the newest improvements land first and that keeps receiving updates",
)
async def the_preview_is_served(session: Session) -> None:
    expect((await _refused(session, PREVIEW)).status_code == 422, "422 from gen-2-pro-preview")


@topic.holds(_SECTION, "`vto-v2` is the recommended try-on version; `vto-v1` remains available.")
async def both_try_ons_are_served(session: Session) -> None:
    for name in (TRY_ON, TRY_ON_2):
        expect((await _refused(session, name)).status_code == 422, f"422 from {name}")


@topic.holds(_SECTION, "Outpainting `mode` omitted keeps the `high` behaviour.")
async def outpainting_is_high_by_default(session: Session) -> None:
    path, body = "/v1/gen-tools/outpainting-v1", minimal("gen-tools/outpainting-v1")
    body.pop("mode")
    costs = []
    for change in ({}, {"mode": "high"}, {"mode": "fast"}):
        response = await session.post("/v1/pricing", {"path": path, "body": body | change})
        if response.status_code != 200:
            raise Skipped("the server tells no prices")
        costs.append(json_of(response)["cost"])
    if costs[1] == costs[2]:
        raise Skipped("both modes cost the same")
    expect(costs[0] == costs[1], "the price of mode high without a mode")


@topic.holds(
    _SECTION, "Tuned-model (LoRA) inference via `-finetuned` endpoints is a separate self-serve path in public beta."
)
async def tuned_inference_is_not_deprecated(session: Session) -> None:
    response = await _refused(session, f"{MAX}-finetuned")
    expect(response.status_code == 422, "422 from gen-2-max-finetuned")
    expect("deprecation" not in response.headers, "no Deprecation header")


@topic.holds(_SECTION, "Migration targets for the first group: `gen-pro-1.1` and `gen-kontext-pro`.")
async def the_targets_are_served(session: Session) -> None:
    for name in ("gen-pro-1.1", "gen-kontext-pro"):
        response = await _refused(session, name)
        expect(response.status_code == 422, f"422 from {name}")
        expect("deprecation" not in response.headers, f"no Deprecation header from {name}")


@topic.holds(_SECTION, "The usage-reporting interface description carries the version number 0.0.1.")
async def the_usage_description_has_its_version(session: Session) -> None:
    response = await session.get("/openapi.json", key="")
    if response.status_code != 200:
        raise Skipped("no description at /openapi.json")
    described = json_of(response).get("paths", {}).get("/v1/licenses/models/{model_slug}/usage", {}).get("post", {})
    expect(described.get("x-version") == "0.0.1", "x-version 0.0.1 in the operation")


@topic.holds(
    _DECIDED,
    "Deprecated endpoints answer as before and add the headers `Deprecation` and, where a date is set, `Sunset` (RFC "
    "9745, RFC 8594).",
)
async def deprecation_is_told(session: Session) -> None:
    for name in _DEPRECATED:
        response = await _refused(session, name)
        expect(response.status_code == 422, f"422 from {name}, as before")
        expect(response.headers.get("deprecation", "").startswith("@"), f"Deprecation: @<epoch seconds> from {name}")


@topic.holds(_DECIDED, "`gen-pro-1.1` serves what `gen-pro` serves")
async def the_newer_name_is_served(session: Session) -> None:
    response = await session.post("/v1/gen-pro-1.1", {"width": 255})
    expect(response.status_code == 422, "422 from gen-pro-1.1 for a width of 255")


@topic.holds(_DECIDED, '`gen-pro-1.0` too, deprecated, with `Link: rel="successor-version"`.')
async def the_older_name_names_its_successor(session: Session) -> None:
    response = await session.post("/v1/gen-pro-1.0", {"width": 255})
    expect(response.status_code == 422, "422 from gen-pro-1.0 for a width of 255")
    expect("deprecation" in response.headers, "Deprecation")
    link = response.headers.get("link", "")
    expect("successor-version" in link and "gen-pro-1.1" in link, 'Link: <…gen-pro-1.1>; rel="successor-version"')


@topic.holds(
    _DECIDED,
    "What is not served any more (`gen-pro-1.0-depth`, `/v1/finetune`, `gen-pro-1.1-ultra-finetuned`, "
    "`gen-pro-1.0-depth-finetuned`) answers 410 with a `detail` that names the target (`gen-pro-1.1`, "
    "`gen-kontext-pro`) or says that there is none and how a tuned model is uploaded.",
)
async def what_is_gone_says_so(session: Session) -> None:
    for name, told in _GONE.items():
        text = detail(await session.post(f"/v1/{name}", {}), 410)
        expect(told in text, f"{told} in the detail of {name}")
