"""The report as one page: nothing in it comes from elsewhere, and no script runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jinja2

from serve_app.load import plots
from serve_app.load.measured import Measured
from serve_app.load.sweep import Sweep

PAGE: Final = "report.html"


def of_run(run: Measured) -> str:
    return _rendered("run.html", run=run, told=run.as_json(), plots=plots.of_run(run), names=plots.NAMES)


def of_sweep(sweep: Sweep) -> str:
    told = sweep.as_json()
    share = sweep.knee.share if sweep.knee else None
    return _rendered("sweep.html", told=told, rates=told["rates"], plots=plots.of_sweep(told["rates"], share))


def write(text: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PAGE
    path.write_text(text)
    return path


def _rendered(name: str, **values: Any) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"seconds": _seconds, "share": _share, "number": _number, "moment": _moment}
    return environment.get_template(name).render(**values)


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.4g} s"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.4g}"


def _moment(epoch: float) -> str:
    return f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%d %H:%M:%S} UTC"
