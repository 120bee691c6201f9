"""What a request sends: fields, as JSON or as a form, and with a form files.

A form's values are texts. Where a field takes no such text, it is the number, true or false that it reads as.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect

from serve_app.http.bodies import MAX_TEXT_BYTES, NUL, NUL_REFUSED
from serve_app.media.limits import PICTURES
from serve_app.submission.errors import Invalid

T = TypeVar("T", bound=BaseModel)

FORM: Final = "multipart/form-data"
MAX_FILES: Final = 16
"""As many pictures as OpenAI's clients send; with a mask one more."""
_MAX_FIELDS: Final = 64


@dataclass(frozen=True, slots=True)
class Sent:
    fields: dict[str, Any]
    files: Mapping[str, list[str]]
    """In base64, by field."""
    is_form: bool

    def typed(self, fields: Mapping[str, Any], form: type[BaseModel]) -> dict[str, Any]:
        """`fields`, where they came as texts, as `form` takes them."""
        if not self.is_form:
            return dict(fields)
        return {
            name: _typed(value, form, name) if name in form.model_fields else value for name, value in fields.items()
        }

    def file(self, name: str) -> str | None:
        """The only file of a field. Raises Invalid where there are several."""
        files = self.files.get(name, [])
        if len(files) > 1:
            raise Invalid(["body", name], "One file is taken here", "too_many_files")
        return files[0] if files else None


def is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


async def read(request: Request) -> Sent:
    """The body of a request that a `FilesRoute` handles. Raises HTTPException, Invalid, RequestValidationError."""
    try:
        return await _read_form(request) if is_form(request) else await _read_json(request)
    except ClientDisconnect:
        raise HTTPException(400, "The body ended early") from None


async def _read_json(request: Request) -> Sent:
    value = await request.json() if await request.body() else {}
    if not isinstance(value, dict):
        raise Invalid(["body"], "Input should be an object", "model_type")
    return Sent(value, {}, is_form=False)


async def _read_form(request: Request) -> Sent:
    fields: dict[str, Any] = {}
    files: defaultdict[str, list[str]] = defaultdict(list)
    limits = {"max_files": MAX_FILES + 1, "max_fields": _MAX_FIELDS, "max_part_size": MAX_TEXT_BYTES}
    async with request.form(**limits) as form:
        for name, value in form.multi_items():
            field = name.removesuffix("[]")
            if isinstance(value, UploadFile):
                files[field].append(await _encoded(field, value))
            elif field in fields:
                raise Invalid(["body", field], "Sent twice", "sent_twice")
            elif "\0" in name + value:
                raise Invalid(["body", field], NUL_REFUSED, NUL)
            else:
                fields[field] = value
    return Sent(fields, files, is_form=True)


async def _encoded(field: str, file: UploadFile) -> str:
    """As the service's own requests carry it."""
    if not file.size:
        raise Invalid(["body", field], "The file is empty", "file_empty")
    if file.size > PICTURES.max_bytes:
        raise Invalid(["body", field], f"A file may have {PICTURES.max_bytes // 2**20} MB", "file_too_large")
    data = await file.read()
    return await asyncio.to_thread(lambda: base64.b64encode(data).decode())


def _typed(value: Any, form: type[BaseModel], name: str) -> Any:
    if not isinstance(value, str) or _takes(form, name, value):
        return value
    try:
        said = json.loads(value)
    except ValueError:
        return value
    return said if isinstance(said, (bool, int, float)) else value


def _takes(form: type[BaseModel], name: str, value: str) -> bool:
    try:
        _field(form, name).validate_python(value)
    except ValidationError:
        return False
    return True


@cache
def _field(form: type[BaseModel], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(form.model_fields[name].rebuild_annotation())


def validated(form: type[T], fields: Mapping[str, Any]) -> T:
    """Raises RequestValidationError."""
    try:
        return form.model_validate(fields)
    except ValidationError as problem:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in problem.errors()]) from None
