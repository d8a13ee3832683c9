"""`python -m headrace.engines._host SPEC`: the host process of an engine that a run shares."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.engines.supervisor import fork_task


def main() -> int:
    """Keep the engine that the spec describes, until TERM."""
    spec_path = Path(sys.argv[1])
    fork_task(spec_path)
    from headrace.engines.host_process import run_host

    return run_host(spec_path)


if __name__ == "__main__":
    sys.exit(main())
