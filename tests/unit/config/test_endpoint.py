from __future__ import annotations

import pytest
from pydantic import ValidationError

from serve_app.config.endpoint import Deprecated, Price


def test_only_output_is_priced_by_the_second() -> None:
    price = Price(first=2, out=1, input=0.5, per_second=True)
    assert price.millicredits(2 * 2**20, 3 * 2**20, 4) == 1000 * (4 * 3 + 1.5)
    flat = Price(first=2, out=1, input=0.5)
    assert flat.millicredits(2 * 2**20, 3 * 2**20, 4) == 1000 * (3 + 1.5)


def test_an_end_before_its_announcement_is_refused() -> None:
    with pytest.raises(ValidationError, match="sunset"):
        Deprecated.model_validate({"since": "2026-01-01", "sunset": "2025-01-01"})
