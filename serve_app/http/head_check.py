"""What a request's head tells before any of a large body is read: may it be sent, and would a task be taken now?"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI, HTTPException
from starlette.requests import HTTPConnection

from serve_app.accounts.callers import Caller
from serve_app.accounts.roles import Permission
from serve_app.http import errors, refusals
from serve_app.http.auth import authenticated
from serve_app.http.routes.account import PRICING
from serve_app.http.services import Services
from serve_app.redis_store.connection import UNREACHABLE
from serve_app.submission.offer import Offer
from serve_app.tasks.limits import IdempotencyMismatch, Refused, StillInWork


class HeadCheck:
    """Raises the exception that the client is to see as an answer. Changes nothing, and counts for no limit."""

    def __init__(self, app: FastAPI, offers: Mapping[str, Offer]) -> None:
        """`offers` by path."""
        self._app = app
        self._offers = offers

    async def __call__(self, request: HTTPConnection) -> None:
        services: Services = self._app.state.services
        path = request.scope["path"]
        # Whoever may read the price of a request may send one as large.
        permission = Permission.READ_CREDITS if path == PRICING else Permission.GENERATE
        try:
            caller = await authenticated(services, request, permission)
            await self._admission(services, caller, path, request.headers.get("idempotency-key", ""))
        except Refused as refusal:
            raise refusals.answer(refusal, path.removeprefix("/v1/"), services) from None
        except UNREACHABLE:
            raise HTTPException(503, errors.OUT_OF_REACH, errors.SHORTLY) from None

    async def _admission(self, services: Services, caller: Caller, path: str, idempotency_key: str) -> None:
        """Raises Refused."""
        if path == PRICING:
            await services.tasks.check_rate(caller.id)
        elif offer := self._offers.get(path):
            await _look(services, caller, offer, idempotency_key)


async def _look(services: Services, caller: Caller, offer: Offer, idempotency_key: str) -> None:
    """Raises Refused where a task of every mode is: the body tells which one it is to be."""
    refusal: Refused | None = None
    for mode, recipe in offer.recipes.items():
        try:
            await services.tasks.look(
                lane=recipe.model,
                project=caller.project.id,
                organization=caller.organization,
                price=offer.endpoint.price_of(mode).least,
                key_id=caller.id,
                idempotency_key=idempotency_key,
            )
            return
        except (IdempotencyMismatch, StillInWork):
            return  # it was used before: the body tells what for
        except Refused as problem:
            refusal = refusal or problem
    if refusal is not None:
        raise refusal
