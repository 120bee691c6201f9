"""Every list for programs: JSON, and nothing else."""

from __future__ import annotations

import time

import pytest
from support.command_line import GenServe
from support.http_service import Service

from serve_app.accounts.credits import DEFAULT_ORGANIZATION


def test_tuned_models_are_listed_by_key(client_of: GenServe, service: Service) -> None:
    project = service.worker.new_project(DEFAULT_ORGANIZATION)
    finetune_id = service.worker.new_finetune(project)
    words = ("finetunes", "list", "--key", service.worker.new_key(project))
    [finetune] = client_of(*words, "--json").json
    assert (finetune["id"], finetune["rank"], finetune["MB"]) == (finetune_id, 4, 0)
    assert finetune["uploaded"] == pytest.approx(time.time(), abs=300)
    assert client_of(*words).ids == [finetune_id]
    assert client_of("finetunes", "remove", finetune_id, *words[2:]).out == f"deleted {finetune_id}\n"
