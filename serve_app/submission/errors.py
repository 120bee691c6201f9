"""Errors of submission, in terms of the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Invalid(Exception):
    """The request is well-formed but can't be done. `entry` is its item in the list of validation errors."""

    def __init__(self, loc: Sequence[str], message: str, kind: str = "value_error", **context: Any) -> None:
        """`loc` leads to the field at fault, from `body`, `query` or `header` on."""
        super().__init__(message)
        self.entry: dict[str, Any] = {"type": kind, "loc": list(loc), "msg": message}
        if context:
            self.entry["ctx"] = context

    def within(self, field: str) -> Invalid:
        """Returns the error of a request that is the `field` of another."""
        inner = self.entry
        return Invalid(["body", field, *inner["loc"][1:]], inner["msg"], inner["type"], **inner.get("ctx", {}))


class FinetuneUnusable(Exception):
    """The project has no such finetune, it is not checked yet, or it is one of another model."""


class StorageUnreachable(Exception):
    """The object store is unreachable, full or too slow: nothing was accepted."""
