"""What a client may have meant by a field or a path that there is not: one whose name is nearly the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel

from serve_app.requests import GenerationRequest
from serve_app.requests.fields import advice, nearest

_VERSION: Final = "/v1/"


def for_path(app: FastAPI, path: str) -> str:
    """`: did you mean …?`, or nothing where no path is near. What most paths begin with does not count."""
    known = {each.removeprefix(_VERSION): each for each in _paths(app)}
    near = nearest(path.removeprefix(_VERSION), known, likeness=0.75)
    return f": did you mean {known[near]}?" if near else ""


def for_fields(errors: Iterable[Mapping[str, Any]], known: Collection[str]) -> list[dict[str, Any]]:
    """Pydantic's errors, where those about unknown fields name the one of `known` that may have been meant."""
    return [{**error, "msg": error["msg"] + _for_field(error, known)} for error in errors]


def fields_of(request: Request, body: Any) -> Collection[str]:
    """What may be in a body like this one, by the route that it was sent to."""
    field = getattr(request.scope.get("route"), "body_field", None)
    form = field.field_info.annotation if field else None
    if not (isinstance(form, type) and issubclass(form, BaseModel)):
        return ()
    return form.field_names(body) if issubclass(form, GenerationRequest) else form.model_fields


def _for_field(error: Mapping[str, Any], known: Collection[str]) -> str:
    name = str(error["loc"][-1])
    if error["type"] != "extra_forbidden":
        return ""
    meant = advice(name, known)
    return f": {meant}" if meant else ""


def _paths(app: FastAPI) -> Iterable[str]:
    """Those that are described and here to stay, without parameters."""
    for route in iter_route_contexts(app.routes):
        described = getattr(route, "include_in_schema", False) and not getattr(route, "deprecated", None)
        if described and route.path and "{" not in route.path:
            yield route.path
