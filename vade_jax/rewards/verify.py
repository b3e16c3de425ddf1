"""Verifies boxed answers: takes the answer out of a text and compares it with the key, by its kind.

Letters and words are compared as texts; everything else is read into values (`reading`), which `matching`
compares. In doubt an answer is unreadable, because a policy exploits every text that is wrongly judged right.
"""

import dataclasses
import functools
import re
import typing
from collections.abc import Sequence

from vade_jax.rewards import answers, matching, process, reading, tokens
from vade_jax.rewards.quantities import Rules
from vade_jax.rewards.values import Collection, Formula, Kind, Number, Relation, Value, Words

if typing.TYPE_CHECKING:  # types imports jax, which rewards must not
    from vade_jax import types

# A lone letter in any case, or a capital with a delimiter and text: "(B)", "b.", "B. 30", "B 30".
_EDGE = r"[^\w\u0300-\u036f]{0,5}"  # an accent makes another letter
_LONE = re.compile(rf"{_EDGE}([a-jA-J]){_EDGE}")
_CAPITAL = r"([A-J])(?:\s?[.:)\]}]|\s(?=[0-9$\\(-]))"
_LABEL = re.compile(rf"\W{{0,5}}{_CAPITAL}\s?(\S.*)", re.ASCII | re.DOTALL)
_SECOND = re.compile(  # "A) or B)"
    rf"(?<![^\W_]){_CAPITAL}|^(?:or|and|not|nor)\b|^[,/&|]", re.ASCII
)
_SEVERAL = re.compile("[A-J]{2,8}")  # options
# What may surround an integer answer: the sum in m+n = 113, and x = ... (mod 7)
_ASIDE = re.compile(r"^[mnpqrs](?: ?\+ ?[mnpqrs])+ ?=|^[a-zA-Z] ?\\equiv|\\pmod[ {]*[0-9]+[ }]*$")
_MOLAR = re.compile(r"(?<=[0-9])\s*(?:\\(?:text|mathrm)\{\s*)?M\s*\}?$")
# Words of doubt; and words that may follow yes or no directly: "No it is not", but not "no data".
_DOUBT = """
false if incorrect maybe neither perhaps unless wrong unclear unknown unsure depends know knows idea one
determined doubtful
"""
_GOES_ON = "it they there he she we i this that these those because since as"
_TIME = re.compile(r"(\d{1,2})(?::(\d\d))?\s?([ap])\.?\s?m", re.IGNORECASE)
_MONTHS = "january february march april may june july august september october november december"
_CIRCLED = re.compile("[①-⑳]+")
_BETWEEN = re.compile(rf"[\s,;和与]|\band\b|\\(?:{tokens.ROMAN})|[{{}}$]")
_FONT = re.compile(rf"\\(?:{tokens.ROMAN})(?![a-z])|\\[,;! ]|[_{{}}\s~]")
_ARROW = re.compile(r"\\(?:long)?rightarrow|\\to(?![a-z])|\\xrightarrow(?:\[[^]]*\])?\{[^{}]*\}|->")
_ATOMS = r"(?:[A-Z][a-z]?\d*|\((?:[A-Z][a-z]?\d*)+\)\d*)+"
_SPECIES = rf"\d*{_ATOMS}(?:\^\d*[+-])?(?:\((?:s|l|g|aq)\))?"
_CHEMISTRY = re.compile(rf"{_SPECIES}(?:\+{_SPECIES})*(?:→{_SPECIES}(?:\+{_SPECIES})*)?")
_ORBITALS = re.compile(r"(?:\[[A-Z][a-z]\])?(?:\d[spdf]\^?\d\d?)+|sp\^?\d?d?\^?\d?")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verifier's verdict on one answer."""

    correct: bool  # whether the boxed answer is right; posteriors count only this
    well_formed: bool  # whether the answer has the required format
    extracted: str | None  # the content of the box, None without one
    # "ok", "no_box", "too_long", "unreadable", "different", "bad_key" (the right answer is invalid for its
    # kind), "timeout" or "crash" (of an expression: `process`).
    reason: str


