"""Which task gave an argument is known by the object itself, however it is passed on."""

from __future__ import annotations

from headrace.orchestration.calls import CallBook, current_call


def called_with(book: CallBook, *arguments: object) -> set[str]:
    with book.calling("next", arguments):
        return set(current_call().depends_on)


def test_results_are_known_as_a_whole_and_in_parts():
    book = CallBook()
    tables = {"flights": [str(len(repr(book)))], "rows": 1234}
    book.remember("load", tables)
    assert called_with(book, tables) == {"load"}
    assert called_with(book, tables["flights"]) == {"load"}
    assert called_with(book, [{"deep": tables["flights"]}]) == {"load"}
    assert called_with(book, {"flights": [str(len(repr(book)))]}) == set()


def test_values_that_python_shares_name_no_task():
    book = CallBook()
    book.remember("first", {"ok": True, "none": None, "small": 7, "empty": ""})
    assert called_with(book, True, None, 7, "") == set()


def test_an_address_is_not_given_to_another_object():
    book = CallBook()
    for number in range(2000):
        book.remember("many", [float(number)])
    assert called_with(book, [1e9]) == set()


def test_calls_are_counted_by_task():
    book = CallBook()
    places = []
    for task in ("a", "b", "a", "a"):
        with book.calling(task, ()):
            places.append(current_call().place)
    assert places == [0, 0, 1, 2]
    assert current_call().place == 0
