"""The video endpoint, whose fields the interface leaves open: as decided, for mode `t2v`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from serve_app.conformance import endpoints
from serve_app.conformance.field import Field, choice, flag, integer, text

VIDEO: Final[Mapping[str, tuple[Field, ...]]] = {
    endpoints.VIDEO: (
        text("prompt", "req: req: req: string", required=True),
        choice(
            "aspect_ratio",
            "opt: opt: opt: `auto` (default) `21:9` `16:9` `4:3` `1:1` `3:4` `9:16` `9:21`",
            *["auto", "21:9", "16:9", "4:3", "1:1", "3:4", "9:16", "9:21"],
            wrong=("3:2",),
        ),
        Field(
            name="duration",
            row="5 to 20: 5 to 20: 5 to 15: integer seconds or `auto`",
            kind="integer",
            least=5,
            most=20,
            choices=("auto",),
        ),
        choice("resolution", "opt: `hd` (1280x704, default) `fhd` (1920x1088", "hd", "fhd", wrong=("4k",)),
        flag("generate_audio", "opt: opt: opt: true"),
        flag("draft", "opt: opt: opt: false"),
        integer("seed", "opt: opt: opt: 0 to 4294967295", 0, 4294967295),
        integer("safety_tolerance", "opt: opt: opt: opt: 0 to 4, default 2", 0, 4, gated=True),
        Field(name="webhook_url", row="opt: opt: opt: opt: common types", kind="hook", nullable=True),
        text("webhook_secret", "opt: opt: opt: opt: common types", nullable=True),
        text("user", "string 1 to 256 or null", nullable=True, wrong=("", "x" * 257)),
    )
}