def verify(
    text: str,
    answer: str,
    kind: str,
    *,
    tolerance: float | None = None,
    choices: Sequence[str] = (),
    ordered: bool | None = None,
    form: str = "boxed",
) -> Verdict:
    r"""Compares the last \boxed{} of `text`, or those of a list at its end, with the right answer.

    Args:
        text: the policy's text; boxes between <think> and </think> do not count.
        answer: the right answer.
        kind: "choice", "yesno", "int", "float", "text", "list" or "expr" (a formula).
        tolerance: relative, for "float" and numbers in a "list"; by default half a unit of the last
            decimal of `answer`.
        choices: texts of options A, B, ...: a "choice" may then be answered by its text as well.
        ordered: whether the order of a "list" counts; by default it does, but not in \{1, 2\}.
        form: a key of `answers.FORMATS`.

    Raises:
        ValueError: an unknown `kind` or `form`.
        RuntimeError: SymPy is not installed, so formulas cannot be compared.
    """
    for name, value, known in (("kind", kind, KINDS), ("form", form, answers.FORMATS)):
        if value not in known:
            raise ValueError(f"{name}={value!r} is unknown; use one of {list(known)}")
    well_formed = answers.FORMATS[form](text)
    extracted = answers.extract_boxed(answers.after_thoughts(text))
    if extracted is None:
        return Verdict(False, well_formed, None, "no_box")
    if len(extracted) > answers.MAX_LENGTH:
        return Verdict(False, well_formed, extracted, "too_long")
    options: typing.Any = {"tolerance": tolerance, "choices": choices, "ordered": ordered}
    try:
        reason = KINDS[kind](extracted, answer, **options)
    except (TimeoutError, process.Failure) as failure:  # of SymPy
        reason = "timeout" if isinstance(failure, TimeoutError) else "crash"
    return Verdict(reason == "ok", well_formed, extracted, reason)


def verify_item(text: str, item: "types.Item", *, form: str = "boxed") -> Verdict:
    """Verifies with the item's answer and kind, and the other arguments from its metadata."""
    names = ("tolerance", "choices", "ordered")
    options: typing.Any = {name: item.metadata[name] for name in names if name in item.metadata}
    return verify(text, item.answer, item.kind, form=form, **options)


# ------------------------------------------------------------------------------ letters
def compare(response: str | None, key: str | None) -> str:
    """Returns the reason for two normalised texts; None and "" are unreadable."""
    if not key:
        return "bad_key"
    return ("ok" if response == key else "different") if response else "unreadable"


def letter(text: str) -> str | None:
    """Returns the one capital letter that `text` chooses, or None."""
    return _labelled(text)[0]


def _labelled(text: str) -> tuple[str | None, str]:
    """Returns the letter that `text` chooses, or None, and the text after it."""
    text = reading.lead(answers.plain(text))
    if match := _LONE.fullmatch(text):
        return match[1].upper(), ""
    match = _LABEL.match(text)
    return (match[1], match[2]) if match and not _SECOND.search(match[2]) else (None, "")


def choice(response: str, key: str, *, choices: Sequence[str] = (), **_) -> str:
    """Compares letters. An option's text counts as its letter, and equal options are the same.

    A letter followed by the text of another option is unreadable, as is a text that fits two options. A lone
    letter is a label, even if it is the text of another option, as with points of a drawing.
    """
    right = letter(key)
    chosen, rest = _labelled(response)
    if right is None or not choices:
        return compare(chosen, right)
    if rest and chosen not in (named(rest, choices) or [chosen]):
        return "unreadable"
    options = {chr(65 + i): answers.plain(text) for i, text in enumerate(choices)}
    is_one = len(answers.signed_words(answers.plain(response))) == 1  # "-b" may be an option's text
    is_letter = chosen in options and not rest and is_one
    letters = [chosen] if is_letter else named(response, choices) or [chosen]
    texts = {options[x] for x in letters if x in options}
    return compare(texts.pop() if len(texts) == 1 else None, options.get(right))


