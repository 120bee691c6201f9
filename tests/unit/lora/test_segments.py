from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError, FakeTensorMode

from deployments.families.packed.batch import PackedSequence
from deployments.lora.deltas import LowRank
from deployments.lora.segments import AdaptedLayers, AppliedAdapter


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 4))


def make_adapter(strength: float, seed: int = 1, scale: float = 0.5) -> AppliedAdapter:
    draw = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    shapes = {"0": (2, 6, 8), "2": (3, 8, 4)}
    layers = {
        f"transformer.{name}": (LowRank(matrix(rank, width), matrix(out, rank), scale=scale),)
        for name, (rank, width, out) in shapes.items()
    }
    return AppliedAdapter(layers, strength)


def merge(network: nn.Sequential, applied: AppliedAdapter) -> nn.Sequential:
    """Returns the network with the matrices added to its weights."""
    copy = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 4))
    copy.load_state_dict(network.state_dict())
    for name, [layer] in applied.layers.items():
        assert isinstance(layer, LowRank)
        copy.get_submodule(name.removeprefix("transformer.")).weight.data += (
            layer.up @ layer.down * layer.scale * applied.strength
        )  # type: ignore[union-attr, operator]
    return copy


ONE, OTHER = make_adapter(1.0), make_adapter(2.0, seed=2)
WEAKER = AppliedAdapter(ONE.layers, 0.3)


@torch.inference_mode()
@pytest.mark.parametrize("adapters", [[ONE, None, OTHER, None], [ONE, OTHER, ONE, WEAKER]])
def test_each_image_gets_its_own_adapter_and_strength(
    network: nn.Sequential, adapters: Sequence[AppliedAdapter | None]
) -> None:
    sequence = PackedSequence([5, 3, 0, 7], torch.device("cpu"))
    tokens, lines = torch.randn(1, sequence.total, 6), torch.randn(4, 6)
    layers = AdaptedLayers({"transformer": network})
    with layers.apply(adapters):
        with layers.over(sequence):
            together = network(tokens)
        line_outputs = network(lines)
    for place, (applied, alone, changed) in enumerate(
        zip(adapters, sequence.split(tokens), sequence.split(together), strict=True)
    ):
        own = network if applied is None else merge(network, applied)
        torch.testing.assert_close(changed, own(alone), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(line_outputs[place : place + 1], own(lines[place : place + 1]), rtol=1e-4, atol=1e-5)


@pytest.fixture
def compiled_blocks() -> Iterator[nn.Sequential]:
    """Returns blocks to be compiled, more than torch.compile allows variants."""
    torch.manual_seed(0)
    yield nn.Sequential(*(Block() for _ in range(12)))
    torch._dynamo.reset()


@torch.inference_mode()
def test_adapter_changes_compiled_blocks_only_meanwhile(compiled_blocks: nn.Sequential) -> None:
    """Guards of compiled blocks don't look at hooks, and each hook would have a block compiled anew."""
    tokens, layers = torch.randn(6, 6), AdaptedLayers({"transformer": compiled_blocks})
    low_rank = LowRank(torch.ones(1, 6), torch.ones(6, 1))
    adapter = AppliedAdapter({f"transformer.{at}.linear": (low_rank,) for at in range(12)}, 1.0)
    with layers.applied_to_all(adapter):
        expected = compiled_blocks(tokens)
    for block in compiled_blocks:
        block.compile(fullgraph=True, dynamic=True, backend="eager")
    plain = compiled_blocks(tokens)
    with layers.applied_to_all(adapter):
        assert torch.allclose(compiled_blocks(tokens), expected)
    assert not torch.allclose(plain, expected)
    assert torch.equal(compiled_blocks(tokens), plain)
    assert compiled_blocks(torch.randn(9, 6)).shape == (9, 6)


@torch.inference_mode()
def test_steps_without_an_adapter_are_exact(network: nn.Sequential) -> None:
    lines, layers = torch.randn(2, 6), AdaptedLayers({"transformer": network})
    plain = network(lines)
    with layers.apply([ONE, OTHER]):
        assert not torch.equal(network(lines), plain)
    with layers.apply([None, None]):
        assert torch.equal(network(lines), plain)


@torch.inference_mode()
def test_images_beside_a_tuned_one_are_exact(network: nn.Sequential) -> None:
    sequence = PackedSequence([4, 4], torch.device("cpu"))
    tokens, layers = torch.randn(1, 8, 6), AdaptedLayers({"transformer": network})
    with layers.apply([ONE, None]), layers.over(sequence):
        changed = network(tokens)
    assert torch.equal(changed[:, 4:], network(tokens)[:, 4:])


@torch.inference_mode()
def test_adapter_is_removed_after_an_error(network: nn.Sequential) -> None:
    lines, layers = torch.randn(2, 6), AdaptedLayers({"transformer": network})
    plain = network(lines)
    with pytest.raises(RuntimeError, match="shapes"), layers.apply([ONE, None]):
        network(torch.randn(2, 7))
    assert torch.equal(network(lines), plain)


@torch.inference_mode()
def test_layers_are_hooked_only_meanwhile(network: nn.Sequential) -> None:
    layers = AdaptedLayers({"transformer": network})
    for _ in range(5):
        with layers.apply([ONE, OTHER]):
            assert [len(module._forward_hooks) for module in network] == [1, 0, 1]
            network(torch.randn(2, 6))
    assert [len(module._forward_hooks) for module in network] == [0, 0, 0]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x)


def test_matrices_move_to_the_inputs_device() -> None:
    """Offloaded networks rest on another device. Fake tensors can't be multiplied across devices."""
    with FakeTensorMode():
        network = nn.Sequential(nn.Linear(6, 8))
        far = LowRank(torch.empty(2, 6, device="cuda"), torch.empty(8, 2, device="cuda"))
        with AdaptedLayers({"transformer": network}).applied_to_all(AppliedAdapter({"transformer.0": (far,)}, 1.0)):
            assert network(torch.empty(3, 6)).device == torch.device("cpu")
        with pytest.raises(FakeTensorDeviceMismatchError):
            far(network[0], torch.empty(3, 6))
