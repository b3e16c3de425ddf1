r"""Cuts an answer into tokens: numbers, letters, LaTeX's commands under one name each, and signs.

`clean` gives every sign, word and command one form, by one table. Each pattern goes forward only, so the work
is linear in the length of the text.
"""

import dataclasses
import re
from collections.abc import Iterator
from fractions import Fraction

from vade_jax.rewards.values import Unit

# Full-width forms, typographic minus signs and spaces; not NFKC, which reads 5² as 52.
ASCII = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
ASCII |= dict.fromkeys(map(ord, "−–‒﹣‐‑—"), "-") | {0x2044: "/", 0x3001: ", ", 0xFFE5: "¥"}
ASCII |= dict.fromkeys(map(ord, "‘’′"), "'")
ASCII |= dict.fromkeys((0xFE0E, 0xFE0F))  # how an emoji is drawn
ASCII |= dict.fromkeys(map(ord, "\u3000\u00a0\u2009\u202f\n\t"), " ")
_SYMBOLS = """
×times ·times ⋅times ∙times ÷div ±pm ∓mp ≤le ≥ge ≠ne ≈approx ∪cup ∩cap ∈in ∞infty πpi √sqrt °degree ºdegree
℃celsius ℉fahrenheit ∠angle △triangle ∆triangle ℝmathbb{R} ∅emptyset θtheta ⟨langle ⟩rangle →to ≡equiv ∖setminus
⩽le ⩾ge ≦le ≧ge ∥parallel ⊥perp ≅cong ½frac12 ⅓frac13 ⅔frac23 ¼frac14 ¾frac34 ⅛frac18 …ldots
αalpha βbeta γgamma δdelta εepsilon ϵepsilon ζzeta ηeta ϑvartheta κkappa λlambda μmu µmu νnu ξxi ρrho σsigma
τtau φphi ϕphi χchi ψpsi ωomega ΓGamma ΔDelta ΘTheta ΛLambda ΞXi ΣSigma ΦPhi ΨPsi ΩOmega ΩOmega ΠPi ℓell ħhbar
"""
_SYMBOLS = {ord(name[0]): f"\\{name[1:]} " for name in _SYMBOLS.split()} | {ord("∶"): ":"}
_SYMBOLS |= {0x2126: "\\Omega ", 0x00B5: "\\mu "}  # ohm and micro
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺₀₁₂₃₄₅₆₇₈₉", "0123456789-+0123456789")
_BASES = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
_BASES = {word: str(base) for base, word in enumerate(_BASES.split(), 2)}
ROMAN = "text|textbf|textit|textrm|textnormal|texttt|mathrm|mbox|operatorname|mathsf|mathtt|rm|ce"
_TEXT = rf"(?:\\(?:{ROMAN})\s*\{{\s*)?"  # may begin here, and end after
_DOTS = r"(?:\.\.\.|…|\\[lc]?dots(?![a-z]))"
# One form for what has several, in this order; the first five before symbols become commands.
_REWRITTEN = [
    (re.compile(pattern), form)
    for pattern, form in (
        (r"(\.[0-9]{0,9}?)(?:([0-9])\2\2+|([0-9]{2,9})\3+)\s?" + _DOTS, r"\1\\overline{\2\3}"),
        (r"(\.[0-9]+)\s?" + _DOTS, r"\1"),
        (r"√\s?([0-9]+|[a-zA-Z])", r"\\sqrt{\1}"),
        (r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+", lambda match: f"^{{{match[0].translate(_RAISED)}}}"),
        (r"[₀₁₂₃₄₅₆₇₈₉]+", lambda match: f"_{{{match[0].translate(_RAISED)}}}"),
        (r"或者?", " or "),
        (r"并且|而且|以及|[且和与及]", " and "),
        (r"每", "/"),
        (r"\^\s?\{?(?:\s?\\prime(?![a-zA-Z])|')+\s?\}?", lambda m: "'" * len(re.findall(r"\\p|'", m[0]))),
        (r"\^\s?\{?\s?\\(?:circ|degree)(?![a-zA-Z])\s?\}?", r"\\degree "),
        (r"\\Delta(?=\s?[A-Z]{3}(?![a-zA-Z]))", r"\\triangle "),  # a triangle's corners are three
        (r"\\(?:left|right|[bB]igg?[lr]?)(?![a-zA-Z])\s?\.?", " "),
        (r"(?<=[0-9])\s?x\s?(?=10\s?\^)", r"\\times "),
        (rf"{_TEXT}(?:all real(?: number)?s|任意实数|全体实数|一切实数)\s?\}}?", r"\\mathbb{R}"),
        (rf"\(\s?{_TEXT}\\?[bp]?mod(?![a-z])\s?\}}?([^()]*)\)", r"\\pmod{\1}"),
        (rf"{_TEXT}(?<![\\a-z])mod(?![a-z])\s?\}}?", r"\\pmod "),
        (
            rf"_\s?\{{?\s?{_TEXT}({'|'.join(_BASES)})(?![a-z])\s?\}}?(?:\s?\}})?",
            lambda match: f"_{{{_BASES[match[1]]}}}",
        ),
    )
]
_DASH = re.compile(r"(?<=[^\W\d_]{2}) [—–] (?=[^\W\d_]{2})")
# One name for a command that has several; none for one that only dresses.
_SAME = r"""
\frac dfrac tfrac cfrac: \times cdot ast: <= leq leqslant le: >= geq geqslant ge: != neq not= ne: < lt: > gt
| vert lvert rvert mid |: or lor vee: and land wedge: \approx thickapprox simeq doteq: \vec overrightarrow
\emptyset varnothing: \angle measuredangle: / div: % %: & &: \{ lbrace: \} rbrace: [ lbrack: ] rbrack
' prime: T top intercal: ( langle: ) rangle: \phi varphi: \epsilon varepsilon: \binom dbinom tbinom
\setminus backslash: \pmod mod bmod: \to rightarrow longrightarrow: \ldots dots cdots
"""
_DRESS = "displaystyle textstyle limits mathbf mathit boldsymbol bm boxed therefore"
_NAMES: dict[str, str] = dict.fromkeys(_DRESS.split(), "")
_NAMES |= {
    one: name for name, *of in map(str.split, re.split("[:\n]", _SAME.strip())) for one in of
}
_SIGNS = {"≤": "<=", "≥": ">=", "**": "^", "*": "\\times", "€": "\\€", "£": "\\£", "¥": "\\¥"}
_GAP = r"\{,\}|\\[,!]|,\\!\s?|[ ~']|\\ "  # between the thousands of a number
_NUMBER = r"""
 (?P<based>[0-9][0-9A-F]*_(?:[2-9]|\{{\s?[0-9]{{1,2}}\s?\}}))
|(?P<repeating>[0-9]{{0,50}}\.[0-9]{{0,50}}\\(?:overline|dot|bar)\s?\{{[0-9]{{1,50}}\}})
|(?P<number>(?:[0-9]{{1,3}}(?:(?:{gap})[0-9]{{3}})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)
 (?:[eE](?P<exponent>[-+]?[0-9]{{1,3}})(?![\w.]))?
"""
_TOKEN = r"""
 (?P<space>(?:\s|~|\\[,;:!\s]|\\q?quad)+)
|\\(?:{roman})\s?\{{(?P<roman>(?>[^{{}}]|\{{[^{{}}]*\}})*)\}}
|\{{\s?\\rm(?![a-zA-Z])(?P<old>[^{{}}]*)\}}
|{number}
|\\(?P<command>not\s?=|[a-zA-Z]+|.)
|(?P<letters>平方|立方|[万亿](?=\w)|[\u3400-\u9fff]+|[^\W\d_\u3400-\u9fff]+)
|(?P<sign><=|>=|!=|\*\*|.)
"""
_PATTERNS = {
    thousands: re.compile(
        _TOKEN.format(roman=ROMAN, number=_NUMBER.format(gap=",|" * thousands + _GAP)), re.X | re.S
    )
    for thousands in (False, True)
}


@dataclasses.dataclass(frozen=True)
class Token:
    """A piece of a text; `text` is the number, the letters, or the one name of a command or sign."""

    kind: str  # "number", "based", "letters" or "sign"
    text: str
    spaced: bool  # a space is before it
    roman: bool  # upright, as words and units are
    start: int  # its place in the text that was cut
    end: int


def clean(text: str) -> str:
    r"""Returns `text` in the forms of the table, without dollars around it and a last dot."""
    text = " ".join(undashed(text).translate(ASCII).split())
    for pattern, form in _REWRITTEN[:5]:
        text = pattern.sub(form, text)
    text = " ".join(text.translate(_SYMBOLS).split())
    for pattern, form in _REWRITTEN[5:]:
        text = pattern.sub(form, text)
    if not text.endswith("dots"):
        text = text.rstrip(" .。")
    for opener, closer in (("\\(", "\\)"), ("\\[", "\\]")):
        if text.startswith(opener) and text.endswith(closer):
            text = text[2:-2].strip()
    # Dollars come in pairs around a formula, or one by one before an amount.
    is_paired = text.replace("\\$", "").count("$") % 2 == 0
    text = re.sub(r"(?<!\\)\$", " " if is_paired else r"\\$", text)
    return " ".join(text.split())


def undashed(text: str) -> str:
    """Returns `text` with a comma for a dash between words; before a number it is a minus sign."""
    return _DASH.sub(", ", text)


def cut(text: str, *, thousands: bool = True) -> list[Token]:
    """Returns the tokens of a clean text.

    Args:
        text: as `clean` returns it.
        thousands: whether a comma before three digits belongs to a number.
    """
    return list(_cut(text, thousands, False, 0))


def _cut(text: str, thousands: bool, roman: bool, start: int) -> Iterator[Token]:
    spaced = False
    for match in _PATTERNS[thousands].finditer(text):
        kind = match.lastgroup
        assert kind is not None  # each alternative has a name
        found = match[kind]
        if kind in ("roman", "old"):
            for token in _cut(found, thousands, True, start + match.start(kind)):
                yield dataclasses.replace(token, spaced=True) if spaced else token
                spaced = False
            spaced = found.endswith((" ", "~"))
            continue
        if kind in ("exponent", "number", "repeating"):
            kind, found = "number", _number(match)
        elif kind == "command":
            kind, found = "sign", _NAMES.get(re.sub(r"\s", "", found), f"\\{found}")
        elif kind == "sign":
            found = _SIGNS.get(found, found)
        if kind == "space" or not found:
            spaced = True
            continue
        kind = "letters" if found in ("or", "and", "T") else kind
        yield Token(kind, found, spaced, roman, start + match.start(), start + match.end())
        spaced = False


def _number(match: re.Match[str]) -> str:
    """Returns the digits of a number alone, 6.02e23, or a repeating decimal as its fraction."""
    if match["repeating"] is None:
        digits = re.sub(r"[^0-9.]", "", match["number"])
        return digits if match["exponent"] is None else f"{digits}e{match['exponent']}"
    whole, first, period = re.split(r"\.|\\[a-z]+\s?\{", match["repeating"].rstrip("}"))
    shift = 10 ** len(first)
    tail = Fraction(int(period), (10 ** len(period) - 1) * shift)
    return str(Fraction(int(whole + first or "0"), shift) + tail)


# ------------------------------------------------------------------------------ a place among tokens
SEPARATORS = {",": ",", ";": ",", "&": ",", "or": "or", "and": "and"}
_RELATIONS = r"""
= < > <= >= != \approx \in \notin \cong \sim \equiv \parallel \perp \pmod \to \propto \subset \subseteq
"""
RELATIONS = set(_RELATIONS.split())
OPENERS = {"(": (")", "]"), "[": (")", "]"), "\\{": ("\\}",), "{": ("}",)}  # what may close each
CLOSERS = {")", "]", "}", "\\}"}
TO = ("to", "至", "到")  # of 10 to 20
ENDS = {*CLOSERS, *RELATIONS, *SEPARATORS, ":", "\\\\", "\\end", *TO}  # of a side


class Unread(Exception):  # noqa: N818 (says what happened)
    """The rest of the text is outside the grammar."""


class Senseless(Exception):  # noqa: N818 (says what happened)
    """The text divides by zero, or is too large to calculate."""


@dataclasses.dataclass
class Cursor:
    """The rest of a text, and the context of its position."""

    text: str
    tokens: list[Token]
    numeric: bool  # a number is expected
    at: int = 0  # a token
    offset: int = 0  # how many of its letters are read
    depth: int = 0  # brackets within brackets
    in_trig: int = 0  # 1 in the brackets of sin, cos, tan; 2 in an argument without
    unit: Unit | None = None  # a currency before the number, or degrees within a sum
    length: int = 0  # operations of this side

    def peek(self, ahead: int = 0) -> str:
        """Returns the text of a token, "" after the last."""
        at = self.at + ahead
        text = self.tokens[at].text if at < len(self.tokens) else ""
        return text[self.offset :] if ahead == 0 else text

    def kind(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def is_roman(self) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at].roman

    def take(self, *expected: str) -> str:
        text = self.peek()
        if not text or (expected and text not in expected):
            raise Unread
        self.at, self.offset = self.at + 1, 0
        return text

    def accept(self, *expected: str) -> str:
        return self.take() if self.peek() in expected else ""

    def ends(self, ahead: int = 0) -> bool:
        """Returns whether a side ends here."""
        text = self.peek(ahead)
        return not text or text in ENDS

    def primes(self) -> str:
        found = ""
        while self.accept("'"):
            found += "'"
        return found

    def reset(self, at: int) -> None:
        """Goes back to a token at which a side or an item began."""
        self.at, self.offset, self.in_trig, self.unit = at, 0, 0, None
