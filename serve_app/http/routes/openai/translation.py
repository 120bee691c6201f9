"""From OpenAI's fields to an endpoint's own request, and problems of that request back to the fields that were sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

from fastapi.exceptions import RequestValidationError

from serve_app.http.routes.openai.schema import Asked
from serve_app.http.routes.openai.sent import Sent, validated
from serve_app.media.masks import alpha_mask
from serve_app.requests import GenerationRequest
from serve_app.requests.pictures import Picture, PictureProblem
from serve_app.submission.dependencies import Offer
from serve_app.submission.errors import Invalid

_OTHER_NAMES: Final[Mapping[str, str]] = {"num_inference_steps": "steps", "guidance_scale": "guidance"}
"""What serving engines, and the benchmarks made for them, call fields that many endpoints have."""


class Translation:
    """A request to `offer`, of the form `form`, field by field."""

    def __init__(self, offer: Offer, form: type[GenerationRequest]) -> None:
        self.offer = offer
        self.form = form
        self._fields: dict[str, Any] = {}
        self._told_as: dict[str, str] = {}
        """What each was sent as."""

    def put(self, field: str, value: Any, told_as: str) -> None:
        """None is left out. Raises Invalid where the endpoint has no such field, or it was set before."""
        if value is None:
            return
        if field not in self.form.model_fields:
            raise Invalid(["body", told_as], f"{self.offer.name} has no such field", "extra_forbidden")
        if field in self._fields:
            raise Invalid(["body", told_as], f"Sent twice: {self._told_as[field]} says the same", "sent_twice")
        self._fields[field] = value
        self._told_as[field] = told_as

    def put_common(self, asked: Asked) -> None:
        self.put("prompt", asked.prompt, "prompt")
        if asked.safety_identifier:
            self.put("user", asked.safety_identifier, "safety_identifier")
        else:
            self.put("user", asked.user or None, "user")

    def put_further(self, fields: Mapping[str, Any], sent: Sent) -> None:
        """The endpoint's own fields, which come last: none of them replaces what was sent as OpenAI's."""
        for name, value in fields.items():
            field = _OTHER_NAMES.get(name, name)
            self.put(field, sent.typed({field: value}, self.form)[field], name)

    def put_references(self, pictures: list[str], told_as: str) -> None:
        """Pictures that came with the request, in the order of the endpoint's fields for them. Raises Invalid."""
        fields = [name for name, role in self.form.image_fields.items() if role == "references"]
        if _is_list(self.form, fields[0]):
            self.put(fields[0], pictures, told_as)
            return
        if len(pictures) > len(fields):
            message = f"{self.offer.name} takes {len(fields)} at most, not {len(pictures)}"
            raise Invalid(["body", told_as], message, "too_long")
        for field, picture in zip(fields, pictures, strict=False):
            self.put(field, picture, told_as)

    def request(self, **changes: Any) -> GenerationRequest:
        """Raises RequestValidationError about the fields as they were sent."""
        try:
            return validated(self.form, self._fields | changes)
        except RequestValidationError as problem:
            raise RequestValidationError(
                [{**each, "loc": self._location(each["loc"])} for each in problem.errors()]
            ) from None

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Problems that are found later are about the fields as they were sent, too."""
        try:
            yield
        except Invalid as problem:
            entry = problem.entry
            raise Invalid(self._location(entry["loc"]), entry["msg"], entry["type"], **entry.get("ctx", {})) from None

    def _location(self, loc: Any) -> list[str]:
        where = [str(part) for part in loc]
        if len(where) > 1 and where[0] == "body" and (told := self._told_as.get(where[1])):
            # Below a field of another name there are no places that the client knows.
            return ["body", told, *(where[2:] if told == where[1] else ())]
        return where


@cache
def _is_list(form: type[GenerationRequest], field: str) -> bool:
    described = form.model_json_schema()["properties"][field]
    return any(each.get("type") == "array" for each in described.get("anyOf", [described]))


@cache
def masked_by_alpha(form: type[GenerationRequest]) -> type[GenerationRequest]:
    """The form with such masks."""

    def prepared(self: GenerationRequest, pictures: list[Picture]) -> list[Picture]:
        return form.prepared(self, [_white(each) if each.role == "mask" else each for each in pictures])

    return type(form.__name__, (form,), {"prepared": prepared, "__module__": form.__module__})


def _white(mask: Picture) -> Picture:
    """Raises PictureProblem."""
    white = alpha_mask(mask.image)
    if white is None:
        message = "The mask has no transparent parts, which are what is painted anew"
        raise PictureProblem("mask", message, "image_invalid")
    return Picture("mask", white)
