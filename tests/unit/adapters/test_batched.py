from __future__ import annotations

import pytest
import torch
from torch import nn

from deployments.adapters.batched import AppliedAdapter, adapted
from deployments.adapters.weights import LowRank


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 4))


def an_adapter(strength: float, seed: int = 1, scale: float = 0.5) -> AppliedAdapter:
    draw = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    layers = {"0": LowRank(matrix(2, 6), matrix(8, 2), scale), "2": LowRank(matrix(3, 8), matrix(4, 3), scale)}
    return AppliedAdapter(layers, strength)


def merged(network: nn.Sequential, applied: AppliedAdapter) -> nn.Sequential:
    """The network with the matrices added into its weights."""
    copy = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 4))
    copy.load_state_dict(network.state_dict())
    for name, layer in applied.layers.items():
        copy.get_submodule(name).weight.data += layer.up @ layer.down * layer.scale * applied.strength  # type: ignore[union-attr, operator]
    return copy


@torch.inference_mode()
def test_each_row_gets_its_own(network: nn.Sequential) -> None:
    x = torch.randn(4, 5, 6)
    rows = [an_adapter(1.0), None, an_adapter(0.3), an_adapter(2.0, seed=2)]
    with adapted(network, rows):
        together = network(x)
    for index, applied in enumerate(rows):
        alone = (network if applied is None else merged(network, applied))(x[index : index + 1])
        torch.testing.assert_close(together[index : index + 1], alone, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("rows", [[None, None], [an_adapter(0.0), None]])
def test_no_adapter_and_strength_zero_change_nothing_at_all(
    network: nn.Sequential, rows: list[AppliedAdapter | None]
) -> None:
    x = torch.randn(2, 5, 6)
    plain = network(x)
    with adapted(network, rows):
        assert torch.equal(network(x), plain)


@torch.inference_mode()
def test_nothing_stays_behind_even_after_an_error(network: nn.Sequential) -> None:
    x = torch.randn(2, 5, 6)
    plain = network(x)
    with pytest.raises(RuntimeError, match="rows"), adapted(network, [an_adapter(1.0)]):
        network(x)
    assert torch.equal(network(x), plain)


@torch.inference_mode()
def test_compiled_blocks_are_no_hindrance(network: nn.Sequential) -> None:
    x = torch.randn(2, 5, 6)
    rows = [an_adapter(1.0), None]
    with adapted(network, rows):
        expected = network(x)
    for block in network:
        block.compile(backend="eager")
    plain = network(x)
    with adapted(network, rows):
        torch.testing.assert_close(network(x), expected)
    assert torch.equal(network(x), plain)
