"""The tokens of pictures in a row, and what of them is the same in every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deployments.families.packed.row import JointRow, Row


@dataclass(frozen=True, slots=True)
class Constants:
    """Of a picture, or of all pictures of a row."""

    text: Tensor
    """(1, L, D), as the first block sees it."""
    references: Tensor | None
    """(1, M, D), likewise."""
    channels: Tensor | None
    """(1, N, K): what is joined to every token of the picture."""
    pooled: Tensor | None
    """(B, P): the prompt as a whole."""
    text_positions: Tensor
    """Cosines and sines, (2, L, width of a head)."""
    picture_positions: Tensor
    reference_positions: Tensor
    """Of no length where there are no references."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Pictures in a row, and where in it what is."""

    text: Row
    picture: Row
    references: Row
    image: JointRow
    """Pictures and references."""
    joint: JointRow
    """Text and image."""
    constants: Constants
    joint_positions: Tensor

    @classmethod
    def of(cls, pictures: Sequence[Constants]) -> Packed:
        def row(positions: Sequence[Tensor]) -> Row:
            return Row([table.shape[1] for table in positions], positions[0].device)

        text = row([picture.text_positions for picture in pictures])
        drawn = row([picture.picture_positions for picture in pictures])
        references = row([picture.reference_positions for picture in pictures])
        image = JointRow(drawn, references)
        joint = JointRow(text, image)
        constants = Constants(
            text=torch.cat([picture.text for picture in pictures], dim=1),
            references=_joined([picture.references for picture in pictures]),
            channels=_joined([picture.channels for picture in pictures]),
            pooled=_joined([picture.pooled for picture in pictures], dim=0),
            text_positions=torch.cat([picture.text_positions for picture in pictures], dim=1),
            picture_positions=torch.cat([picture.picture_positions for picture in pictures], dim=1),
            reference_positions=torch.cat([picture.reference_positions for picture in pictures], dim=1),
        )
        of_image = image.gathered(constants.picture_positions, constants.reference_positions)
        return cls(text, drawn, references, image, joint, constants, joint.gathered(constants.text_positions, of_image))


def _joined(parts: Sequence[Tensor | None], dim: int = 1) -> Tensor | None:
    """Those that there are; None if there is none."""
    there = [part for part in parts if part is not None]
    return torch.cat(there, dim=dim) if there else None
