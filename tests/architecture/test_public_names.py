from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import headrace

SOURCE = Path(headrace.__file__).parent


def test_public_names_are_sorted_and_told_once():
    assert headrace.__all__ == sorted(set(headrace.__all__))
    assert headrace._MODULES.keys() == set(headrace.__all__)


@pytest.mark.parametrize("name", headrace.__all__)
def test_every_public_name_can_be_imported_and_has_a_docstring(name):
    value = getattr(headrace, name)
    assert value.__name__ == name
    assert value.__doc__


def test_type_checkers_see_the_same_names_from_the_same_modules():
    tree = ast.parse(Path(headrace.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module.removeprefix("headrace.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == headrace._MODULES


def test_the_names_of_ml_are_lazy_and_the_same_for_type_checkers():
    from headrace import ml

    assert ml.__all__ == sorted(set(ml.__all__))
    tree = ast.parse(Path(ml.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module.removeprefix("headrace.ml.")
        for node in block.body
        for alias in node.names
    }
    assert seen == ml._MODULES
    assert seen.keys() == set(ml.__all__)
    assert _loaded_by("import headrace.ml") == set()


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'headrace' has no attribute 'from_sparc'"):
        getattr(headrace, "from_sparc")  # noqa: B009 - what `headrace.from_sparc` does


def test_the_package_says_that_it_is_typed():
    assert (SOURCE / "py.typed").exists()


def test_packages_hold_a_docstring_only():
    for path in SOURCE.glob("*/__init__.py"):
        # `ml.tune(...)`: names that load at first use; errors are plain classes that load nothing.
        if path.parent.name in {"ml", "exceptions"}:
            continue
        body = ast.parse(path.read_text()).body
        assert len(body) == 1, f"{path} holds more than a docstring"
        assert ast.get_docstring(ast.parse(path.read_text()))


HEAVY = (
    "ray", "pyspark", "delta", "mlflow", "prefect", "torch", "pandas", "polars", "numpy", "pyarrow",
    "deltalake", "sqlalchemy", "xgboost", "sklearn", "matplotlib", "optuna",
)  # fmt: skip


def _loaded_by(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*(set(sys.modules) & set({HEAVY!r})))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_import_headrace_loads_nothing_heavy():
    assert _loaded_by("import headrace; headrace.TableRef; headrace.HeadraceError") == set()


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("headrace.context", set()),
        ("headrace.profiles.load", set()),
        ("headrace.profiles.storage", set()),
        ("headrace.delta.snapshot", {"pyarrow", "numpy"}),
        ("headrace.bridge.plan", {"pyarrow", "numpy", "deltalake"}),
        ("headrace.ledger.repair", set()),
        ("headrace.ledger.store", {"sqlalchemy"}),
    ],
)
def test_plans_and_settings_load_no_engine(module, allowed):
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"there is no {module}")
    assert _loaded_by(f"import {module}") <= allowed


def test_every_module_has_a_docstring():
    for module in pkgutil.walk_packages([str(SOURCE)], "headrace."):
        path = SOURCE / (module.name.removeprefix("headrace.").replace(".", "/") + ".py")
        if path.exists():
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"
