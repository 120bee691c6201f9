"""Files that only their owner may read."""

from __future__ import annotations

import os
from pathlib import Path


def write_secret(path: Path, secret: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(secret + "\n")
