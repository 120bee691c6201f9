"""Whom a session stands for: as a caller, like whoever sends a key."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from cachetools import TTLCache

from serve_app.accounts.callers import CACHE_S, CACHE_SIZE, Caller, Callers
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import Project, ProjectStore
from serve_app.accounts.roles import Permission, Role
from serve_app.accounts.sessions import Kind, Session, SessionStore

LOCAL: Final = "local"
"""What the one at this machine is called, in the audit log and of tasks."""


class SignedIn:
    """Remembers callers for 10 s, like those of keys."""

    def __init__(
        self,
        sessions: SessionStore,
        callers: Callers,
        organizations: OrganizationStore,
        projects: ProjectStore,
        local_role: Role | None,
    ) -> None:
        self._sessions, self._callers = sessions, callers
        self._organizations, self._projects = organizations, projects
        self._local_role = local_role
        self._cache: TTLCache[str, Caller] = TTLCache(CACHE_SIZE, CACHE_S, timer=time.monotonic)

    async def caller(self, secret: str, *, remembered: bool = True) -> Caller | None:
        """None for a session that ended, or of someone who may nothing any more. Unless they may be `remembered`, they
        may it now."""
        if not remembered:
            self.forget(secret)
        caller = self._cache.get(secret)
        if caller is None:
            session = await self._sessions.find(secret)
            caller = None if session is None else await self.stands_for(session, remembered=remembered)
            # Those of keys are remembered already: twice would be for 20 s.
            if caller is not None and session is not None and session.kind is not Kind.KEY:
                self._cache[secret] = caller
        return caller

    def forget(self, secret: str) -> None:
        """What is remembered of it, here: it moved or ended."""
        self._cache.pop(secret, None)

    async def stands_for(self, session: Session, *, remembered: bool = True) -> Caller | None:
        project = await self._projects.find(session.project)
        if project is None or project.organization != session.organization:
            return None
        match session.kind:
            case Kind.KEY:
                return await self._of_key(session.subject, project, remembered)
            case Kind.PERSON:
                role = await self._organizations.role_of(session.organization, session.subject)
                return None if role is None else await self._with(session.subject, role, project)
            case Kind.LOCAL:
                return None if self._local_role is None else await self._with(LOCAL, self._local_role, project)

    async def _of_key(self, digest: str, project: Project, remembered: bool) -> Caller | None:
        """A key that may manage projects stands for any of them, others for their own."""
        caller = await self._callers.of_digest(digest, remembered=remembered)
        if caller is None or caller.project.id == project.id:
            return caller
        same = project.organization == caller.organization or caller.may(Permission.OPERATE)
        return replace(caller, project=project) if same and caller.may(Permission.MANAGE_PROJECTS) else None

    async def _with(self, name: str, role: Role, project: Project) -> Caller | None:
        organization = await self._organizations.get(project.organization)
        if organization is None:
            return None
        return Caller(name, project, role, organization.safety, organization.ceilings)
