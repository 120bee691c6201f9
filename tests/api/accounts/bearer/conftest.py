"""A trusted issuer, and the projects that its tokens name."""

from __future__ import annotations

import pytest
from support.clock import Clock
from support.issuer import KEYS, TRUSTED, KeySetEndpoint

from serve_app.accounts import jwt_auth
from serve_app.accounts.jwt_auth import BearerTokens
from serve_app.accounts.organizations import OrganizationStore
from serve_app.accounts.projects import ProjectStore


@pytest.fixture
def key_set() -> KeySetEndpoint:
    published = KeySetEndpoint()
    published.publish(*KEYS)
    return published


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Clock of the keys' age. Event loops keep the real one."""
    clock = Clock()
    monkeypatch.setattr(jwt_auth, "time", clock)
    return clock


@pytest.fixture
async def projects(projects: ProjectStore, organizations: OrganizationStore) -> ProjectStore:
    """The project `shop` of the issuer's organization, and `elsewhere` of another."""
    for organization, project in (("acme", "shop"), ("rival", "elsewhere")):
        assert await organizations.create(organization, organization, "test")
        assert await projects.create(project, organization, "test")
    return projects


@pytest.fixture
def tokens(key_set: KeySetEndpoint, projects: ProjectStore, organizations: OrganizationStore) -> BearerTokens:
    return BearerTokens([TRUSTED], key_set, projects, organizations)
