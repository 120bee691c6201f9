"""Examines a text judge with prompts that should be refused and harmless ones that look like them.

    python -m deployments.moderation.evaluation
    python -m deployments.moderation.evaluation --judge guard --checkpoint Qwen/Qwen3Guard-Gen-0.6B --file guard.md

Prints the results in Markdown and writes them to docs/moderation-evaluation.md. Run it at the repository's root.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from deployments.contract.moderation import TEXT_JUDGES, JudgeSpec
from deployments.moderation.evaluation.grading import examined
from deployments.moderation.evaluation.prompt import prompts
from deployments.moderation.evaluation.report import markdown
from deployments.moderation.evaluation.thresholds import thresholds
from deployments.moderation.judges import load_judge

_FILE: Final = Path("docs/moderation-evaluation.md")


def main(arguments: list[str] | None = None) -> None:
    chosen = _arguments(arguments)
    labels = dict(pair.split("=", 1) for pair in chosen.label)
    spec = JudgeSpec(chosen.judge, chosen.checkpoint, labels=labels, device=chosen.device)
    text = markdown(spec, examined(load_judge(spec, TEXT_JUDGES), prompts()), thresholds())
    chosen.file.parent.mkdir(parents=True, exist_ok=True)
    chosen.file.write_text(text, encoding="utf-8")
    print(text)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", choices=list(TEXT_JUDGES), default="lexicon")
    parser.add_argument("--checkpoint", help="of a model, or a list of one's own for the lexicon")
    parser.add_argument("--label", action="append", default=[], metavar="LABEL=CATEGORY", help="what a label means")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--file", type=Path, default=_FILE, help="where the results go")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
