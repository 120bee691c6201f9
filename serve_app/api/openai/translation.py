"""Translates OpenAI's fields to an endpoint's request, and its errors back."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

import pybase64
from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from serve_app.api.bodies import MAX_TEXT_BYTES
from serve_app.api.json_files import NUL, NUL_MESSAGE
from serve_app.api.middleware import API_PREFIX, resolve_alias
from serve_app.api.openai.schema import MediaRequest, Refusal
from serve_app.api.routes.schemas import other_regions_message
from serve_app.config.catalog import Catalog
from serve_app.config.settings import Settings
from serve_app.inputs.masks import alpha_mask
from serve_app.inputs.settings import IMAGES
from serve_app.schemas import GenerationRequest
from serve_app.schemas.fields import ImageProblem, RequestImage
from serve_app.schemas.video import BaseVideoRequest
from serve_app.submission.errors import Invalid
from serve_app.submission.prepare import ServedEndpoint

_CHARSETS: Final = re.compile(r"us-ascii|utf-?(8|16|16le|16be)|iso-8859-[0-9]{1,2}|windows-125[0-8]|latin-?1")
"""Charsets of texts in forms. Python has others, some of which decode slowly."""

EndpointFilter: TypeAlias = Callable[[ServedEndpoint], bool]


class OpenAIEndpoints:
    """The endpoints of this service, by the values of the field `model`."""

    def __init__(self, served_endpoints: Mapping[str, ServedEndpoint], catalog: Catalog, settings: Settings) -> None:
        """`served_endpoints` are by path. Raises ValueError for wrong settings of `openai`."""
        self._served_endpoints = {
            path.removeprefix("/v1/"): served_endpoint for path, served_endpoint in served_endpoints.items()
        }
        self._catalog = catalog
        self._service = settings.service
        self._preferred = [
            self._preferred_endpoint("image_model", settings.openai.image_model, makes_images),
            self._preferred_endpoint("video_model", settings.openai.video_model, makes_videos),
        ]

    def choose(self, model: str | None, is_capable: EndpointFilter, capability: str) -> ServedEndpoint:
        """Returns the endpoint `model`, or by default the first capable one.

        `capability` is a verb phrase for messages, like "edit images". Raises Refusal if no such endpoint exists.
        """
        if model is not None:
            served_endpoint = self.find(model)
            if not is_capable(served_endpoint):
                others = ", ".join(each.name for each in self.all() if is_capable(each))
                message = f"{served_endpoint.name} does not {capability}: use one of {others}"
                raise Refusal(400, message, "invalid_value", param="model")
            return served_endpoint
        for served_endpoint in (*self._preferred, *self.all()):
            if served_endpoint is not None and is_capable(served_endpoint):
                return served_endpoint
        raise Refusal(400, f"No model here can {capability}", "model_not_found", param="model")

    def find(self, model: str) -> ServedEndpoint:
        """Raises Refusal for an unknown model."""
        name = resolve_alias(f"/v1/{model}", self._service.path_aliases).removeprefix("/v1/")
        for candidate in (name, f"{API_PREFIX}-{name}"):
            if served_endpoint := self._served_endpoints.get(candidate):
                return served_endpoint
            main_name = self._catalog.names.get(candidate)
            if main_name and (
                message := other_regions_message(main_name, self._catalog.served[main_name], self._service)
            ):
                raise Refusal(404, message, "model_not_found", param="model")
        message = f"No such model: {model}; GET /v1/models lists the models"
        raise Refusal(404, message, "model_not_found", param="model")

    def all(self) -> Iterator[ServedEndpoint]:
        """Returns each endpoint once, in the order of the catalog."""
        return (
            served_endpoint for name, served_endpoint in self._served_endpoints.items() if name == served_endpoint.name
        )

    def _preferred_endpoint(self, key: str, name: str | None, is_capable: EndpointFilter) -> ServedEndpoint | None:
        served_endpoint = None if name is None else self._served_endpoints.get(name)
        if name is not None and (served_endpoint is None or not is_capable(served_endpoint)):
            raise ValueError(f"openai.{key}: {name} is not a suitable endpoint of this service")
        return served_endpoint


def makes_images(served_endpoint: ServedEndpoint) -> bool:
    """Tells whether the endpoint makes images from a prompt alone."""
    form = served_endpoint.endpoint.request_type
    required = {name for name, field in form.model_fields.items() if field.is_required()}
    return "prompt" in form.model_fields and not form.makes_video and not required & set(form.image_fields)


def edits_images(served_endpoint: ServedEndpoint) -> bool:
    form = served_endpoint.endpoint.request_type
    return "prompt" in form.model_fields and "references" in form.image_fields.values()


def accepts_mask(served_endpoint: ServedEndpoint) -> bool:
    return edits_images(served_endpoint) and "mask" in served_endpoint.endpoint.request_type.image_fields


def makes_videos(served_endpoint: ServedEndpoint) -> bool:
    return issubclass(served_endpoint.endpoint.request_type, BaseVideoRequest)


T = TypeVar("T", bound=BaseModel)

FORM: Final = "multipart/form-data"
MAX_FILES: Final = 16
"""Maximum of images in OpenAI's API. A mask may come in addition."""
_MAX_FIELDS: Final = 64
_INDEXED: Final = re.compile(r"(.+)\[(\d{0,4})\]")
"""Name of a repeated field, as clients of many languages write it."""
_UNSET: Final = ("", "null", "undefined")
"""Texts that clients send for an unset field of a form; JavaScript writes the latter two."""
_PLAIN_ENCODINGS: Final = ("", "7bit", "8bit", "binary")
_NOT_A_FILE: Final = "Input should be text: a part of the form without a filename"


