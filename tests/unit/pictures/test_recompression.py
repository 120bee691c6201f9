from __future__ import annotations

import numpy as np
import pytest

from deployments.images import recompressed
from deployments.video.writer import VideoError


@pytest.mark.parametrize(("height", "width"), [(64, 96), (65, 97), (200, 120)])
def test_the_larger_the_crf_the_less_is_left_of_a_picture(height: int, width: int) -> None:
    y, x = np.ogrid[:height, :width]
    channels = np.broadcast_arrays(np.sin(x / 7) * np.cos(y / 5), np.cos(x / 15 + y / 20), np.sin(y / 30 + x / 50))
    picture = (127.5 + 100 * np.stack(channels, axis=-1)).astype(np.uint8)
    left = [recompressed(picture, crf).astype(int) for crf in (1, 33, 51)]
    little, usual, much = (np.abs(pixels - picture[: height // 2 * 2, : width // 2 * 2]).mean() for pixels in left)
    assert 0 < little < min(3, usual)
    assert usual < min(12, much)


def test_a_picture_without_a_pair_of_rows_is_refused() -> None:
    with pytest.raises(VideoError, match="compressed"):
        recompressed(np.zeros((1, 64, 3), np.uint8), 33)
