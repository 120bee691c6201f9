"""The wheels that `make dist` builds serve without the checkout, from an empty folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from PIL import Image

from serve_app.launcher.embedded_redis import free_port

BIN = Path(sys.executable).parent
_START_S = 120


@pytest.fixture(scope="module")
def installed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the wheels; it uses this environment's dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    uv, dist, environment = str(BIN / "uv"), folder / "dist", folder / "env"
    for source in (repository, repository / "clients/python"):
        options = ["--no-build-isolation", "--python", sys.executable, "--out-dir", str(dist)]
        subprocess.run([uv, "build", "-q", *options, str(source)], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin/python"
    options = ["--offline", "--no-deps", "--python", str(python)]
    subprocess.run([uv, "pip", "install", "-q", *options, *map(str, dist.glob("*.whl"))], check=True)
    packages = environment / f"lib/python{sysconfig.get_python_version()}/site-packages"
    # Python ignores `.pth` files in this second folder, so the checkout is not on the path.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


@pytest.mark.slow
def test_wheel_serves_an_image_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GEN_", "PYTHON"))}
    environment |= {"XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}
    environment |= {"GEN_SERVICE__PORT": str(free_port()), "GEN_METRICS__PORT": str(free_port())}
    log = tmp_path / "service.log"
    with log.open("wb") as output:
        service = subprocess.Popen(
            [installed / "gen-serve", "up"], cwd=here, env=environment, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + _START_S
        while b"ready after" not in log.read_bytes():
            assert service.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.1)
        command = [installed / "gen-serve", "generate", "gen-3-image-klein", "prompt=a red star", "-o", "star.png"]
        result = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=240)
        assert result.returncode == 0, result.stderr
        with Image.open(here / "star.png") as image:
            assert image.format == "PNG"
    finally:
        service.send_signal(signal.SIGINT)
        service.wait(60)
    assert {each.name for each in here.iterdir()} == {".gen", "star.png"}
