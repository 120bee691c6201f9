"""`make proof`: the largest searches, which take minutes. Exit code 1 when a promise is broken."""

from __future__ import annotations

import sys
import time

from support.task_life.scripts import Scripts
from support.task_life.search import search
from support.task_life.steps import TaskLife

SEARCHES = {
    "one task, four mishaps": (TaskLife(Scripts(), tasks=1), 4),
    "two tasks, two mishaps": (TaskLife(Scripts(), tasks=2), 2),
    "a repeated request, three mishaps": (TaskLife(Scripts(), tasks=2, same_key=True), 3),
}


def main() -> None:
    broken = False
    for name, (life, mishaps) in SEARCHES.items():
        print(f"{name}: ", end="", flush=True)
        began = time.monotonic()
        found = search(life, mishaps)
        told = f"{found.violated} is broken" if found.violated else "no promise is broken"
        print(f"{found.states} states, {found.steps} steps, {time.monotonic() - began:.0f} s: {told}")
        for step in found.trace:
            print(f"    {step}")
        broken |= bool(found.violated)
    sys.exit(broken)


if __name__ == "__main__":
    main()
