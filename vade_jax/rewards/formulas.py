r"""Reads sums, products, powers and functions into trees.

    sum       [sign] product {sign product}
    product   power {[\\times | /] power}
    power     primary {"!" | "'" | degree} ["^" power]

A degree sign within sin, cos or tan means degrees; without one, the argument is in radians.
"""

import re
from collections.abc import Callable
from fractions import Fraction

from vade_jax.rewards import units, values
from vade_jax.rewards.tokens import Cursor, Senseless, Token, Unread
from vade_jax.rewards.values import Tree

DEEPEST = 25  # nested brackets
_LONGEST = 150  # operations in a formula
TRIG = ("sin", "cos", "tan", "cot", "sec", "csc")
FUNCTIONS = {*TRIG, *(f"arc{name}" for name in TRIG), *"sinh cosh tanh ln lg log exp".split()}
CONSTANTS = {"\\pi": "pi", "\\infty": "oo", "\\inf": "oo"}
_LETTERS = """
alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau phi
chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell hbar
"""
GREEK = set(_LETTERS.split())
MARKED = {f"\\{name}" for name in ("vec", "hat", "bar", "overline", "tilde", "widehat")}
SHAPES = {"\\angle", "\\triangle", "angle", "triangle", "\\odot", "\\overline", "\\vec"}
FACTORS = {"(", "[", "{", "\\frac", "\\sqrt", "\\surd", "\\binom", *CONSTANTS, *MARKED, *SHAPES}
FACTORS |= {f"\\{name}" for name in FUNCTIONS | GREEK}
_INNER = {"+", "-", ",", "\\theta", "\\alpha", "\\triangle"}  # signs in a name: f(x+1), a_{n-1}


def summed(c: Cursor) -> Tree:
    tree = _signed(c, _product)
    while c.peek() in ("+", "-", "\\pm", "\\mp"):
        tree = _joined(c, "+", tree, _signed(c, _product))
    return tree


def _joined(c: Cursor, op: str, left: Tree, right: Tree) -> Tree:
    c.length += 1
    if c.length > _LONGEST:
        raise Unread
    return (op, left, right)


def _deeper(c: Cursor, read: Callable[[Cursor], Tree]) -> Tree:
    """Reads what may hold itself again."""
    if c.depth >= DEEPEST:
        raise Unread
    c.depth += 1
    try:
        return read(c)
    finally:
        c.depth -= 1


def _signed(c: Cursor, read: Callable[[Cursor], Tree]) -> Tree:
    sign = c.accept("+", "-", "\\pm", "\\mp")
    tree = read(c)
    return tree if sign in ("", "+") else (sign.strip("\\"), tree)


def _product(c: Cursor) -> Tree:
    tree = _power(c)
    while True:
        if c.in_trig < 2 and c.accept("\\times"):  # \sin x \cdot y is y \sin x
            tree = _joined(c, "*", tree, _signed(c, _power))
        elif c.accept("/"):
            tree = _joined(c, "/", tree, _signed(c, _power))
        elif _is_factor(c) and not units.behind(c, look=True):
            tree = _joined(c, "*", tree, _power(c))
        else:
            return tree


def _is_factor(c: Cursor) -> bool:
    """Returns whether a factor without a sign starts here; a number does not, except in 2^n 3^n."""
    text, kind = c.peek(), c.kind()
    if c.in_trig > 1 and (text.strip("\\") in FUNCTIONS or text in ("(", "\\frac")):
        return False
    if kind == "number":
        return c.peek(1) == "^" and c.tokens[c.at - 1].kind != "number"
    return text in FACTORS if kind == "sign" else kind == "letters" and not c.ends()


def _power(c: Cursor) -> Tree:
    tree = _postfixed(c)
    if not c.accept("^"):
        return tree
    return ("^", tree, _deeper(c, lambda c: _signed(c, _power)))


def _postfixed(c: Cursor) -> Tree:
    tree = _deeper(c, _primary)
    if c.accept("!"):
        tree = ("!", tree)
    if c.peek() == "\\degree" and (c.in_trig or not units.behind(c, look=True)):
        c.take()
        if c.in_trig:
            return ("*", tree, ("/", ("c", "pi"), ("n", "180")))
        c.unit = units.UNITS["degree"]
    return tree


