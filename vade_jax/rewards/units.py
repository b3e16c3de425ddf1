"""Reads units after a number, as words of a table; no letter of a formula is taken for one.

The case of prefixes counts: mm is not Mm, and mW is not MW.
"""

import functools
import re
from fractions import Fraction

from vade_jax.rewards.tokens import Cursor, Unread
from vade_jax.rewards.values import Unit

# Names: how many of which base units.
_TABLE = r"""
m meter metre 米: m | inch inches in 英寸: .0254 m | foot feet ft 英尺: .3048 m | yard yd: .9144 m
mile mi 英里: 1609.344 m | 里: 500 m | km 公里: 1000 m | dm 分米: .1 m | acre: 4046.8564224 m^2
hectare ha 公顷: 10000 m^2 | 亩: 2000/3 m^2 | L l liter litre 升: .001 m^3 | cc: .000001 m^3
gallon gal: .003785411784 m^3 | quart: .000946352946 m^3 | pint: .000473176473 m^3 | cup: .0002365882365 m^3
g gram gramme 克: g | 公斤: 1000 g | 斤: 500 g | t ton tonne 吨: 1000000 g
lb lbs pound 磅: 453.59237 g | oz ounce 盎司: 28.349523125 g
s sec second 秒 秒钟: s | min minute 分 分钟: 60 s | h hr hrs hour 小时 时: 3600 s | day 天 日: 86400 s
week 周 星期: 604800 s | month 月 个月: 2629800 s | year yr yrs 年: 31557600 s | Hz hertz 赫兹: s^-1
rpm: 1/60 s^-1 | mph: .44704 m s^-1 | kph kmph kmh: 5/18 m s^-1
N newton 牛 牛顿: 1000 g m s^-2 | J joule 焦 焦耳: 1000 g m^2 s^-2 | W watt 瓦: 1000 g m^2 s^-3
Pa pascal 帕: 1000 g m^-1 s^-2 | bar: 100000000 g m^-1 s^-2 | atm: 101325000 g m^-1 s^-2
cal calorie 卡: 4184 g m^2 s^-2 | eV: eV | V volt 伏 伏特: V | A amp ampere 安 安培: A
ohm \Omega Ω 欧 欧姆: V A^-1 | C coulomb: A s | F farad: F | T tesla: T | mol mole 摩尔: mol
K kelvin: K | celsius \celsius 摄氏度: celsius | fahrenheit \fahrenheit: fahrenheit
deg degree \degree 度: degree | rad radian: radian | bit: bit | byte: byte
\$ dollar usd USD buck 美元: dollar | cent \cent: .01 dollar | \€ euro eur EUR 欧元: euro | \£: sterling
\¥ yen yuan rmb RMB 元 块 人民币: yuan | 角 毛: .1 yuan
unit point item people person child children men women way time 个 只 人 名 位 本 张 条 件 次 棵 种 辆 岁 份:
"""
_PREFIXES = {"m": -3, "c": -2, "k": 3, "d": -1, "M": 6, "G": 9, "μ": -6, "µ": -6, "\\mu": -6, "n": -9}
_PREFIXES |= {"p": -12, "milli": -3, "centi": -2, "kilo": 3, "deci": -1, "mega": 6, "giga": 9}
_PREFIXES |= {"micro": -6, "nano": -9, "pico": -12, "千": 3, "毫": -3, "厘": -2, "微": -6, "兆": 6}
_PREFIXED = r"""
m g s l L N J W V A C Hz Pa mol Ω \Omega ohm eV cal bar byte F 米 克 升 瓦 帕 伏 安 卡 meter metre gram liter
litre watt joule volt pascal hertz calorie
"""
_PREFIXED = set(_PREFIXED.split())
# In a formula these are products of letters, unless they stand upright.
_PRODUCTS = set("mg ms mA mV mJ pA in min gal ha ml cal eV kW pm ns".split())
_SHORT = set("cm mm km kg ft".split())  # no products
THINGS = Unit(Fraction(1), ())
_NO_THINGS = """
plus minus times less perhaps always across versus does thus gas lens series ones twos threes fours fives sixes
sevens eights nines tens dozens scores hundreds thousands millions billions trillions percents lakhs crores
factorials negatives equals logs sins cosines this sometimes quarters radians
"""
_NO_THINGS = set(_NO_THINGS.split())
SCALES = {"k": 3, "K": 3, "M": 6, "B": 9, "bn": 9, "万": 4, "亿": 8}
SCALES |= {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}


def _defined() -> dict[str, Unit]:
    units = {}
    for entry in re.split(r"[|\n]", _TABLE.strip()):
        words, definition = entry.split(":")
        parts = definition.split()
        number = parts.pop(0) if parts and re.match(r"[.\d]", parts[0]) else "1"
        powers = [(base, int(power or 1)) for base, _, power in (x.partition("^") for x in parts)]
        units |= dict.fromkeys(words.split(), Unit(Fraction(number), tuple(sorted(powers))))
    return units


UNITS = _defined()


