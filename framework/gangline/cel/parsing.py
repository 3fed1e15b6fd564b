"""Makes a syntax tree of tokens, by precedence climbing.

No parser library is used: the grammar has only eight levels, and macros change the tree while it is parsed.
"""

from __future__ import annotations

from gangline.cel.lexing import Token, number, text_of, tokens
from gangline.cel.macros import expanded
from gangline.cel.syntax import Call, Ident, ListOf, Literal, MapOf, Select, SyntaxNode
from gangline.errors import InvalidExpression

MOST_NESTED = 100
"""Brackets within brackets: more than anybody writes, and few enough for Python's stack."""
MOST_CHAINED = 250
"""Operators, selections and calls in one chain, as in Kubernetes."""

_LEVEL = {
    **dict.fromkeys(["<", "<=", ">=", ">", "==", "!=", "in"], 1),
    **dict.fromkeys(["+", "-"], 2),
    **dict.fromkeys(["*", "/", "%"], 3),
}
_FUNCTION = {sign: f"_{sign}_" for sign in _LEVEL} | {"in": "@in"}
_CONSTANTS = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)


def parsed(text: str) -> SyntaxNode:
    """The tree of an expression, with macros expanded. Raises InvalidExpression."""
    parser = _Parser(tokens(text))
    tree = parser.expression()
    parser.take("end")
    return tree


class _Parser:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._next = 0
        self._nested = 0
        self._chained = 0

    def _peek(self) -> str:
        return self._tokens[self._next].kind

    def _advance(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        return token

    def take(self, kind: str) -> Token:
        token = self._tokens[self._next]
        if token.kind != kind:
            shown = token.text[:40] or "the end"
            raise InvalidExpression(f"character {token.at + 1}: {shown!r} where {kind!r} is expected")
        self._next += 1
        return token

    def _accept(self, kind: str) -> bool:
        if self._tokens[self._next].kind != kind:
            return False
        self._next += 1
        return True

    def expression(self) -> SyntaxNode:
        self._nested += 1
        if self._nested > MOST_NESTED:
            raise InvalidExpression(f"more than {MOST_NESTED} expressions within each other")
        first = condition = self._either()
        arms: list[tuple[SyntaxNode, SyntaxNode]] = []
        while self._accept("?"):
            truthy = self._either()
            self.take(":")
            arms.append((condition, truthy))
            condition = self._either()
        if len(arms) > MOST_NESTED:
            raise InvalidExpression(f"more than {MOST_NESTED} expressions within each other")
        for test, truthy in reversed(arms):
            condition = Call(first.at, "_?_:_", None, [test, truthy, condition])
        self._nested -= 1
        return condition

    def _either(self) -> SyntaxNode:
        terms = [self._both()]
        while self._accept("||"):
            terms.append(self._both())
        return terms[0] if len(terms) == 1 else Call(terms[0].at, "_||_", None, terms)

    def _both(self) -> SyntaxNode:
        terms = [self._binary(1)]
        while self._accept("&&"):
            terms.append(self._binary(1))
        return terms[0] if len(terms) == 1 else Call(terms[0].at, "_&&_", None, terms)

    def _binary(self, level: int) -> SyntaxNode:
        left = self._unary()
        links = 0
        while (found := _LEVEL.get(self._peek(), 0)) >= level:
            token = self._advance()
            links += 1
            self._link()
            left = Call(token.at, _FUNCTION[token.kind], None, [left, self._binary(found + 1)])
        self._chained -= links
        return left

    def _link(self) -> None:
        self._chained += 1
        if self._chained > MOST_CHAINED:
            raise InvalidExpression(f"more than {MOST_CHAINED} operators and selections in one chain")

    def _unary(self) -> SyntaxNode:
        sign, at = self._peek(), self._tokens[self._next].at
        if sign not in ("!", "-"):
            return self._member(False)
        count = 0
        while self._accept(sign):
            count += 1
        if sign == "-" and count == 1 and self._peek() in ("int", "float"):
            return self._member(True)
        operand = self._member(False)
        return Call(at, "!_" if sign == "!" else "-_", None, [operand]) if count % 2 else operand

    def _member(self, negative: bool) -> SyntaxNode:
        node = self._primary(negative)
        links = 0
        while True:
            token = self._tokens[self._next]
            if token.kind == ".":
                self._next += 1
                optional = self._accept("?")
                name = self.take("name").text
                if not optional and self._peek() == "(":
                    node = self._call(token.at, name, node)
                else:
                    node = Select(token.at, node, name, optional=optional)
            elif token.kind == "[":
                self._next += 1
                function = "_[?_]" if self._accept("?") else "_[_]"
                node = Call(token.at, function, None, [node, self.expression()])
                self.take("]")
            else:
                self._chained -= links
                return node
            links += 1
            self._link()

    def _primary(self, negative: bool) -> SyntaxNode:
        token = self._advance()
        match token.kind:
            case "int" | "uint" | "float":
                return Literal(token.at, number(token, negative))
            case "string" | "bytes":
                return Literal(token.at, text_of(token))
            case "true" | "false" | "null":
                return Literal(token.at, _CONSTANTS[token.kind])
            case "(":
                inner = self.expression()
                self.take(")")
                return inner
            case "[":
                return self._list(token.at)
            case "{":
                return self._map(token.at)
            case ".":
                return self._name(self.take("name"), ".")
            case "name":
                return self._name(token, "")
        shown = token.text[:40] or "the end"
        raise InvalidExpression(f"character {token.at + 1}: {shown!r} where a value is expected")

    def _name(self, token: Token, dot: str) -> SyntaxNode:
        if token.text in _RESERVED:
            raise InvalidExpression(f"character {token.at + 1}: {token.text} is a reserved word")
        return self._call(token.at, token.text, None) if self._peek() == "(" else Ident(token.at, dot + token.text)

    def _call(self, at: int, name: str, target: SyntaxNode | None) -> SyntaxNode:
        self.take("(")
        args: list[SyntaxNode] = []
        if not self._accept(")"):
            args.append(self.expression())
            while self._accept(","):
                args.append(self.expression())
            self.take(")")
        macro = expanded(at, name, target, args)
        return Call(at, name, target, args) if macro is None else macro

    def _list(self, at: int) -> SyntaxNode:
        made = ListOf(at, [], [])
        while not self._accept("]"):
            if self._accept(","):
                if self._accept("]"):
                    break
                if not made.items:
                    self.take("]")
            elif made.items:
                self.take("]")
                break
            made.optional.append(self._accept("?"))
            made.items.append(self.expression())
        return made

    def _map(self, at: int) -> SyntaxNode:
        made = MapOf(at, [], [], [])
        while not self._accept("}"):
            if self._accept(","):
                if self._accept("}"):
                    break
                if not made.keys:
                    self.take("}")
            elif made.keys:
                self.take("}")
                break
            made.optional.append(self._accept("?"))
            made.keys.append(self.expression())
            self.take(":")
            made.values.append(self.expression())
        return made
