"""Where the file that was made goes: checked before anything is submitted, written once it is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import httpx2
import typer
from gen_serve_client import Result

from serve_app.cli.description import Form

Output = Annotated[
    Path | None,
    typer.Option(
        "-o",
        "--output",
        help="File to write, or the folder for it; default <id>.<format>. The suffix says which format to ask for.",
        show_default=False,
    ),
]

_FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg", ".webp": "webp", ".mp4": "mp4"}
_VIDEO = "mp4"


def check_place(output: Path | None) -> None:
    """Raises ValueError when nothing can be written there. Makes no folder."""
    folder = Path() if output is None else output if output.is_dir() else output.parent
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder} for {output.name if output else 'the result'}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"nothing can be written in {folder.resolve()}; name another place with -o")


def with_format(body: Mapping[str, Any], endpoint: str, form: Form, output: Path | None) -> dict[str, Any]:
    """The body, with the format that the suffix of `output` asks for. Raises ValueError when that is not to be had."""
    suffix = "" if output is None or output.is_dir() else output.suffix.lower()
    wanted, made = _FORMATS.get(suffix), form.formats
    if not suffix or (wanted is None and made is None):
        return dict(body)
    if wanted is None or (made is not None and wanted not in made):
        raise ValueError(f"{endpoint} makes {', '.join(made or ())}, and no {output}; name a file of that kind")
    if wanted == _VIDEO:
        return dict(body)
    given = body.get("output_format")
    if given is not None and _FORMATS.get(f".{given}".lower(), given) != wanted:
        raise ValueError(f"{output} is no name for a file of output_format={given}; leave out the one or the other")
    return {**body, "output_format": given or wanted}


def save(result: Result, output: Path | None) -> Path:
    """Fetches the file. Returns where it is: under a suffix that is true of it."""
    suffix = _suffix(result.url)
    name = result.id + suffix
    target = Path(name) if output is None else output / name if output.is_dir() else output
    if target.suffix and _FORMATS.get(target.suffix.lower()) != _FORMATS.get(suffix.lower()):
        target = target.with_suffix(suffix)
    return result.save(target)


def _suffix(url: str) -> str:
    """Of the file behind a result link, with its dot."""
    return Path(httpx2.URL(url).path).suffix or ".jpeg"
