"""What kind of file a name tells of.

A table of our own: Python's depends on the machine, and knows no WebP where no list of the system's is installed.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

UNKNOWN: Final = "application/octet-stream"
_BY_SUFFIX: Final = MappingProxyType(
    {
        ".jpeg": "image/jpeg",
        ".jpg": "image/jpeg",
        ".png": "image/png",
        ".webp": "image/webp",
        ".mp4": "video/mp4",
    }
)


def media_type(name: str) -> str:
    """Of a file or an object by its suffix, in either case."""
    return _BY_SUFFIX.get(PurePosixPath(name).suffix.lower(), UNKNOWN)
