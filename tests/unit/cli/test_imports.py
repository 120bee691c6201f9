"""The command line imports what a command needs, and not the service."""

import subprocess
import sys


def test_the_version_imports_no_ray_no_redis_and_no_torch() -> None:
    code = "import sys\nfrom serve_app.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("gen-serve ")
    assert not {"ray", "redis", "torch", "fastapi"} & set(result.stdout.split())
