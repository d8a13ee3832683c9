"""A project of its own for each test, and a way to run one task of it."""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from headrace.engines.launch import run_attempt
from headrace.engines.spec import AttemptSpec, FunctionRef, encode_arguments
from headrace.profiles.models import PythonProfile


@dataclass
class Project:
    root: Path
    lines: list[str] = field(default_factory=list)
    _known: set = field(default_factory=lambda: set(psutil.Process().children(recursive=True)))
    _numbers: itertools.count = field(default_factory=itertools.count)

    def spec(self, source, *, name="job", arguments=None, module=None, file=None, **options):
        """A spec for the function `name` of a new module with this source."""
        number = next(self._numbers)
        file = file or f"tasks/job_{number}.py"
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source))
        module = module or file.removesuffix(".py").replace("/", ".")
        profile = options.pop("profile", None) or PythonProfile(
            name="tiny", memory_mib=options.pop("memory_mib", 512)
        )
        return AttemptSpec(
            kind=profile.engine,
            function=FunctionRef(module=module, name=name, file=path),
            arguments=encode_arguments(name, arguments or {}),
            run_id="run1",
            task=name,
            lake=str(self.root / "lake"),
            profile=profile,
            root=self.root,
            folder=self.root / f".headrace/runs/run1/{name}/{number}",
            **options,
        )

    def run(self, source, *, cancel=None, timeout_s=None, on_usage=None, **options):
        """Run one task to its end."""
        spec = self.spec(source, **options)
        return run_attempt(
            spec,
            on_line=self.lines.append,
            cancel=cancel,
            timeout_s=timeout_s,
            on_usage=on_usage,
        )

    def processes(self):
        """All that has been started since this project was made, other tests' engines aside."""
        return [p for p in psutil.Process().children(recursive=True) if p not in self._known]

    def log(self, number=0, name="job"):
        return (self.root / f".headrace/runs/run1/{name}/{number}/log.txt").read_text()


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "pröj ect"
    root.mkdir()
    return Project(root)
