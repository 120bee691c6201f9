"""What a request asks for, checked in full: may it, what will be made of which pictures, and what does that cost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypeAlias

from fastapi import HTTPException

from deployments.contract.thresholds import Tolerance, lowest
from serve_app.accounts.callers import Caller
from serve_app.config.catalog import Endpoint, Recipes
from serve_app.http.errors import Invalid
from serve_app.http.services import Services
from serve_app.media.geometry import megapixels
from serve_app.media.inputs import BadImage, InputImage, load_image
from serve_app.media.url_guard import UrlGuard, UrlRefused
from serve_app.media.videos import BadVideo, InputVideo, load_video
from serve_app.requests import GenerationRequest
from serve_app.requests.pictures import Picture, PictureProblem
from serve_app.requests.plan import Plan, Recipe
from serve_app.requests.video import DraftEnhanceRequest
from serve_app.submission import drafts
from serve_app.submission.drafts import Draft, DraftProblem

Input: TypeAlias = tuple[str, InputImage | InputVideo]
"""What it is to the model, named as in the job, and the thing itself."""


@dataclass(frozen=True, slots=True)
class Order:
    recipe: Recipe
    inputs: list[Input]
    """Pictures, or a video: decoded, checked, and as the model is to get them."""
    plan: Plan
    price: int
    """Milli-credits."""
    tolerance: Tolerance
    adapter: dict[str, Any] | None
    """The tuned model that is asked for, as the job names it."""
    draft: Draft | None = None
    """What is to be made of it has the same inputs, which are stored already."""

    @property
    def input_mp(self) -> float:
        """Megapixels of 2^20 pixels, 2 decimals."""
        return megapixels(self.plan.input_pixels)

    @property
    def output_mp(self) -> float:
        return megapixels(self.plan.area)


async def checked(
    services: Services, caller: Caller, name: str, endpoint: Endpoint, recipes: Recipes, body: GenerationRequest
) -> Order:
    """Writes nothing. Raises Invalid naming the field, or HTTPException."""
    recipe = recipes[body.chosen_mode()]
    level = _approved_level(name, endpoint, caller, body)
    tolerance = Tolerance(level, lowest(endpoint.safety.ceilings, caller.ceilings))
    await _check_webhook(services.guard, body)
    adapter = await _adapter(services, caller, recipe.model, body)
    inputs: list[Input] = [*await _load_pictures(services.guard, body), *await _load_video(services.guard, body)]
    draft = None
    sizes = [(each.width, each.height) for _, each in inputs]
    if isinstance(body, DraftEnhanceRequest):
        draft = await _draft(services, caller, name, body)
        plan = body.plan(sizes, draft)
    else:
        plan = body.plan(sizes)
    plan = plan.completed(recipe)
    price = endpoint.price_of(body.chosen_mode()).millicredits(plan.area, plan.input_pixels, plan.seconds)
    return Order(recipe, inputs, plan, price, tolerance, adapter, draft)


def _approved_level(name: str, endpoint: Endpoint, caller: Caller, body: GenerationRequest) -> int:
    highest = caller.safety.get(name, endpoint.safety.approved)
    level = min(endpoint.safety.default, highest) if body.safety_tolerance is None else body.safety_tolerance
    if level > highest:
        approved = list(range(highest + 1))
        message = f"Level {level} is not approved for this endpoint; approved levels: {approved}"
        raise Invalid(["body", "safety_tolerance"], message, "safety_tolerance_not_approved", approved=approved)
    return level


async def _check_webhook(guard: UrlGuard, body: GenerationRequest) -> None:
    if body.webhook_url:
        try:
            await guard.check(body.webhook_url)
        except UrlRefused as refusal:
            raise Invalid(["body", "webhook_url"], str(refusal)) from None


async def _adapter(services: Services, caller: Caller, model: str, body: GenerationRequest) -> dict[str, Any] | None:
    wanted = body.tuned_model()
    if wanted is None:
        return None
    finetune_id, strength = wanted
    finetune = await services.finetunes.get(finetune_id, caller.project.id)
    if finetune is None or finetune.status != "Ready" or finetune.lane != model:
        raise HTTPException(400, "Finetune not found or not ready")
    return {"id": finetune.id, "key": finetune.key, "strength": strength}


async def _draft(services: Services, caller: Caller, name: str, body: DraftEnhanceRequest) -> Draft:
    try:
        return await drafts.find(services.tasks, services.objects, caller.project.id, name, body.draft_cache)
    except DraftProblem as problem:
        raise Invalid(["body", "draft_cache"], str(problem), problem.kind) from None


async def _load_video(guard: UrlGuard, body: GenerationRequest) -> list[Input]:
    sent = body.video_input()
    if sent is None:
        return []
    try:
        return [("start_video", await load_video(sent, guard))]
    except BadVideo as problem:
        raise Invalid(["body", "start_video"], str(problem), "video_invalid") from None


async def _load_pictures(guard: UrlGuard, body: GenerationRequest) -> list[Picture]:
    """All input pictures. The first bad one is named."""
    sent = body.image_inputs()
    loaded = await asyncio.gather(*(load_image(each.value, guard) for each in sent), return_exceptions=True)
    pictures: list[Picture] = []
    for each, image in zip(sent, loaded, strict=True):
        if isinstance(image, BadImage):
            raise Invalid(["body", *each.loc], str(image), "image_invalid")
        if isinstance(image, BaseException):
            raise image
        pictures.append(Picture(each.role, image))
    try:
        return await asyncio.to_thread(body.prepared, pictures) if pictures else []
    except PictureProblem as problem:
        raise Invalid(["body", problem.field], str(problem), problem.kind) from None
