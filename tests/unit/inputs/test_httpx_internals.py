from __future__ import annotations

import httpx2

from serve_app.inputs.httpx_internals import WRITTEN_FOR


def test_internals_are_of_the_installed_release() -> None:
    hint = f"compare httpx_internals.py with httpx2 {httpx2.__version__}, then set WRITTEN_FOR"
    assert httpx2.__version__.rpartition(".")[0] == WRITTEN_FOR, hint
