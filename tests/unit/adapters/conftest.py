from __future__ import annotations

import pytest
from torch import nn

from deployments import checkpoints


@pytest.fixture(scope="session")
def transformer() -> nn.Module:
    return checkpoints.load("bundled/flux3", device="cpu", dtype="float32").family.transformer
