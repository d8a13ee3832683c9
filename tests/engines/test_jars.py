from __future__ import annotations

import shutil
import threading

import pytest

from headrace.engines import jars
from headrace.engines.jars import DELTA_JARS, jar_paths, missing_jars
from headrace.exceptions import JarsUnavailableError


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    """An empty cache, no copy in Maven's folder, and nobody who answers."""
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "cache" / "jars"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADRACE_MAVEN_URL", "http://me:secret@127.0.0.1:9/")
    return tmp_path / "cache" / "jars"


@pytest.fixture
def mirror(monkeypatch, tmp_path):
    """A repository in a folder, with the JARs of the machine's own cache, and an empty cache."""
    known = jar_paths()
    root = tmp_path / "mirror"
    for jar, path in zip(DELTA_JARS, known, strict=True):
        folder = root / jar.group.replace(".", "/") / jar.artifact / jar.version
        folder.mkdir(parents=True)
        shutil.copyfile(path, folder / jar.file_name)
        pom = (
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{jar.group}</groupId>"
            f"<artifactId>{jar.artifact}</artifactId><version>{jar.version}</version></project>"
        )
        (folder / jar.file_name.replace(".jar", ".pom")).write_text(pom)
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path / "cache" / "jars"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HEADRACE_MAVEN_URL", root.as_uri())
    return root


def test_an_empty_cache_without_a_network_tells_what_is_missing_and_what_to_do(empty_cache):
    with pytest.raises(JarsUnavailableError) as raised:
        jar_paths()
    text = str(raised.value)
    assert "io.delta:delta-spark" in text
    assert str(empty_cache) in text
    assert "HEADRACE_MAVEN_URL" in text
    assert "secret" not in text


def test_a_cache_that_cannot_be_written_is_told(empty_cache):
    empty_cache.parent.mkdir()
    empty_cache.write_text("a file")
    with pytest.raises(JarsUnavailableError):
        jar_paths()


def test_the_cache_is_filled_once_also_by_two_at_once(mirror, monkeypatch):
    calls = []
    fetch = jars.fetch_with_ivy

    def count(*args, **kwargs):
        calls.append(args)
        return fetch(*args, **kwargs)

    monkeypatch.setattr(jars, "fetch_with_ivy", count)
    threads = [threading.Thread(target=jar_paths) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missing_jars() == []
    assert len(calls) == 1
    damaged = jar_paths()[1]
    damaged.write_bytes(b"half a file")
    assert missing_jars() == [DELTA_JARS[1]]
    jar_paths()
    assert missing_jars() == []
    assert len(calls) == 2


def test_a_file_with_another_content_is_not_taken(mirror):
    jar = DELTA_JARS[1]
    path = mirror / "io/delta" / jar.artifact / jar.version / jar.file_name
    path.write_bytes(bytes(jar.size))
    with pytest.raises(JarsUnavailableError, match="SHA-256"):
        jar_paths()
