"""Whether a cluster that was joined lets strangers in."""

from __future__ import annotations

import ray
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def open_nodes() -> list[str]:
    """Addresses of the nodes whose processes ask nobody for a token: whoever reaches one runs code there."""
    asked = {
        node["NodeManagerAddress"]: _asks_for_token.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in ray.nodes()
        if node["Alive"]
    }
    return [address for address, answer in asked.items() if not ray.get(answer)]


@ray.remote(num_cpus=0)
def _asks_for_token() -> bool:
    return is_token_auth_enabled()
