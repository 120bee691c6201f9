"""The buckets of the histograms are the same on both sides."""

from __future__ import annotations

import re
from pathlib import Path

from serve_app.tasks import timings


def test_the_script_counts_in_the_buckets_that_python_reads() -> None:
    script = Path(timings.__file__).with_suffix(".lua").read_text()
    listed = re.search(r"BUCKETS_MS = \{([\d, ]+)\}", script)
    assert listed is not None
    assert tuple(int(bound) for bound in listed[1].split(",")) == timings.BUCKETS.bounds