def named(text: str, choices: Sequence[str]) -> list[str]:
    """Returns the letters of the options with this text: exactly or, if there is none, with the same words.

    Signs count: x < 3 and x > 3 are two options, as are 1/2 and -1/2. If no words match, values are compared:
        0.5 is the option 1/2, and 20 the option 20%.
    """
    plain, options = answers.plain(text), [answers.plain(option) for option in choices]
    for read in (str, answers.signed_words) if plain else ():
        words = read(plain)
        if letters := [chr(65 + i) for i, option in enumerate(options) if read(option) == words]:
            return letters
    rules = Rules()  # and its clock, for all options
    letters = [chr(65 + i) for i, option in enumerate(choices) if _is_worth(text, option, rules)]
    return letters if len(letters) == 1 else []


def _is_worth(text: str, option: str, rules: Rules) -> bool:
    """Returns whether two texts have the same value; words have none, and 2 girls are not 2 boys."""
    one, other = (None if x.isalpha() else reading.read(x, numeric=True) for x in (text, option))
    if not isinstance(one, Formula) or not isinstance(other, Formula):
        return False
    are_things = all(x.unit and not x.unit.bases for x in (one, other))
    is_range = matching.ends(one) != matching.ends(other)
    return not are_things and not is_range and matching.same(one, other, rules)


def yes_or_no(text: str) -> str | None:
    """Returns "yes" or "no" if `text` starts with it and does not qualify it, None for "no idea"."""
    plain = answers.plain(text)
    words = answers.words(plain).split()
    verdicts = {"yes", "no"}.intersection(words)
    doubts = {*_DOUBT.split(), *(("not", "n't") if "yes" in verdicts else ())}
    if len(verdicts) != 1 or words[0] not in verdicts or doubts.intersection(words):
        return None
    ends = len(words) == 1 or re.match(r"\W*\w+[*_]*\s*(?:[^\w\s]|$)", plain)
    goes_on = ends or words[1] in _GOES_ON.split()
    return words[0] if goes_on and not (words[0] == "yes" and "n't" in plain) else None


def yesno(response: str, key: str, **_) -> str:
    """Compares yes and no."""
    return compare(yes_or_no(response), yes_or_no(key))


# ------------------------------------------------------------------------------ words
def text(response: str, key: str, **_) -> str:
    """Compares words; signs such as < and - count, punctuation, case and articles do not.

    A, B and D is ABD, CO_2 is CO2, and a quantity may have other units.
    """
    response, key = (tokens.clean(x) for x in (response, key))
    if _SEVERAL.fullmatch(key):
        response = _BETWEEN.sub("", response)
    reason = compare(answers.words(response), answers.words(key))
    left, right = (answers.signed_words(answers.plain(x)) for x in (response, key))
    if reason == "bad_key" or (reason == "ok" and left == right):
        return reason
    return "ok" if _is_alike(response, key) else reason.replace("ok", "different")


@functools.lru_cache(maxsize=4096)  # the answers of a group are often equal
def _is_alike(response: str, key: str) -> bool:
    """Returns whether two texts have the same special spelling, quantity or range."""
    if (spelling := _spelling(key)) and _spelling(response) == spelling:
        return True
    if "mol" in response + key:  # 0.5 M is 0.5 mol/L
        response, key = (_MOLAR.sub(" mol/L", x) for x in (response, key))
    one, other = (reading.read(x, numeric=True) for x in (response, key))
    if one is None or other is None:
        return False
    are_measured = all(isinstance(x, Formula) and x.unit and x.unit.bases for x in (one, other))
    is_comparable = are_measured or matching.ends(other) is not None
    return is_comparable and matching.same(one, other, Rules())


