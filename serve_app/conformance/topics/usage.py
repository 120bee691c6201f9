"""Reports of the use of licensed models."""

from __future__ import annotations

from typing import Final

from serve_app.conformance.answers import detail, json_of, problems
from serve_app.conformance.check import Topic
from serve_app.conformance.session import Session
from serve_app.conformance.verdicts import Skipped, expect

topic = Topic("usage")

_SECTION: Final = "14. Model usage"
_UNKNOWN: Final = "/v1/licenses/models/conformance-no-such-model/usage"
_SLUGS: Final = ("flux-1-dev", "flux-1-kontext-dev", "flux-tools")


async def _known(session: Session) -> tuple[str, int]:
    """The path of a model that the server knows, and how it answers a report of one generation."""
    for slug in _SLUGS:
        path = f"/v1/licenses/models/{slug}/usage"
        response = await session.post(path, {"number_of_generations": 1})
        if response.status_code in (200, 403):
            return path, response.status_code
    raise Skipped("no slug of a licensed model is known")


@topic.holds("Usage record", "`number_of_generations`, integer, greater than 0, default 1.")
async def the_number_is_positive(session: Session) -> None:
    path, _ = await _known(session)
    for value in (0, -1, 1.5, "many"):
        response = await session.post(path, {"number_of_generations": value})
        expect(response.status_code == 422, f"422 for {value!r}")
        named = any("number_of_generations" in entry["loc"] for entry in problems(response))
        expect(named, "that detail[].loc names number_of_generations")
    response = await session.post(path, {})
    expect(response.status_code in (200, 403), "that the number may be left out")


@topic.holds(_SECTION, "200: Usage recorded: `message` string")
async def reports_are_recorded(session: Session) -> None:
    path, status = await _known(session)
    if status == 403:
        raise Skipped("the key's organization has no licence")
    response = await session.post(path, {"number_of_generations": 1})
    expect(response.status_code == 200 and isinstance(json_of(response).get("message"), str), "200 and message")


@topic.holds(_SECTION, "400: Model slug is not supported for usage reporting: `detail` string")
async def unknown_slugs_are_told(session: Session) -> None:
    detail(await session.post(_UNKNOWN, {"number_of_generations": 1}), 400)


@topic.holds(
    _SECTION,
    "403: The model is not licensed for the caller; a subscription change may take 15 minutes to take effect: "
    "`detail` string",
)
async def licences_are_needed(session: Session) -> None:
    path, status = await _known(session)
    if status == 200:
        raise Skipped("the key's organization has a licence")
    detail(await session.post(path, {"number_of_generations": 1}), 403)


@topic.holds(_SECTION, "422: Invalid body or parameters: validation error body")
async def invalid_reports_are_422(session: Session) -> None:
    path, _ = await _known(session)
    response = await session.post(path, [1])
    expect(response.status_code == 422, "422 for an array")
    problems(response)


@topic.holds(_SECTION, "Body (required): `number_of_generations`, integer, greater than 0, default 1.")
async def the_body_is_required(session: Session) -> None:
    path, _ = await _known(session)
    response = await session.post(path)
    expect(response.status_code == 422, "422 without a body")


@topic.holds(_SECTION, "Header: `x-key`.")
async def reports_need_a_key(session: Session) -> None:
    response = await session.post(_UNKNOWN, {}, key="")
    expect(response.status_code in (401, 403), "403 without a key")


@topic.holds("Decided: money, accounts", "`model_slug` known in the catalog or 400; organization licensed or 403")
async def the_slug_comes_first(session: Session) -> None:
    detail(await session.post(_UNKNOWN, {"number_of_generations": 1}), 400)
    _, status = await _known(session)
    expect(status in (200, 403), "200 or 403 for a known slug")
