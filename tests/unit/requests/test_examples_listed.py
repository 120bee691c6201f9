"""Bodies to try are such as their endpoints take."""

from __future__ import annotations

from typing import Any

import pytest

from serve_app.schemas import REQUESTS
from serve_app.schemas.examples import examples
from serve_app.schemas.tolerant import finetuned

LISTED = [
    pytest.param(name, tuned, body, id=f"{name}{'-finetuned' if tuned else ''}: {title}")
    for name, form in REQUESTS.items()
    for tuned in ((False, True) if form.finetunable else (False,))
    for title, body in examples(name, tuned=tuned).items()
]


@pytest.mark.parametrize(("name", "tuned", "body"), LISTED)
def test_a_body_is_valid_and_has_no_field_that_means_nothing(name: str, tuned: bool, body: dict[str, Any]) -> None:
    form = finetuned(REQUESTS[name]) if tuned else REQUESTS[name]
    request = form.model_validate(body)
    assert set(body) <= set(type(request).model_fields)
    assert request.model_fields_set == set(body)


def test_every_request_has_one() -> None:
    assert all(examples(name, tuned=False) for name in REQUESTS)
