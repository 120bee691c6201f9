"""All benchmarks, in six to seven minutes: `python -m benchmarks`, which is `make bench`.

One service serves three of them, one after the other; the ingress benchmark starts its own setups. The batching one
needs none and comes last, as it loads models into this process; it is the quick one of `benchmarks.batching`.
"""

from __future__ import annotations

import sys

from rich.console import Console

from benchmarks import batching, handoff, ingress, machine, overhead, rest
from benchmarks.report import RESULTS
from benchmarks.service import UNLIMITED, Service


def main() -> int:
    console = Console()
    facts = machine.facts()
    console.print("starting a service")
    with Service(UNLIMITED) as service:
        reports = [rest.measure(service, facts, console), handoff.measure(service, 200, console)]
        reports.append(overhead.measure(service, overhead.ROUNDS, overhead.PICTURES, console))
    report, table = ingress.measure(3, 2.0, console)
    console.print(table)
    reports.append(report)
    reports.append(batching.measure(batching.QUICK, console))
    codes = [report.finish(console) for report in reports]
    console.print(f"figures and plots: {RESULTS.relative_to(RESULTS.parents[1])}")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
