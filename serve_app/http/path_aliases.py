"""Other family names for the same paths, for clients whose list of models is closed.

With the token `flux`, say, `/v1/flux-kontext-pro` is `/v1/gen-kontext-pro`, and `/v1/flux-tools/…` is
`/v1/gen-tools/…`. Aliases exist on the wire only: they are in no description, and errors speak of the real endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

FAMILY = "gen"


def real(path: str, tokens: Sequence[str]) -> str:
    """What begins with `/v1/<token>-` as `/v1/gen-…`; any other path as it is."""
    alias = re.match(f"/v1/(?:{'|'.join(map(re.escape, tokens))})-", path) if tokens else None
    return f"/v1/{FAMILY}-{path[alias.end() :]}" if alias else path


class PathAliases:
    """ASGI middleware: requests to an alias go on to the real path."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str]) -> None:
        self.app = app
        self.tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (path := real(scope["path"], self.tokens)) != scope["path"]:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)