def _spelling(text: str) -> str | list | None:
    r"""Returns the normal form of a time of day, a date, chemistry or circled numbers, else None."""
    plain = answers.plain(text)
    if match := _TIME.fullmatch(plain):
        return f"{int(match[1])}:{match[2] or '00'} {match[3].lower()}m"
    parts = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b|\bof\b|[.,]", " ", plain.lower()).split()
    numbers = sorted((x.lstrip("0") for x in parts if x.isdecimal()), key=lambda x: len(x) > 2)
    months = [x for x in parts if len(x) > 2 and f" {x}" in f" {_MONTHS}"]
    if len(months) == 1 and 0 < len(numbers) == len(parts) - 1 < 3:
        return [months[0][:3], *numbers]
    text = tokens.clean(text)
    if _CIRCLED.fullmatch(bare := _BETWEEN.sub("", text)):
        return sorted(bare)  # true statements
    text = _FONT.sub("", _ARROW.sub("→", text))
    text = re.sub(r"(?<=[A-Za-z)])([+-])$", r"^\1", text)  # \ce{Na+}
    if _ORBITALS.fullmatch(text):
        return text.replace("^", "")
    is_formula = re.search(r"[\d^→]", text) and _CHEMISTRY.fullmatch(text)
    sides = [sorted(re.split(r"(?<!\^)(?<!\^\d)\+", side)) for side in text.split("→")]
    return sides if is_formula else None


# ------------------------------------------------------------------------------ numbers, lists and formulas
def integer(response: str, key: str, **_) -> str:
    """Compares numbers exactly; the key must be an integer. m+n = 113 gives 113, and 3 (mod 7) gives 3."""
    right, value = number(key), number(response)
    if right is None or right.value.denominator != 1:
        return "bad_key"
    if value is None:
        value = number(_ASIDE.sub("", tokens.rewritten(tokens.clean(response))))
    return _decided(value, right, Rules(formulas=False))


def real(response: str, key: str, *, tolerance: float | None = None, **_) -> str:
    """Compares numbers within a relative tolerance, or half a unit of the last decimal of the right one."""
    rules = Rules(tolerance=tolerance, decimals=True, formulas=False)
    return _decided(number(response), number(key), rules)


def listing(
    response: str, key: str, *, ordered: bool | None = None, tolerance: float | None = None, **_
) -> str:
    r"""Compares lists, numbers within the relative `tolerance`.

    By default the order counts if `key` is neither written \{...\} nor with "or".
    """
    right = reading.read(key, thousands=", " in key or ";" in key)
    rules = Rules(tolerance, decimals=True, lists=True, ordered=ordered, formulas=False)
    # "[1,000, 2]" has two elements or three: both readings are tried.
    readings = dict.fromkeys(reading.read(response, thousands=x) for x in (False, True))
    reasons = [_decided(value, right, rules) for value in readings]
    return "ok" if "ok" in reasons else reasons[-1]


def expression(response: str, key: str, **_) -> str:
    """Compares formulas, equations, inequalities, sets and names."""
    right, value = (
        reading.read(x) if len(x) <= answers.MAX_LENGTH else None for x in (key, response)
    )
    is_prose = isinstance(value, Words) and not isinstance(right, Words)
    reason = _decided(None if is_prose else value, right, Rules())
    # Next to a quantity, a letter after a number is a unit and not a factor: 50 cm is 0.5 m.
    return "ok" if reason != "ok" and _is_alike(response, key) else reason


def number(text: str) -> Number | None:
    """Returns the number in a text: alone, with a name, or at the end of a true chain of constants."""
    value = reading.read(text, numeric=True)
    if isinstance(value, Relation):
        equation = matching.named(value, Rules(formulas=False))
        value = equation and equation.value
    return value if isinstance(value, Number) else None


def _decided(response: Value | None, key: Value | None, rules: Rules) -> str:
    if key is None or (isinstance(key, Collection) and rules.lists and not key.items):
        return "bad_key"
    if response in (None, Collection(Kind.CLOSED, ())):
        return "unreadable"
    return "ok" if matching.same(response, key, rules) else "different"


KINDS = {
    "choice": choice,
    "yesno": yesno,
    "int": integer,
    "float": real,
    "text": text,
    "list": listing,
    "expr": expression,
}
