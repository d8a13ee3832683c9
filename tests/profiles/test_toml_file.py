from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.exceptions import ProfileError
from headrace.profiles.merge import walk
from headrace.profiles.toml_file import index_lines, read_toml

TEXT = '''# a comment with [brackets] and = signs
top = """
not = "a key"
[not.a.table]
"""
list = [
  "a", # ]
  "b = 1",
]

[profiles."my.etl"]
engine = 'spark' # engine = "ray"
inline = { a = 1, b = [1, 2] }
spark_conf."spark.x".y = 1

[[things]]
name = "]"
'''


def test_each_key_has_the_line_it_stands_on():
    lines = index_lines(TEXT)
    assert lines == {
        ("top",): 2,
        ("list",): 6,
        ("profiles",): 11,
        ("profiles", "my.etl"): 11,
        ("profiles", "my.etl", "engine"): 12,
        ("profiles", "my.etl", "inline"): 13,
        ("profiles", "my.etl", "spark_conf"): 14,
        ("profiles", "my.etl", "spark_conf", "spark.x"): 14,
        ("profiles", "my.etl", "spark_conf", "spark.x", "y"): 14,
        ("things",): 16,
        ("things", "name"): 17,
    }


KEYS = st.one_of(st.text("abc-_1", min_size=1, max_size=5), st.text(min_size=1, max_size=5))
VALUES = st.one_of(
    st.integers(-5, 5),
    st.booleans(),
    st.text(max_size=20),
    st.lists(st.text(max_size=6), max_size=4),
)


def _quoted(text: str) -> str:
    escaped = "".join(
        char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in text
    )
    return f'"{escaped}"'


def _written(value: object, style: int) -> str:
    if isinstance(value, str):
        literal = value.isprintable() and "'" not in value
        styles = [
            _quoted(value),
            f'"""\n{_quoted(value)[1:-1]}"""',
            f"'''{value}'''" if literal else "''",
        ]
        return styles[style]
    if isinstance(value, list):
        start = ["[ ", "[\n", "[# ] = \n"][style]
        return start + ", ".join(_written(item, 0) for item in value) + "\n]"
    return str(value).lower()


@given(
    st.dictionaries(
        KEYS,
        st.dictionaries(KEYS, st.tuples(VALUES, st.integers(0, 2)), max_size=4),
        max_size=4,
    )
)
def test_the_index_finds_every_key_of_any_file_where_it_was_written(tables):
    lines, expected = [], {}
    for table, entries in tables.items():
        expected[table,] = sum(text.count("\n") + 1 for text in lines) + 1
        lines.append(f"[{_quoted(table)}]  # comment ' \" [")
        for key, (value, style) in entries.items():
            expected[table, key] = sum(text.count("\n") + 1 for text in lines) + 1
            lines.append(f"{_quoted(key)} = {_written(value, style)}")
    text = "\n".join(lines)
    data = tomllib.loads(text)
    assert index_lines(text) == expected
    assert set(walk(data)) == set(expected)


def test_a_syntax_error_names_line_and_column_and_shows_the_line(tmp_path):
    path = tmp_path / "local.toml"
    path.write_text("[profiles.etl]\nengine = spark\n")
    with pytest.raises(ProfileError) as caught:
        read_toml(path, "infra/profiles/local.toml")
    assert str(caught.value).splitlines() == [
        "infra/profiles/local.toml:2:10: this is not TOML: invalid value.",
        "    engine = spark",
        "             ^",
        'Fix: write key = "text", key = 1 or [table.name]; see https://toml.io',
    ]


def test_a_text_that_ends_too_early_points_at_its_end(tmp_path):
    path = tmp_path / "local.toml"
    path.write_text('a = 1\nb = "')
    with pytest.raises(ProfileError) as caught:
        read_toml(path, "local.toml")
    assert caught.value.origin.startswith("local.toml:2:")
    assert 'b = "' in str(caught.value)


def test_a_key_that_stands_twice_is_a_syntax_error_with_its_line(tmp_path):
    path = tmp_path / "local.toml"
    path.write_text("[a]\nx = 1\nx = 2\n")
    with pytest.raises(ProfileError) as caught:
        read_toml(path, "local.toml")
    assert caught.value.origin.startswith("local.toml:3:")


@pytest.mark.parametrize("text", ["\ufeffa = 1\n", "a = 1\r\nb = 2\r\n"])
def test_a_file_from_a_windows_editor_is_read(tmp_path, text):
    path = tmp_path / "local.toml"
    path.write_bytes(text.encode())
    assert read_toml(path, "local.toml").data["a"] == 1


def test_a_file_that_is_not_utf8_says_so(tmp_path):
    path = tmp_path / "local.toml"
    path.write_bytes("a = 'ø'".encode("latin-1"))
    with pytest.raises(
        ProfileError, match=r"local\.toml: the file can't be read: byte 5 is no UTF-8"
    ):
        read_toml(path, "local.toml")


def test_a_folder_in_place_of_the_file_says_so(tmp_path):
    with pytest.raises(ProfileError, match="can't be read: Is a directory"):
        read_toml(tmp_path, "local.toml")
