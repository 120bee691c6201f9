"""Private attributes of redis-py, checked against the release that `WRITTEN_FOR` names.

Two uses need them: an RDB file that comes on a connection instead of a reply, and commands pipelined on the transport
of an authenticated connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from redis.asyncio.connection import AbstractConnection

WRITTEN_FOR: Final = "8.1"


def stream_reader(connection: AbstractConnection) -> asyncio.StreamReader:
    return cast(asyncio.StreamReader, connection._reader)


def transport(connection: AbstractConnection) -> Any:
    return cast(asyncio.StreamWriter, connection._writer).transport


def error_parser(connection: AbstractConnection) -> Callable[[str], Exception]:
    """Returns the function that maps a server's error to an exception of redis-py."""
    return connection._parser.parse_error


def close(connection: AbstractConnection) -> None:
    """Closes the connection without waiting."""
    connection._close()
