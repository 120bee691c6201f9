"""What is bound, and what binding it takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BUILT = """
import sys
from pathlib import Path

from serve_app import application
from serve_app.config.settings import load

application.build(load(Path(sys.argv[1])))
print([name for name in ("torch", "diffusers", "transformers", "mcp", "serve_app.http.ingress") if name in sys.modules])
"""


def test_whoever_binds_it_imports_neither_models_nor_pages(repository: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-c", BUILT, str(repository / "configs/local.yaml")],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert built.stdout.strip() == "[]"
