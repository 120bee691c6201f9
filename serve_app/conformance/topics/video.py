"""Videos: every field of every mode, and, with `--video`, one that is made."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from serve_app.conformance import pictures
from serve_app.conformance.answers import Json, json_of, problems
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import VIDEO
from serve_app.conformance.session import Session
from serve_app.conformance.tables.video import VIDEO as FIELDS
from serve_app.conformance.verdicts import expect

topic = Topic("video")

_SECTION: Final = "10. gen-3-video"
_DECIDED: Final = "Decided: video"
_MODES: Final = ("t2v", "i2v", "v2v", "draft_enhance")
_PHOTO: Final = pictures.photo()

for endpoint, fields in FIELDS.items():
    for field in fields:
        topic.holds(_DECIDED, field.sentence)(partial(field.check, endpoint=endpoint))


async def _problems(session: Session, **body: Any) -> list[str]:
    """What is wrong with a request, by the last part of every location."""
    response = await session.submit(VIDEO, body)
    expect(response.status_code == 422, "422")
    return [entry["loc"][-1] for entry in problems(response)]


async def _names(session: Session, field: str, **body: Any) -> None:
    response = await session.submit(VIDEO, body)
    expect(response.status_code == 422, f"422 for {field}")
    expect(any(field in entry["loc"] for entry in problems(response)), f"that detail[].loc names {field}")


def _t2v(**change: Any) -> Json:
    return {"mode": "t2v", "prompt": "waves", "duration": 5, "draft": True, **change}


async def _made(session: Session) -> Json:
    return await session.finished(VIDEO)


@topic.holds(
    _SECTION,
    "Modes on this one endpoint: `t2v` (text to video), `i2v` (image to video with 1 to 10 pinned keyframes), `v2v` "
    "(video continuation), `draft_enhance`",
)
async def there_are_four_modes(session: Session) -> None:
    for mode in _MODES:
        await _names(session, "safety_tolerance", mode=mode, safety_tolerance="none")
    await _names(session, "mode", mode="t3v", prompt="waves")


@topic.holds(_SECTION, "Video continuation (`v2v`) is limited to 15 seconds; the other modes to 20 seconds.")
async def durations_are_limited(session: Session) -> None:
    await _names(session, "duration", mode="v2v", prompt="waves", start_video="x", duration=16)
    await _names(session, "duration", **_t2v(duration=21))
    await _names(session, "duration", mode="i2v", prompt="waves", keyframes=[_PHOTO], duration=21)
    await session.takes(VIDEO, {"duration": 20})


@topic.holds("Limits", "Video duration: 5 to 20 seconds; continuation at most 15 seconds: video endpoint")
async def durations_begin_at_five(session: Session) -> None:
    await _names(session, "duration", **_t2v(duration=4))


@topic.holds("Limits", "Video keyframes: 1 to 10: `i2v`")
async def keyframes_are_counted(session: Session) -> None:
    await _names(session, "keyframes", mode="i2v", prompt="waves", keyframes=[])
    await _names(session, "keyframes", mode="i2v", prompt="waves", keyframes=[_PHOTO] * 11)


@topic.holds(_DECIDED, "A union discriminated by `mode`, strict.")
async def videos_are_strict(session: Session) -> None:
    await _names(session, "mode", prompt="waves")
    await _names(session, "a_field_that_nobody_knows", **_t2v(a_field_that_nobody_knows=7))
    await _names(session, "keyframes", **_t2v(keyframes=[_PHOTO]))


@topic.holds(_DECIDED, "422 reports the chosen mode's problems only.")
async def only_the_modes_problems_are_told(session: Session) -> None:
    found = await _problems(session, mode="i2v")
    expect(set(found) == {"prompt", "keyframes"}, f"prompt and keyframes, not {found}")


@topic.holds(
    _DECIDED,
    "`keyframes`: req: 1 to 10 images (string or array of strings), or `[seconds, image]` pairs in time order; no "
    "mixing.",
)
async def keyframes_have_their_forms(session: Session) -> None:
    i2v: Json = {"mode": "i2v", "prompt": "waves", "duration": 5}
    await session.takes(VIDEO, i2v | {"keyframes": _PHOTO})
    await session.takes(VIDEO, i2v | {"keyframes": [_PHOTO, _PHOTO]})
    await session.takes(VIDEO, i2v | {"keyframes": [[0, _PHOTO], [3, _PHOTO]]})
    await _names(session, "keyframes", **i2v, keyframes=[[3, _PHOTO], [1, _PHOTO]])
    await _names(session, "keyframes", **i2v, keyframes=[_PHOTO, [3, _PHOTO]])


@topic.holds(_DECIDED, "`start_video`: req: URL or base64 mp4, at most 50 MB")
async def start_videos_are_videos(session: Session) -> None:
    await _names(session, "start_video", mode="v2v", prompt="waves")
    await _names(session, "start_video", mode="v2v", prompt="waves", start_video=_PHOTO)


@topic.holds(_DECIDED, "`draft_cache`: req: the draft's URL or task id")
async def drafts_have_to_exist(session: Session) -> None:
    await _names(session, "draft_cache", mode="draft_enhance")
    await _names(session, "draft_cache", mode="draft_enhance", draft_cache="no-such-draft")


@topic.holds(
    _SECTION, "The final polling response carries `cost`, the settled cost in credits.", credits=10, needs="video"
)
async def videos_have_a_cost(session: Session) -> None:
    expect(isinstance((await _made(session)).get("cost"), int | float), "cost, a number")


@topic.holds(
    "Decided: submission", '`null` on those marked "`id`, `polling_url` only" and on video.', credits=10, needs="video"
)
async def videos_quote_no_price(session: Session) -> None:
    reply = await session.accepted(VIDEO)
    expect(reply.get("cost") is None and reply.get("output_mp") is None, "cost and output_mp null")


@topic.holds(_DECIDED, "Output: exactly 24 x duration frames, mp4", credits=10, needs="video")
async def videos_are_mp4(session: Session) -> None:
    link = (await _made(session))["result"]["sample"]
    response = await session.get(link, key="")
    expect(response.headers.get("content-type") == "video/mp4", "Content-Type: video/mp4")
    expect(response.content[4:8] == b"ftyp", "a file that begins as an mp4 does")
    at = (response.content.find(b"moov"), response.content.find(b"mdat"))
    expect(0 < at[0] < at[1], "+faststart: moov before mdat")


@topic.holds("Decided: polling", "Video drafts add `draft_cache` (URL)", credits=10, needs="video")
async def drafts_have_a_cache(session: Session) -> None:
    result = (await _made(session))["result"]
    expect(str(result.get("draft_cache", "")).startswith("http"), "draft_cache, a URL")


@topic.holds(_DECIDED, "keeps seed, prompt plan and latents for `draft_enhance`", credits=10, needs="video")
async def drafts_can_be_enhanced(session: Session) -> None:
    task = await _made(session)
    for draft in (task["id"], task["result"]["draft_cache"]):
        response = await session.post(
            "/v1/pricing", {"path": f"/v1/{VIDEO}", "body": {"mode": "draft_enhance", "draft_cache": draft}}
        )
        expect(response.status_code == 200, "that the draft is known by its id and by its URL")
        expect(isinstance(json_of(response).get("cost"), int | float), "a price")
