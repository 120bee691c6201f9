from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorDeviceMismatchError, FakeTensorMode

from deployments.families.packed.batch import PackedSequence
from deployments.lora.deltas import LowRank
from deployments.lora.segments import AdaptedLayers, AppliedAdapter


@pytest.fixture
def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 4))


def an_adapter(strength: float, seed: int = 1, scale: float = 0.5) -> AppliedAdapter:
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
    """The network with the matrices added into its weights."""
    copy = nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Linear(8, 4))
    copy.load_state_dict(network.state_dict())
    for name, [layer] in applied.layers.items():
        assert isinstance(layer, LowRank)
        copy.get_submodule(name.removeprefix("transformer.")).weight.data += (
            layer.up @ layer.down * layer.scale * applied.strength
        )  # type: ignore[union-attr, operator]
    return copy


ONE, OTHER = an_adapter(1.0), an_adapter(2.0, seed=2)
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


@torch.inference_mode()
def test_no_adapter_changes_nothing_at_all(network: nn.Sequential) -> None:
    lines, layers = torch.randn(2, 6), AdaptedLayers({"transformer": network})
    plain = network(lines)
    with layers.apply([ONE, OTHER]):
        assert not torch.equal(network(lines), plain)
    with layers.apply([None, None]):
        assert torch.equal(network(lines), plain)


@torch.inference_mode()
def test_those_beside_a_tuned_one_are_computed_exactly_as_without(network: nn.Sequential) -> None:
    sequence = PackedSequence([4, 4], torch.device("cpu"))
    tokens, layers = torch.randn(1, 8, 6), AdaptedLayers({"transformer": network})
    with layers.apply([ONE, None]), layers.over(sequence):
        changed = network(tokens)
    assert torch.equal(changed[:, 4:], network(tokens)[:, 4:])


@torch.inference_mode()
def test_nothing_applies_any_more_after_an_error(network: nn.Sequential) -> None:
    lines, layers = torch.randn(2, 6), AdaptedLayers({"transformer": network})
    plain = network(lines)
    with pytest.raises(RuntimeError, match="shapes"), layers.apply([ONE, None]):
        network(torch.randn(2, 7))
    assert torch.equal(network(lines), plain)


@torch.inference_mode()
def test_layers_are_hooked_once_and_only_meanwhile(network: nn.Sequential) -> None:
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


@torch.inference_mode()
def test_blocks_that_are_compiled_later_on_know_nothing_of_it() -> None:
    """More of them than variants that torch.compile allows, each of which would be compiled anew for its hook."""
    torch.manual_seed(0)
    network = nn.Sequential(*(Block() for _ in range(12)))
    for block in network:
        block.compile(fullgraph=True, dynamic=True, backend="eager")
    network(torch.randn(6, 6))  # as many lines as columns, which are taken for the same number
    adapter = AppliedAdapter(
        {f"transformer.{at}.linear": (LowRank(torch.ones(1, 6), torch.ones(6, 1)),) for at in range(12)}, 1.0
    )
    with AdaptedLayers({"transformer": network}).apply([adapter]):
        network[0].linear(torch.randn(1, 6))  # type: ignore[operator]
    assert network(torch.randn(9, 6)).shape == (9, 6)


def test_matrices_come_to_the_device_of_a_layers_input() -> None:
    """Networks rest elsewhere with offloading. Fake tensors refuse to be multiplied across devices."""
    with FakeTensorMode():
        network = nn.Sequential(nn.Linear(6, 8))
        far = LowRank(torch.empty(2, 6, device="cuda"), torch.empty(8, 2, device="cuda"))
        with AdaptedLayers({"transformer": network}).applied_to_all(AppliedAdapter({"transformer.0": (far,)}, 1.0)):
            assert network(torch.empty(3, 6)).device == torch.device("cpu")
        with pytest.raises(FakeTensorDeviceMismatchError):
            far(network[0], torch.empty(3, 6))


@torch.inference_mode()
def test_adapter_changes_what_was_compiled_before(flux: Any) -> None:
    """Guards of compiled blocks don't look at hooks."""
    draw = torch.Generator().manual_seed(0)
    inputs = {
        "hidden_states": torch.randn(1, 16, 4, generator=draw),
        "encoder_hidden_states": torch.randn(1, 8, 32, generator=draw),
        "pooled_projections": torch.randn(1, 32, generator=draw),
        "timestep": torch.tensor([0.5]),
        "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(8, 3),
    }
    layer = flux.transformer_blocks[0].attn.to_q
    low_rank = LowRank(torch.randn(8, layer.in_features), torch.randn(layer.out_features, 8), scale=1.0)
    adapter = AppliedAdapter({"transformer.transformer_blocks.0.attn.to_q": (low_rank,)}, 1.0)
    layers = AdaptedLayers({"transformer": flux})
    with layers.applied_to_all(adapter):
        expected = flux(**inputs).sample
    flux.compile_repeated_blocks(fullgraph=True, dynamic=True, backend="eager")
    plain = flux(**inputs).sample
    with layers.applied_to_all(adapter):
        adapted = flux(**inputs).sample
    assert torch.allclose(adapted, expected)
    assert not torch.allclose(adapted, plain)
    assert (flux(**inputs).sample == plain).all()


@pytest.fixture
def flux() -> Iterator[Any]:
    torch.manual_seed(0)
    heads: dict[str, Any] = {"attention_head_dim": 16, "num_attention_heads": 2, "axes_dims_rope": (4, 4, 8)}
    widths: dict[str, Any] = {"joint_attention_dim": 32, "pooled_projection_dim": 32}
    layers: dict[str, Any] = {"patch_size": 1, "in_channels": 4, "num_layers": 1, "num_single_layers": 1}
    yield FluxTransformer2DModel(**layers, **heads, **widths).eval()
    torch._dynamo.reset()
