"""A bar with the loss, smoothed, for a run that takes long."""

from __future__ import annotations

from collections.abc import Iterator

from tqdm import tqdm

_SMOOTHING = 0.98


def follow(losses: Iterator[float], steps: int, done: int = 0) -> None:
    """Runs it to its end."""
    smooth = None
    with tqdm(total=steps, initial=done, unit="step", mininterval=10) as bar:
        for loss in losses:
            smooth = loss if smooth is None else _SMOOTHING * smooth + (1 - _SMOOTHING) * loss
            bar.set_postfix_str(f"loss {smooth:.4f}", refresh=False)
            bar.update()