@dataclass(frozen=True, slots=True)
class RequestFields:
    fields: dict[str, Any]
    files: Mapping[str, list[str]]
    """Files in base64, by field."""
    is_form: bool

    def check_files(self, form: type[BaseModel], file_fields: Collection[str]) -> None:
        """Raises Invalid for a file of another field, and for a text in a field of files."""
        for name in sorted(set(self.files) - set(file_fields)):
            message = _NOT_A_FILE if name in form.model_fields else "This field takes no file"
            raise Invalid(["body", name], message, "extra_forbidden")
        for name in file_fields:
            if self.is_form and name in self.fields:
                raise Invalid(["body", name], "Input should be a file: a part of the form with a filename", "file_type")

    def parse_texts(self, fields: Mapping[str, Any], form: type[BaseModel]) -> dict[str, Any]:
        """Converts the texts of a form to the types of `form`."""
        if not self.is_form:
            return dict(fields)
        return {
            name: _parse_text(value, form, name) if name in form.model_fields else value
            for name, value in fields.items()
        }

    def file(self, name: str) -> str | None:
        """Returns the file of a field, if any. Raises Invalid for several files."""
        files = self.files.get(name, [])
        if len(files) > 1:
            raise Invalid(["body", name], "This field takes one file", "too_many_files")
        return files[0] if files else None


def is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


async def read(request: Request) -> RequestFields:
    """Reads the body of a request. Raises HTTPException, Invalid, RequestValidationError."""
    try:
        return await _read_form(request) if is_form(request) else await _read_json(request)
    except ClientDisconnect:
        raise HTTPException(400, "The body ended early") from None


async def _read_json(request: Request) -> RequestFields:
    value = await request.json() if await request.body() else {}
    if not isinstance(value, dict):
        raise Invalid(["body"], "Input should be an object", "model_type")
    return RequestFields(_without_unset(value), {}, is_form=False)


async def _read_form(request: Request) -> RequestFields:
    fields: dict[str, Any] = {}
    files: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    parser = _FormParser(
        request.headers,
        request.stream(),
        max_files=MAX_FILES + 1,
        max_fields=_MAX_FIELDS,
        max_part_size=MAX_TEXT_BYTES,
    )
    try:
        form = await parser.parse()
    except MultiPartException as problem:
        raise HTTPException(400, problem.message) from None
    except Invalid:
        for file in parser._files_to_close_on_error:
            file.close()
        raise
    try:
        for name, value in form.multi_items():
            indexed = _INDEXED.fullmatch(name)
            field, index = (indexed[1], int(indexed[2] or -1)) if indexed else (name, -1)
            if isinstance(value, UploadFile):
                if value.size or value.filename:  # otherwise a browser's empty file field
                    files[field].append((index, await _encode(field, value)))
            elif field != "prompt" and value in _UNSET:
                continue
            elif field in fields:
                raise Invalid(["body", field], "Sent twice", "sent_twice")
            elif "\0" in name + value:
                raise Invalid(["body", field], NUL_MESSAGE, NUL)
            else:
                fields[field] = value
    finally:
        await form.close()
    in_order = {field: [file for _, file in sorted(each, key=itemgetter(0))] for field, each in files.items()}
    return RequestFields(fields, in_order, is_form=True)


