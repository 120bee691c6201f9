"""Roles and their permissions: the one table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Role(StrEnum):
    """What a key or a member is in an organization; OPERATOR runs the service and is above all of them."""

    ADMINISTRATOR = "administrator"
    DEVELOPER = "developer"
    BILLING_MANAGER = "billing_manager"
    VIEWER = "viewer"
    OPERATOR = "operator"


class Permission(StrEnum):
    GENERATE = "generate"
    """Submit and cancel tasks, upload and delete tuned models, report the use of licensed ones."""
    READ_TASKS = "read tasks"
    """Tasks and tuned models."""
    READ_CREDITS = "read credits"
    """What is left, and what a request would cost."""
    READ_ACCOUNTS = "read accounts"
    """Projects, members, limits and licences, and the keys of a project, never their secrets."""
    READ_MONEY = "read money"
    """The ledger, usage and spending."""
    SET_LIMITS = "set limits"
    """Spending limits."""
    MANAGE_OWN_KEYS = "manage keys of the own project"
    MANAGE_KEYS = "manage keys of every project"
    MANAGE_PROJECTS = "manage projects"
    MANAGE_MEMBERS = "manage members"
    READ_AUDIT = "read the audit log"
    OPERATE = "operate"
    """Organizations, grants of credits, licences, safety levels; weights and numbers of active tasks of projects."""


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
"""What people of an organization can be."""


def may_hand_out(giver: Role, role: Role) -> bool:
    """Whether someone may make a key or a member of that role: nobody hands out more than they have."""
    return PERMISSIONS[role] <= PERMISSIONS[giver]
