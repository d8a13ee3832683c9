"""`python -m headrace.engines.connect_server PROFILE`: a Spark Connect server on a cluster.

Its size, storage and Delta settings are those of a profile of the environment. The variable
SPARK_CONNECT_TOKEN holds the token that clients have to bring.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from headrace.engines.spark import open_spark
from headrace.engines.task_process import set_up_streams
from headrace.exceptions import ProfileEngineError
from headrace.profiles.load import load_environment
from headrace.profiles.models import SparkProfile

READY: Final = Path(tempfile.gettempdir(), "connect-ready")
_CHECK_S: Final = 20
_CHECKS_LOST: Final = 3


def main() -> int:
    """Serve until TERM, or until the cluster no longer does any work."""
    parser = argparse.ArgumentParser(prog="connect_server")
    parser.add_argument("profile")
    parser.add_argument("--port", type=int, default=15002)
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - in a container's own network
    given = parser.parse_args()
    set_up_streams()
    environment = load_environment()
    profile = environment.profile(given.profile, engine="spark")
    if not isinstance(profile, SparkProfile):
        raise ProfileEngineError(
            profile=given.profile,
            task="the Spark Connect server",
            wanted="spark",
            found=profile.engine,
            file=environment.file,
            fitting=[],
        )
    conf = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": given.host,
        "spark.connect.grpc.binding.port": str(given.port),
        # Else code that one session brings is there for all others too.
        "spark.sql.artifact.isolation.enabled": "true",
    }
    token = os.environ.pop("SPARK_CONNECT_TOKEN", "")
    with open_spark(
        profile.model_copy(update={"spark_conf": {**conf, **profile.spark_conf}}),
        storage=environment.storage.fresh(),
        app_name="headrace.connect",
        address=profile.reveal_address(),
        secret_conf={"spark.connect.authenticate.token": token} if token else {},
    ) as session:
        lost = 0
        while lost < _CHECKS_LOST:
            # Ready for work is what has just done some. A worker that was away comes back.
            try:
                session.range(1).count()
            except Exception as error:  # noqa: BLE001 - whatever the cluster says
                lost += 1
                sys.stderr.write(f"the cluster did no work ({lost}): {error}\n")
            else:
                lost = 0
                READY.touch()
            time.sleep(_CHECK_S)
    return 1


if __name__ == "__main__":
    sys.exit(main())
