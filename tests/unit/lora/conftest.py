from __future__ import annotations

import pytest
from support.bundle import cpu_config
from torch import nn

from deployments import native_loading


@pytest.fixture(scope="session")
def transformer() -> nn.Module:
    return native_loading.load(cpu_config("bundled/flux3")).family.transformer
