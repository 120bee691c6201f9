"""Other family names for the same paths, for clients whose list of models is closed.

With the token `flux`, say, `/v1/flux-kontext-pro` is `/v1/gen-kontext-pro`, and `/v1/flux-tools/…` is
`/v1/gen-tools/…`. Aliases exist on the wire only: they are in no description, and errors speak of the real endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

FAMILY = "gen"


class PathAliases:
    """ASGI middleware: what begins with `/v1/<token>-` goes on as `/v1/gen-`."""

    def __init__(self, app: ASGIApp, tokens: Sequence[str]) -> None:
        self.app = app
        self._alias = re.compile(f"/v1/(?:{'|'.join(map(re.escape, tokens))})-")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (alias := self._alias.match(scope["path"])):
            path = f"/v1/{FAMILY}-{scope['path'][alias.end() :]}"
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self.app(scope, receive, send)
