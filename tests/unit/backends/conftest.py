from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from pipeline_jobs import load_stock
from support.images import image_file

from deployments.contract.objects import ObjectStore


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder that tiny pipelines are written to."""
    return tmp_path_factory.mktemp("pipelines")


@pytest.fixture(scope="session")
def load(folder: Path) -> Callable[[str], Any]:
    """Returns a function that loads each tiny pipeline once."""
    return cache(partial(load_stock, folder))


@pytest.fixture
def store() -> ObjectStore:
    store = ObjectStore("memory:///")
    store.put_blocking("inputs/a", image_file(64, 64), "image/png")
    store.put_blocking("inputs/text", b"hello", "image/png")
    return store
