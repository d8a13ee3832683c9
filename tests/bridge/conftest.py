"""The S3 store of the tests marked `s3`."""

from __future__ import annotations

import shutil

import pytest

from tests.bridge.s3_store import open_store


@pytest.fixture(scope="session")
def s3_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s3")
    with open_store(folder) as store:
        yield store
    shutil.rmtree(folder, ignore_errors=True)
