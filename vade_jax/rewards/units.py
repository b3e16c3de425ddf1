"""Reads units after a number, and converts between them (by pint).

Only words in the table are units, so no letter of a formula is taken for one. The case of prefixes counts: mm
is not Mm, and mW is not MW.
"""

import functools
import re
from fractions import Fraction
from typing import Any

from vade_jax.rewards.tokens import Cursor, Unread

# What is written: what pint calls it; "" counts things and has no dimension.
_WORDS = """
m meter metre:meter  inch inches in:inch  foot feet ft:foot  yard yd:yard  mile mi:mile  g gram gramme:gram
lb lbs pound:pound  oz ounce:ounce  t ton tonne:tonne  s sec second:second  min minute:minute
h hr hrs hour:hour  day:day  week:week  month:month  year yr yrs:year  L l liter litre:liter
N newton:newton  J joule:joule  W watt:watt  V volt:volt  A amp ampere:ampere  C coulomb:coulomb
Hz hertz:hertz  K kelvin:kelvin  Pa pascal:pascal  mol mole:mole  ohm \\Omega Ω:ohm  T tesla:tesla
F farad:farad  eV:electron_volt  cal calorie:calorie  mph:mile/hour  kph kmph kmh:kilometer/hour
deg degree \\degree:degree  rad radian:radian  acre:acre  hectare ha:hectare  gallon gal:gallon  pint:pint
quart:quart  cup:cup  bit:bit  byte:byte  bar:bar  atm:atm  rpm:revolution/minute  cc:centimeter**3
celsius \\celsius:degC  fahrenheit \\fahrenheit:degF  \\$ dollar usd USD buck:dollar  cent \\cent:cent_coin
\\€ euro eur EUR:euro  \\£:pound_sterling  \\¥ yen yuan rmb RMB:yen unit point object item people person
student child children men women boys girls way time book apple marble cookie ball card coin ticket car
piece page box boxes bag tree egg side face edge vertex vertices triangle tile cube block animal dog cat
bird fish flower pencil pen chair table house player team game step round outcome solution digit:
"""
_PREFIXES = {"m": "milli", "c": "centi", "k": "kilo", "d": "deci", "M": "mega", "G": "giga"}
_PREFIXES |= {"μ": "micro", "µ": "micro", "\\mu": "micro", "n": "nano", "p": "pico"}
_PREFIXED = """
m g s L l N J W V A C Hz Pa mol Ω \\Omega ohm eV cal bar byte F meter metre gram liter litre watt joule volt pascal hertz calorie
"""
_PREFIXED = set(_PREFIXED.split())
UNITS = {
    word: name for words, name in re.findall(r"([^:]+):(\S*)", _WORDS) for word in words.split()
}
UNITS |= {
    prefix + word: f"{long}{UNITS[word]}"
    for word in sorted(_PREFIXED)
    for short, long in _PREFIXES.items()
    for prefix in ((short,) if len(word) < 4 else (long,))
}
UNITS = {f"{word}s": name for word, name in UNITS.items() if len(word) > 2} | UNITS
UNITS |= {"cm": "centimeter", "km": "kilometer", "mm": "millimeter", "kg": "kilogram"}
# Meters, Feet; no \omega for \Omega
LONG = {word.lower(): name for word, name in UNITS.items() if len(word) > 3 and word.isalpha()}
# In a formula these are products of letters, unless they stand upright.
_PRODUCTS = "mg ms mA mV mJ pA in min gal ha ml cal eV kW pm ns"
PRODUCTS = set(_PRODUCTS.split())
THINGS = "dimensionless"  # what pint calls the unit of things that the table does not know
_NO_THINGS = """
plus minus times less perhaps always across versus does thus gas lens series ones twos threes fours fives sixes sevens
lakhs crores factorials negatives equals logs sins cosines this sometimes eights nines tens dozens scores hundreds thousands millions billions trillions percents quarters radians
"""
_NO_THINGS = set(_NO_THINGS.split())
SCALES = {"k": 3, "K": 3, "M": 6, "B": 9, "bn": 9}
SCALES |= {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}


@functools.lru_cache(maxsize=1)
def _registry():
    import pint  # a quarter of a second, for those who need it

    exact: Any = Fraction
    registry = pint.UnitRegistry(non_int_type=exact, cache_folder=None)
    for name in ("dollar", "euro", "pound_sterling", "yen"):
        registry.define(f"{name} = [currency_{name}]")
    registry.define("cent_coin = dollar/100")
    return registry


