r"""Cuts an answer into tokens: numbers, letters, LaTeX's commands under one name each, and signs.

`clean` gives every symbol its LaTeX name, and `rewritten` one form to equivalent notations, by one table.
Each pattern only scans forward, so the work is linear in the length of the text.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

# Full-width forms, typographic minus signs and spaces; not NFKC, which reads 5² as 52.
ASCII = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
ASCII |= dict.fromkeys(map(ord, "−–‒﹣‐‑—"), "-") | {0x2044: "/", 0x3001: ", ", 0xFFE5: "¥"}
ASCII |= dict.fromkeys(map(ord, "‘’′"), "'")
ASCII |= dict.fromkeys((0xFE0E, 0xFE0F))  # how an emoji is drawn
ASCII |= dict.fromkeys(map(ord, "\u3000\u00a0\u2009\u202f\n\t"), " ")
_SYMBOLS = """
×times ·times ⋅times ∙times ÷div ±pm ∓mp ≤le ≥ge ≠ne ≈approx ∪cup ∩cap ∈in ∞infty πpi √sqrt °degree ºdegree
℃celsius ℉fahrenheit ∠angle △triangle ∆triangle ℝmathbb{R} ∅emptyset ⟨langle ⟩rangle →to ≡equiv ∖setminus
⩽le ⩾ge ≦le ≧ge ∥parallel ⊥perp ≅cong ½frac12 ⅓frac13 ⅔frac23 ¼frac14 ¾frac34 ⅛frac18 …ldots
"""
_LETTERS = """
αalpha βbeta γgamma δdelta εepsilon ϵepsilon ɛvarepsilon ζzeta ηeta θtheta ϑvartheta ιiota κkappa λlambda μmu µmu
νnu ξxi ρrho σsigma τtau φphi ϕphi χchi ψpsi ωomega ΓGamma ΔDelta ΘTheta ΛLambda ΞXi ΣSigma ΦPhi ΨPsi ΩOmega
\u2126Omega ΠPi ℓell ħhbar
"""
LETTERS = {name[1:] for name in _LETTERS.split()}
_SYMBOLS = {ord(x[0]): f"\\{x[1:]} " for x in (_SYMBOLS + _LETTERS).split()} | {ord("∶"): ":"}
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺₀₁₂₃₄₅₆₇₈₉", "0123456789-+0123456789")
ROMAN = "text|textbf|textit|textrm|textnormal|texttt|mathrm|mbox|operatorname|mathsf|mathtt|rm|ce"
_CLEANING = (  # before symbols become commands
    (re.compile(r"√\s?([0-9]+|[a-zA-Z])"), r"\\sqrt{\1}"),
    (re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+"), lambda match: f"^{{{match[0].translate(_RAISED)}}}"),
    (re.compile("[₀₁₂₃₄₅₆₇₈₉]+"), lambda match: f"_{{{match[0].translate(_RAISED)}}}"),
)
# A pattern and its form, in which ~ is a space. TEXT may begin there, and END ends it.
_REWRITTEN = r"""
(\.[0-9]{0,9}?)(?:([0-9])\2\2+|([0-9]{2,9})\3+)\s?DOTS -> \1\\overline{\2\3}
(\.[0-9]+)\s?DOTS -> \1
_\s?\{?\s?TEXT(two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|sixteen)(?![a-z])END\}? -> _{\1}
或者? -> ~or~
并且|而且|以及|[且和与及] -> ~and~
每 -> /
\\prime(?![a-zA-Z])\s? -> '
\^\s?\{?\s?('+)\s?\}? -> \1
\^\s?\{?\s?\\(?:circ|degree)(?![a-zA-Z])\s?\}? -> \\degree~
\\Delta(?=\s?[A-Z]{3}(?![a-zA-Z])) -> \\triangle~
\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])\s?\.? -> ~
\{\s?\\rm(?![a-zA-Z])([^{}]*)\} -> \\mathrm{\1}
(?<=[0-9])\s?x\s?(?=10\s?\^) -> \\times~
\\in\s?(?=[RZNQ](?![a-zA-Z])) -> \\in~\\mathbb~
TEXT(?:(?i:(?:the\sset\sof\s)?all\sreal(?:\snumber)?s)|任意实数|全体实数|一切实数)END -> \\mathbb{R}
\\text\s?\{\s?(\(\s?mod\s[^{}]*\))\s?\} -> \1
\(\s?TEXT\\?[bp]?mod(?![a-z])END([^()]*)\) -> \\pmod{\1}
TEXT(?:\\[bp]?|(?<![\\a-z]))mod(?![a-z])END -> \\pmod~
^(?:from|between)\s([^a-z]+)\s(?:to|and)\s -> \1~to~
[,;.]\s?(?=\\\\|\\end\s?\{|&) -> ~
&\s?(?=SIGNS)|(?<=[=<>])\s?&|(?<=&)\s?TEXT(?:if|when|当)(?![a-z])END -> ~
\\\{\s?\\begin\s?\{array\}\s?\{[^{}]*\} -> \\system~
(?:\\\{\s?)?\\begin\s?\{(?:cases|aligned)\} -> \\system~
\\begin\s?\{(?:[pb]?matrix\}|array\}\s?\{[^{}]*\}) -> \\matrix~
\\end\s?\{[a-z]+\} -> \\end~
# of an ellipse
^e\s?= -> \\varepsilon~=
# y = 2x (x > 0) is y = 2x, x > 0; P(X > 2) has no condition
^(.*[^a-zA-Z\s(,=<>]\s?|.*[^(,=<>]\s|[^=]*=.*[^(,=<>])\(([^()]*SIGNS[^()]*)\)$ -> \1,~\2
# the point A(2, 3)
(^|,\s?)([A-Z])(?=\([^()]*,[^()]*\)(?:,|$)) -> \1\2=
# \{x \mid x > 5\} and \{x \in \mathbb{R} \mid x > 5\} are x > 5
^\\\{\s?[a-z]\s?(?:\\in\s?(?:\\mathbb\s?)?\{?R\}?\s?)?(?:\\mid(?![a-z])|[|:])(.*)\\\}$ -> \1
"""
_PARTS = {
    "TEXT": rf"(?:\\(?:{ROMAN})\s*\{{\s*)?",
    "END": r"\s?\}?",
    "SIGNS": r"(?:[<>=≤≥≠]|\\(?:leq?|geq?|neq?|leqslant|geqslant|approx|in)(?![a-z]))",
    "DOTS": r"(?:\.\.\.|…|\\[lc]?dots(?![a-z]))",
}


def _rows(table: str) -> Iterator[tuple[re.Pattern[str], str]]:
    for row in table.strip().split("\n"):
        pattern, _, form = row.partition(" -> ")
        for name, part in _PARTS.items():
            pattern = pattern.replace(name, part)
        if form:
            yield re.compile(pattern), form.replace("~", " ")


_REWRITING = tuple(_rows(_REWRITTEN))
# One name for commands with several names; commands that only style are dropped.
_SAME = r"""
\frac dfrac tfrac cfrac: \times cdot ast: <= leq leqslant le: >= geq geqslant ge: != neq not= ne: < lt: > gt
| vert lvert rvert mid |: or lor vee: and land wedge: \approx thickapprox simeq doteq: \vec overrightarrow
\emptyset varnothing: \angle measuredangle: / div: % %: & &: \{ lbrace: \} rbrace: [ lbrack: ] rbrack
T top intercal: ( langle: ) rangle: \phi varphi: \epsilon varepsilon: \binom dbinom tbinom
\setminus backslash: \to rightarrow longrightarrow: \ldots dots cdots: 2 two: 3 three: 4 four: 5 five: 6 six: 7 seven: 8 eight: 9 nine
10 ten: 11 eleven: 12 twelve: 16 sixteen
"""
_DRESS = "displaystyle textstyle limits mathbf mathit boldsymbol bm boxed therefore"
_NAMES: dict[str, str] = dict.fromkeys(_DRESS.split(), "")
_NAMES |= {
    one: name for name, *of in map(str.split, re.split("[:\n]", _SAME.strip())) for one in of
}
_NAMES |= {"≤": "<=", "≥": ">=", "**": "^", "*": "\\times", "€": "\\€", "£": "\\£", "¥": "\\¥"}
_GAP = r"\{,\}|\\[,!]|,\\!\s?|[ ~']|\\ "  # between the thousands of a number
# An argument, as in f(2), and not a factor, as in h(a+b)
_ARGUMENT = r"-?(?:\d+|[a-zA-Z](?:\s?[+-]\s?\d+)?|\\[a-z]+)(?:,\s?-?(?:\d+|[a-zA-Z]))*"
_TOKEN = r"""
 (?P<space>(?:\s|~|\\[,;:!\s]|\\q?quad)+)
|\\(?:ROMAN)\s?\{(?P<roman>(?>[^{}]|\{[^{}]*\})*)\}
|(?P<based>[0-9][0-9A-F]*_(?:[2-9]|\{\s?(?:[0-9]{1,2}|[a-z]+)\s?\}))
|(?P<call>(?<![a-zA-Z\\])[fghFGHP](?:_[0-9a-z])?'*(?:\^\s?\{\s?-1\s?\}|\^-1)?\s?\(\s?ARGUMENT\s?\))
|(?:(?<![a-zA-Z])m\s?)?(?:\\|(?<![a-zA-Z\\])(?=(?:tri)?angle\s[A-Z]))
 (?P<mark>(?:measured)?angle|triangle|odot|vec|overrightarrow|(?:wide)?hat|bar|overline|tilde|mathbb)\s?
 (?P<braced>\{\s?)?(?P<marked>(?:[a-zA-Z]'*)+|[0-9](?![0-9]))(?(braced)\s?\})
|(?P<repeating>[0-9]{0,50}\.[0-9]{0,50}\\(?:overline|dot|bar)\s?\{[0-9]{1,50}\})
|(?P<mixed>[0-9]+(?:\s?\\[dtc]?frac\s?(?:\{\s?[0-9]+\s?\}\s?\{\s?[0-9]+\s?\}|[0-9]\s?[0-9])|\s[0-9]+/[0-9]+)
 (?:\s?[\^!])?)
|(?P<number>(?:[0-9]{1,3}(?:(?:GAP)[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)
 (?:[eE](?P<exponent>[-+]?[0-9]{1,3})(?![\w.]))?
|\\(?P<command>not\s?=|[a-zA-Z]+|.)
|(?P<letters>平方|立方|[万亿个只](?=\w)|[\u3400-\u9fff]+|[^\W\d_\u3400-\u9fff]+)
|(?P<sign><=|>=|!=|\*\*|.)
""".replace("ROMAN", ROMAN).replace("ARGUMENT", _ARGUMENT)
_PATTERNS = {
    thousands: re.compile(_TOKEN.replace("GAP", ",|" * thousands + _GAP), re.X | re.S)
    for thousands in (False, True)
}


class Token(NamedTuple):
    """A piece of a text; `text` is the number, the letters, or the one name of a command or sign."""

    kind: str  # "number", "name", "letters" or "sign"
    text: str
    spaced: bool  # a space is before it
    roman: bool  # upright, as words and units are


def clean(text: str) -> str:
    r"""Returns `text` with LaTeX's names for its symbols, and without surrounding dollars and a final dot."""
    text = " ".join(text.translate(ASCII).split())
    for pattern, form in _CLEANING:
        text = pattern.sub(form, text)
    text = " ".join(text.translate(_SYMBOLS).split())
    text = text if re.search(r"dots$|[0-9]\.\.\.$", text) else text.rstrip(" .。")
    for opener, closer in (("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opener) and text.endswith(closer):
            text = text[2:-2].strip()
    # Dollars come in pairs around a formula, or one by one before an amount.
    is_paired = text.replace("\\$", "").count("$") % 2 == 0
    return " ".join(re.sub(r"(?<!\\)\$", " " if is_paired else r"\\$", text).split())


def rewritten(text: str) -> str:
    """Returns a clean text in the forms of the table."""
    for pattern, form in _REWRITING:
        text = pattern.sub(form, text)
    return " ".join(text.split())


def cut(text: str, *, thousands: bool = True, roman: bool = False) -> Iterator[Token]:
    """Yields the tokens of a rewritten text; with `thousands`, numbers may contain commas."""
    spaced = False
    for match in _PATTERNS[thousands].finditer(text):
        kind = str(match.lastgroup)
        piece = match[kind]
        if kind == "roman":
            for token in cut(piece, thousands=thousands, roman=True):
                yield token._replace(spaced=spaced or token.spaced)
                spaced = False
            spaced = piece.endswith((" ", "~"))
            continue
        if kind in ("based", "call"):
            digits, mark, base = re.sub(r"[{}\s]", "", piece).partition("_")
            kind, piece = "name", f"{digits}{mark}{_NAMES.get(base, base)}"
        elif kind == "marked":  # the angle CBA is ABC
            mark = _NAMES.get(match["mark"], match["mark"]).strip("\\")
            turns = mark in ("angle", "overline") and piece.isalpha()
            kind, piece = "name", f"{mark} {min(piece, piece[::-1]) if turns else piece}"
        elif kind in ("exponent", "number", "repeating", "mixed"):
            piece = _number(match)
            kind = "sign" if piece == "?" else "number"
        elif kind in ("command", "sign"):
            name = f"\\{piece}" if kind == "command" else piece
            kind, piece = "sign", _NAMES.get(re.sub(r"\s", "", piece), name)
        if kind == "space" or not piece:
            spaced = True
            continue
        kind = "letters" if piece in ("or", "and", "T") else kind
        yield Token(kind, piece, spaced, roman)
        spaced = False


def _number(match: re.Match[str]) -> str:
    r"""Returns the digits of a number alone, 6.02e23, or the fraction of a repeating or a mixed number.

    It is "?" for 3\frac{5}{2}, which may be a sum or a product, and for a power of a mixed number.
    """
    if match["mixed"]:
        parts = re.findall(r"[0-9]+", match["mixed"])
        integer, top, bottom = map(int, parts if len(parts) == 3 else (parts[0], *parts[1]))
        is_clear = top < bottom and match["mixed"][-1] not in "^!"
        return str(integer + Fraction(top, bottom)) if is_clear else "?"
    if match["repeating"]:
        integer, first, period = re.split(r"\.|\\[a-z]+\s?\{", match["repeating"].rstrip("}"))
        tail = Fraction(int(period), (10 ** len(period) - 1) * 10 ** len(first))
        return str(Fraction(f"{integer}.{first}0") + tail)
    digits = re.sub(r"[^0-9.]", "", match["number"])
    return digits if match["exponent"] is None else f"{digits}e{match['exponent']}"


# ------------------------------------------------------------------------------ a place among tokens
SEPARATORS = {",": ",", ";": ",", "&": ",", "or": "or", "and": "and"}
_RELATIONS = r"""
= < > <= >= != \approx \in \notin \cong \sim \equiv \parallel \perp \pmod \to \propto \subset \subseteq
"""
RELATIONS = set(_RELATIONS.split())
OPENERS = {"(": (")", "]"), "[": (")", "]"), "\\{": ("\\}",), "{": ("}",)}  # what may close each
OPENERS |= {"\\matrix": ("\\end",), "\\system": ("\\end",)}
CLOSERS = {")", "]", "}", "\\}", "\\end"}
TO = ("to", "至", "到")  # of 10 to 20
ENDS = {*CLOSERS, *RELATIONS, *SEPARATORS, *TO, ":", "\\\\"}  # of a side


class Unread(Exception):  # noqa: N818 (says what happened)
    """The rest of the text is outside the grammar."""


class Cursor:
    """The rest of a text. With `numeric` a number is expected: a letter after it is a unit."""

    def __init__(self, tokens: list[Token], numeric: bool):
        self.tokens, self.numeric = tokens, numeric
        self.reset(0)

    def reset(self, at: int) -> None:
        """Goes back to a token at which a side or an item begins."""
        self.at, self.offset = at, 0  # a token, and how many of its letters or digits are read
        self.in_trig = 0  # 1 in the brackets of sin, cos, tan; 2 in an argument without
        self.unit = None  # a currency before the number, or degrees within a sum

    def peek(self, ahead: int = 0) -> str:
        """Returns the text of a token, "" after the last."""
        at = self.at + ahead
        text = self.tokens[at].text if at < len(self.tokens) else ""
        return text[self.offset :] if ahead == 0 else text

    def kind(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        text = self.peek()
        if not text or (expected and text not in expected):
            raise Unread
        self.at, self.offset = self.at + 1, 0
        return text

    def step(self) -> str:
        """Takes one letter or digit."""
        text = self.peek()
        self.at, self.offset = (self.at, self.offset + 1) if text[1:] else (self.at + 1, 0)
        return text[0]

    def accept(self, *expected: str) -> str:
        return self.take() if self.peek() in expected else ""

    def ends(self, ahead: int = 0) -> bool:
        """Returns whether a side ends here."""
        return not self.peek(ahead) or self.peek(ahead) in ENDS
