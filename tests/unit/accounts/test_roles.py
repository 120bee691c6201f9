"""Roles: permissions, and the roles that each may grant."""

from __future__ import annotations

import pytest

from serve_app.accounts.api_key_auth import Caller
from serve_app.accounts.projects import Project
from serve_app.accounts.roles import MEMBER_ROLES, PERMISSIONS, Permission, Role, may_grant

YES, NO = True, False
Row = tuple[bool, bool, bool, bool, bool]

ROLES = (Role.VIEWER, Role.DEVELOPER, Role.BILLING_MANAGER, Role.ADMINISTRATOR, Role.OPERATOR)
"""The columns of both tables."""

MAY: dict[Permission, Row] = {
    Permission.GENERATE: (NO, YES, NO, YES, YES),
    Permission.READ_TASKS: (YES, YES, YES, YES, YES),
    Permission.READ_CREDITS: (YES, YES, YES, YES, YES),
    Permission.READ_ACCOUNTS: (YES, YES, YES, YES, YES),
    Permission.READ_MONEY: (YES, NO, YES, YES, YES),
    Permission.SET_LIMITS: (NO, NO, YES, YES, YES),
    Permission.MANAGE_OWN_KEYS: (NO, YES, NO, YES, YES),
    Permission.MANAGE_KEYS: (NO, NO, NO, YES, YES),
    Permission.MANAGE_PROJECTS: (NO, NO, NO, YES, YES),
    Permission.MANAGE_MEMBERS: (NO, NO, NO, YES, YES),
    Permission.READ_AUDIT: (NO, NO, NO, YES, YES),
    Permission.OPERATE: (NO, NO, NO, NO, YES),
}

MAY_GRANT: dict[Role, Row] = {
    Role.VIEWER: (YES, NO, NO, NO, NO),
    Role.DEVELOPER: (NO, YES, NO, NO, NO),
    Role.BILLING_MANAGER: (YES, NO, YES, NO, NO),
    Role.ADMINISTRATOR: (YES, YES, YES, YES, NO),
    Role.OPERATOR: (YES, YES, YES, YES, YES),
}


def test_roles_and_permissions_are_those_of_the_tables() -> None:
    assert set(MAY) == set(Permission)
    assert set(MAY_GRANT) == set(ROLES) == set(Role) == set(PERMISSIONS)
    assert [role.value for role in ROLES] == ["viewer", "developer", "billing_manager", "administrator", "operator"]
    assert set(MEMBER_ROLES) == set(Role) - {Role.OPERATOR}


@pytest.mark.parametrize("permission", MAY)
def test_role_has_the_permissions_of_its_column(permission: Permission) -> None:
    assert tuple(permission in PERMISSIONS[role] for role in ROLES) == MAY[permission]
    assert tuple(Caller("k", Project("p"), role, {}).may(permission) for role in ROLES) == MAY[permission]


@pytest.mark.parametrize("giver", MAY_GRANT)
def test_role_grants_no_more_than_it_has(giver: Role) -> None:
    assert tuple(may_grant(giver, role) for role in ROLES) == MAY_GRANT[giver]
