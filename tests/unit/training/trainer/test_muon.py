from __future__ import annotations

import torch
from torch import nn

from training.trainer.muon import Muon, orthogonal


def weights(*shapes: tuple[int, ...]) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(2)
    made = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    for weight in made:
        weight.grad = torch.randn(weight.shape, generator=generator)
    return made


def test_orthogonalized_matrices_have_singular_values_of_about_1() -> None:
    generator = torch.Generator().manual_seed(1)
    for shape in ((2, 8, 72), (2, 72, 8)):
        matrices = orthogonal(torch.randn(shape, generator=generator))
        assert matrices.shape == shape
        values = torch.linalg.svdvals(matrices)
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_steps_are_those_of_the_stock_optimizer() -> None:
    ours, stock = weights((16, 64), (64, 16), (16, 64)), weights((16, 64), (64, 16), (16, 64))
    before = [weight.detach().clone() for weight in ours]
    reference = torch.optim.Muon(stock, lr=0.02, weight_decay=0.0, momentum=0.95, ns_steps=4, adjust_lr_fn="original")
    optimizer = Muon(ours, 0.02)
    for _ in range(3):
        optimizer.step()
        reference.step()
    for start, one, other in zip(before, ours, stock, strict=True):
        moved = one - start
        # The stock one computes in bfloat16.
        assert (moved - (other - start)).norm() < 0.03 * moved.norm()


def test_a_filter_is_a_matrix_of_its_outputs() -> None:
    [filters], [matrix] = weights((8, 4, 3, 3)), weights((8, 36))
    Muon([filters], 0.02).step()
    Muon([matrix], 0.02).step()
    assert torch.allclose(filters.flatten(1), matrix, atol=1e-6)


def test_what_has_no_gradient_stays() -> None:
    [weight] = weights((4, 4))
    weight.grad = None
    before = weight.detach().clone()
    Muon([weight], 0.02).step()
    assert torch.equal(weight, before)
