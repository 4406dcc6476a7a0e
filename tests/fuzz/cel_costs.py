"""Time of every function, operator and macro of CEL against the cost that is charged for it.

No operation may take more than ten times as long as counting its units one by one, measured in the same process. The
arguments are hostile: long, repetitive, almost valid, and different each time, so that no cache helps.
"""

import random
import string
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter, thread_time
from typing import Any, TypeAlias

from rules_engine.language.cel import (
    Budget,
    CelProblems,
    Environment,
    EvaluationError,
    Program,
    compile_expression,
    types,
)
from rules_engine.language.cel.budget import MAX_RESULT_ITEMS
from rules_engine.language.cel.library import dialect_functions
from rules_engine.language.cel.values.functions import Overload
from rules_engine.language.cel.values.operators import SIGNATURES
from rules_engine.language.cel.values.runtime_values import Duration, Optional, Timestamp, Uint
from rules_engine.language.cel.values.types import PARAMETERS, Type
from rules_engine.model.problems.source import SourceText
from tests.support.budgets import units_spent

LIMIT = 10
"""Largest ratio of the time of an operation to the time of counting its units."""

ATTEMPTS = 3
"""Measurements of an operation that seems too slow: other processes may use the machine."""

SIZES = (0, 1, 4, 9, 10, 30, 60, 100, 250, 1_000, 4_000, 16_000, 64_000, 250_000, 1_000_000)
"""Characters of a text; a list has a tenth of them in elements."""

ENOUGH_SECONDS = 0.03
"""Time of an evaluation after which the size is not increased: quadratic operations end here and are reported."""

ROUND_CHARACTERS = 50_000
"""Characters of all values in a loop: small values are measured many times."""

MAX_ROUNDS = 200

FEW_UNITS = 200
"""Fewest units of a measured evaluation: its start takes a few microseconds."""

Maker: TypeAlias = Callable[[int, int], Any]
"""Function of a size in characters and a variant, which returns a different value for each variant."""


