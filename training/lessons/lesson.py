"""What is practised with pictures: a prompt, the pictures given with it, and the picture it should become."""

from __future__ import annotations

from dataclasses import dataclass

from deployments.wording.prompt import read
from training.build.words import WORDS
from training.worlds.pictures.scene import Mask, Scene


@dataclass(frozen=True, slots=True)
class Lesson:
    prompt: str
    target: Scene
    references: tuple[Scene, ...] = ()
    mask: Mask | None = None
    """Of the only reference: outside of it, that stays as it is, whatever the target shows there."""
    placed: bool = False
    """Whether outlines or a picture beside the prompt say where things are."""

    @property
    def read(self) -> str:
        """The prompt as a model reads it."""
        placed = self.placed or self.mask is not None
        return read(self.prompt, WORDS, len(self.references), placed=placed)
