from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training.trainer.flow import plain_attention


@pytest.mark.parametrize("mask", [None, torch.randn(2, 3, 5, 7), torch.arange(7).expand(2, 3, 5, 7) < 4])
def test_plain_attention_is_attention(mask: Tensor | None) -> None:
    query, key, value = (torch.randn(2, 3, length, 8) for length in (5, 7, 7))
    wanted = F.scaled_dot_product_attention(query, key, value, mask)
    stock = F.scaled_dot_product_attention
    with plain_attention():
        assert F.scaled_dot_product_attention is not stock
        given = F.scaled_dot_product_attention(query, key, value, mask)
    assert F.scaled_dot_product_attention is stock
    assert torch.allclose(given, wanted, atol=1e-5)
