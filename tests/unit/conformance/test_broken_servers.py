"""A server with one fault: the kit names the sentences that it breaks, and no others."""

from __future__ import annotations

import pytest
from support.http_service import serving
from support.toy_dialect import KEY, ToyDialect

from serve_app.conformance.check import Outcome, Verdict
from serve_app.conformance.run import Options, chosen, run


async def outcomes_of(fault: str, *topics: str) -> list[Outcome]:
    with serving(ToyDialect(fault).app) as base_url:
        options = Options(base_url=base_url, key=KEY, budget=1000, receiver_host="127.0.0.1")
        return [outcome async for outcome in run(chosen(topics), options)]


def failing(outcomes: list[Outcome]) -> set[str]:
    return {each.check.sentence for each in outcomes if each.verdict is Verdict.FAILS}


_GOOD: dict[str, set[str]] = {}


async def failing_anyway(topic: str) -> set[str]:
    """What the toy does not do at all."""
    if topic not in _GOOD:
        _GOOD[topic] = failing(await outcomes_of("", topic))
    return _GOOD[topic]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "topic", "sentences"),
    [
        ("plain ids", "submission", {"UUIDv4 string"}),
        (
            "relative addresses",
            "submission",
            {"absolute, `{public_base}/v1/get_result?id=<id>`", "Same origin as the client used"},
        ),
        ("round megapixels", "submission", {"1 MP = 1,048,576 px, rounded to 2 decimals"}),
        ("too many steps", "limits", {"`steps`: 1 to 16 (default 16): endpoint 1"}),
        ("too many steps", "fields", {"`steps`: integer: 16: 1 to 16: Denoising steps"}),
        ("one problem at a time", "errors", {"`detail`: array of objects: One entry per problem"}),
        ("echoes", "errors", {"never echo the value of a secret or an image"}),
        (
            "forgets keys",
            "idempotency",
            {
                "Same key and same body within 24 h: the first response again, one task.",
                "Same key, other body: 422.",
                "N parallel submits with one key make one task",
            },
        ),
        (
            "open to all",
            "authentication",
            {
                '403 `{"detail": "Not authenticated"}` when `x-key` is missing',
                '403 `"Not authenticated - Invalid Authentication"` when it is wrong, revoked or expired',
                "accept `Authorization: Bearer <JWT>` from configured issuers (JWKS)",
            },
        ),
        (
            "finds everything",
            "polling",
            {'unknown or expired id: **404** with the same body shape and `status: "Task not found"`'},
        ),
        ("falls back", "polling", {"`progress`: 0.0 to 1.0, never falls; null when not known"}),
        ("no ranges", "results", {"signed query, no header needed, CORS open, right `Content-Type`, range requests"}),
        ("small pictures", "results", {"Exact width in pixels"}),
        (
            "old statuses",
            "statuses",
            {
                "The `status` field of a polling response takes these values",
                "`Ready`: Output is available",
                "`Request Moderated`: Input was flagged at submission",
                "Both moderated states carry `Moderation Reasons` in `details`.",
                "Moderation outcomes are not HTTP errors",
                "`Pending` → `Reasoning` (only when a prompt is rewritten or a ratio is chosen) → `Generating` → "
                "`Ready`.",
            },
        ),
        (
            "signs nothing",
            "webhooks",
            {
                "`v1,` + base64 HMAC-SHA256 over `id.timestamp.body`; secret used as raw UTF-8 bytes",
                "or base64-decoded when it starts with `whsec_`",
            },
        ),
        (
            "tells of progress",
            "webhooks",
            {
                "No other event kinds are sent.",
                "The status value for success is `Ready`.",
                "byte-identical to what polling answers at that moment (`sample` freshly signed), plus nothing.",
            },
        ),
        ("literal secrets", "webhooks", {"or base64-decoded when it starts with `whsec_`"}),
    ],
)
async def test_a_fault_is_found_where_it_is(fault: str, topic: str, sentences: set[str]) -> None:
    assert failing(await outcomes_of(fault, topic)) - await failing_anyway(topic) == sentences
