"""Parses selectors: conditions in the form that SQL-92 gives them.

Source: Jakarta Messaging 3.1, section 3.8.1.1. Beyond it, texts, numbers and truth values may all
stand in IN, and whatever has a value left of IN and LIKE.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.filter.condition import (
    ADD,
    ANYTHING,
    BOOLEAN,
    CONDITION,
    DIVIDE,
    EQUAL,
    GREATER,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    MULTIPLY,
    NUMBER,
    SUBTRACT,
    UNEQUAL,
    Arithmetic,
    Comparison,
    Every,
    Expression,
    Header,
    Like,
    Literal,
    Missing,
    Not,
    OneOf,
    Property,
    Some,
)
from headrace_broker.core.filter.like_pattern import LikePattern
from headrace_broker.core.filter.message_view import HEADER, header_name, property_of
from headrace_broker.core.filter.selector_lexer import (
    END,
    KEYWORD,
    NAME,
    SYMBOL,
    Lexer,
    SelectorError,
    Token,
    selector_error,
)
from headrace_broker.core.filter.selector_lexer import NUMBER as NUMBER_TOKEN
from headrace_broker.core.filter.selector_lexer import TEXT as TEXT_TOKEN
from headrace_broker.model.limits import (
    SELECTOR_CHARACTERS_MAX,
    SELECTOR_DEPTH_MAX,
    SELECTOR_NODES_MAX,
)

_COMPARISONS: Final = {
    "=": EQUAL,
    "<>": UNEQUAL,
    "<": LESS,
    "<=": LESS_OR_EQUAL,
    ">": GREATER,
    ">=": GREATER_OR_EQUAL,
}


def parse_selector(source: str) -> Expression:
    """Return a selector's condition, true for an empty one; SelectorError names the fault."""
    if len(source) > SELECTOR_CHARACTERS_MAX:
        raise SelectorError(
            f"a selector of {len(source)} characters, at most {SELECTOR_CHARACTERS_MAX} are allowed"
        )
    tokens = Lexer(source).tokens()
    if tokens[0].kind == END:
        return Every([])
    return _Parser(tokens).selector()


def name_expression(name: str) -> Expression:
    """Return what a name stands for: a property or a header; KeyError for an unknown property."""
    field = property_of(name)
    if field == HEADER:
        return Header(header_name(name).encode("utf-8", "surrogateescape"))
    return Property(field)


