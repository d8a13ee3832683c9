"""`python -m headrace.delta.buckets NAME...`: make buckets in the store that the variables name."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Make the buckets that aren't there."""
    from pyarrow import fs

    scheme, _, host = os.environ["HEADRACE_STORAGE_ENDPOINT"].partition("://")
    filesystem = fs.S3FileSystem(
        access_key=os.environ["HEADRACE_STORAGE_ACCESS_KEY"],
        secret_key=os.environ["HEADRACE_STORAGE_SECRET_KEY"],
        endpoint_override=host,
        scheme=scheme,
        region="us-east-1",
        allow_bucket_creation=True,
    )
    for name in sys.argv[1:]:
        filesystem.create_dir(name)


if __name__ == "__main__":
    main()
