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
mile mi 英里: 1609.344 m | km 公里: 1000 m | dm 分米: .1 m | acre: 4046.8564224 m^2 | hectare ha 公顷: 10000 m^2
L l liter litre 升: .001 m^3 | cc: .000001 m^3 | gallon gal: .003785411784 m^3 | cup: .0002365882365 m^3
g gram gramme 克: g | 公斤: 1000 g | 斤: 500 g | t ton tonne 吨: 1000000 g
lb lbs pound 磅: 453.59237 g | oz ounce 盎司: 28.349523125 g
s sec second 秒: s | min minute 分 分钟: 60 s | h hr hrs hour 小时 时: 3600 s | day 天 日: 86400 s
week 周 星期: 604800 s | month 月 个月: 2629800 s | year yr yrs 年: 31557600 s | Hz hertz 赫兹: s^-1
rpm: 1/60 s^-1 | mph: .44704 m s^-1 | kph kmph kmh: 5/18 m s^-1
N newton 牛 牛顿: 1000 g m s^-2 | J joule 焦 焦耳: 1000 g m^2 s^-2 | W watt 瓦: 1000 g m^2 s^-3
Pa pascal 帕: 1000 g m^-1 s^-2 | cal calorie 卡: 4184 g m^2 s^-2 | eV: eV | F farad: F | T tesla: T
V volt 伏: V | A amp ampere 安: A | ohm \Omega 欧: V A^-1 | C coulomb: A s | mol mole 摩尔: mol | K kelvin: K
celsius \celsius 摄氏度: celsius | fahrenheit \fahrenheit: fahrenheit | deg degree \degree 度: degree
rad radian: radian | bit: bit | byte: byte | bar: 100000000 g m^-1 s^-2 | atm: 101325000 g m^-1 s^-2
\$ dollar usd USD buck 美元: dollar | cent \cent: .01 dollar | \€ euro eur EUR 欧元: euro | \£: sterling
\¥ yen yuan rmb RMB 元 块 人民币: yuan | 角 毛: .1 yuan
point item people person child children men women way time 个 只 人 名 位 本 张 条 件 次 棵 种 辆 岁 份:
"""
_PREFIXES = {"m": -3, "c": -2, "k": 3, "d": -1, "M": 6, "G": 9, "\\mu": -6, "n": -9, "p": -12}
_PREFIXES |= {"milli": -3, "centi": -2, "kilo": 3, "deci": -1, "mega": 6, "giga": 9, "micro": -6}
_PREFIXES |= {"nano": -9, "千": 3, "毫": -3, "厘": -2, "微": -6}
_PREFIXED = r"m g s l L N J W V A C Hz Pa mol \Omega eV cal bar byte F 米 克 升 瓦 帕 伏 安 卡 meter metre gram liter"
_PREFIXED = {*_PREFIXED.split(), "litre", "watt", "joule", "volt", "pascal", "hertz", "calorie"}
_SHORT = {"cm", "mm", "km", "kg", "ft"}  # no products of letters
_NO_THINGS = """
plus minus times less perhaps always across versus does thus gas lens series ones twos threes fours fives sixes
sevens eights nines tens dozens scores hundreds thousands millions billions trillions percents lakhs crores
factorials negatives equals logs sins cosines this sometimes quarters radians
"""
_NO_THINGS = set(_NO_THINGS.split())
SCALES = {"k": 3, "K": 3, "M": 6, "B": 9, "bn": 9, "万": 4, "亿": 8}
SCALES |= {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_POWERS = {"square": 2, "sq": 2, "平方": 2, "squared": 2, "cubic": 3, "立方": 3, "cubed": 3}
THINGS = Unit(Fraction(1), ())
MINUTE = Unit(Fraction(1, 60), (("degree", 1),))  # of an angle


def _defined(entry: str) -> dict[str, Unit]:
    words, definition = entry.split(":")
    parts = definition.split()
    number = parts.pop(0) if parts and re.match(r"[.\d]", parts[0]) else "1"
    powers = [(base, int(power or 1)) for base, _, power in (x.partition("^") for x in parts)]
    return dict.fromkeys(words.split(), Unit(Fraction(number), tuple(sorted(powers))))


UNITS = {
    word: unit
    for entry in re.split(r"[|\n]", _TABLE.strip())
    for word, unit in _defined(entry).items()
}


@functools.lru_cache(maxsize=4096)
def named(word: str) -> Unit | None:
    """Returns the unit of a word: of the table, with a prefix, or of four letters in any case or number."""
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


def times(unit: Unit, other: Unit, power: int) -> Unit:
    """Returns a unit times a power of another."""
    bases = dict(unit.bases)
    for base, exponent in other.bases:
        bases[base] = bases.get(base, 0) + exponent * power
    kept = tuple(sorted((base, n) for base, n in bases.items() if n))
    return Unit(unit.factor * other.factor**power, kept)


class UnitReader(Cursor):
    """Reads what follows a number."""

    unit: Unit | None

    def suffix(self, *, look: bool = False) -> tuple[str, Unit | None, bool] | None:
        """Reads (scale, unit, whether a percent sign) up to the end of the side; None if it is not that.

        With `look` it stays before it.
        """
        if self.ends() or self.offset:
            return None
        start, scale, found = self.at, "", None
        token, of_unit = self.tokens[start], self.peek(1) == "\\Omega"
        # 300 K are kelvin, not 300K or $300 K
        of_unit |= token.text == "K" and (token.spaced or token.roman) and not self.unit
        try:
            if token.text in SCALES and self._may_stand(token.text) and not of_unit:
                scale = self.take()
            percent = bool(self.accept("%", "percent", "pct"))
            unit = self._phrase()
            found = (scale, unit, percent) if self.ends() and self.at > start else None
        except Unread:
            pass
        if look or found is None:
            self.at, self.offset = start, 0
        return found

    def _may_stand(self, word: str) -> bool:
        """Returns whether a word is a unit or a scale here, and no product of letters."""
        token = self.tokens[self.at]
        if self.numeric or token.roman or token.kind == "sign" or word[0] > "\u2fff":
            return True
        if [word, self.peek(1), self.peek(2)] == ["m", "/", "s"]:
            return token.spaced
        return len(word) > 2 or word in _SHORT

    def _phrase(self) -> Unit | None:
        """Reads units with powers and fractions: cm^2, km/h, feet per second; "per day" after a currency."""
        joined = self.accept("per", "/", "a") if self.unit else ""
        found = self.unit if joined else None
        for _ in range(12):
            if power := _POWERS.get(self.accept(*_POWERS), 0):
                self.accept(".")
            word = self.peek()
            if word in ("unit", "units"):  # of anything
                self.take()
                self._exponent()
                joined = ""
                continue
            unit = named(word)
            if unit is None and word in _PREFIXES and self.peek(1) in _PREFIXED:  # k\Omega, \mu m
                unit, word = named(self.take() + self.peek()), self.peek()
            if unit is None and not found and self._is_counted(word):
                unit = THINGS
            if unit is None or not (found or self._may_stand(word)):
                if joined or power:
                    raise Unread
                break
            self.take()
            self.accept(".")
            if word == "\\degree" and self.peek() in ("C", "F"):
                unit = UNITS["celsius" if self.take() == "C" else "fahrenheit"]
            if self.kind() == "letters" and self.peek()[0] > "\u2fff" and not unit.bases:
                self.take()  # 3 个苹果
            sign = -1 if joined in ("/", "per", "a") else 1
            found = times(found or THINGS, unit, sign * (self._exponent() or power or 1))
            joined = self.accept("/", "per", "\\times")
        return found

    def _is_counted(self, word: str) -> bool:
        """Returns whether a word is a plural of things, such as ducks, which measure nothing; not tenths."""
        is_plural = re.fullmatch(r"[a-z]{3,}(?<!s)s(?<!ths)(?<!rds)(?<!lves)", word) is not None
        return is_plural and word not in _NO_THINGS and (self.numeric or self.tokens[self.at].roman)

    def _exponent(self) -> int:
        if not self.accept("^"):
            return _POWERS.get(self.accept("squared", "cubed"), 0)
        braced = self.accept("{")
        exponent = int(self.accept("-") + self.take("1", "2", "3"))
        if braced:
            self.take("}")
        return exponent
