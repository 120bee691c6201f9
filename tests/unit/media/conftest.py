from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from local_web import LocalWeb, serving


@pytest_asyncio.fixture
async def web() -> AsyncIterator[LocalWeb]:
    async with serving() as server:
        yield server
