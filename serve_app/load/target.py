"""The server that is put under load, and how it is spoken to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field

from serve_app.load.mix import Template

AdapterName: TypeAlias = Literal["gen", "openai", "http"]
ADAPTERS: Final[tuple[str, ...]] = get_args(AdapterName)


class Target(BaseModel):
    """Times in seconds."""

    model_config = ConfigDict(frozen=True)

    base_url: str
    adapter: AdapterName = "gen"
    keys: Mapping[str, str] = Field(default={}, repr=False)
    """By tenant; one that has none sends none."""
    limit: float = 300.0
    """From the moment it is sent; a task that was accepted and has not ended by then is lost."""
    poll_every: float = 0.1
    wait: float = 0.0
    """How long a poll may wait at the server, where the dialect's server knows `?wait=`; 0 leaves it out."""
    finetune: str | None = None
    """Id of the tuned model that requests of a trace with one are sent with."""
    template: Template | None = None
    """Of the plain HTTP adapter."""

    @property
    def work(self) -> dict[str, Any]:
        """What has to be the same in two runs that are compared."""
        return {"poll_every": self.poll_every, "wait": self.wait, "limit": self.limit, "finetune": self.finetune}
