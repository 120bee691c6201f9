"""What goes with a member who is none any more, or has another role: all that acts or lets in by what they were."""

from __future__ import annotations

from serve_app.accounts.authorizations import Authorizations
from serve_app.accounts.invitations import InvitationStore
from serve_app.accounts.sessions import Kind, SessionStore


class Leaving:
    def __init__(self, sessions: SessionStore, authorizations: Authorizations, invitations: InvitationStore) -> None:
        self._sessions = sessions
        self._authorizations = authorizations
        self._invitations = invitations

    async def member(self, person: str, organization: str, actor: str) -> None:
        """Signs them out everywhere, too: they may come back as somebody else."""
        await self._invitations.withdraw(organization, person)
        await self._authorizations.end_all_of(Kind.PERSON, person, organization, actor)
        await self._sessions.end_all(Kind.PERSON, person)

    async def key(self, key_id: str, organization: str) -> None:
        await self._invitations.withdraw(organization, key_id)
