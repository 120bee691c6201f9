"""What is not started beside a cluster that is only for the service."""

from __future__ import annotations

import pytest
from ray._private import node

from serve_app.ray_internals import OwnNode, begun_as_own

LEFT_OUT = ("start_monitor", "start_log_monitor", "start_api_server")


@pytest.mark.parametrize("name", LEFT_OUT)
def test_ray_starts_it_by_this_name(name: str) -> None:
    assert name in vars(node.Node)
    assert name in vars(OwnNode)


def test_nodes_are_rays_own_again_afterwards() -> None:
    whole = node.Node
    with begun_as_own():
        assert node.Node is OwnNode
    assert node.Node is whole
