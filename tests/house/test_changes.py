"""The changes that `make sweep` makes are small, and leave Python and SQL what they are."""

from __future__ import annotations

from tests.mutants.changes import changes_of


def new_lines(file: str, source: str) -> set[str]:
    code = source.encode()
    changed = [change.planted(code).decode() for change in changes_of(file, code)]
    return lines_of(*changed) - lines_of(source)


def lines_of(*texts: str) -> set[str]:
    return {line.strip() for text in texts for line in text.splitlines()}


def test_python_is_changed_by_one_operator_constant_condition_or_call() -> None:
    source = (
        "def f(a: int = 1) -> bool:\n"
        "    if a < 3 and g(a, b=True):\n        h()\n    return not a\n"
    )

    assert new_lines("some.py", source) == {
        "def f(a: int = 0) -> bool:",
        "def f(a: int = 2) -> bool:",
        "if a <= 3 and g(a, b=True):",
        "if a < 2 and g(a, b=True):",
        "if a < 4 and g(a, b=True):",
        "if a < 3 or g(a, b=True):",
        "if a < 3 and g(a, b=False):",
        "if a < 3 and g(a, ):",
        "pass",
        "return None",
        "return a",
    }


def test_sql_is_changed_by_one_operator_number_condition_or_lock() -> None:
    source = (
        "-- a > b\nUPDATE t SET x = 'a = b', y = CASE WHEN p < 1 THEN 2 END\n"
        " WHERE k = 0 AND n BETWEEN a AND b\n   FOR UPDATE SKIP LOCKED"
    )

    assert new_lines("some.sql", source) == {
        "UPDATE t SET x = 'a = b', y = CASE WHEN p <= 1 THEN 2 END",
        "UPDATE t SET x = 'a = b', y = CASE WHEN p < 0 THEN 2 END",
        "UPDATE t SET x = 'a = b', y = CASE WHEN p < 2 THEN 2 END",
        "UPDATE t SET x = 'a = b', y = CASE WHEN p < 1 THEN 1 END",
        "UPDATE t SET x = 'a = b', y = CASE WHEN p < 1 THEN 3 END",
        "WHERE true AND n BETWEEN a AND b",
        "WHERE k <> 0 AND n BETWEEN a AND b",
        "WHERE k = -1 AND n BETWEEN a AND b",
        "WHERE k = 1 AND n BETWEEN a AND b",
        "WHERE k = 0 OR n BETWEEN a AND b",
        "WHERE k = 0 AND true",
        "FOR UPDATE",
        "",
    }


def test_a_change_knows_the_function_it_is_in() -> None:
    source = (
        "class C:\n    def f(self):\n        def g():\n            return 1\n        return g\n"
    )

    places = {change.place for change in changes_of("some.py", source.encode())}

    assert places == {"some.py:C.f", "some.py:C.f.<locals>.g"}
