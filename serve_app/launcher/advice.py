"""Advice on a failed start, by its cause."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Final

_CAUSES: Final = (
    (
        {errno.ENOSPC, errno.EDQUOT},
        "no space left|quota exceeded",
        "the disk is full: free space, or set data_dir and TMPDIR to folders on another one",
    ),
    (
        {errno.ENAMETOOLONG},
        "path length cannot exceed|path too long|name too long",
        "a path is too long: set TMPDIR, RAY_TMPDIR and data_dir to shorter ones",
    ),
    (
        {errno.EADDRINUSE},
        "address already in use",
        "another process listens on a port of the service: stop it, or set service.port and metrics.port",
    ),
    (
        {errno.EACCES, errno.EPERM, errno.EROFS},
        "permission denied|not permitted|read-only file system",
        "this user can't write or run files there: change the owner, or set data_dir and TMPDIR to other folders",
    ),
    (
        {errno.ENOMEM},
        "cannot allocate memory|out of memory|not enough memory|insufficient memory|memory on this node",
        "memory is short: stop other programs, or lower ray.object_store_mb",
    ),
    ({errno.EMFILE, errno.ENFILE}, "too many open files", "too many open files: raise ulimit -n to 65536"),
    (
        {errno.EAGAIN},
        "temporarily unavailable|start new thread",
        "too few processes are allowed: raise ulimit -u, or the limit of the container",
    ),
    (
        {errno.ETIMEDOUT},
        "time(d )?out|within [0-9]+ s",
        "the machine is too busy to start in time: try again; accepted tasks are kept",
    ),
    (
        {errno.ENOENT, errno.ENOTDIR},
        "no such file",
        "a file is missing: install the service again, or correct the path",
    ),
)


def advise(problem: BaseException, otherwise: str = "") -> str:
    """Returns the cause of a failed start and what to do about it; `otherwise` for an unknown one."""
    errors = list(_chain(problem))
    for numbers, _, advice in _CAUSES:
        if any(isinstance(error, OSError) and error.errno in numbers for error in errors):
            return advice
    text = " ".join(f"{type(error).__name__} {error}" for error in errors)
    for _, words, advice in _CAUSES:
        if re.search(words, text, re.IGNORECASE):
            return advice
    return otherwise


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__ or (None if problem.__suppress_context__ else problem.__context__)
