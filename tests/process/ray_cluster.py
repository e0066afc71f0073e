"""A Ray cluster of several nodes on loopback: prints its address, then kills a node for each line on stdin.

Run as a program, so that Ray's own threads, handlers and warnings stay out of the test process.
"""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # use loopback
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}


def main() -> None:
    from ray.cluster_utils import Cluster

    common: dict[str, Any] = {"object_store_memory": 80_000_000, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **common})
    nodes = [cluster.add_node(num_cpus=2, **common) for _ in range(2)]
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        if nodes:
            cluster.remove_node(nodes.pop(), allow_graceful=False)
            print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