def _primary(c: Cursor) -> Tree:
    kind, text = c.kind(), c.peek()
    if kind == "number":
        return _number(c)
    if kind == "letters":
        return _letters(c)
    if text in ("(", "[", "{"):
        return _between(c, {"(": ")", "[": "]", "{": "}"}[c.take()])
    c.take()
    if text == "|":
        return ("abs", _between(c, "|"))
    if text in CONSTANTS:
        return ("c", CONSTANTS[text])
    if text in ("\\lfloor", "\\lceil"):
        return ("floor" if "floor" in text else "ceiling", _between(c, text.replace("\\l", "\\r")))
    if text in ("\\frac", "\\binom"):
        top, bottom = _two(c)
        over, under = _differential(top), _differential(bottom)
        if text == "\\frac" and over and under:
            return ("v", f"{over}/{under}")
        return ("/" if text == "\\frac" else "binom", top, bottom)
    if text in ("\\sqrt", "\\surd"):
        return _root(c, text)
    if text[1:] in FUNCTIONS:
        return _function(c, text[1:])
    if text in MARKED or text in SHAPES:
        return ("v", f"{text[1:]} {spelled(c)}")
    if text[1:] in GREEK:
        return _marked(c, text[1:])
    raise Unread


def _differential(tree: Tree) -> str | None:
    """Returns the dy of dy/dx, which is a name."""
    is_one = tree[:2] == ("*", ("v", "d")) and tree[2][0] == "v"
    return f"d{tree[2][1]}" if is_one else None


def _number(c: Cursor) -> Tree:
    text = c.take()
    if len(text) > values.DIGITS:
        raise Senseless
    if re.search("[./e]", text):
        return ("n", text)
    if c.peek() == "\\frac":  # 3\frac{1}{2}
        start = c.at
        c.take()
        top, bottom = _two(c)
        part = top[1], bottom[1]
        if not top[0] == bottom[0] == "n":
            c.at, c.offset = start, 0
            return ("n", text)
    elif c.kind() == "number" and c.peek(1) == "/" and c.kind(2) == "number":
        part = c.take(), c.take("/") and c.take()
        if c.peek() in ("^", "!"):
            raise Unread
    else:
        return ("n", text)
    if not all(map(str.isdecimal, part)) or not int(part[0]) < int(part[1]):
        raise Unread  # 3\frac{5}{2}: a sum or a product?
    return ("n", str(int(text) + Fraction("/".join(part))))


def _letters(c: Cursor) -> Tree:
    token, text = c.tokens[c.at], c.peek()
    is_whole = c.offset == 0
    if is_whole and text in ("pi", "sqrt"):
        c.take()
        return ("c", "pi") if text == "pi" else _root(c, "\\surd")
    if is_whole and text in FUNCTIONS:
        return _function(c, c.take())
    if c.ends() or (is_whole and _is_word(c, token)):
        raise Unread
    c.offset += 1
    if c.offset == len(token.text):
        c.at, c.offset = c.at + 1, 0
    return _marked(c, text[0])


def _is_word(c: Cursor, token: Token) -> bool:
    """Returns whether letters are a word: upright, four of them, or two next to two others."""
    if len(token.text) == 1 or token.text.isupper():
        return token.roman and len(token.text) > 1
    beside = (c.tokens[i] for i in (c.at - 1, c.at + 1) if 0 <= i < len(c.tokens))
    in_words = any(one.kind == "letters" and len(one.text) > 1 for one in beside)
    return token.roman or len(token.text) > 3 or in_words


