"""Reads units after a number by a table of words; a letter of a formula is not taken for a unit.

The case of prefixes counts: mm is not Mm, and mW is not MW.
"""

import re
from fractions import Fraction

from vade_jax.rewards.tokens import Cursor, Unread
from vade_jax.rewards.values import Unit

# Names: value in base units. Names after ~ may have a prefix of the same kind, long or short.
_TABLE = r"""
~m ~meter ~metre ~米: m | inch inches in 英寸: .0254 m | foot feet ft 英尺: .3048 m | yard yd: .9144 m
mile mi 英里: 1609.344 m | 公里: 1000 m | acre: 4046.8564224 m^2 | hectare ha 公顷: 10000 m^2
~L ~l ~liter ~litre ~升: .001 m^3 | cc: .000001 m^3 | gallon gal: .003785411784 m^3 | cup: .0002365882365 m^3
~g ~gram gramme ~克: g | 公斤: 1000 g | 斤: 500 g | t ton tonne 吨: 1000000 g | lb lbs pound 磅: 453.59237 g
oz ounce 盎司: 28.349523125 g | ~s sec second 秒: s | min minute 分 分钟: 60 s | h hr hrs hour 小时 时: 3600 s
day 天 日: 86400 s | week 周 星期: 604800 s | month 月 个月: 2629800 s | year yr yrs 年: 31557600 s
~Hz ~hertz 赫兹: s^-1 | rpm: 1/60 s^-1 | mph: .44704 m s^-1 | kph kmph kmh: 5/18 m s^-1
~N newton 牛 牛顿: 1000 g m s^-2 | ~J ~joule 焦 焦耳: 1000 g m^2 s^-2 | ~W ~watt ~瓦: 1000 g m^2 s^-3
~Pa ~pascal ~帕: 1000 g m^-1 s^-2 | ~cal ~calorie ~卡: 4184 g m^2 s^-2 | ~eV: eV | ~F farad: F | T tesla: T
~V ~volt ~伏: V | ~A amp ampere ~安: A | ohm ~\Omega 欧: V A^-1 | ~C coulomb: A s | ~mol mole 摩尔: mol
K kelvin: K | celsius \celsius 摄氏度: celsius | fahrenheit \fahrenheit: fahrenheit
deg degree \degree 度: degree | rad radian: radian | bit: bit | ~byte: byte | ~bar: 100000000 g m^-1 s^-2
unit: unit | atm: 101325000 g m^-1 s^-2 | \$ dollar usd USD buck 美元: dollar | cent \cent: .01 dollar
\€ euro eur EUR 欧元: euro | \£: sterling | \¥ yen yuan rmb RMB 元 块 人民币: yuan | 角 毛: .1 yuan
point item people person child children men women way time 个 只 人 名 位 本 张 条 件 次 棵 种 辆 岁 份:
"""
_PREFIXES = r"""
m milli 毫 -3: c centi 厘 -2: d deci 分 -1: k kilo 千 3: M mega 兆 6: G giga 吉 9: \mu micro 微 -6: n nano 纳 -9
p pico 皮 -12
"""
_PREFIXES = [prefix.split() for prefix in re.split("[:\n]", _PREFIXES.strip())]
_SHORT = {"cm", "mm", "km", "kg", "ft"}  # not products of letters
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


def _read_table() -> dict[str, Unit]:
    table: dict[str, Unit] = {}
    for entry in re.split(r"[|\n]", _TABLE.strip()):
        words, definition = entry.split(":")
        _, number, powers = re.split(r"^\s*([.\d/]*)", definition)
        bases = (power.partition("^") for power in powers.split())
        unit = Unit(Fraction(number or 1), tuple(sorted((x, int(n or 1)) for x, _, n in bases)))
        for word in words.split():
            name = word.lstrip("~")
            table[name] = unit
            sort = 2 if name > "\u2fff" else int(len(name) > 3 and name.isalpha())
            for *prefixes, power in _PREFIXES if word != name else ():
                factor = unit.factor * Fraction(10) ** int(power)
                table.setdefault(prefixes[sort] + name, Unit(factor, unit.bases))
    return table


UNITS = _read_table()


def named(word: str) -> Unit | None:
    """Returns the unit of a word in the table; with four letters or more, in any case, singular or plural."""
    lower = word.lower()
    forms = (word, lower, lower.removesuffix("s")) if len(word) > 3 else (word,)
    return next((UNITS[form] for form in forms if form in UNITS), None)


def times(unit: Unit, other: Unit, power: int) -> Unit:
    """Returns a unit times a power of another."""
    bases = dict(unit.bases)
    for base, exponent in other.bases:
        bases[base] = bases.get(base, 0) + exponent * power
    return Unit(
        unit.factor * other.factor**power, tuple(sorted((x, n) for x, n in bases.items() if n))
    )


class UnitReader(Cursor):
    """Reads what follows a number."""

    unit: Unit | None

    def suffix(self, *, look: bool = False) -> tuple[str, Unit | None, bool] | None:
        """Reads (scale, unit, whether there is a percent sign) up to the end of the side, or returns None.

        With `look` it does not move on.
        """
        if self.ends() or self.offset:
            return None
        start, token, parsed = self.at, self.tokens[self.at], None
        # 300 K are kelvin, not 300K or $300 K
        is_kelvin = token.text == "K" and (token.spaced or token.roman) and not self.unit
        is_unit = is_kelvin or self.peek(1) == "\\Omega"
        is_scale = token.text in SCALES and self._may_stand(token.text) and not is_unit
        try:
            scale = self.take() if is_scale else ""
            percent = bool(self.accept("%", "percent", "pct"))
            unit = self._phrase()
            parsed = (scale, unit, percent) if self.ends() and self.at > start else None
        except Unread:
            pass
        if look or parsed is None:
            self.at = start
        return parsed

    def _may_stand(self, word: str) -> bool:
        """Returns whether a word is a unit or a scale here, not a product of letters."""
        token = self.tokens[self.at]
        is_clear = self.numeric or token.roman or token.kind == "sign" or word[0] > "\u2fff"
        is_speed = token.spaced and [word, self.peek(1), self.peek(2)] == ["m", "/", "s"]
        return is_clear or is_speed or len(word) > 2 or word in _SHORT

    def _phrase(self) -> Unit | None:
        """Reads units with powers and fractions: cm^2, km/h, feet per second; "per day" after a currency."""
        joined = self.accept("per", "/", "a") if self.unit else ""
        parsed = self.unit if joined else None
        for _ in range(12):
            if power := _POWERS.get(self.accept(*_POWERS), 0):
                self.accept(".")
            word = self.peek()
            unit = named(word)
            if unit is None and (unit := named(word + self.peek(1))):  # k\Omega, \mu m
                self.take()
                word = self.peek()
            elif unit is None and not parsed and self._is_counted(word):
                unit = THINGS
            if unit is None or not (parsed or self._may_stand(word)):
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
            parsed = times(parsed or THINGS, unit, sign * (self._exponent() or power or 1))
            joined = self.accept("/", "per", "\\times")
        return None if parsed and "unit" in dict(parsed.bases) else parsed  # of anything

    def _is_counted(self, word: str) -> bool:
        """Returns whether a word is a plural of counted things, such as ducks, but not tenths."""
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
