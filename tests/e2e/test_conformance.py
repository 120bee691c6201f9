"""The conformance kit on a whole service, for the sentences about results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.local_service import LocalService


@pytest.mark.slow
def test_sentences_about_results_hold(service: LocalService, repository: Path) -> None:
    where = ["--server", service.base_url, "--server-key", service.key, "-p", "no:cacheprovider", "-q"]
    command = [sys.executable, "-m", "pytest", *where, "-k", "not fields and not values", "tests/conformance"]
    result = subprocess.run(command, check=False, cwd=repository, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-5000:]
