"""Cuts a selector into tokens.

Source: Jakarta Messaging 3.1, section 3.8.1.1; names in square brackets and `!=` as in AMQP Filter
Expressions 1.0, section 6.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

END: Final = 0
NAME: Final = 1
KEYWORD: Final = 2
TEXT: Final = 3
NUMBER: Final = 4
SYMBOL: Final = 5

KEYWORDS: Final = frozenset(
    {"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"}
)
_SYMBOLS: Final = frozenset({"=", "<", ">", "(", ")", ",", "+", "-", "*", "/"})
_PAIRS: Final = frozenset({"<>", "<=", ">=", "!="})
_SPACES: Final = frozenset({" ", "\t", "\n", "\r", "\f"})
_DIGITS: Final = frozenset("0123456789")
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_INTEGER_MAX: Final = 1 << 63  # of a literal, for a minus may stand before it


class SelectorError(Exception):
    """A filter breaks a rule; the text says which, and where."""


def selector_error(position: i64, problem: str) -> SelectorError:
    """Return the error for what stands at a character, counted from 0; people count from 1."""
    return SelectorError(f"character {int(position) + 1}: {problem}")


@final
class Token:
    """One word of a selector.

    Attributes:
        kind: END, NAME, KEYWORD, TEXT, NUMBER or SYMBOL.
        text: a name, a keyword in capitals, the text of a literal, or a symbol.
        number: value of a NUMBER, int or float; else None.
        position: of its first character, from 0.
        quoted: a NAME in square brackets: the header of just that name.
    """

    def __init__(
        self, kind: i64, text: str, position: i64, number: object = None, quoted: bool = False
    ) -> None:
        self.kind = kind
        self.text = text
        self.number = number
        self.position = position
        self.quoted = quoted

    def shown(self) -> str:
        """Return the token for an error message."""
        return "the end" if self.kind == END else f"'{self.text}'"


@final
class Lexer:
    """Lexer of selectors, in one pass."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at: i64 = 0

    def tokens(self) -> list[Token]:
        """Return all tokens; the last one is END.

        Raises:
            SelectorError: a character that begins nothing, a literal that does not end or is out
                of range.
        """
        source = self._source
        size: i64 = len(source)
        found: list[Token] = []
        while self._at < size:
            character = source[self._at]
            if character in _SPACES:
                self._at += 1
            elif character == "'":
                start = self._at
                found.append(Token(TEXT, self._closed("'", "'"), start))
            elif character == "[":
                found.append(self._bracketed())
            elif character in _DIGITS or (character == "." and self._peek(1) in _DIGITS):
                found.append(self._number())
            elif _begins_name(character):
                found.append(self._word())
            else:
                found.append(self._symbol(character))
        found.append(Token(END, "", size))
        return found

    def _peek(self, distance: i64) -> str:
        at = self._at + distance
        return self._source[at] if at < len(self._source) else ""

    def _closed(self, opening: str, closing: str) -> str:
        """Read an enclosed text; a doubled closing character stands for itself."""
        start = self._at
        parts: list[str] = []
        self._at += 1
        while True:
            stop: i64 = self._source.find(closing, self._at)
            if stop < 0:
                raise selector_error(start, f"{opening} is not closed by {closing}")
            parts.append(self._source[self._at : stop])
            self._at = stop + 1
            if self._peek(0) != closing:
                return "".join(parts)
            parts.append(closing)
            self._at += 1

    def _bracketed(self) -> Token:
        start = self._at
        name = self._closed("[", "]")
        if not name:
            raise selector_error(start, "a name has one character at least")
        return Token(NAME, name, start, None, True)

    def _word(self) -> Token:
        start = self._at
        self._skip_name()
        word = self._source[start : self._at]
        upper = word.upper()
        if upper in KEYWORDS:
            return Token(KEYWORD, upper, start)
        return Token(NAME, word, start)

    def _skip_name(self) -> None:
        size: i64 = len(self._source)
        while self._at < size:
            character = self._source[self._at]
            if not _begins_name(character) and character not in _DIGITS and character != ".":
                return
            self._at += 1

    def _symbol(self, character: str) -> Token:
        start = self._at
        pair = character + self._peek(1)
        if pair in _PAIRS:
            self._at += 2
            return Token(SYMBOL, "<>" if pair == "!=" else pair, start)
        if character in _SYMBOLS:
            self._at += 1
            return Token(SYMBOL, character, start)
        if character == '"':
            raise selector_error(start, "texts stand in single quotes, names in [square brackets]")
        raise selector_error(start, f"nothing begins with {character!r}")

    def _number(self) -> Token:
        start = self._at
        if self._peek(0) == "0" and self._peek(1) in ("x", "X"):
            return self._hexadecimal()
        self._skip_digits()
        exact = True
        if self._peek(0) == ".":
            exact = False
            self._at += 1
            self._skip_digits()
        if self._peek(0) in ("e", "E"):
            exact = False
            self._at += 1
            if self._peek(0) in ("+", "-"):
                self._at += 1
            if self._peek(0) not in _DIGITS:
                raise selector_error(start, "an exponent has one digit at least")
            self._skip_digits()
        digits = self._source[start : self._at]
        if self._peek(0) in ("l", "L") and exact:
            self._at += 1
        elif self._peek(0) in ("f", "F", "d", "D"):
            exact = False
            self._at += 1
        return self._value(start, int(digits) if exact else float(digits))

    def _hexadecimal(self) -> Token:
        start = self._at
        self._at += 2
        while self._peek(0) in _HEX_DIGITS:
            self._at += 1
        digits = self._source[start + 2 : self._at]
        if not digits:
            raise selector_error(start, "a hexadecimal number has one digit at least")
        if self._peek(0) in ("l", "L"):
            self._at += 1
        return self._value(start, int(digits, 16))

    def _skip_digits(self) -> None:
        while self._peek(0) in _DIGITS:
            self._at += 1

    def _value(self, start: i64, number: int | float) -> Token:
        following = self._peek(0)
        if following == "." or (following and _begins_name(following)):
            raise selector_error(start, "a number runs into what follows it")
        text = self._source[start : self._at]
        if isinstance(number, float):
            if number == float("inf"):
                raise selector_error(start, f"{text} is beyond what a double holds")
        elif number > _INTEGER_MAX:
            raise selector_error(start, f"{text} is beyond 64 bits")
        return Token(NUMBER, text, start, number)


def _begins_name(character: str) -> bool:
    return character.isalpha() or character == "_" or character == "$"
