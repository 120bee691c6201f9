"""Tuned models: their endpoints without one, and, with `--finetune`, the way of a task."""

from __future__ import annotations

from typing import Final

from serve_app.conformance import pictures
from serve_app.conformance.answers import Json, detail, json_of
from serve_app.conformance.check import Topic
from serve_app.conformance.endpoints import CANNY, FILL, KLEIN, KONTEXT, MAX, NO_FINETUNE, PREVIEW, PRO
from serve_app.conformance.session import Session, minimal
from serve_app.conformance.verdicts import Skipped, expect

topic = Topic("finetunes")

_DECIDED: Final = "Decided: tuned models"
_TUNED: Final = "12. Tuned-model endpoints"
_NOT_READY: Final = "Finetune not found or not ready"
_BASES: Final = (KLEIN, MAX, PREVIEW, KONTEXT, PRO, FILL, CANNY)


def _own(session: Session) -> tuple[str, str]:
    """The base endpoint and the id of a tuned model."""
    for base, finetune_id in session.target.finetunes.items():
        return base, finetune_id
    raise Skipped("needs a tuned model: --finetune ENDPOINT=ID")


@topic.holds(_TUNED, "Each matches the request of its base endpoint and adds `finetune_id` and `finetune_strength`.")
async def tuned_endpoints_need_an_id(session: Session) -> None:
    for base in _BASES:
        await session.refuses(f"{base}-finetuned", {}, "finetune_id", without="finetune_id")
        await session.refuses(f"{base}-finetuned", {"finetune_strength": 3}, "finetune_strength")
        await session.refuses(f"{base}-finetuned", {"seed": "no number"}, "seed")


@topic.holds(_DECIDED, "`POST /v1/{base}-finetuned` exists for every base endpoint whose catalog entry allows LoRA")
async def tuned_endpoints_exist(session: Session) -> None:
    for base in _BASES:
        response = await session.post(f"/v1/{base}-finetuned", {"seed": "no number"})
        expect(response.status_code == 422, f"422, and no 404, from {base}-finetuned")


@topic.holds(_DECIDED, 'Unknown or foreign id: 400 `"Finetune not found or not ready"`.')
async def unknown_tuned_models_are_told(session: Session) -> None:
    for base in _BASES:
        text = detail(await session.submit(f"{base}-finetuned", minimal(f"{base}-finetuned")), 400)
        expect(text == _NOT_READY, f'detail "{_NOT_READY}"')


@topic.holds(_DECIDED, "Adds `finetune_id` (required) and `finetune_strength` (0 to 2, default 1.1).")
async def strength_has_bounds(session: Session) -> None:
    for strength in (-0.01, 2.01, "strong"):
        await session.refuses(f"{KLEIN}-finetuned", {"finetune_strength": strength}, "finetune_strength")
    for strength in (0, 1.1, 2):
        await session.takes(f"{KLEIN}-finetuned", {"finetune_strength": strength})


@topic.holds(_DECIDED, "`GET /v1/my_finetunes`")
async def tuned_models_are_listed(session: Session) -> None:
    response = await session.get("/v1/my_finetunes")
    expect(response.status_code == 200 and isinstance(json_of(response).get("finetunes"), list), "200 and finetunes")


@topic.holds(_DECIDED, "`GET /v1/finetune_details?finetune_id=`")
async def unknown_details_are_refused(session: Session) -> None:
    response = await session.get("/v1/finetune_details", params={"finetune_id": NO_FINETUNE})
    expect(response.status_code in (400, 404), "400 or 404 for an unknown id")


@topic.holds(_DECIDED, "`POST /v1/delete_finetune`")
async def unknown_ones_cannot_be_deleted(session: Session) -> None:
    response = await session.post("/v1/delete_finetune", {"finetune_id": NO_FINETUNE})
    expect(response.status_code in (400, 404), "400 or 404 for an unknown id")


@topic.holds(
    _TUNED, "During the beta such requests are billed at the base endpoint's rate.", credits=2, needs="finetune"
)
async def tuned_models_cost_the_same(session: Session) -> None:
    base, finetune_id = _own(session)
    plain = await session.accepted(base)
    tuned = await session.accepted(f"{base}-finetuned", {"finetune_id": finetune_id})
    expect(plain["cost"] == tuned["cost"], f"cost {plain['cost']}, as of {base}")


@topic.holds("8. gen-pro-1.0-fill-finetuned", "0 no influence, 1 full influence", credits=3, needs="finetune")
async def strength_decides(session: Session) -> None:
    base, finetune_id = _own(session)
    body: Json = {"seed": 7, "output_format": "png"}
    files = [await session.picture(await session.finished(base, body))]
    for strength in (0, 2):
        task = await session.finished(
            f"{base}-finetuned", body | {"finetune_id": finetune_id, "finetune_strength": strength}
        )
        files.append(await session.picture(task))
    plain, none, full = (pictures.opened(file).convert("RGB").tobytes() for file in files)
    expect(plain == none, "at strength 0 the picture of the base")
    expect(plain != full, "at strength 2 another one")
