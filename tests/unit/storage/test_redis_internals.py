from __future__ import annotations

import redis

from serve_app.storage.redis_internals import WRITTEN_FOR


def test_internals_are_of_the_installed_release() -> None:
    hint = f"compare redis_internals.py with redis-py {redis.__version__}, then set WRITTEN_FOR"
    assert redis.__version__.rpartition(".")[0] == WRITTEN_FOR, hint
