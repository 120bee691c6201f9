"""Roles and their permissions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Role(StrEnum):
    """Role of a key or a member in an organization. OPERATOR runs the service, above all organizations."""

    ADMINISTRATOR = "administrator"
    DEVELOPER = "developer"
    BILLING_MANAGER = "billing_manager"
    VIEWER = "viewer"
    OPERATOR = "operator"


class Permission(StrEnum):
    GENERATE = "generate"
    """Submit and cancel tasks, upload and delete tuned models, report generations of licensed models."""
    READ_TASKS = "read tasks"
    """Read tasks and tuned models."""
    READ_CREDITS = "read credits"
    """Read the balance and the price of a request."""
    READ_ACCOUNTS = "read accounts"
    """Read projects, members, limits, licences, and the keys of a project without their secrets."""
    READ_MONEY = "read money"
    """Read the ledger, usage and spending."""
    SET_LIMITS = "set limits"
    """Set spending limits."""
    MANAGE_OWN_KEYS = "manage keys of the own project"
    MANAGE_KEYS = "manage keys of every project"
    MANAGE_PROJECTS = "manage projects"
    MANAGE_MEMBERS = "manage members"
    READ_AUDIT = "read the audit log"
    OPERATE = "operate"
    """Manage organizations, credits, licences, safety levels, and the weights and active tasks of projects."""


_READING: Final = frozenset({Permission.READ_TASKS, Permission.READ_CREDITS, Permission.READ_ACCOUNTS})

PERMISSIONS: Final[Mapping[Role, frozenset[Permission]]] = MappingProxyType(
    {
        Role.VIEWER: _READING | {Permission.READ_MONEY},
        Role.DEVELOPER: _READING | {Permission.GENERATE, Permission.MANAGE_OWN_KEYS},
        Role.BILLING_MANAGER: _READING | {Permission.READ_MONEY, Permission.SET_LIMITS},
        Role.ADMINISTRATOR: frozenset(Permission) - {Permission.OPERATE},
        Role.OPERATOR: frozenset(Permission),
    }
)

MEMBER_ROLES: Final = tuple(role for role in Role if role is not Role.OPERATOR)
"""Roles of an organization's members."""


def may_grant(giver: Role, role: Role) -> bool:
    """Returns whether `giver` may create a key or a member of `role`, which may have no permission that it lacks."""
    return PERMISSIONS[role] <= PERMISSIONS[giver]
