"""Advice on failed starts."""

from __future__ import annotations

import errno

import pytest

from serve_app.launcher.advice import advise


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "free space"),
        (RuntimeError("# Can't open the log file: No space left on device"), "free space"),
        (OSError("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /x"), "TMPDIR"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "service.port"),
        (PermissionError(errno.EACCES, "Permission denied"), "owner"),
        (OSError(errno.EROFS, "Read-only file system"), "data_dir"),
        (MemoryError("Cannot allocate memory"), "ray.object_store_mb"),
        (ValueError("the amount of memory on this node available for tasks is less than 0"), "ray.object_store_mb"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "install"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), "path"),
        (TimeoutError(), "try again"),
        (Exception("The current node timed out during startup."), "try again"),
        (ValueError("what?"), "see the log"),
    ],
)
def test_advice_depends_on_the_cause(problem: Exception, advice: str) -> None:
    assert advice in advise(problem, "see the log")


def test_cause_of_an_error_decides_the_advice() -> None:
    problem = RuntimeError("it did not start")
    problem.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert "free space" in advise(problem)
