"""Random expressions and values: mostly of types that fit, sometimes of others."""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from rules_engine.language.cel import Environment, types

ENVIRONMENT = Environment(
    {
        "object": types.DYN,
        "flag": types.DYN,
        "number": types.DYN,
        "text": types.DYN,
        "items": types.DYN,
        "table": types.DYN,
        "nothing": types.DYN,
    }
)
"""All variables are dyn, so that the checker accepts every mixture of types."""

STRINGS = (
    "",
    "a",
    "b",
    "gpu",
    "nvidia.com/gpu",
    "4",
    "-7",
    "0x1",
    "é",
    "🐱",
    "1Gi",
    "true",
    "2024-01-01T00:00:00Z",
    "1h",
)
KEYS = ("a", "b", "gpu", "missing")
INTS = (0, 1, -1, 2, 7, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64)
DOUBLES = (0.0, -0.0, 1.0, 1.5, -2.5, 1e18, 9007199254740993.0, float("inf"), float("nan"))


class Expressions:
    """Writer of one expression. `choose` picks one of several items; `newer` allows functions newer than Kubernetes."""

    def __init__(self, choose: Callable[[Sequence[Any]], Any], *, newer: bool = True) -> None:
        self._choose = choose
        self.newer = newer

    def write(self, kind: str, depth: int, names: tuple[str, ...] = ()) -> str:
        """Return an expression that is probably of this kind."""
        if self._choose(range(12)) == 0:
            kind = self._choose(("bool", "int", "double", "string", "list", "map", "any", "optional"))
        method: Callable[[int, tuple[str, ...]], str] = getattr(self, f"_{kind}")
        return method(depth, names)

    def _of(self, options: Sequence[str], depth: int, names: tuple[str, ...]) -> str:
        """Return one of the options with its {kind} placeholders filled; at depth 0, one without placeholders."""
        fitting = options if depth > 0 else [option for option in options if "{" not in option]
        option = self._choose(fitting)
        parts = option.replace("}", "{").split("{")
        return "".join(
            part if place % 2 == 0 else self._filled(part, depth - 1, names) for place, part in enumerate(parts)
        )

    def _filled(self, kind: str, depth: int, names: tuple[str, ...]) -> str:
        if ":" in kind:
            kind, bound = kind.split(":")
            return self.write(kind, depth, (*names, *bound.split(",")))
        return self.write(kind, depth, names)

    def _any(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["object", "object.a", "object.b.a", "nothing", "null", "table.a", "items[0]", *names, *names]
        options += ["{bool}", "{int}", "{string}", "{list}", "{map}", "({bool} ? {any} : {any})", "{any}.a"]
        options += ["{any}[{any}]", "{optional}.orValue({any})", "{optional}.value()", "dyn({any})", "{double}"]
        options += ["cel.bind(v, {any}, {any:v})", "{list}[{int}]", "{map}[{string}]", "type({any})"]
        options += ["cel.bind(v, {any}, ({bool} ? {any:v} : {any}))", "cel.bind(v, {any}, {any})"]
        options += ["{any}.?a.b.?gpu.orValue({any})", "{any}[0]", "cel.bind(v, {any}, v[{any:v}])"]
        return self._of(options, depth, names)

    def _bool(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["true", "false", "flag", "has(object.a)", "has(object.b.a)"]
        options += ["({any} == {any})", "({any} != {any})", "({bool} && {bool})", "({bool} || {bool})", "!{bool}"]
        options += ["({int} < {int})", "({any} <= {any})", "({string} > {string})", "({int} >= {double})"]
        options += [
            "({any} == 1)",
            "({any} == 'a')",
            "({any} == null)",
            "({any} == true)",
            "(1 < {any})",
            "({any} > 0)",
        ]
        options += ["({string} in {list})", "({any} in {any})", "({string} in {map})", "({any} in ['a', 'gpu'])"]
        options += ["{list}.all(x, {bool:x})", "{list}.exists(x, {bool:x})", "{map}.exists(x, {bool:x})"]
        options += ["{list}.exists_one(x, {bool:x})", "{any}.all(i, x, {bool:i,x})", "{map}.exists(i, x, {bool:i,x})"]
        options += ["{string}.startsWith('n')", "{string}.endsWith({string})", "{string}.contains({string})"]
        options += ["{string}.matches('^n')", "{string}.matches('u$')", "{string}.matches('[a-g]+')", "has({map}.a)"]
        options += ["{string}.matches('gp')", "{optional}.hasValue()", "isQuantity({string})", "{any}.startsWith('a')"]
        options += [
            "({bool} && {bool} && {bool} || {bool})",
            "({bool} ? {bool} : {bool})",
            "sets.contains({list}, {list})",
        ]
        options += ["{list}.exists(x, x.contains('a') && {bool:x})", "{list}.all(x, x.startsWith('n') || {bool:x})"]
        options += [
            "cel.bind(v, {any}, v.contains('g') == {bool:v})",
            "cel.bind(v, {any}, ({bool:v} || v.matches('^a')))",
        ]
        options += [
            "cel.bind(v, {any}, ({bool} || {bool:v}))",
            "{list}.exists_one(i, x, {bool:i,x})",
            "{map}.exists_one(i, x, {bool:i,x})",
            "({quantity} == {quantity})",
            "{quantity}.isGreaterThan({quantity})",
            "{quantity}.isInteger()",
            "({time} < {time})",
            "{list}.isSorted()",
            "{list}.includes({any})",
            "sets.intersects({list}, {list})",
            "sets.equivalent({list}, {list})",
        ]
        options += ["quantity({string}).isInteger()", "{string}.contains('g')", "{any}.?a.?b.hasValue()"]
        options += ["{any}.?a.hasValue()", "{any}.?a.b.hasValue()", "has({any}.gpu)", "({list} == {list})"]
        return self._of(options, depth, names)

    def _int(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["0", "1", "-1", "7", "2", "number", "9223372036854775807", "-9223372036854775808", "items.size()"]
        options += ["({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})"]
        options += ["-({int})", "size({any})", "{string}.size()", "int({any})", "int({string})", "{list}.size()"]
        options += [
            "{string}.indexOf({string})",
            "math.abs({int})",
            "{list}.sum()",
            "{optional}.orValue(3)",
            "1u",
            "uint({int})",
        ]
        options += ["{string}.indexOf({string}, {int})", "{string}.lastIndexOf({string}, {int})"]
        options += ["{string}.lastIndexOf({string})", "{list}.indexOf({any})", "{list}.lastIndexOf({any})"]
        options += ["int({time})", "int({duration})", "{time}.getHours({zone})", "{time}.getFullYear({zone})"]
        options += ["{time}.getDayOfYear({zone})", "{duration}.getMinutes()", "{quantity}.asInteger()"]
        options += ["sign({quantity})", "{quantity}.compareTo({quantity})", "{list}.min()", "{list}.max()"]
        options += ["cel.bind(v, {int}, ({bool} ? {int:v} : {int}))"]
        options += ["{list}.map(x, {int:x})[0]", "({bool} ? {int} : {int})", "size({list} + {list})"]
        return self._of(options, depth, names)

    def _double(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["0.0", "1.0", "-1.5", "1e300", "number"]
        options += [
            "({double} + {double})",
            "({double} / {double})",
            "double({any})",
            "-{double}",
            "math.ceil({double})",
        ]
        return self._of(options, depth, names)

    def _string(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["''", "'a'", "'gpu'", "'nvidia.com/gpu'", "'4'", "text", "object.a", "'\\u00e9'"]
        options += ["({string} + {string})", "string({any})", "{string}.substring({int})", "{string}.lowerAscii()"]
        options += ["{any}.?a.orValue('d')", "{any}.?a.?b.orValue({string})", "{any}[?'a'].b['gpu'].orValue('')"]
        options += ["{list}.join()", "'%s %d'.format([{any}, {int}])", "{string}.replace({string}, {string})"]
        options += ["({bool} ? {string} : {string})", "cel.bind(v, {string}, {string:v})"]
        options += ["{string}.charAt({int})", "{string}.substring({int}, {int})", "{list}.join({string})"]
        options += ["string({duration})", "{string}.trim()", "{string}.upperAscii()", "strings.quote({string})"]
        options += ["{string}.find('[a-g]+')", "{string}.replace({string}, {string}, {int})"]
        return self._of(options, depth, names)

    def _list(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["items", "[]", "[1, 2]", "['a', 'gpu']", "object.items", "[1, 'a', null, true]"]
        options += [
            "[{any}]",
            "[{any}, {any}]",
            "({list} + {list})",
            "{list}.map(x, {any:x})",
            "{list}.filter(x, {bool:x})",
        ]
        options += [
            "{list}.map(x, {bool:x}, {any:x})",
            "{list}.transformList(i, x, {any:i,x})",
            "{map}.map(x, {any:x})",
        ]
        options += [
            "[?{optional}, {any}]",
            "{string}.split('')",
            "{list}.sort()",
            "{list}.distinct()",
            "lists.range({int})",
        ]
        options += ["[{optional}, {optional}].unwrapOpt()", "optional.unwrap([{optional}, {optional}])"]
        options += ["{list}.map(x, {optional:x}).unwrapOpt()", "{list}.unwrapOpt()", "{list}.reverse()"]
        options += ["{string}.split({string}, {int})", "{string}.findAll('[a-g]', {int})", "{list}.flatten({int})"]
        options += ["{list}.slice({int}, {int})", "{list}.sortBy(x, {any:x})"]
        options += ["{any}.filter(x, {bool:x})", "{list}.sortBy(x, {int:x})", "{list}.slice(0, 1)", "{list}.flatten()"]
        return self._of(options, depth, names)

    def _map(self, depth: int, names: tuple[str, ...]) -> str:
        # The braces of map literals are written « and », since { and } mark placeholders.
        options = ["table", "object", "object.b", "object.a"]
        options += ["«'a': {any}»", "«'a': {any}, 'b': {any}»", "«{string}: {any}»", "«1: {any}, true: {any}»"]
        options += ["«?'a': {optional}»", "{map}.transformMap(i, x, {any:i,x})", "«{any}: {any}»"]
        options += [
            "{list}.transformMap(i, x, {bool:i,x}, {any:i,x})",
            "{list}.transformMapEntry(i, x, «i: {any:i,x}»)",
        ]
        return self._of(options, depth, names).replace("«", "{").replace("»", "}")

    def _optional(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["optional.none()", "optional.of(1)", "object.?a", "object.?b.a", "table[?'a']", "items[?0]"]
        options += ["optional.of({any})", "optional.ofNonZeroValue({any})", "{any}.?a", "{any}[?{any}]", "{optional}.a"]
        options += [
            "{optional}.or({optional})",
            "{optional}.optMap(v, {any:v})",
            "{any}.?a.?b.optMap(v, {any:v})",
            "{any}.?a[?'b'].gpu",
            "{optional}.optFlatMap(v, {optional:v})",
        ]
        options += ["{optional}[{any}]", "{optional}.?b", "{list}.first()", "{list}.last()", "items.first()"]
        return self._of(options, depth, names)

    def _quantity(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["quantity('1Gi')", "quantity('1500m')", "quantity('-3')", "quantity('0')", "quantity('7k')"]
        options += ["quantity({string})", "{quantity}.add({quantity})", "{quantity}.sub({quantity})"]
        options += ["{quantity}.add({int})", "{quantity}.sub({int})", "({bool} ? {quantity} : {quantity})"]
        if self.newer:
            options += ["{quantity}.mul({int})", "{quantity}.div({int})", "{quantity}.divInt({int})"]
            options += ["{quantity}.div({int}, {int})", "{quantity}.mul({quantity})"]
        return self._of(options, depth, names)

    def _time(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["timestamp('2024-02-29T23:59:59.5Z')", "timestamp(0)", "timestamp('1969-12-31T00:00:00+05:30')"]
        options += ["timestamp({int})", "({time} + {duration})", "({time} - {duration})", "timestamp({string})"]
        return self._of(options, depth, names)

    def _duration(self, depth: int, names: tuple[str, ...]) -> str:
        options = ["duration('1h30m')", "duration('-1.5s')", "duration('0')", "duration('90m')"]
        options += ["duration({string})", "({duration} + {duration})", "({time} - {time})"]
        return self._of(options, depth, names)

    def _zone(self, depth: int, names: tuple[str, ...]) -> str:
        zones = ["''", "'UTC'", "'+5:30'", "'-02:30'", "'5:3'", "'12:60'", "'Europe/Berlin'", "'Nowhere'", "{string}"]
        return self._of(zones, depth, names)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> str:
    """Generate expressions over the variables of ENVIRONMENT."""
    writer = Expressions(lambda options: draw(st.sampled_from(options)))
    kind = draw(st.sampled_from(("bool", "bool", "any", "int", "string", "list", "map", "optional")))
    return writer.write(kind, depth)


def values() -> st.SearchStrategy[Any]:
    """Return a strategy of JSON values, with numbers and strings that are edge cases."""
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from(INTS),
        st.integers(-5, 5),
        st.sampled_from(DOUBLES),
        st.sampled_from(STRINGS),
        st.text(max_size=5),
    )
    keys = st.sampled_from(KEYS)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
    )


def activations() -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy of values for the variables, mostly of the type that the name suggests."""
    inner = values()
    maps = st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    lists = st.lists(inner, max_size=4)
    objects = st.fixed_dictionaries({}, optional={"a": inner, "b": maps, "items": lists, "gpu": inner})
    return st.fixed_dictionaries(
        {
            "object": st.one_of(objects, objects, objects, inner),
            "flag": st.one_of(st.booleans(), st.booleans(), inner),
            "number": st.one_of(st.sampled_from(INTS), st.integers(-9, 9), inner),
            "text": st.one_of(st.sampled_from(STRINGS), inner),
            "items": st.one_of(lists, lists, st.lists(st.sampled_from(STRINGS), max_size=4), inner),
            "table": st.one_of(maps, maps, inner),
            "nothing": st.none(),
        }
    )
