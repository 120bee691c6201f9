from __future__ import annotations

import pytest
from torch import nn

from deployments import loading


@pytest.fixture(scope="session")
def transformer() -> nn.Module:
    return loading.load("bundled/flux3", device="cpu", dtype="float32").family.transformer