def _without_unset(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name == "prompt" or value not in ("", None)}


class _FormParser(MultiPartParser):
    """Decodes each text by the charset and transfer encoding of its part."""

    def on_headers_finished(self) -> None:
        disposition = self._current_part.content_disposition or b""
        if b"filename=" not in disposition:
            self._current_part.content_disposition = disposition.replace(b"filename*=", b"filename=")
        super().on_headers_finished()

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._current_part
        if part.file is None and len(part.data) + end - start > self.max_part_size:
            message = f"A text may have {self.max_part_size // 1024} KiB; a file is a part of the form with a filename"
            raise Invalid(["body", part.field_name], message, "too_long")
        super().on_part_data(data, start, end)

    def on_part_end(self) -> None:
        part = self._current_part
        if part.file is not None:
            super().on_part_end()
            return
        headers = Headers(raw=part.item_headers)
        data = _without_transfer_encoding(part.field_name, headers, bytes(part.data))
        _, options = parse_options_header(headers.get("content-type"))
        charset = options.get(b"charset", b"").decode("latin-1")
        self.items.append((part.field_name, _decode(part.field_name, data, charset, self._charset)))


def _decode(field: str, data: bytes, charset: str, default: str) -> str:
    """Decodes a text. Raises Invalid if it is not in the charset that its part names."""
    try:
        if charset and not _CHARSETS.fullmatch(charset.lower()):
            raise LookupError(charset)
        return data.decode(charset or default)
    except (UnicodeError, LookupError):
        if not charset:
            return data.decode("latin-1")
        message = f"The text is not in {charset[:40]}, as its Content-Type says; send UTF-8"
        raise Invalid(["body", field], message, "charset") from None


def _without_transfer_encoding(field: str, headers: Headers, data: bytes) -> bytes:
    """Decodes a part by its Content-Transfer-Encoding. Raises Invalid."""
    encoding = headers.get("content-transfer-encoding", "").strip().lower()
    if encoding in _PLAIN_ENCODINGS:
        return data
    try:
        if encoding == "base64":
            return pybase64.b64decode(data.translate(None, b" \t\r\n"), validate=True)
    except ValueError:
        pass
    message = f"The part is not valid {encoding[:20]}; send base64, or no Content-Transfer-Encoding"
    raise Invalid(["body", field], message, "transfer_encoding")


async def _encode(field: str, file: UploadFile) -> str:
    """Encodes a file in base64. Raises Invalid."""
    if not file.size:
        raise Invalid(["body", field], "The file is empty", "file_empty")
    if file.size > IMAGES.max_bytes:
        raise Invalid(["body", field], f"A file may have {IMAGES.max_bytes // 2**20} MB", "file_too_large")
    data = await file.read()

    def encode() -> str:
        return pybase64.b64encode_as_string(_without_transfer_encoding(field, file.headers, data))

    return await asyncio.to_thread(encode)


def _parse_text(value: Any, form: type[BaseModel], name: str) -> Any:
    """Converts a text to a number or boolean if the field does not accept the text."""
    if not isinstance(value, str):
        return value
    try:
        _field(form, name).validate_python(value)
        return value
    except ValidationError:
        pass
    try:
        number = json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except ValueError:
        return value
    return number if isinstance(number, (bool, int, float)) else value


@cache
def _field(form: type[BaseModel], name: str) -> TypeAdapter[Any]:
    return TypeAdapter(form.model_fields[name].rebuild_annotation())


def validate(form: type[T], fields: Mapping[str, Any]) -> T:
    """Raises RequestValidationError."""
    try:
        return form.model_validate(fields)
    except ValidationError as problem:
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in problem.errors()]) from None


def image_reference(value: Any, *loc: str) -> str:
    """Reads an image of a JSON body: a text, or an object with `image_url`. Raises Invalid at `loc`."""
    if isinstance(value, dict):
        fields = _without_unset(value)
        if set(fields) == {"image_url"}:
            value = fields["image_url"]
        elif "file_id" in fields:
            raise Invalid(["body", *loc], f"file_id is not supported; send image_url: {_IMAGE}")
    if not isinstance(value, str):
        raise Invalid(["body", *loc], f"Input should be {_IMAGE}, or an object with image_url")
    return value


