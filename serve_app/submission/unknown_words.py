"""What of a prompt a small model has never heard of, in a sentence for whoever sent it."""

from __future__ import annotations

from typing import Final

from deployments.contract.words import Words

_NAMED: Final = 8
"""Words."""
_LETTERS: Final = 24
"""Of a word."""


def warnings(words: Words | None, prompt: str) -> tuple[str, ...]:
    """None where the model reads whatever is said; `prompt` is the client's own."""
    unknown = words.unknown(prompt) if words else ()
    if not unknown:
        return ()
    named = ", ".join(f"'{_shortened(word)}'" for word in unknown[:_NAMED])
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    return (f"bundled model: does not know {named}{more}; see docs/bundled-models.md",)


def _shortened(word: str) -> str:
    return word if len(word) <= _LETTERS else f"{word[:_LETTERS]}…"
