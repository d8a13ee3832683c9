"""The examples in README.md, in docs/ and in the library's docstrings run as they stand.

A block that can't run here is skipped in the page itself: `<!-- skip: next "reason" -->`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sybil import Sybil
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

if TYPE_CHECKING:
    from sybil.example import Example

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PAGES = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()])
DOCSTRINGS = Sybil(parsers=[DocTestParser()])

ENGINES = {
    "docs/concepts/tables-between-engines.md": ("spark", "ray"),
    "docs/how-to/first-pipeline.md": ("spark", "ray"),
    "docs/how-to/read-delta-in-ray.md": ("spark", "ray"),
    "docs/how-to/test-your-tasks.md": ("spark",),
    "docs/how-to/train-per-group.md": ("spark",),
    "docs/how-to/write-from-ray.md": ("ray",),
}
"""Pages whose examples need an engine; others run without one. `spark` is a name in their blocks."""


def page_examples() -> Iterator[object]:
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        engines = ENGINES.get(name, ())
        document = PAGES.parse(path)
        # A module name that nothing can import: Ray then sends functions by value.
        document.namespace["__name__"] = "example"
        for example in document.examples():
            marks = [getattr(pytest.mark, engine) for engine in engines]
            yield pytest.param(example, engines, marks=marks, id=f"{name}:{example.line}")


def docstring_examples() -> Iterator[object]:
    for path in sorted(SOURCE.rglob("*.py")):
        if ">>> " not in path.read_text(encoding="utf-8"):
            continue
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        module = module.removesuffix(".__init__")
        document = DOCSTRINGS.parse(path)
        document.evaluators.clear()  # it would import the file a second time, under its bare name
        for example in document.examples():
            yield pytest.param(example, module, id=f"{module}:{example.line}")


@pytest.mark.parametrize(("example", "engines"), list(page_examples()))
def test_an_example_of_the_docs_runs(
    example: Example,
    engines: tuple[str, ...],
    inside_project: Path,
    request: pytest.FixtureRequest,
) -> None:
    if "spark" in engines:
        example.namespace["spark"] = request.getfixturevalue("spark")
    if "ray" in engines:
        request.getfixturevalue("ray_cluster")
    example.evaluate()


@pytest.mark.parametrize(("example", "module"), list(docstring_examples()))
def test_an_example_in_a_docstring_gives_what_it_says(
    example: Example, module: str, inside_project: Path
) -> None:
    for name, value in vars(importlib.import_module(module)).items():
        example.namespace.setdefault(name, value)
    example.evaluate()