def _marked(c: Cursor, letter: str) -> Tree:
    """Returns a name with what is below it, its primes and its argument; e and i alone are the numbers."""
    below = "_" + spelled(c) if c.accept("_") else ""
    marks = c.primes()
    start = c.at
    if "".join(c.peek(i) for i in range(6)) == "^{-1}(" and letter in "fgh":  # the inverse
        c.at, marks = c.at + 5, "^-1"
    inside = f"({spelled(c)})" if letter in "fghFGHP" and _is_call(c, letter) else ""  # f(x)
    if marks == "^-1" and not inside:
        c.at, marks = start, ""
    name = letter + below + marks + inside
    return ("c" if name in ("e", "i") else "v", name)


def _is_call(c: Cursor, letter: str) -> bool:
    """Returns whether a bracket holds the argument of a function, as in f(x+1), and no factor, as in h(a+b).

    Only f and g take sums: other letters are names of functions less often than of heights and amounts.
    """
    if c.peek() != "(":
        return False
    inside: list[str] = []
    while (text := c.peek(len(inside) + 1)) != ")":
        if not text or (c.kind(len(inside) + 1) == "sign" and text not in _INNER):
            return False
        inside.append(text)
    is_list = all(len(x) == 1 or x.isdecimal() or x in _INNER for x in inside[::2])
    return letter in "fg" or (is_list and set(inside[1::2]) <= {","})


def spelled(c: Cursor) -> str:
    """Reads a group, or one letter or digit, as letters."""
    closer = {"(": ")", "{": "}"}.get(c.peek())
    if closer is None and c.kind() not in ("letters", "number"):
        raise Unread
    if closer is None:
        return c.take()
    c.take()
    found = ""
    while not c.accept(closer):
        if c.kind() == "sign" and c.peek() not in _INNER:
            raise Unread
        found += c.take()
    return found


def _between(c: Cursor, closer: str) -> Tree:
    r"""Reads a sum, or a \choose b, and its closing bracket; the opening one is consumed already."""
    trig, c.in_trig = c.in_trig, min(c.in_trig, 1)
    tree = summed(c)
    if c.accept("\\choose"):
        tree = ("binom", tree, summed(c))
    c.in_trig = trig
    c.take(closer)
    return tree


def _two(c: Cursor) -> tuple[Tree, Tree]:
    r"""Reads both arguments of \frac{a}{b}, \frac ab or \frac72."""
    text = c.peek()
    if c.kind() == "number" and len(text) > 1:
        if len(text) != 2 or not text.isdecimal():
            raise Unread
        c.take()
        return ("n", text[0]), ("n", text[1])
    return _argument(c), _argument(c)


def _argument(c: Cursor) -> Tree:
    if c.accept("{"):
        return _between(c, "}")
    if c.kind() == "number":
        if len(c.peek()) > 1:
            raise Unread
        return ("n", c.take())
    return _deeper(c, _primary)


def _root(c: Cursor, command: str) -> Tree:
    degree = _between(c, "]") if c.accept("[") else None
    if c.kind() == "number" and command == "\\surd":  # √12
        tree = ("n", c.take())
    elif c.accept("("):
        tree = _between(c, ")")
    else:
        tree = _argument(c)
    if degree is None:
        return ("sqrt", tree)
    is_odd = degree[0] == "n" and degree[1].isdecimal() and int(degree[1]) % 2
    if is_odd and tree[0] == "-":
        return ("-", ("root", tree[1], degree))  # the real one, where SymPy takes a complex one
    return ("root", tree, degree)


def _function(c: Cursor, name: str) -> Tree:
    power = base = None
    for _ in range(2):
        if c.accept("^"):
            power = _signed(c, _argument)
        if name == "log" and c.accept("_"):
            base = _argument(c)
    if c.peek() == "\\degree":
        raise Unread
    inverse = power == ("-", ("n", "1")) and name in TRIG
    angle = c.in_trig
    if c.peek() in ("(", "{") or name == "exp":
        c.in_trig = 1 if name in TRIG else 0
        tree = _between(c, {"(": ")", "{": "}"}[c.take("(", "{")])
    else:
        c.in_trig = 2  # an argument without brackets ends before the next function
        tree = _signed(c, _product)
    c.in_trig = angle
    of = f"arc{name}" if inverse else name
    tree = (of, tree) if base is None else (of, tree, base)
    return tree if power is None or inverse else ("^", tree, power)