@final
class _Parser:
    """Descends by the operators' precedence: OR, AND, NOT, comparisons, + -, * /, signs."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at: i64 = 0
        self._depth: i64 = 0
        self._nodes: i64 = 0

    def selector(self) -> Expression:
        """Parse all of it."""
        found = self._condition(self._disjunction())
        token = self._token()
        if token.kind != END:
            raise selector_error(token.position, f"{token.shown()} follows a whole condition")
        return found

    # Tokens

    def _token(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != END:
            self._at += 1
        return token

    def _accept(self, kind: i64, text: str) -> bool:
        token = self._tokens[self._at]
        if token.kind != kind or token.text != text:
            return False
        self._at += 1
        return True

    def _expect(self, kind: i64, text: str, after: str) -> None:
        token = self._token()
        if not self._accept(kind, text):
            raise selector_error(
                token.position, f"{token.shown()} where '{text}' belongs, after {after}"
            )

    def _expect_text(self, what: str) -> str:
        token = self._take()
        if token.kind != TEXT_TOKEN:
            raise selector_error(
                token.position, f"{what} is a text in single quotes, not {token.shown()}"
            )
        return token.text

    # Bounds

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > SELECTOR_DEPTH_MAX:
            raise selector_error(
                self._token().position, f"nested deeper than {SELECTOR_DEPTH_MAX} levels"
            )

    def _leave(self) -> None:
        self._depth -= 1

    def _count(self, found: Expression) -> Expression:
        self._nodes += 1
        if self._nodes > SELECTOR_NODES_MAX:
            raise selector_error(
                self._token().position,
                f"more than {SELECTOR_NODES_MAX} names, values and operators",
            )
        return found

    # Kinds

    def _condition(self, found: Expression) -> Expression:
        if found.kind not in (CONDITION, BOOLEAN, ANYTHING):
            raise selector_error(
                self._token().position, "a condition ends here that compares nothing"
            )
        return found

    def _value(self, found: Expression, operator: Token) -> Expression:
        if found.kind == CONDITION:
            raise selector_error(
                operator.position, f"{operator.shown()} takes values, not conditions"
            )
        return found

    def _number(self, found: Expression, operator: Token) -> Expression:
        if found.kind not in (NUMBER, ANYTHING):
            raise selector_error(operator.position, f"{operator.shown()} takes numbers only")
        return found

    # Grammar

    def _disjunction(self) -> Expression:
        parts = [self._conjunction()]
        while self._joined("OR", parts[-1]):
            parts.append(self._condition(self._conjunction()))
        return parts[0] if len(parts) == 1 else self._count(Some(parts))

    def _joined(self, operator: str, left: Expression) -> bool:
        """Take an operator between conditions, if it stands here."""
        token = self._token()
        if token.kind != KEYWORD or token.text != operator:
            return False
        self._condition(left)
        self._take()
        return True

    def _conjunction(self) -> Expression:
        parts = [self._negation()]
        while self._joined("AND", parts[-1]):
            parts.append(self._condition(self._negation()))
        return parts[0] if len(parts) == 1 else self._count(Every(parts))

    def _negation(self) -> Expression:
        if not self._accept(KEYWORD, "NOT"):
            return self._predicate()
        self._enter()
        found = self._count(Not(self._condition(self._negation())))
        self._leave()
        return found

    def _predicate(self) -> Expression:
        left = self._sum()
        token = self._token()
        if token.kind == SYMBOL and token.text in _COMPARISONS:
            self._take()
            return self._comparison(left, token)
        if token.kind != KEYWORD:
            return left
        if self._accept(KEYWORD, "IS"):
            negated = self._accept(KEYWORD, "NOT")
            self._expect(KEYWORD, "NULL", "IS")
            self._value(left, token)
            return self._negated(negated, Missing(left))
        negated = self._accept(KEYWORD, "NOT")
        token = self._token()
        if self._accept(KEYWORD, "BETWEEN"):
            return self._negated(negated, self._between(left, token))
        if self._accept(KEYWORD, "IN"):
            return self._negated(negated, self._one_of(self._value(left, token)))
        if self._accept(KEYWORD, "LIKE"):
            return self._negated(negated, self._like(self._value(left, token)))
        if negated:
            raise selector_error(
                token.position, f"{token.shown()} where BETWEEN, IN or LIKE belongs, after NOT"
            )
        return left

    def _negated(self, negated: bool, found: Expression) -> Expression:
        found = self._count(found)
        return self._count(Not(found)) if negated else found

    def _comparison(self, left: Expression, token: Token) -> Expression:
        operator = _COMPARISONS[token.text]
        right = self._sum()
        if operator in (EQUAL, UNEQUAL):
            self._value(left, token)
            self._value(right, token)
        else:
            self._number(left, token)
            self._number(right, token)
        following = self._token()
        if following.kind == SYMBOL and following.text in _COMPARISONS:
            raise selector_error(
                following.position, "comparisons follow each other; join them with AND"
            )
        return self._count(Comparison(operator, left, right, False))

    def _between(self, subject: Expression, token: Token) -> Expression:
        self._number(subject, token)
        low = self._number(self._sum(), token)
        self._expect(KEYWORD, "AND", "the lower bound of BETWEEN")
        high = self._number(self._sum(), token)
        above = self._count(Comparison(GREATER_OR_EQUAL, subject, low, False))
        below = self._count(Comparison(LESS_OR_EQUAL, subject, high, False))
        return Every([above, below])

    def _one_of(self, subject: Expression) -> Expression:
        self._expect(SYMBOL, "(", "IN")
        values = [self._literal()]
        while self._accept(SYMBOL, ","):
            values.append(self._literal())
        self._expect(SYMBOL, ")", "the values of IN")
        return OneOf(subject, values)

    def _literal(self) -> Literal:
        negative = self._accept(SYMBOL, "-")
        signed = negative or self._accept(SYMBOL, "+")
        token = self._take()
        number = token.number
        if token.kind == NUMBER_TOKEN and isinstance(number, (int, float)):
            found = Literal(-number if negative else number)
        elif token.kind == TEXT_TOKEN and not signed:
            found = Literal(token.text.encode("utf-8", "surrogateescape"))
        elif token.kind == KEYWORD and token.text in ("TRUE", "FALSE") and not signed:
            found = Literal(token.text == "TRUE")
        else:
            raise selector_error(token.position, f"{token.shown()} where IN needs a literal")
        self._count(found)
        return found

    def _like(self, subject: Expression) -> Expression:
        at = self._token().position
        pattern = self._expect_text("the pattern of LIKE")
        escape = ""
        if self._accept(KEYWORD, "ESCAPE"):
            escape_at = self._token().position
            escape = self._expect_text("what follows ESCAPE")
            if len(escape) != 1:
                raise selector_error(escape_at, "an escape is one character")
        try:
            return Like(subject, LikePattern(pattern, escape))
        except ValueError as error:
            raise selector_error(at, f"the pattern of LIKE: {error}") from None

    def _sum(self) -> Expression:
        left = self._product()
        while True:
            token = self._token()
            if self._accept(SYMBOL, "+"):
                left = self._arithmetic(ADD, left, self._product(), token)
            elif self._accept(SYMBOL, "-"):
                left = self._arithmetic(SUBTRACT, left, self._product(), token)
            else:
                return left

    def _product(self) -> Expression:
        left = self._signed()
        while True:
            token = self._token()
            if self._accept(SYMBOL, "*"):
                left = self._arithmetic(MULTIPLY, left, self._signed(), token)
            elif self._accept(SYMBOL, "/"):
                left = self._arithmetic(DIVIDE, left, self._signed(), token)
            else:
                return left

    def _arithmetic(
        self, operator: i64, left: Expression, right: Expression, token: Token
    ) -> Expression:
        self._number(left, token)
        self._number(right, token)
        return self._count(Arithmetic(operator, left, right))

    def _signed(self) -> Expression:
        token = self._token()
        if not self._accept(SYMBOL, "-") and not self._accept(SYMBOL, "+"):
            return self._primary()
        self._enter()
        found = self._signed()
        self._leave()
        operator = SUBTRACT if token.text == "-" else ADD
        return self._arithmetic(operator, Literal(0), found, token)

    def _primary(self) -> Expression:
        token = self._take()
        if token.kind == NAME:
            return self._count(self._name(token))
        if token.kind == NUMBER_TOKEN:
            return self._count(Literal(token.number))
        if token.kind == TEXT_TOKEN:
            return self._count(Literal(token.text.encode("utf-8", "surrogateescape")))
        if token.kind == KEYWORD and token.text in ("TRUE", "FALSE"):
            return self._count(Literal(token.text == "TRUE"))
        if token.kind == SYMBOL and token.text == "(":
            self._enter()
            found = self._disjunction()
            self._expect(SYMBOL, ")", "what '(' opened")
            self._leave()
            return found
        raise selector_error(token.position, f"{token.shown()} where a value or name belongs")

    def _name(self, token: Token) -> Expression:
        if token.quoted:
            return Header(token.text.encode("utf-8", "surrogateescape"))
        try:
            return name_expression(token.text)
        except KeyError:
            raise selector_error(token.position, f"there is no property '{token.text}'") from None
