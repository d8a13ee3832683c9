"""The part of Spark's SQL that table rules are written in, parsed to a small tree.

A rule is evaluated with Spark's meaning or not at all: what is not known here raises
`SqlError`, and the caller refuses by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any


class SqlError(ValueError):
    """An expression, or a combination of types in it, that this module does not know."""


@dataclass(frozen=True)
class Literal:
    """A constant; `kind` is its Delta type, `None` of a null."""

    value: Any
    kind: str | None


@dataclass(frozen=True)
class Column:
    """A column, or a field inside it, by its names from the table down."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """An operator or a function in lower case, with its arguments."""

    name: str
    args: tuple[Node, ...]


Node = Literal | Column | Call

_TOKEN = re.compile(
    r"""\s+|--[^\n]*
    |(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF])?(?![\w`]))
    |(?P<word>[A-Za-z_]\w*)
    |`(?P<quoted>(?:[^`]|``)+)`
    |'(?P<single>(?:[^'\\]|\\.)*)'(?!')
    |"(?P<double>(?:[^"\\]|\\.)*)"(?!")
    |(?P<op><=>|<>|!=|==|<=|>=|\|\||[=<>+\-*/%(),.])""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}
_COMPARISONS = {"=": "=", "==": "=", "<>": "!=", "!=": "!=", "<=>": "<=>"} | {
    op: op for op in ("<", "<=", ">", ">=")
}
_RESERVED = frozenset(
    {
        "and", "or", "not", "is", "in", "between", "like", "case", "when", "then", "else", "end",
        "as", "from", "select", "null", "true", "false",
    }
)  # fmt: skip
_INT_RANGE = range(-(1 << 31), 1 << 31)
_LONG_RANGE = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True)
class Token:
    """One word of the text: its class (`word`, `number`, `text`, `name`, `op`) and its content."""

    kind: str
    text: str


def parse(text: str) -> Node:
    """Parse an expression.

    Args:
        text: The expression as a table property or a user has it.

    Raises:
        SqlError: It is not an expression, or it uses something that is not known here.
    """
    parser = _Parser(list(tokens(text)))
    node = parser.expression()
    if parser.peek() is not None:
        raise SqlError(f"{parser.peek().text!r} was not expected")  # type: ignore[union-attr]
    return node


def columns_of(node: Node) -> set[str]:
    """Names of the top-level columns in the expression, in lower case."""
    match node:
        case Column(path):
            return {path[0].lower()}
        case Call(_, args):
            return set().union(*(columns_of(arg) for arg in args))
        case _:
            return set()


