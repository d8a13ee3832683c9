"""Print what an extra of a pyproject.toml asks for: `requirements.py pyproject.toml EXTRA`."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"]
optional = project["optional-dependencies"]


def wanted(requirements: list[str]) -> Iterator[str]:
    """The requirements, with those of the project's own extras in their place."""
    for text in requirements:
        own = re.fullmatch(rf"{project['name']}\[([\w,]+)\]", text)
        if own:
            for extra in own[1].split(","):
                yield from wanted(optional[extra])
        else:
            yield text


sys.stdout.writelines(
    f"{text}\n" for text in sorted({*project["dependencies"], *wanted(optional[sys.argv[2]])})
)
