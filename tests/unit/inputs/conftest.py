from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.website import Website, serving


@pytest.fixture
def web() -> Iterator[Website]:
    with serving() as site:
        yield site
