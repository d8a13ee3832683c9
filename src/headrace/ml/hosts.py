"""Where a driver listens, so that the workers of an engine reach it, and nobody else needs to."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, Final

from headrace.ml.engine import is_connect

LOOPBACK: Final = "127.0.0.1"


def spark_host(spark: Any) -> str:
    """The driver's address for the executors of a session."""
    if is_connect(spark):
        return own_host()
    context = spark.sparkContext
    if context.master.startswith("local"):
        return LOOPBACK
    return str(context.getConf().get("spark.driver.host", own_host()))


def ray_host() -> str:
    """The driver's address for the workers of the connected cluster."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    return str(ray.util.get_node_ip_address()) if len(nodes) > 1 else LOOPBACK


def own_host() -> str:
    """This machine's address as others see it."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # No packet is sent: connecting a datagram socket only chooses the way out.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return LOOPBACK