_IMAGE: Final = "an http(s) URL, a data: URI, or base64"
_OTHER_NAMES: Final[Mapping[str, str]] = {"num_inference_steps": "steps", "guidance_scale": "guidance"}
"""Names of fields in other serving engines and their benchmarks."""


class Translation:
    """Builds a request of the type `form` to an endpoint, field by field."""

    def __init__(self, served_endpoint: ServedEndpoint, form: type[GenerationRequest]) -> None:
        self.served_endpoint = served_endpoint
        self.form = form
        self._fields: dict[str, Any] = {}
        self._source_fields: dict[str, str] = {}
        """Names of the fields that the client sent, by field."""

    def set(self, field: str, value: Any, source: str) -> None:
        """Sets a field, unless the value is None. Raises Invalid for an unknown field, or one that is set already."""
        if value is None:
            return
        if field not in self.form.model_fields:
            raise Invalid(["body", source], f"{self.served_endpoint.name} has no such field", "extra_forbidden")
        if field in self._fields:
            raise Invalid(["body", source], f"Sent twice: {self._source_fields[field]} is the same field", "sent_twice")
        self._fields[field] = value
        self._source_fields[field] = source

    def set_common(self, request: MediaRequest) -> None:
        self.set("prompt", request.prompt, "prompt")
        if request.safety_identifier:
            self.set("user", request.safety_identifier, "safety_identifier")
        else:
            self.set("user", request.user or None, "user")

    def set_further(self, fields: Mapping[str, Any], request_fields: RequestFields) -> None:
        """Sets the endpoint's own fields. Call it last, so that they do not replace OpenAI's fields."""
        for name, value in fields.items():
            field = _OTHER_NAMES.get(name, name)
            self.set(field, request_fields.parse_texts({field: value}, self.form)[field], name)

    def set_references(self, images: list[str], source: str) -> None:
        """Sets the images in the order of the endpoint's image fields. Raises Invalid."""
        fields = [name for name, role in self.form.image_fields.items() if role == "references"]
        if _is_list(self.form, fields[0]):
            self.set(fields[0], images, source)
            return
        if len(images) > len(fields):
            message = f"{self.served_endpoint.name} takes {len(fields)} at most, not {len(images)}"
            raise Invalid(["body", source], message, "too_long")
        for field, image in zip(fields, images, strict=False):
            self.set(field, image, source)

    def request(self, **changes: Any) -> GenerationRequest:
        """Validates and returns the request. Raises RequestValidationError with the names that the client sent."""
        try:
            return validate(self.form, self._fields | changes)
        except RequestValidationError as problem:
            raise RequestValidationError(
                [{**each, "loc": self._location(each["loc"])} for each in problem.errors()]
            ) from None

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translates errors of later checks to the names that the client sent."""
        try:
            yield
        except Invalid as problem:
            entry = problem.entry
            raise Invalid(self._location(entry["loc"]), entry["msg"], entry["type"], **entry.get("ctx", {})) from None

    def _location(self, loc: Any) -> list[str]:
        where = [str(part) for part in loc]
        if len(where) > 1 and where[0] == "body" and (source := self._source_fields.get(where[1])):
            # Inside a renamed field, the client does not know the locations.
            return ["body", source, *(where[2:] if source == where[1] else ())]
        return where


@cache
def _is_list(form: type[GenerationRequest], field: str) -> bool:
    schema = form.model_json_schema()["properties"][field]
    return any(each.get("type") == "array" for each in schema.get("anyOf", [schema]))


@cache
def with_alpha_masks(form: type[GenerationRequest]) -> type[GenerationRequest]:
    """Returns a form whose mask is given by transparency."""

    def prepare_images(self: GenerationRequest, images: list[RequestImage]) -> list[RequestImage]:
        return form.prepare_images(self, [_to_white_mask(each) if each.role == "mask" else each for each in images])

    return type(form.__name__, (form,), {"prepare_images": prepare_images, "__module__": form.__module__})


def _to_white_mask(mask: RequestImage) -> RequestImage:
    """Raises ImageProblem."""
    white = alpha_mask(mask.image)
    if white is None:
        message = "The mask has no transparent parts to repaint"
        raise ImageProblem("mask", message, "image_invalid")
    return RequestImage("mask", white)
