"""Whom a program's token stands for: whoever let it in, with what they gave it and still have."""

from __future__ import annotations

import time
from dataclasses import replace

from cachetools import TTLCache

from serve_app.accounts.authorizations import Authorization, Authorizations
from serve_app.accounts.callers import CACHE_S, CACHE_SIZE, Caller
from serve_app.accounts.roles import Permission, may_hand_out
from serve_app.accounts.sessions import Session
from serve_app.accounts.signed_in import SignedIn


class Acting:
    """Remembers authorizations for 10 s, as keys are remembered."""

    def __init__(self, authorizations: Authorizations, signed_in: SignedIn) -> None:
        self._authorizations = authorizations
        self._signed_in = signed_in
        self._cache: TTLCache[str, Authorization] = TTLCache(CACHE_SIZE, CACHE_S, timer=time.monotonic)

    async def caller(self, token: str, project: str | None = None, *, remembered: bool = True) -> Caller | None:
        """In `project`, or in that of the authorization.

        None for a token that is over, and where it may not act: now, unless that may be `remembered`.
        """
        authorization = self._cache.get(token) if remembered else None
        if authorization is None:
            authorization = await self._authorizations.of_token(token)
            if authorization is None:
                self._cache.pop(token, None)
                return None
            self._cache[token] = authorization
        given = authorization.given
        project = project or given.project
        if project != given.project and not given.everywhere:
            return None
        session = Session(given.kind, given.subject, given.organization, project, authorization.created)
        person = await self._signed_in.stands_for(session, remembered=remembered)
        if person is None or not may_hand_out(person.role, given.role):
            return None
        # What a program made would outlive it.
        withheld = frozenset({Permission.MANAGE_OWN_KEYS})
        return replace(person, id=f"{person.id} ({given.asked.name})", role=given.role, withheld=withheld)
