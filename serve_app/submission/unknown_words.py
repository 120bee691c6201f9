"""What of a prompt a small model has never heard of, in a sentence for whoever sent it."""

from __future__ import annotations

from typing import Final

from deployments.contract.words import Words
from serve_app.media.ratio_words import without_shapes
from serve_app.requests.plan import Plan

_NAMED: Final = 8
"""Words."""
_LETTERS: Final = 24
"""Of a word."""


def warnings(words: Words, plan: Plan) -> tuple[str, ...]:
    """At most one; `plan` has the client's own prompt. Where it decides on the ratio, words for that are understood."""
    unknown = words.unknown(without_shapes(plan.prompt) if plan.width is None else plan.prompt)
    if not unknown:
        return ()
    named = ", ".join(f"'{_shortened(word)}'" for word in unknown[:_NAMED])
    more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
    return (f"bundled model: does not know {named}{more}; see docs/bundled-models.md",)


def _shortened(word: str) -> str:
    return word if len(word) <= _LETTERS else f"{word[:_LETTERS]}…"
