"""Each single small change to a file that might go unnoticed: to Python by its tree, to SQL by its
words.

Left alone is what says nothing about behaviour: annotations, decorators, docstrings, asserts and
``strict=True``, texts, ``MATERIALIZED``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

OTHERS: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"), ast.Add: ("+", "-"), ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
}  # fmt: skip
BARE: Final = (ast.Name, ast.Attribute, ast.Call)
DELETABLE: Final = (ast.Raise, ast.AugAssign, ast.Continue, ast.Break, ast.Delete)


@dataclass(frozen=True)
class Change:
    """The bytes of *file* from *start* to *end* become *new*.

    ``place`` is where: a function, as ``file:qualified name``, or else the file.
    """

    file: str
    place: str
    start: int
    end: int
    new: str

    def planted(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]

    def told(self, source: bytes) -> str:
        number = source[: self.start].count(b"\n")
        old = " ".join(source[self.start : self.end].decode().split())
        line = source.decode().splitlines()[number].strip()
        return f"{self.file}:{number + 1}: {line}\n    {old} → {self.new or 'nothing'}"


def changes_of(file: str, source: bytes) -> list[Change]:
    found = sql_changes(file, source) if file.endswith(".sql") else Python(file, source).changes()
    return sorted(set(found), key=lambda change: (change.start, change.end, change.new))


class Python(ast.NodeVisitor):
    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        self.source = source
        self.place = file
        self.scope: list[str] = []
        self.found: list[Change] = []
        lengths = [len(line) for line in source.splitlines(keepends=True)]
        self.starts = [sum(lengths[:number]) for number in range(len(lengths))]

    def changes(self) -> Iterator[Change]:
        self.visit(ast.parse(self.source))
        for change in self.found:
            try:
                compile(change.planted(self.source), self.file, "exec")
            except SyntaxError:
                continue
            yield change

    def span(self, node: ast.AST) -> tuple[int, int]:
        at: ast.expr = node  # type: ignore[assignment]  # whatever has a place in the text
        last, column = at.end_lineno or at.lineno, at.end_col_offset or 0
        return self.starts[at.lineno - 1] + at.col_offset, self.starts[last - 1] + column

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()

    def replace(self, start: int, end: int, new: str) -> None:
        self.found.append(Change(self.file, self.place, start, end, new))

    def swap(self, left: ast.AST, operator: ast.AST, right: ast.AST) -> None:
        """Another operator between *left* and *right*."""
        if type(operator) in OTHERS:
            old, new = OTHERS[type(operator)]
            start = self.source.index(old.encode(), self.span(left)[1], self.span(right)[0])
            self.replace(start, start + len(old), new)

    def visit(self, node: ast.AST) -> None:
        """What is to be left alone isn't gone into."""
        match node:
            case ast.Assert() | ast.JoinedStr() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.visit_definition(node)
                return
            case ast.AnnAssign(value=value):
                if value:
                    self.visit(value)
                return
            case (
                ast.Expr(value=ast.Call() | ast.Await())
                | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
            ):
                self.replace(*self.span(node), "pass")
            case ast.Compare(left=left, ops=operators, comparators=rights):
                for pair, operator in zip(pairwise([left, *rights]), operators, strict=True):
                    self.swap(pair[0], operator, pair[1])
            case ast.BoolOp(op=operator, values=[*values]):
                for before, after in pairwise(values):
                    self.swap(before, operator, after)
            case ast.BinOp(left=left, op=operator, right=right):
                self.swap(left, operator, right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.replace(self.span(node)[0], self.span(operand)[0], "")
            case ast.Constant(value=bool(value)):
                self.replace(*self.span(node), str(not value))
            case ast.Constant(value=int(value) | float(value)):
                for other in (value - 1, value + 1):
                    self.replace(*self.span(node), str(other))
            case ast.Return(value=ast.expr() as value) if self.text(value) != "None":
                self.replace(*self.span(value), "None")
            case ast.keyword(arg=name, value=value) if name != "strict":
                start, end = self.span(node)
                comma = re.compile(rb"\s*,").match(self.source, end)
                self.replace(start, comma.end() if comma else end, "")
            case _ if isinstance(node, DELETABLE):
                self.replace(*self.span(node), "pass")
        for test in tests_of(node):
            if isinstance(test, BARE):
                self.replace(*self.span(test), f"(not {self.text(test)})")
        self.generic_visit(node)

    def visit_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        place, scope = self.place, self.scope
        self.scope = [*scope, node.name]
        if not isinstance(node, ast.ClassDef):
            for default in filter(None, (*node.args.defaults, *node.args.kw_defaults)):
                self.visit(default)
            cached = any("cache" in self.text(each) for each in node.decorator_list)
            if not cached:  # entered once, for all tests
                self.place = f"{self.file}:{'.'.join(self.scope)}"
            self.scope.append("<locals>")
        for statement in node.body:
            self.visit(statement)
        self.place, self.scope = place, scope


def tests_of(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return [test]
        case ast.comprehension(ifs=tests):
            return tests
    return []


TOKEN: Final = re.compile(
    r"--[^\n]*|'[^']*'|%\(\w+\)s|[A-Za-z_]\w*|\d+|<>|<=|>=|::|\|\||[-+*/<>=(),;.]"
)
PAIRS: Final = (
    ("<", "<="), (">", ">="), ("=", "<>"), ("+", "-"), ("AND", "OR"), ("true", "false"),
    ("least", "greatest"), ("min", "max"),
)  # fmt: skip
WORDS: Final = {
    **dict(PAIRS), **{new: old for old, new in PAIRS}, **dict.fromkeys(["DESC", "NOT", "LEFT"], ""),
}  # fmt: skip
LOCKS: Final = (rb"SKIP LOCKED", rb"FOR (NO KEY )?UPDATE( SKIP LOCKED)?")
CONDITIONED: Final = ("WHERE", "ON", "AND", "OR")
ENDS: Final = re.compile(
    "AND|OR|THEN|GROUP|ORDER|LIMIT|FOR|UNION|RETURNING|JOIN|LEFT|CROSS|FULL|WHERE|ON|AS|,|;"
)


def sql_changes(file: str, source: bytes) -> Iterator[Change]:
    """None that isn't SQL any more: an assignment's ``=`` and BETWEEN's AND stay."""
    text = source.decode()
    found = [token for token in TOKEN.finditer(text) if not token[0].startswith("--")]
    words = [token[0] for token in found]
    bounds = {words.index("AND", at) for at, word in enumerate(words) if word == "BETWEEN"}

    def replaced(first: int, last: int, new: str) -> Change:
        start, end = found[first].start(), found[last].end()
        return Change(file, file, len(text[:start].encode()), len(text[:end].encode()), new)

    for at, word in enumerate(words):
        if at in bounds or (word == "=" and is_assignment(words[:at])):
            continue
        if word in WORDS:
            yield replaced(at, at, WORDS[word])
        if word.isdigit():
            yield replaced(at, at, str(int(word) - 1))
            yield replaced(at, at, str(int(word) + 1))
        if word in CONDITIONED and words[at + 1] not in ("true", "CONFLICT"):
            yield replaced(at + 1, last_of_condition(words, at + 1), "true")
    for lock in LOCKS:
        for place in re.finditer(lock, source):
            yield Change(file, file, *place.span(), "")


def is_assignment(before: list[str]) -> bool:
    """Whether a ``=`` after *before* gives a column its value: in a list that begins with SET."""
    depth = 0
    for word in reversed(before):
        depth += (word in (")", "END")) - (word in ("(", "CASE"))
        if depth < 0 or (depth == 0 and word in CONDITIONED):
            return False
        if depth == 0 and word == "SET":
            return True
    return False


def last_of_condition(words: list[str], first: int) -> int:
    """Where the condition that begins at *first* has its last word."""
    depth = 0
    between = False
    for at in range(first, len(words)):
        word = words[at]
        depth += (word in ("(", "CASE")) - (word in (")", "END"))
        if depth < 0 or (depth == 0 and ENDS.fullmatch(word) and not (word == "AND" and between)):
            return at - 1
        between = word == "BETWEEN" or (between and word != "AND")
    return len(words) - 1
