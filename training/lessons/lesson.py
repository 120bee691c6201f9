"""What is practised with pictures: a prompt, the pictures given with it, and the picture it should become."""

from __future__ import annotations

from dataclasses import dataclass

from training.build.words import WORDS
from training.worlds.pictures.scene import Mask, Scene


@dataclass(frozen=True, slots=True)
class Lesson:
    prompt: str
    target: Scene
    references: tuple[Scene, ...] = ()
    mask: Mask | None = None
    """Of the only reference: outside of it, that stays as it is, whatever the target shows there."""

    @property
    def read(self) -> str:
        """The prompt as a model reads it."""
        return WORDS.normalised(self.prompt)
