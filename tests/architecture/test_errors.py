from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from typing import Any, get_type_hints

import pytest

from headrace import exceptions
from headrace.exceptions import HeadraceError

ERRORS = sorted(
    (
        value
        for value in vars(exceptions).values()
        if inspect.isclass(value) and issubclass(value, HeadraceError)
    ),
    key=lambda kind: kind.__name__,
)


EXAMPLES = {
    "str": "some text",
    "int": 3,
    "float": 1.5,
    "bool": True,
    "list[str]": ["a", "b"],
    "tuple[str, ...]": ("a", "b"),
    "dict[str, str]": {"a": "b"},
}


def _example(hint: Any) -> Any:
    text = hint.__name__ if inspect.isclass(hint) else str(hint)
    for part in (text, text.split(" | ")[0]):
        for name, value in EXAMPLES.items():
            if part.replace("typing.", "").replace("collections.abc.", "") == name:
                return value
    if any(word in text for word in ("list", "Sequence", "Iterable", "tuple")):
        return ["a", "b"]
    return {} if any(word in text for word in ("dict", "Mapping")) else "some text"


def _make(kind: type[HeadraceError]) -> HeadraceError:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if not name.startswith("_")}
    values = {name: _example(hint) for name, hint in hints.items() if name != "values"}
    return kind(**values) if values else kind(message="what.\nfound.\nFix: this")


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_keeps_its_values_and_its_text_between_processes(kind):
    error = _make(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert again.values == error.values
    for name, value in error.values.items():
        assert getattr(again, name) == value


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_says_what_happened_and_ends_in_something_to_do(kind):
    first, *rest = str(_make(kind)).splitlines()
    assert first
    assert not rest or rest[-1]
    if kind.describe is not HeadraceError.describe:
        assert any(line.startswith("Fix: ") for line in rest), f"{kind.__name__} names no fix"


def test_the_tree_on_top_of_the_module_names_every_error():
    missing = [kind.__name__ for kind in ERRORS if kind.__name__ not in (exceptions.__doc__ or "")]
    assert missing == []


def test_every_error_of_a_family_is_had_from_the_package_under_that_name():
    families = [
        importlib.import_module(f"{exceptions.__name__}.{module.name}")
        for module in pkgutil.iter_modules(exceptions.__path__)
    ]
    found = {
        value
        for family in families
        for value in vars(family).values()
        if inspect.isclass(value) and issubclass(value, HeadraceError)
    }
    assert found == set(ERRORS)
    assert {kind.__module__ for kind in found} == {"headrace.exceptions"}
    assert {kind.__name__ for kind in found} <= set(exceptions.__all__)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_of_one_kind(kind):
    kinds = (
        exceptions.UserError,
        exceptions.EngineError,
        exceptions.DataError,
        exceptions.TaskFailedError,
        exceptions.RunFailedError,
    )
    assert kind is HeadraceError or sum(issubclass(kind, each) for each in kinds) == 1