@functools.lru_cache(maxsize=4096)
def convert(value: Fraction, unit: str, wanted: str) -> Fraction | None:
    """Returns an amount of `unit` in `wanted`; None if they measure different things.

    Raises:
        RuntimeError: pint is not installed.
    """
    try:
        registry = _registry()
    except ImportError as error:
        raise RuntimeError("units are converted by pint: pip install 'pint>=0.24.4'") from error
    try:
        return Fraction(registry.Quantity(value, unit).to(wanted).magnitude)
    except Exception:  # pint has an error for each way in which units do not fit
        return None


# ------------------------------------------------------------------------------ reading
def behind(c: Cursor, *, look: bool = False) -> tuple[str, str | None, bool] | None:
    """Reads (scale, unit, whether a percent sign) up to the end of the side; None if it is not that.

    With `look` it stays before it.
    """
    if c.ends() or c.offset:
        return None
    start, scale = c.at, ""
    found = None
    try:
        if c.peek() in SCALES and _may_stand(c, c.peek()) and not _is_of_unit(c):
            scale = c.take()
        percent = bool(c.accept("%", "percent", "pct"))
        unit = _unit_phrase(c)
        found = (scale, unit, percent) if c.ends() and c.at > start else None
    except Unread:
        pass
    if look or found is None:
        c.at, c.offset = start, 0
    return found


def _is_of_unit(c: Cursor) -> bool:
    r"""Returns whether a letter is no scale: the K of 300 K, not of 300K or $300 K; the k of k\Omega."""
    token = c.tokens[c.at]
    is_kelvin = token.text == "K" and (token.spaced or token.roman) and not c.unit
    return is_kelvin or c.peek(1) == "\\Omega"


def _may_stand(c: Cursor, word: str) -> bool:
    """Returns whether a word is a unit or a scale here, and no product of letters."""
    token = c.tokens[c.at]
    if c.numeric or token.roman or token.kind == "sign":
        return True
    if [c.peek(i) for i in range(3)] == ["m", "/", "s"]:
        return token.spaced
    if word in PRODUCTS or len(word) < 2:
        return False
    return token.spaced or len(word) > 2 or word in ("cm", "mm", "km", "kg", "ft")


def _unit_phrase(c: Cursor) -> str | None:
    """Reads units with powers and fractions, up to the end of the side: cm^2, km/h, feet per second."""
    parts, sign, power, joined = [], "*", "", ""
    for _ in range(12):
        if c.accept("square", "sq"):
            power = "**2"
            c.accept(".")
        elif c.accept("cubic"):
            power = "**3"
        word = c.peek()
        name = UNITS.get(word, LONG.get(word.lower()))
        if name is None and word in _PREFIXES and c.peek(1) in _PREFIXED:  # k\Omega, \mu m
            c.take()
            name, word = _PREFIXES[word] + UNITS[c.peek()], c.peek()
        if name is None and not parts and c.numeric and _is_counted(word):
            name = THINGS
        if name is None or not (parts or _may_stand(c, word)):
            break
        c.take()
        c.accept(".")
        if word == "\\degree" and c.peek() in ("C", "F"):
            name = "deg" + c.take()
        power = _unit_power(c) or power
        parts.append((sign, f"({name}){power}" if name and power else name))
        power = ""
        joined = c.accept("/", "per", "\\times")
        sign = "/" if joined in ("/", "per") else "*"
    if joined or power:
        raise Unread
    known = "".join(sign + name for sign, name in parts if name).lstrip("*")
    return f"1{known}" if known.startswith("/") else known if parts else None


def _is_counted(word: str) -> bool:
    """Returns whether a word is a plural of things, such as ducks, which have no dimension; not tenths."""
    is_plural = re.fullmatch(r"[a-z]{3,}(?<!s)s", word) is not None
    return is_plural and word not in _NO_THINGS and not word.endswith(("ths", "rds", "lves"))


def _unit_power(c: Cursor) -> str:
    if c.peek() in ("squared", "cubed"):
        return "**2" if c.take() == "squared" else "**3"
    if not c.accept("^"):
        return ""
    braced = c.accept("{")
    exponent = c.accept("-") + c.take("1", "2", "3")
    if braced:
        c.take("}")
    return f"**{exponent}"
