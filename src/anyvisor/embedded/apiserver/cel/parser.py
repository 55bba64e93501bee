"""From text to a syntax tree: tuples whose first item is the kind of node."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anyvisor.embedded.apiserver.cel.errors import CelSyntaxError

MAX_LENGTH = 16 << 10
MAX_DEPTH = 60

_TOKEN = re.compile(
    r"(?P<space>(?:\s|//[^\n]*)+)"
    r"|(?P<double>\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.\d+(?:[eE][-+]?\d+)?)"
    r"|(?P<int>0[xX][0-9a-fA-F]+[uU]?|\d+[uU]?)"
    r"|(?P<string>[bB]?[rR]?[bB]?(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\""
    r"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<op>\|\||&&|==|!=|<=|>=|\?\.|\[\?|[-+*/%!<>?:.,()\[\]{}])",
    re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<o>[0-3][0-7]{2})|(?P<c>.))",
    re.DOTALL,
)
_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip

Tree = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    at: int


def tokens(text: str) -> list[Token]:
    """Split an expression. Raises CelSyntaxError."""
    if len(text) > MAX_LENGTH:
        raise CelSyntaxError(f"the expression is longer than {MAX_LENGTH} characters")
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise CelSyntaxError(f"unexpected {text[at]!r} at position {at}")
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup, match[0], at))
        at = match.end()
    found.append(Token("end", "", at))
    return found


def node(*parts: Any) -> Tree:
    """Return a node of the tree."""
    return parts


def _string(text: str, at: int) -> Any:
    start = next(index for index, char in enumerate(text) if char in "'\"")
    prefix, body = text[:start].lower(), text[start:]
    width = 3 if body[:3] in ("'''", '"""') else 1
    body = body[width:-width]

    def replace(match: re.Match[str]) -> str:
        for name, base in (("x", 16), ("u", 16), ("U", 16), ("o", 8)):
            if match[name]:
                return chr(int(match[name], base))
        if match["c"] not in _SIMPLE:
            raise CelSyntaxError(f"unknown escape {match[0]!r} in the string at position {at}")
        return _SIMPLE[match["c"]]

    value = body if "r" in prefix else _ESCAPE.sub(replace, body)
    return value.encode() if "b" in prefix else value


_BINARY: Sequence[tuple[str, ...]] = (
    ("||",),
    ("&&",),
    ("<", "<=", ">=", ">", "==", "!=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)


class Parser:
    """A recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Tree:
        """Return the tree. Raises CelSyntaxError."""
        tree = self._ternary()
        if self._peek().kind != "end":
            raise self._unexpected()
        return tree

    def _peek(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _accept(self, *texts: str) -> str:
        token = self._peek()
        if token.kind in ("op", "name") and token.text in texts:
            self._at += 1
            return token.text
        return ""

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._unexpected(f"; expected {text!r}")

    def _unexpected(self, more: str = "") -> CelSyntaxError:
        token = self._peek()
        shown = repr(token.text) if token.kind != "end" else "the end"
        return CelSyntaxError(f"unexpected {shown} at position {token.at}{more}")

    def _nested(self, parse: Callable[[], Tree]) -> Tree:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CelSyntaxError(f"the expression is nested deeper than {MAX_DEPTH} levels")
        tree = parse()
        self._depth -= 1
        return tree

    def _ternary(self) -> Tree:
        return self._nested(self._ternary_inner)

    def _ternary_inner(self) -> Tree:
        condition = self._binary(0)
        if not self._accept("?"):
            return condition
        yes = self._binary(0)
        self._expect(":")
        return node("if", condition, yes, self._ternary())

    def _binary(self, level: int) -> Tree:
        if level == len(_BINARY):
            return self._unary()
        left = self._binary(level + 1)
        while operator := self._accept(*_BINARY[level]):
            left = node("binary", operator, left, self._binary(level + 1))
        return left

    def _unary(self) -> Tree:
        operator = self._accept("!", "-")
        if operator:
            return node("unary", operator, self._nested(self._unary))
        return self._member()

    def _member(self) -> Tree:
        tree = self._primary()
        while True:
            if operator := self._accept(".", "?."):
                optional = operator == "?." or bool(self._accept("?"))
                token = self._take()
                if token.kind != "name":
                    raise CelSyntaxError(f"expected a field name at position {token.at}")
                if not optional and self._accept("("):
                    tree = node("method", tree, token.text, self._arguments(")"))
                else:
                    tree = node("select", tree, token.text, optional)
            elif operator := self._accept("[", "[?"):
                index = self._ternary()
                self._expect("]")
                tree = node("index", tree, index, operator == "[?")
            else:
                return tree

    def _arguments(self, end: str) -> list[Tree]:
        found: list[Tree] = []
        while not self._accept(end):
            found.append(self._ternary())
            if not self._accept(","):
                self._expect(end)
                break
        return found

    def _primary(self) -> Tree:
        token = self._take()
        match token.kind:
            case "int":
                digits = token.text.rstrip("uU")
                return node("literal", int(digits, 16 if digits[:2].lower() == "0x" else 10))
            case "double":
                return node("literal", float(token.text))
            case "string":
                return node("literal", _string(token.text, token.at))
            case "name":
                return self._name(token.text)
            case _:
                return self._bracket(token)

    def _name(self, text: str) -> Tree:
        constants = {"true": True, "false": False, "null": None}
        if text in constants:
            return node("literal", constants[text])
        if self._accept("("):
            return node("call", text, self._arguments(")"))
        return node("name", text)

    def _bracket(self, token: Token) -> Tree:
        if token.text == "(":
            tree = self._ternary()
            self._expect(")")
            return tree
        if token.text == "[":
            return node("list", self._arguments("]"))
        if token.text == "." and self._peek().kind == "name":
            return self._name(self._take().text)
        if token.text == "{":
            pairs: list[tuple[Tree, Tree]] = []
            while not self._accept("}"):
                key = self._ternary()
                self._expect(":")
                pairs.append((key, self._ternary()))
                if not self._accept(","):
                    self._expect("}")
                    break
            return node("map", pairs)
        if token.kind != "end":
            self._at -= 1
        raise self._unexpected()


def parse(text: str) -> Tree:
    """Parse an expression. Raises CelSyntaxError."""
    return Parser(text).parse()
