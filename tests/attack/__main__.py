"""Attacks a running service with whatever a hostile client can send, while a bystander is to be served.

    make attack                                             a few thousand attacks, then a table
    make attack URL=http://127.0.0.1:8000 ATTACK="--operator-key .gen/operator-key"
    python -m attack --count 500 --seed 7 --families json images

Only services on this machine's loopback interface are attacked. An attack fails when the service breaks, says more than
it should, lets through what it should refuse, or takes too long (`wire.py`). `corpus.yaml` has what is sent.
Exit code 1 when an attack failed, or the bystander was not served.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from attack import families
from attack.stage import Stage, open_stage, start_service, watching
from attack.wire import NotOurs

SERVED_S: Final = 15.0
"""Within which the bystander's requests are answered, whatever goes on."""
FAMILIES: Final[dict[str, tuple[Any, float, int]]] = {
    "urls": (families.urls, 0.3, 1),  # one at a time, so that whoever arrives where it must not is known
    "json": (families.mutate, 0.45, 4),
    "images": (families.images, 0.15, 4),
    "videos": (families.videos, 0.05, 4),
    "slow": (families.slow, 0.05, 4),
}
"""What makes them, their share of all that is tried, and how many are on their way at a time."""


def attack(stage: Stage, names: Sequence[str], seed: int, count: int) -> list[str]:
    """Attacks family after family, and tells of each. Returns what failed."""
    failed: list[str] = []
    whole = sum(FAMILIES[name][1] for name in names)
    for name in names:
        make, weight, threads = FAMILIES[name]
        attacks = list(make(stage, seed, max(1, round(count * weight / whole))))
        began, failures = time.monotonic(), list[str]()
        with watching(stage, SERVED_S) as bystander, ThreadPoolExecutor(threads) as pool:
            for each, wrong in zip(attacks, pool.map(lambda each: each.run(stage), attacks), strict=True):
                failures += [f"{name} --seed {seed} --count {count} | {each.name} | {'; '.join(wrong)}"] * bool(wrong)
        failures += [f"{name} | the bystander was not served: {why}" for why in bystander.trouble]
        if stage.http.get("/healthz").status_code != 200:
            failures.append(f"{name} | the service is not healthy any more")
        took, worst = time.monotonic() - began, bystander.worst_s
        summary = f"{len(attacks):>6} attacks {len(failures):>4} failures {took:>5.0f} s"
        print(
            f"{name:<9} {summary}, the bystander waited {worst:.1f} s at most", *failures, sep="\nFAILED ", flush=True
        )
        failed += failures
    return failed


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing that was started is left
    parser = argparse.ArgumentParser(
        prog="python -m attack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="of a running service on this machine's loopback interface, else one is started")
    parser.add_argument("--operator-key", type=Path, default=Path(".gen/operator-key"), help="file, with --url")
    parser.add_argument("--count", type=int, default=5000, help="attacks, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    options = parser.parse_args()
    with ExitStack() as stack:
        url, operator = options.url, options.operator_key
        if not url:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            url = stack.enter_context(start_service(folder, families.REPOSITORY)).base_url
            operator = folder / "data" / "operator-key"
        try:
            stage = stack.enter_context(open_stage(url, operator.read_text().strip(), proxied=True))
        except NotOurs as refusal:
            parser.error(str(refusal))
        sys.exit(bool(attack(stage, options.families, options.seed, options.count)))


if __name__ == "__main__":
    main()
