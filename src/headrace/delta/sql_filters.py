"""Parse a filter in SQL: the part of Spark's grammar that can be pushed into a read.

Comparisons (`= == <=> != <> < <= > >=`), `AND`, `OR`, `NOT`, `IN (...)`, `BETWEEN`,
`IS [NOT] NULL`, `LIKE`, parentheses, columns (`name`, `` `any name` ``, `struct.field`) and
constants (numbers, texts, `DATE '...'`, `TIMESTAMP '...'`, `X'...'`, `TRUE`, `FALSE`, `NULL`).
Anything else is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from headrace.delta.predicates import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Operator,
    Or,
    Predicate,
)
from headrace.exceptions import FilterError

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:BD|[LSYDF])?(?![\w]))
    | (?P<hex>[xX]'(?:[0-9a-fA-F]{2})*')
    | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<name>[^\W\d]\w*)
    | (?P<symbol><=>|<>|!=|<=|>=|==|[=<>(),.\-+])
    )""",
    re.VERBOSE | re.DOTALL,
)
_OPERATORS: dict[str, Operator] = {
    "=": "=", "==": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
    "<=>": "<=>",
}  # fmt: skip
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "%": "\\%", "_": "\\_"}
_RESERVED = frozenset({"AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN", "NULL", "TRUE", "FALSE"})


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.upper() if self.kind in ("name", "symbol") else ""


def parse_filter(text: str) -> Predicate:
    """Parse a filter in SQL.

    Raises:
        FilterError: The text uses something outside the part of SQL that is understood.

    Example:
        >>> parse_filter("delay > 5 AND carrier IN ('AA', 'UA')")
        And(left=Comparison(operator='>', left=Column(path=('delay',)), right=Literal(value=5)), \
right=In(operand=Column(path=('carrier',)), values=(Literal(value='AA'), Literal(value='UA'))))
    """
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0

    def parse(self) -> Predicate:
        found = self._either()
        if self._at < len(self._tokens):
            raise self._error(f"{self._tokens[self._at].text!r} is not understood there")
        return found

    def _split(self, text: str) -> list[_Token]:
        tokens, at = [], 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(f"{text[at:].strip()[:20]!r} is not understood")
            kind = match.lastgroup or ""
            tokens.append(_Token(kind, match[kind]))
            at = match.end()
        return tokens

    def _either(self) -> Predicate:
        found = self._both()
        while self._take("OR"):
            found = Or(found, self._both())
        return found

    def _both(self) -> Predicate:
        found = self._negation()
        while self._take("AND"):
            found = And(found, self._negation())
        return found

    def _negation(self) -> Predicate:
        if self._take("NOT"):
            return Not(self._negation())
        return self._condition()

    def _condition(self) -> Predicate:
        if self._take("("):
            found = self._either()
            self._need(")")
            return found
        left = self._operand()
        return self._after(left)

    def _after(self, left: Operand) -> Predicate:
        if self._take("IS"):
            negated = self._take("NOT")
            self._need("NULL")
            return Not(IsNull(left)) if negated else IsNull(left)
        if self._take("NOT"):
            return Not(self._word_condition(left))
        if self._peek() in ("IN", "LIKE", "BETWEEN"):
            return self._word_condition(left)
        if self._peek() in _OPERATORS:
            return Comparison(_OPERATORS[self._next().text], left, self._operand())
        if isinstance(left, Column):
            return left
        if left.value is None or isinstance(left.value, bool):
            return Constant(left.value)
        raise self._error(f"{left.value!r} is not a condition")

    def _word_condition(self, left: Operand) -> Predicate:
        if self._take("IN"):
            self._need("(")
            values = [self._literal()]
            while self._take(","):
                values.append(self._literal())
            self._need(")")
            return In(left, tuple(values))
        if self._take("LIKE"):
            pattern = self._literal().value
            if not isinstance(pattern, str):
                raise self._error("LIKE needs a text")
            return Like(left, pattern)
        self._need("BETWEEN")
        low = self._operand()
        self._need("AND")
        return And(Comparison(">=", left, low), Comparison("<=", left, self._operand()))

    def _literal(self) -> Literal:
        found = self._operand()
        if isinstance(found, Literal):
            return found
        raise self._error(f"{'.'.join(found.path)} should be a constant")

    def _operand(self) -> Operand:  # noqa: PLR0911 - one per kind of token
        token = self._next()
        if token.word in ("-", "+") and self._kind() == "number":
            number = _number(self._next().text)
            return Literal(-number if token.word == "-" else number)
        if token.kind == "number":
            return Literal(_number(token.text))
        if token.kind == "text":
            return Literal(_unquote(token.text))
        if token.kind == "hex":
            return Literal(bytes.fromhex(token.text[2:-1]))
        if token.word in ("TRUE", "FALSE", "NULL"):
            return Literal({"TRUE": True, "FALSE": False, "NULL": None}[token.word])
        if token.word in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ") and self._kind() == "text":
            return Literal(_unquote(self._next().text))
        if token.kind in ("name", "quoted") and token.word not in _RESERVED:
            return self._column(token)
        raise self._error(f"{token.text!r} is not understood there")

    def _column(self, first: _Token) -> Column:
        path = [_name(first)]
        while self._take("."):
            path.append(_name(self._next()))
        if self._peek() == "(":
            raise self._error(f"functions such as {path[-1]}() are not understood")
        return Column(tuple(path))

    def _kind(self) -> str:
        return self._tokens[self._at].kind if self._at < len(self._tokens) else ""

    def _peek(self) -> str:
        return self._tokens[self._at].word if self._at < len(self._tokens) else ""

    def _next(self) -> _Token:
        if self._at >= len(self._tokens):
            raise self._error("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, word: str) -> bool:
        if self._peek() == word:
            self._at += 1
            return True
        return False

    def _need(self, word: str) -> None:
        if not self._take(word):
            found = self._tokens[self._at].text if self._at < len(self._tokens) else "its end"
            raise self._error(f"{word} was expected and {found!r} found")

    def _error(self, problem: str) -> FilterError:
        return FilterError(
            filter=self._text,
            problem=problem,
            fix="use comparisons, AND, OR, NOT, IN, BETWEEN, LIKE and IS NULL, "
            "or filter the Dataset after the read",
        )


def _number(text: str) -> int | float | Decimal:
    """A number as Spark types it: with a point it is a decimal, with an exponent a double."""
    digits = re.sub(r"(?i)(BD|[LSYDF])$", "", text)
    if re.search(r"(?i)[DF]$", text) and not re.search(r"(?i)BD$", text):
        return float(digits)
    if re.search(r"[eE]", digits) and not re.search(r"(?i)BD$", text):
        return float(digits)
    return Decimal(digits) if "." in digits or re.search(r"(?i)BD$", text) else int(digits)


def _name(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def _unquote(text: str) -> str:
    body = text[1:-1]
    if text[0] == "'":
        body = body.replace("''", "'")
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), body, flags=re.DOTALL)
