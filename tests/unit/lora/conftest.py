from __future__ import annotations

from pathlib import Path

import pytest
from support.bundle import cpu_config
from torch import nn

from deployments import native_loading


@pytest.fixture(scope="session")
def transformer() -> nn.Module:
    return native_loading.load(cpu_config("bundled/flux3")).family.transformer


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder that tiny pipelines are written to."""
    return tmp_path_factory.mktemp("tiny")
