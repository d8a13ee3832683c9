"""Errors about projects, profiles, secrets and storage."""

from __future__ import annotations

from headrace.exceptions.base import EngineError, UserError, closest, lines


class ProjectNotFoundError(UserError):
    """No folder with `infra/profiles/*.toml`, here or above."""

    start: str
    variable: str | None

    def describe(self) -> str:
        named = f" (from {self.variable})" if self.variable else " or a folder above it"
        return lines(
            f"{self.start}{named} is not a headrace project.",
            "A project has at least one file infra/profiles/NAME.toml.",
            "run `headrace init NAME` to make one, or set HEADRACE_PROJECT=/path/of/the/project",
        )


class StateFolderError(UserError):
    """The project's state folder can't be written."""

    folder: str
    reason: str

    def describe(self) -> str:
        first = "free some space" if "space" in self.reason.lower() else "make it writable"
        return lines(
            f"the state folder {self.folder} can't be written: {self.reason}.",
            "It keeps the lake, the ledger, MLflow's store and the logs of runs.",
            f"{first}, or set HEADRACE_STATE=/other/folder",
        )


class TargetFolderError(UserError):
    """A new project can't be made in a folder."""

    folder: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"no project can be made in {self.folder}: {self.reason}.",
            "Nothing that is there is overwritten.",
            "headrace init OTHER-NAME",
        )


class ProfileError(UserError):
    """An environment file, or a value in it, is wrong.

    Attributes:
        origin: Where the value stands: `infra/profiles/local.toml:12`, or a variable or option.
        key: Dotted key, or an empty string for the file as a whole.
        problem: What is wrong with it.
        found: What was found or is allowed.
        fix: What to write instead.
    """

    origin: str
    key: str
    problem: str
    found: str
    fix: str

    def describe(self) -> str:
        place = f"{self.origin}: {self.key}: " if self.key else f"{self.origin}: "
        return lines(f"{place}{self.problem}.", self.found, self.fix)


class UnknownKeyError(ProfileError):
    """A key that headrace doesn't know; `suggestion` is the closest one it knows, or None."""

    suggestion: str | None


class SecretError(UserError):
    """A secret by reference can't be fetched. The text never holds the secret."""

    key: str
    place: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"{self.key} is kept in {self.place}, but {self.reason}.",
            "Secrets are given by reference: an environment variable or a file.",
            f"set it, or let {self.key} point somewhere else",
        )


class StorageRefreshError(EngineError):
    """The command that renews storage credentials failed. Its output is never part of the text."""

    command: str
    reason: str

    def describe(self) -> str:
        return lines(
            f"storage credentials can't be renewed by `{self.command}`: {self.reason}.",
            "It has to print one JSON object with access_key, secret_key, and perhaps "
            "session_token and expires_at.",
            "run it by hand, then correct refresh_command in [storage]",
        )


class StorageAccessError(EngineError, OSError):
    """An S3 store refused the credentials, or did not answer as it should, after some tries."""

    uri: str
    reason: str
    refused: bool

    def describe(self) -> str:
        if self.refused:
            return lines(
                f"The S3 store refuses the credentials for {self.uri}: {self.reason}.",
                "They come from [storage] of the profile file, or else from where AWS tools look.",
                "renew access_key, secret_key and session_token there, or set refresh_command",
            )
        return lines(
            f"The S3 store did not serve {self.uri}: {self.reason}.",
            "It was asked several times.",
            "look at the store, and at endpoint in [storage]; then run it again",
        )


class EnvironmentNotFoundError(UserError):
    """No file `infra/profiles/NAME.toml`."""

    name: str
    folder: str
    defined: list[str]

    def describe(self) -> str:
        near = closest(self.name, self.defined, cutoff=0.0)
        other = f", or use --env {near} (closest name)" if near else ""
        return lines(
            f"there is no environment {self.name!r}: no file {self.folder}/{self.name}.toml.",
            f"Defined: {', '.join(self.defined) or 'none'}.",
            f"add {self.folder}/{self.name}.toml{other}",
        )


class ProfileNotFoundError(UserError):
    """A task, or the command line, names a profile that the environment doesn't define."""

    profile: str
    task: str | None
    file: str
    defined: list[str]

    def describe(self) -> str:
        who = f"task {self.task!r} asks for" if self.task else "you ask for"
        near = closest(self.profile, self.defined, cutoff=0.0)
        other = f', or use profile="{near}" (closest name).' if near else "."
        return lines(
            f"{who} profile {self.profile!r}, which {self.file} does not define.",
            f"Defined: {', '.join(self.defined) or 'none'}.",
            f"add [profiles.{self.profile}]{other}",
        )


class ProfileEngineError(UserError):
    """A task of one engine asks for a profile of another."""

    profile: str
    task: str
    wanted: str
    found: str
    file: str
    fitting: list[str]

    def describe(self) -> str:
        return lines(
            f"task {self.task!r} needs a {self.wanted} profile, but {self.profile!r} is for "
            f"{self.found} ({self.file}).",
            f"Profiles for {self.wanted}: {', '.join(self.fitting) or 'none'}.",
            f'use profile="{self.fitting[0]}"'
            if self.fitting
            else f'add a profile with engine = "{self.wanted}"',
        )
