"""The table of permissions, written out once more: whoever changes it changes both."""

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

MAY_HAND_OUT: dict[Role, Row] = {
    Role.VIEWER: (YES, NO, NO, NO, NO),
    Role.DEVELOPER: (NO, YES, NO, NO, NO),
    Role.BILLING_MANAGER: (YES, NO, YES, NO, NO),
    Role.ADMINISTRATOR: (YES, YES, YES, YES, NO),
    Role.OPERATOR: (YES, YES, YES, YES, YES),
}
"""By giver, what they may make someone."""


def test_the_tables_are_complete() -> None:
    assert set(MAY) == set(Permission)
    assert set(MAY_HAND_OUT) == set(ROLES) == set(Role) == set(PERMISSIONS)
    assert [role.value for role in ROLES] == ["viewer", "developer", "billing_manager", "administrator", "operator"]


@pytest.mark.parametrize("permission", MAY)
def test_a_role_may_do_what_the_table_says(permission: Permission) -> None:
    assert tuple(permission in PERMISSIONS[role] for role in ROLES) == MAY[permission]
    assert tuple(Caller("k", Project("p"), role, {}).may(permission) for role in ROLES) == MAY[permission]


@pytest.mark.parametrize("giver", MAY_HAND_OUT)
def test_nobody_hands_out_more_than_they_have(giver: Role) -> None:
    assert tuple(may_grant(giver, role) for role in ROLES) == MAY_HAND_OUT[giver]


def test_nobody_in_an_organization_is_an_operator_or_makes_one() -> None:
    assert set(MEMBER_ROLES) == set(Role) - {Role.OPERATOR}
    assert not any(may_grant(role, Role.OPERATOR) for role in MEMBER_ROLES)