def _repeated(unit: str, last: str = "", first: str = "") -> Maker:
    """Repeat a unit, between a first and a last text."""

    def make(size: int, variant: int) -> str:
        body = (unit * (size // max(1, len(unit)) + 1))[: max(0, size - len(first) - len(last))]
        return f"{first}{body}{last}"

    return make


def _numbered(template: str) -> Maker:
    """Fill a template: `#` is a digit, `@` a hexadecimal digit. The size has no effect."""

    def make(_size: int, variant: int) -> str:
        digits = iter(f"{(variant * 7919 + 1) % 10**9:09d}"[::-1] * 20)
        hexadecimal = iter(f"{(variant * 104_729 + 1) % 16**8:08x}"[::-1] * 8)
        return "".join(next(digits) if c == "#" else next(hexadecimal) if c == "@" else c for c in template)

    return make


def _unlike(make: Maker) -> Maker:
    """Append the variant to the values."""
    return lambda size, variant: f"{make(max(0, size - 4), variant)}{variant:x}"


def _noise(alphabet: str) -> Maker:
    def make(size: int, variant: int) -> str:
        drawn = random.Random(variant)
        return "".join(drawn.choices(alphabet, k=min(size, 4_000))) * max(1, size // 4_000)

    return make


TEXTS: Mapping[str, Maker] = {
    "a…": _unlike(_repeated("a")),
    "a…b": _repeated("a", last="b"),
    "b a…": _repeated("a", first="b"),
    "a…ba…": lambda size, _: "a" * (size // 2) + "b" + "a" * (size // 2),
    "half b a…": lambda size, _: "b" + "a" * (size // 2),
    "half a…b": lambda size, _: "a" * (size // 2) + "b",
    "quarter a…ba…": lambda size, _: "a" * (size // 8) + "b" + "a" * (size // 8),
    "ab…": _unlike(_repeated("ab")),
    "a": lambda _size, _variant: "a",
    "empty": lambda _size, _variant: "",
    "é…": _repeated("é"),
    "é…a": _repeated("é", last="a"),
    "😀…": _repeated("😀"),
    "A…": _repeated("A"),
    "Éa…": _repeated("Éa"),
    "noise": _noise(string.ascii_letters),
    "bits": _noise("ab"),
    "punctuation": _noise(string.punctuation),
    "escapes": _repeated('\\"\n'),
    "spaces": _repeated(" "),
    "exotic spaces": _repeated("\u2003"),
    "9…": _unlike(_repeated("9")),
    "0…": _repeated("0", last="1"),
    "1.1…": _repeated("1.", first="1.0.0-", last="a"),
    "0.…": _repeated("0", first="0."),
    "1e…": _repeated("9", first="1e"),
    "number": _numbered("########"),
    "decimal": _numbered("-0.##############"),
    "double": _numbered("1.###############e-30#"),
    "quantity": _numbered("######.#########"),
    "long quantity": _numbered("##########################################.##e10"),
    "binary quantity": _numbered("########################################Ei"),
    "small quantity": _numbered("################################################e-99"),
    "bad quantity": _numbered("###################x"),
    "timestamp": _numbered("20##-01-0#T1#:##:##.#########Z"),
    "offset": _numbered("20##-01-0#T1#:##:##.#########+1#:##"),
    "duration": _numbered("1h#m#s#h#m#s#h#m#s#ms#us#ns#h#m#s"),
    "1ns…": lambda size, _: "1ns" * (min(size, 99) // 3),
    "semver": _numbered("##.##.##-rc.##+build.##"),
    "long semver": lambda size, variant: "1.0.0-" + "1." * (min(size, 980) // 2) + f"{variant:x}"[-1],
    "bad semver": lambda size, variant: "1.0.0-" + "1a." * (min(size, 980) // 3) + ".",
    "ip": _numbered("1##.1##.1##.##"),
    "ipv6": _numbered("@@@@:@@@@:@@@@:@@@@:@@@@:@@@@:@@@@:@@@@"),
    "mapped": _numbered("::ffff:@@@@:@@@@"),
    ":…": _repeated(":"),
    "::…": _repeated("0:", first="::"),
    "cidr": _numbered("1##.1##.1##.##/2#"),
    "cidr6": _numbered("@@@@:@@@@:@@@@:@@@@:@@@@:@@@@:@@@@:@@@@/6#"),
    "url": _numbered("https://user@www####.example.com:####/a/b####?c=####"),
    "url path": _repeated("a/", first="https://e.example/"),
    "url escapes": _repeated("%41", first="https://e.example/"),
    "url bad path": _repeated("é ", first="https://e.example/"),
    "url query": _repeated("a=b&", first="https://e.example/?"),
    "url query names": lambda size, _: "https://e/?" + "&".join(f"{i}" for i in range(size // 6)),
    "url query escapes": _repeated("%c3%a9+&", first="https://e.example/?"),
    "url host": _repeated("a.", first="https://"),
    "url host escapes": _repeated("%c3%a9", first="https://"),
    "url user": _repeated("a:", first="https://", last="@e"),
    "url @": _repeated("@", first="https://"),
    "url [": _repeated("[", first="https://"),
    "/…": _repeated("/"),
    "uuid": _numbered("@@@@@@@@-@@@@-@@@@-@@@@-@@@@@@@@@@@@"),
    "label": _repeated("a-", last="a"),
    "subdomain": _repeated("a.", last="a"),
    "bad subdomain": _repeated("a.", last="-"),
    "long label": _repeated("a", last="-"),
    "date": _numbered("20##-01-0#"),
    "base64": _repeated("QUFB"),
    "=…": _repeated("="),
    "bad base64": _repeated("QUFB", last="*"),
    "zone": lambda _size, variant: f"{'+-'[variant % 2]}{variant % 24:02d}:{variant // 24 % 60:02d}",
    "named zone": lambda _size, variant: ("Europe/Berlin", "America/New_York", "Asia/Kolkata")[variant % 3],
    "no zone": lambda size, variant: f"Zone{variant}",
    "format name": lambda _size, _variant: "dns1123Subdomain",
    "%s…": _repeated("%s"),
    "%%…": _repeated("%%"),
    "%d": lambda _size, _variant: "%d",
    "%.1000f": lambda _size, _variant: "%.1000f",
    "%x": lambda _size, _variant: "%x",
    "%s": lambda _size, _variant: "%s",
    # Patterns
    "a.*b|a": lambda _size, variant: f"a.*b|a|x{variant}",
    "(a?){500}b": lambda _size, variant: f"(a?){{{500 - variant % 100}}}b",
    "exponential": lambda _size, variant: f"(a|b)*a(a|b){{{10 + variant % 100}}}c",
    "groups": lambda _size, variant: f"((a+)|(b+)|(c+))*{variant % 1000}$",
    "[^x]+": lambda _size, variant: f"[^x]+|y{variant}",
    "[0-9]+": lambda _size, variant: f"[0-9]+|y{variant}",
    "\\pL": lambda _size, variant: f"(?i)[\\pL\\pN]+\\b|{variant}",
    "(?i)…": lambda size, variant: f"(?i)(?:{'[a-zé]' * (min(size, 900) // 6)}){{1,{1 + variant % 5}}}",
    "\\pL{n}": lambda size, variant: r"\pL{100}" * max(1, min(size, 900) // 8) + f"{variant % 10}",
    "a{1000}": lambda size, variant: f"{'a{1000}' * max(1, min(size, 40) // 7)}|{variant}",
    "nested repeats": lambda size, variant: "(" * (min(size, 300) // 3) + "a" + ")*" * (min(size, 300) // 3),
    "alternatives": lambda size, variant: "|".join(f"{i}a{variant % 7}" for i in range(max(1, min(size, 900) // 6))),
    "empty pattern": lambda _size, variant: f"|x{variant}",
    "\\B": lambda _size, variant: f"\\B|x{variant}",
    "word": lambda _size, variant: f"^gpu{variant}",
    "invalid pattern": lambda size, variant: "(" * min(size, 999) + f"{variant}",
}


def _texts_of(make: Maker) -> Maker:
    def made(size: int, variant: int) -> list[Any]:
        count = max(1, min(size // 10, MAX_RESULT_ITEMS))
        return [make(8, variant * 31 + place) for place in range(count)]

    return made


def _cells(make: Callable[[int, int, int], Any]) -> Maker:
    """Make lists of elements, each a function of the number of elements, the variant and its index."""

    def made(size: int, variant: int) -> list[Any]:
        count = min(size // 10, MAX_RESULT_ITEMS)
        return [make(count, variant, place) for place in range(count)]

    return made


def _nested(size: int, variant: int) -> list[Any]:
    made: list[Any] = [variant]
    for _ in range(min(size // 10, 200)):
        made = [made]
    return made


def _shared(size: int, variant: int) -> list[Any]:
    """Return a list that contains one long list many times."""
    return [[variant] * max(1, int(size**0.5))] * max(1, int(size**0.5) // 10)


def _long_texts(size: int, variant: int) -> list[Any]:
    """Return texts that differ only at their ends, as separate objects."""
    length = max(1, int(size**0.5))
    return ["a" * length + f"{variant}{place % 2}" for place in range(max(1, size // length // 10))]


LISTS: Mapping[str, Maker] = {
    "ints": _cells(lambda _count, variant, place: place + variant),
    "equal ints": _cells(lambda _count, variant, _place: variant),
    "falling ints": _cells(lambda count, variant, place: count - place),
    "shuffled ints": _cells(lambda _count, variant, place: (place * 7919 + variant) % 104_729),
    "uints": _cells(lambda _count, _variant, place: Uint(place)),
    "doubles": _cells(lambda _count, variant, place: (place * 7919 + variant) % 104_729 / 7),
    "mixed numbers": _cells(lambda _count, _variant, place: float(place) if place % 2 else place),
    "bools": _cells(lambda _count, _variant, place: place % 2 == 0),
    "nulls": _cells(lambda _count, _variant, _place: None),
    "texts": _texts_of(lambda _size, variant: f"{variant:x}"),
    "equal texts": _cells(lambda _count, _variant, _place: "a"),
    "empty texts": _cells(lambda _count, _variant, _place: ""),
    "texts of nine": _cells(lambda _count, variant, place: f"aaaaa{place % 10_000:04d}"),
    "long texts": _long_texts,
    "timestamps": _cells(lambda _count, _variant, place: Timestamp(place * 7919 % 104_729)),
    "durations": _cells(lambda _count, _variant, place: Duration(place * 7919 % 104_729)),
    "bytes": _cells(lambda _count, _variant, place: b"%d" % place),
    "lists": _cells(lambda _count, variant, place: [place, variant]),
    "empty lists": _cells(lambda _count, _variant, _place: []),
    "maps": _cells(lambda _count, variant, place: {"a": place, "b": variant}),
    "equal maps": _cells(lambda _count, _variant, _place: {"a": "b"}),
    "nested": _nested,
    "shared": _shared,
    "one text": lambda size, variant: ["a" * size + f"{variant}"],
    "one number": lambda _size, variant: [variant],
    "one double": lambda _size, variant: [1e308 / (variant + 1)],
    "no item": lambda _size, _variant: [],
}

MAPS: Mapping[str, Maker] = {
    "texts": lambda size, variant: {f"{place}": f"{variant}" for place in range(min(size // 10, MAX_RESULT_ITEMS))},
    "numbers": lambda size, variant: {f"key {place}": place for place in range(min(size // 10, MAX_RESULT_ITEMS))},
    "maps": lambda size, variant: {
        f"key {place}": {"a": variant} for place in range(min(size // 10, MAX_RESULT_ITEMS))
    },
    "empty": lambda _size, _variant: {},
    "long keys": lambda size, variant: {"k" * size + f"{variant}": variant},
}

INTS = (0, 1, -1, 2, 7, 9, 63, 64, 1_000, 100_000, 2**31, 2**63 - 1, -(2**63))
DOUBLES = (0.0, -0.0, 0.1, 1e-310, 1e308, -1e22, 123_456.789, float("inf"), float("nan"))


@lru_cache(maxsize=1_024)
def _program(expression: str, names: tuple[tuple[str, Type], ...]) -> Program:
    return compile_expression(SourceText.inline(expression), Environment(dict(names)))


def _of(expression: str, labels: Sequence[str]) -> Mapping[str, Maker]:
    """Make values by an expression of texts. Making fails with EvaluationError for invalid texts."""

    def maker(make: Maker) -> Maker:
        def made(size: int, variant: int) -> Any:
            value: Any = _program(expression, (("x", types.STRING),)).evaluate(
                {"x": make(size, variant)}, Budget(2**62)
            )
            return value

        return made

    return {label: maker(TEXTS[label]) for label in labels}


def _always(value: Any) -> Maker:
    return lambda _size, _variant: value


def _optional(make: Maker) -> Maker:
    return lambda size, variant: Optional(True, make(size, variant))


def _picked(values: Sequence[Any]) -> Mapping[str, Maker]:
    """Make constants, and one value that varies."""
    constants = {repr(value): _always(value) for value in values}
    kind = type(values[0])
    return {**constants, "varied": lambda _size, variant: kind(values[variant % len(values)])}


VALUES: Mapping[str, Mapping[str, Maker]] = {
    "string": TEXTS,
    "list": LISTS,
    "map": MAPS,
    "dyn": {**{label: TEXTS[label] for label in ("a…", "é…", "a", "number")}, **LISTS, **MAPS, "3": lambda _s, _v: 3},
    "int": {**_picked(INTS), "size": lambda size, _: size, "half": lambda size, _: size // 2, "v": lambda _, v: v},
    "uint": {**_picked([Uint(abs(value)) for value in INTS]), "v": lambda _, variant: Uint(variant)},
    "double": {**_picked(DOUBLES), "v": lambda _, variant: variant / 7},
    "bool": _picked((True, False)),
    "null_type": {"null": lambda _size, _variant: None},
    "bytes": {
        "a…": lambda size, variant: b"a" * size + b"%d" % variant,
        "é…": lambda size, _: "é".encode() * (size // 2),
        "\\xff…": lambda size, _: b"\xff" * size,
        "late \\xff": lambda size, _: b"a" * size + b"\xff",
    },
    "type": {"type": lambda _size, _variant: types.INT},
    "optional_type": {
        **{label: _optional(LISTS[label]) for label in ("ints", "texts", "no item")},
        "none": _always(Optional(False)),
    },
    "google.protobuf.Timestamp": {
        "v": lambda _size, variant: Timestamp(variant * 7919 * 10**12 + 1),
        "first": lambda _size, _variant: Timestamp(-62_135_596_800 * 10**9),
    },
    "google.protobuf.Duration": {"v": lambda _size, variant: Duration(variant * 7919 * 10**9 + 1)},
    "kubernetes.Quantity": _of(
        "quantity(x)", ("number", "quantity", "long quantity", "binary quantity", "small quantity")
    ),
    "kubernetes.URL": _of(
        "url(x)",
        (
            "url",
            "url path",
            "url escapes",
            "url bad path",
            "url query",
            "url query names",
            "url query escapes",
            "url host",
            "url host escapes",
            "url user",
        ),
    ),
    "kubernetes.Semver": _of("semver(x)", ("semver", "long semver")),
    "kubernetes.NamedFormat": {
        name: _always(_program(f"format.{name}()", ()).evaluate({}, Budget(2**62)))
        for name in (
            "dns1123Label",
            "dns1123Subdomain",
            "qualifiedName",
            "labelValue",
            "uri",
            "uuid",
            "byte",
            "date",
            "datetime",
            "dns1123SubdomainPrefix",
        )
    },
    "net.IP": _of("ip(x)", ("ip", "ipv6", "mapped")),
    "net.CIDR": _of("cidr(x)", ("cidr", "cidr6")),
}
"""Values of each type, by the type's name and their own."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An expression of x, y and so on, with their types."""

    name: str
    expression: str
    parameters: tuple[Type, ...]


NAMES = "xyzuvwabcd"


def operations() -> Iterator[Operation]:
    """Yield every overload of every function and operator, and EXPRESSIONS."""
    known = dialect_functions()
    for method in (False, True):
        for name in sorted(known.names(method=method)):
            for overload in known.named(name, method=method):
                if types.CLUSTER not in overload.parameters and types.REQUESTED not in overload.parameters:
                    yield _called(overload)
    for operator, overloads in SIGNATURES.items():
        for overload in overloads:
            yield Operation(str(overload), f"x {operator} y", overload.parameters)
    for expression, parameters in EXPRESSIONS.items():
        yield Operation(expression, expression, parameters)


def _called(overload: Overload) -> Operation:
    names = NAMES[: len(overload.parameters)]
    if overload.method:
        return Operation(str(overload), f"x.{overload.name}({', '.join(names[1:])})", overload.parameters)
    return Operation(str(overload), f"{overload.name}({', '.join(names)})", overload.parameters)


DYN, LIST, MAP, STRING, INT = types.DYN, types.LIST, types.MAP, types.STRING, types.INT

EXPRESSIONS: Mapping[str, tuple[Type, ...]] = {
    "x": (DYN,),
    "-x": (INT,),
    "x[y]": (LIST, INT),
    "x[?y]": (LIST, INT),
    "x.a": (MAP,),
    "x.?a": (MAP,),
    "x[y] ": (MAP, STRING),
    "has(x.a)": (MAP,),
    "x.all(e, true)": (LIST,),
    "x.all(e, e != y)": (LIST, DYN),
    "x.exists(e, e == y)": (LIST, DYN),
    "x.exists_one(e, e == y)": (LIST, DYN),
    "x.exists(e, dyn(e).a == 1)": (LIST,),
    "x.exists(e, 1 / 0 == 1)": (LIST,),
    "x.all(e, dyn(e) + null == 1 || true)": (LIST,),
    "x.map(e, e)": (LIST,),
    "x.map(e, x)": (LIST,),
    "x.map(e, [e, e])": (LIST,),
    "x.map(e, {'a': e})": (LIST,),
    "x.map(e, {e: e})": (LIST,),
    "x.map(e, y)": (LIST, DYN),
    "x.map(e, x == x)": (DYN,),
    "x.filter(e, true)": (LIST,),
    "x.filter(e, e in x)": (LIST,),
    "x.transformList(i, e, e)": (LIST,),
    "x.transformMap(i, e, e)": (LIST,),
    "x.transformMapEntry(i, e, {i: e})": (LIST,),
    "x.transformMapEntry(i, e, {e: i})": (LIST,),
    "x.transformList(k, v, v)": (MAP,),
    "x.transformMap(k, v, v)": (MAP,),
    "x.map(k, k)": (MAP,),
    "x.all(k, v, k != '')": (MAP,),
    "x.sortBy(e, e)": (LIST,),
    "x.sortBy(e, -e)": (LIST,),
    "x.sortBy(e, string(e))": (LIST,),
    "optional.of(x).optMap(e, e)": (DYN,),
    "optional.of(x).orValue(y)": (DYN, DYN),
    "cel.bind(e, x, e)": (DYN,),
    "[x, y]": (DYN, DYN),
    "{x: y}": (STRING, DYN),
    "{'a': x} == {'a': y}": (DYN, DYN),
    "[x] == [y]": (DYN, DYN),
    "optional.of(x) == optional.of(y)": (DYN, DYN),
    "x == x": (DYN,),
    "x in y": (STRING, LIST),
    "x in y ": (STRING, MAP),
    "x in ['a', 'b', 'c']": (STRING,),
    "x == 'gpu'": (STRING,),
    "x.startsWith('gpu')": (STRING,),
    "x.contains('gpu')": (STRING,),
    "x.matches('^gpu')": (STRING,),
    "x.matches('(a?){200}b')": (STRING,),
    "x.matches('(a|b)*a(a|b){20}c')": (STRING,),
    "x.matches('((a+)|(b+)|(c+))*d')": (STRING,),
    "x.matches('[^x]+$')": (STRING,),
    "x.find('(a?){200}b')": (STRING,),
    "x.find('(a|b)*a(a|b){20}c')": (STRING,),
    "x.find('((a+)|(b+)|(c+))*d')": (STRING,),
    "x.findAll('a.*b|a')": (STRING,),
    "x.findAll('[0-9a-f]')": (STRING,),
    "x.findAll('(a|b)*a(a|b){20}c|a')": (STRING,),
    "x.findAll('')": (STRING,),
    "x.format([y])": (STRING, DYN),
    "'%s'.format([x])": (DYN,),
    "'%.1000f'.format([x])": (types.DOUBLE,),
    "'%e%f%d%b%o%x'.format([x, x, 1, 2, 3, 4])": (types.DOUBLE,),
    "x.replace('a', y)": (STRING, STRING),
    "x.replace('', y)": (STRING, STRING),
    "google.protobuf.StringValue{value: x}": (STRING,),
    "google.protobuf.FloatValue{value: x}": (types.DOUBLE,),
    "url(x).getQuery()": (STRING,),
    "url(x).getEscapedPath()": (STRING,),
    "semver(x, true).compareTo(semver('1.0.0'))": (STRING,),
    "quantity(x).mul(3).compareTo(quantity('1'))": (STRING,),
    "string(x) + y": (DYN, STRING),
}
"""Macros, members and literals, and functions with special arguments."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One operation in a loop, with a maker of each argument. In the loop, the argument `looped` varies."""

    operation: Operation
    labels: tuple[str, ...]
    looped: int
    failing: bool = False
    """Absorb the operation's errors in the loop."""

    def __str__(self) -> str:
        return f"{self.operation.name} with {', '.join(self.labels) or 'no arguments'}"

    def program(self) -> Program:
        """Compile the loop."""
        names = [(name, _declared(kind)) for name, kind in zip(NAMES, self.operation.parameters, strict=False)]
        if names:
            looped, kind = names[self.looped]
            names[self.looped] = (f"{looped}s", types.list_of(kind))
        else:
            looped = "i"
            names = [("is", types.LIST)]
        if self.failing:
            return _program(f"{looped}s.all({looped}, dyn({self.operation.expression}) == 0 || true)", tuple(names))
        return _program(f"{looped}s.map({looped}, {self.operation.expression})", tuple(names))

    def activation(self, size: int) -> tuple[Mapping[str, object], int]:
        """Return the variables for a size in characters, and the number of rounds. Raises EvaluationError."""
        values: dict[str, object] = {"is": [0] * MAX_ROUNDS}
        rounds = MAX_ROUNDS
        for place, label in enumerate(self.labels):
            make = VALUES[_pool(self.operation.parameters[place])][label]
            if place == self.looped:
                rounds = max(1, min(MAX_ROUNDS, ROUND_CHARACTERS // (size + 20)))
                values[f"{NAMES[place]}s"] = [make(size, variant) for variant in range(rounds)]
            else:
                values[NAMES[place]] = make(size, 0)
        return values, rounds


def _declared(kind: Type) -> Type:
    return types.DYN if kind in PARAMETERS or kind.name in ("list", "optional_type") else kind


def _pool(kind: Type) -> str:
    return "dyn" if kind in PARAMETERS else kind.name


@dataclass(frozen=True, slots=True)
class Measured:
    """Time and units of one evaluation."""

    attack: Attack
    way: str
    size: int
    rounds: int
    seconds: float
    units: int

    @property
    def unit_seconds(self) -> float:
        return self.seconds / max(1, self.units)

    def __str__(self) -> str:
        return (
            f"{self.unit_seconds * 1e6:.2f} µs per unit: {self.attack}, size {self.size}, {self.rounds} rounds, "
            f"{self.way}: {self.seconds * 1e3:.2f} ms for {self.units} units"
        )


def measured(attack: Attack, size: int, repeats: int = 3) -> Iterator[Measured]:
    """Measure both evaluators; yield the best of several evaluations by each."""
    try:
        program = attack.program()
        activation, rounds = attack.activation(size)
    except (EvaluationError, CelProblems):
        return
    try:
        program.evaluate(activation, Budget(2**62))
    except EvaluationError:
        if attack.failing:
            return
        yield from measured(replace(attack, failing=True), size, repeats)
        return
    for way in ("evaluate", "interpret"):
        best, units = 0.0, 0
        for attempt in range(repeats):
            budget = Budget(2**62)
            start = thread_time()
            with suppress(EvaluationError):
                getattr(program, way)(activation, budget)
            seconds = thread_time() - start
            if not attempt or seconds < best:
                best, units = seconds, units_spent(budget)
            if seconds > ENOUGH_SECONDS:
                break
        yield Measured(attack, way, size, rounds, best, units)


def counted(attack: Attack, size: int) -> Iterator[tuple[int, int]]:
    """Yield each evaluator's calls of Python and C functions, and its units; nothing for values that fail."""
    try:
        program = attack.program()
        activation, _ = attack.activation(size)
        program.evaluate(activation, Budget(2**62))
    except CelProblems:
        return
    except EvaluationError:
        if not attack.failing:
            yield from counted(replace(attack, failing=True), size)
        return
    steps = 0

    def step(_frame: object, event: str, _argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    for way in (program.evaluate, program.interpret):
        budget, steps = Budget(2**62), 0
        sys.setprofile(step)
        try:
            way(activation, budget)
        finally:
            sys.setprofile(None)
        yield steps, max(FEW_UNITS, units_spent(budget))


def worst(attack: Attack, sizes: Sequence[int] = SIZES) -> Measured | None:
    """Return the most expensive unit of an operation over all sizes, or None if it accepts none of these values."""
    found: Measured | None = None
    for size in sizes:
        slow = False
        for one in measured(attack, size):
            if one.units >= FEW_UNITS and (found is None or one.unit_seconds > found.unit_seconds):
                found = one
            slow |= one.seconds > ENOUGH_SECONDS
        if slow:
            break
    return found


def unit_seconds() -> float:
    """Return the time to count one unit, to which all others are compared."""

    def counted() -> float:
        budget = Budget(2**62)
        start = thread_time()
        for _ in range(50_000):
            budget.spend(1)
        return (thread_time() - start) / 50_000

    return min(counted() for _ in range(7))


def drawn(operation: Operation, source: random.Random) -> Attack:
    """Return an attack with random values."""
    labels = tuple(source.choice(tuple(VALUES[_pool(kind)])) for kind in operation.parameters)
    return Attack(operation, labels, source.randrange(max(1, len(labels))))


def again(one: Measured) -> Measured:
    """Return the best of the first and ATTEMPTS further measurements, since other processes slow some of them."""
    others = [other for _ in range(ATTEMPTS) for other in measured(one.attack, one.size) if other.way == one.way]
    return min([one, *others], key=lambda other: other.unit_seconds)


def run(seconds: float, seed: int) -> list[str]:
    """Measure random operations for a time; return a line for each that takes too long for its charge."""
    source, end = random.Random(seed), perf_counter() + seconds
    every = list(operations())
    found: list[str] = []
    while perf_counter() < end:
        one = worst(drawn(source.choice(every), source))
        if one is None:
            continue
        # Both vary with the machine's load: the ratio must be too high each time that both are measured.
        ratios: list[float] = []
        while len(ratios) < ATTEMPTS and (not ratios or ratios[-1] > LIMIT):
            ratios.append(again(one).unit_seconds / unit_seconds())
        if ratios[-1] > LIMIT:
            found.append(f"{min(ratios):.1f} times its charge: {one}")
    return found


if __name__ == "__main__":
    for line in run(float(sys.argv[1]), int(sys.argv[2])):
        print(line)
