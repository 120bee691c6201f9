from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ASK = """
import os, pathlib, sys, time
pathlib.Path(os.environ["CHAOS_CLOCKS"], str(os.getpid())).write_text(sys.argv[1])
print(time.time())
"""


@pytest.mark.parametrize("off_s", [300, -300])
def test_a_process_tells_the_time_that_it_is_told_to(tmp_path: Path, off_s: int) -> None:
    wrong_clock = Path(__file__).with_name("wrong_clock")
    environment = os.environ | {"PYTHONPATH": str(wrong_clock), "CHAOS_CLOCKS": str(tmp_path)}
    before = time.time()
    told = subprocess.run([sys.executable, "-c", ASK, str(off_s)], env=environment, capture_output=True, check=True)
    assert before <= float(told.stdout) - off_s <= time.time()
    assert [path.suffix for path in sorted(tmp_path.iterdir())] == ["", ".heard"]
