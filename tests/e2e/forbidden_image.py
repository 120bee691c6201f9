"""The image that the moderator of `breakable` rejects."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt


def draw_forbidden_image() -> npt.NDArray[np.uint8]:
    """Returns an image with details on one side and none on the other."""
    image = np.full((256, 384, 3), 90, np.uint8)
    random = np.random.default_rng(4)
    for _ in range(40):
        corners = random.integers((0, 0), (120, 256), (2, 2))
        colour = tuple(int(level) for level in random.integers(0, 256, 3))
        cv2.rectangle(image, tuple(map(int, corners[0])), tuple(map(int, corners[1])), colour, -1)
    return image