def tokens(text: str) -> Iterator[Token]:
    """Split a text into words, without spaces and comments."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SqlError(f"{text[at : at + 10]!r} is not understood")
        at = match.end()
        kind = match.lastgroup
        if kind in ("single", "double"):
            yield Token("text", _unescape(match[kind]))
        elif kind == "quoted":
            yield Token("name", match[kind].replace("``", "`"))
        elif kind is not None:
            yield Token(kind, match[kind])


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        char = match[1]
        if char in "%_":
            return match[0]  # it is LIKE that takes these two
        if char in "uUx":
            raise SqlError("escapes by code are not supported")
        return _ESCAPES.get(char, char)

    return re.sub(r"\\(.)", one, text, flags=re.DOTALL)


class _Parser:
    """Recursive descent, one method per level of precedence."""

    def __init__(self, found: Sequence[Token]) -> None:
        self._tokens = found
        self._at = 0

    def peek(self, ahead: int = 0) -> Token | None:
        index = self._at + ahead
        return self._tokens[index] if index < len(self._tokens) else None

    def expression(self) -> Node:
        return self._chain(("or",), lambda: self._chain(("and",), self._negation))

    def _chain(self, names: tuple[str, ...], part: Callable[[], Node]) -> Node:
        node = part()
        while (name := self._accept(*names)) is not None:
            node = Call(name, (node, part()))
        return node

    def _negation(self) -> Node:
        if self._accept("not"):
            return Call("not", (self._negation(),))
        return self._predicate()

    def _predicate(self) -> Node:
        node = self._sum()
        while True:
            if (op := self._accept(*_COMPARISONS)) is not None:
                node = Call(_COMPARISONS[op], (node, self._sum()))
            elif self._accept("is"):
                node = self._negated(self._accept("not"), Call(self._is_what(), (node,)))
            elif self._is_range():
                negated = self._accept("not")
                node = self._negated(negated, self._range(node))
            else:
                return node

    def _is_what(self) -> str:
        word = self._accept("null", "true", "false")
        if word is None:
            raise SqlError("IS goes with NULL, TRUE or FALSE")
        return f"is {word}"

    def _is_range(self) -> bool:
        first = self._word(0)
        return (self._word(1) if first == "not" else first) in ("in", "between", "like")

    def _range(self, node: Node) -> Node:
        word = self._accept("in", "between", "like")
        if word == "like":
            return Call("like", (node, self._sum()))
        if word == "between":
            low = self._sum()
            self._expect("and")
            return Call("and", (Call(">=", (node, low)), Call("<=", (node, self._sum()))))
        self._expect("(")
        return Call("in", (node, *self._arguments()))

    @staticmethod
    def _negated(negated: str | None, node: Node) -> Node:
        return Call("not", (node,)) if negated else node

    def _sum(self) -> Node:
        return self._chain(("+", "-", "||"), lambda: self._chain(("*", "/", "%"), self._sign))

    def _sign(self) -> Node:
        if self._accept("-"):
            inner = self._sign()
            if isinstance(inner, Literal) and inner.kind not in (None, "string", "boolean"):
                return (
                    _number(str(-inner.value))
                    if inner.kind in ("integer", "long")
                    else Literal(-inner.value, inner.kind)
                )
            return Call("negate", (inner,))
        self._accept("+")
        return self._primary()

    def _primary(self) -> Node:
        token = self.peek()
        if token is None:
            raise SqlError("it ends too early")
        self._at += 1
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "text":
            return Literal(token.text, "string")
        if token.kind == "op" and token.text == "(":
            node = self.expression()
            self._expect(")")
            return node
        if token.kind == "name":
            return self._column(token.text)
        if token.kind == "word":
            return self._named(token.text)
        raise SqlError(f"{token.text!r} was not expected")

    def _named(self, word: str) -> Node:
        lower, following = word.lower(), self.peek()
        if lower in ("true", "false"):
            return Literal(lower == "true", "boolean")
        if lower == "null":
            return Literal(None, None)
        if (
            lower in ("date", "timestamp", "timestamp_ntz")
            and following
            and following.kind == "text"
        ):
            self._at += 1
            return Call(f"{lower} literal", (Literal(following.text, "string"),))
        if lower == "case":
            return self._case()
        if lower in _RESERVED:
            raise SqlError(f"{word.upper()} is not supported")
        if self._accept("("):
            return self._cast() if lower == "cast" else Call(lower, tuple(self._arguments()))
        return self._column(word)

    def _case(self) -> Node:
        """CASE, with conditions or with values to compare with, as nested IFs."""
        subject = None if self._word(0) == "when" else self.expression()
        branches = []
        while self._accept("when"):
            test = self.expression()
            self._expect("then")
            test = test if subject is None else Call("=", (subject, test))
            branches.append((test, self.expression()))
        if not branches:
            raise SqlError("CASE needs a WHEN")
        node: Node = self.expression() if self._accept("else") else Literal(None, None)
        self._expect("end")
        for test, value in reversed(branches):
            node = Call("if", (test, value, node))
        return node

    def _cast(self) -> Node:
        node = self.expression()
        self._expect("as")
        token = self.peek()
        if token is None or token.kind != "word":
            raise SqlError("CAST needs a type")
        self._at += 1
        self._expect(")")
        return Call("cast", (node, Literal(token.text.lower(), "type")))

    def _column(self, first: str) -> Node:
        path = [first]
        while self._accept("."):
            token = self.peek()
            if token is None or token.kind not in ("word", "name"):
                raise SqlError("a name was expected after '.'")
            self._at += 1
            path.append(token.text)
        return Column(tuple(path))

    def _arguments(self) -> list[Node]:
        if self._accept(")"):
            return []
        found = [self.expression()]
        while self._accept(","):
            found.append(self.expression())
        self._expect(")")
        return found

    def _word(self, ahead: int) -> str | None:
        token = self.peek(ahead)
        return token.text.lower() if token and token.kind in ("word", "op") else None

    def _accept(self, *words: str) -> str | None:
        word = self._word(0)
        if word is None or word not in words:
            return None
        self._at += 1
        return word

    def _expect(self, word: str) -> None:
        if self._accept(word) is None:
            raise SqlError(f"{word!r} was expected")


_SUFFIXES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "BD": ("decimal", Decimal),
    "L": ("long", int),
    "S": ("short", int),
    "Y": ("byte", int),
    "D": ("double", float),
    "F": ("float", float),
}


def _number(text: str) -> Literal:
    """A number with the type that Spark gives it."""
    upper = text.upper()
    for suffix, (kind, convert) in _SUFFIXES.items():
        if upper.endswith(suffix):
            return Literal(convert(upper.removesuffix(suffix)), kind)
    if "E" in upper:
        return Literal(float(upper), "double")
    if "." in upper:
        return Literal(Decimal(upper), "decimal")
    value = int(upper)
    if value in _INT_RANGE:
        return Literal(value, "integer")
    return Literal(value, "long") if value in _LONG_RANGE else Literal(Decimal(value), "decimal")
