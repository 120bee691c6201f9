"""Where the tokens of each picture lie in a row of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor


class Row:
    """Tokens of several pictures one after the other, (1, T, D): first all of picture 0, then all of picture 1, ..."""

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        """`lengths[k]` tokens are picture k's; it may have none."""
        self.lengths = list(lengths)
        self.starts = [0, *accumulate(lengths)]
        """The first token of each picture, and the end of the last."""
        self.bounds = torch.tensor(self.starts, dtype=torch.int32).to(device)
        """`starts` as kernels take them, (B + 1,)."""
        whose = torch.repeat_interleave(torch.arange(len(self.lengths)), torch.tensor(self.lengths))
        self.picture = whose.to(device)
        """Whose each token is, (T,)."""
        self.block_mask: Any = None
        """xformers' mask of the row, once one was made: every block of every step needs it."""

    @property
    def total(self) -> int:
        return self.starts[-1]

    def spread(self, per_picture: Tensor) -> Tensor:
        """(B, D), a line for each picture, to (1, T, D), a line for each token."""
        return per_picture.index_select(0, self.picture)[None]

    def split(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """(1, T, ...) to (1, T_k, ...) per picture."""
        return tokens.split(self.lengths, dim=1)


class JointRow(Row):
    """The tokens of two rows of the same pictures, brought together: of picture 0 those of the first row, then those of
    the second; then picture 1's, ..."""

    def __init__(self, first: Row, second: Row) -> None:
        device = first.picture.device
        super().__init__([a + b for a, b in zip(first.lengths, second.lengths, strict=True)], device)
        self._totals = [first.total, second.total]
        places = [
            torch.arange(offset + row.starts[picture], offset + row.starts[picture + 1])
            for picture in range(len(self.lengths))
            for row, offset in ((first, 0), (second, first.total))
        ]
        order = torch.cat(places)
        self._order = order.to(device)
        self._back = torch.argsort(order).to(device)

    def gathered(self, first: Tensor, second: Tensor | None) -> Tensor:
        """The tokens of both rows, (n, T_1, ...) and (n, T_2, ...), in this row's order. None where a row has none."""
        if second is None:
            return first
        return torch.cat([first, second], dim=1).index_select(1, self._order)

    def scattered(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """What `gathered` brought together, by row again."""
        if not self._totals[1]:
            return tokens, tokens[:, :0]
        first, second = tokens.index_select(1, self._back).split(self._totals, dim=1)
        return first, second