@functools.lru_cache(maxsize=4096)
def named(word: str) -> Unit | None:
    """Returns the unit of a word: in the table, with a prefix, or from four letters on in any case or number."""
    if word in UNITS:
        return UNITS[word]
    for prefix, power in _PREFIXES.items():
        rest = word.removeprefix(prefix)
        is_long = len(rest) > 3 and rest.isalpha()
        if rest in _PREFIXED and rest != word and (len(prefix) > 3) == is_long:
            return Unit(UNITS[rest].factor * Fraction(10) ** power, UNITS[rest].bases)
    if len(word) > 3 and word != word.lower():
        return named(word.lower())
    return named(word[:-1]) if len(word) > 3 and word.endswith("s") else None


def times(unit: Unit, other: Unit, power: int = 1) -> Unit:
    """Returns a unit times a power of another."""
    bases = dict(unit.bases)
    for base, exponent in other.bases:
        bases[base] = bases.get(base, 0) + exponent * power
    kept = tuple(sorted((base, n) for base, n in bases.items() if n))
    return Unit(unit.factor * other.factor**power, kept)


# ------------------------------------------------------------------------------ reading
def behind(c: Cursor, *, look: bool = False) -> tuple[str, Unit | None, bool] | None:
    """Reads (scale, unit, whether a percent sign) up to the end of the side; None if it is not that.

    With `look` it stays before it.
    """
    if c.ends() or c.offset:
        return None
    start, scale, found = c.at, "", None
    try:
        if c.peek() in SCALES and _may_stand(c, c.peek()) and not _is_of_unit(c):
            scale = c.take()
        percent = bool(c.accept("%", "percent", "pct"))
        unit = _phrase(c)
        found = (scale, unit, percent) if c.ends() and c.at > start else None
    except Unread:
        pass
    if look or found is None:
        c.at, c.offset = start, 0
    return found


def single(c: Cursor) -> Unit | None:
    """Reads one unit without a power, of 5 ft 6 in; None if there is none."""
    unit = named(c.peek()) if c.kind() == "letters" and not c.offset else None
    if unit is not None and unit.bases:
        c.take()
        c.accept(".")
        return unit
    return None


def _is_of_unit(c: Cursor) -> bool:
    r"""Returns whether a letter is no scale: the K of 300 K, not of 300K or $300 K; the k of k\Omega."""
    token = c.tokens[c.at]
    is_kelvin = token.text == "K" and (token.spaced or token.roman) and not c.unit
    return is_kelvin or c.peek(1) == "\\Omega"


def _may_stand(c: Cursor, word: str) -> bool:
    """Returns whether a word is a unit or a scale here, and no product of letters."""
    token = c.tokens[c.at]
    if c.numeric or token.roman or token.kind == "sign" or word[0] > "\u2fff":
        return True
    if [c.peek(i) for i in range(3)] == ["m", "/", "s"]:
        return token.spaced
    if word in _PRODUCTS or len(word) < 2:
        return False
    return token.spaced or len(word) > 2 or word in _SHORT


def _phrase(c: Cursor) -> Unit | None:
    """Reads units with powers and fractions: cm^2, km/h, feet per second; after a currency also "per day"."""
    found, joined = None, c.accept("per", "/", "a") if c.unit else ""
    for _ in range(12):
        power = 0
        if c.accept("square", "sq", "平方"):
            power = 2
            c.accept(".")
        elif c.accept("cubic", "立方"):
            power = 3
        word = c.peek()
        unit = named(word)
        if unit is None and word in _PREFIXES and c.peek(1) in _PREFIXED:  # k\Omega, \mu m
            unit, word = named(c.take() + c.peek()), c.peek()
        if unit is None and not found and (c.numeric or c.is_roman()) and _is_counted(word):
            unit = THINGS
        if unit is None or not (found or joined or _may_stand(c, word)):
            if joined or power:
                raise Unread
            break
        c.take()
        c.accept(".")
        if word == "\\degree" and c.peek() in ("C", "F"):
            unit = UNITS["celsius" if c.take() == "C" else "fahrenheit"]
        if c.kind() == "letters" and c.peek()[0] > "\u2fff" and not unit.bases:
            c.take()  # 3 个苹果
        power = _power(c) or power or 1
        sign = -1 if joined in ("/", "per", "a") else 1
        found = times(found or (c.unit if joined and c.unit else THINGS), unit, sign * power)
        joined = c.accept("/", "per", "\\times")
    if joined:
        raise Unread
    return found


def _is_counted(word: str) -> bool:
    """Returns whether a word is a plural of things, such as ducks, which have no dimension; not tenths."""
    is_plural = re.fullmatch(r"[a-z]{3,}(?<!s)s", word) is not None
    return is_plural and word not in _NO_THINGS and not word.endswith(("ths", "rds", "lves"))


def _power(c: Cursor) -> int:
    if c.peek() in ("squared", "cubed"):
        return 2 if c.take() == "squared" else 3
    if not c.accept("^"):
        return 0
    braced = c.accept("{")
    exponent = c.accept("-") + c.take("1", "2", "3")
    if braced:
        c.take("}")
    return int(exponent)
