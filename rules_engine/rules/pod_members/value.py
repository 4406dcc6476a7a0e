"""Members that a rule adds to a pod or to its containers, and the fields that they may belong to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.json.strict import JsonPath
from rules_engine.model.kubernetes.names import is_label_value, is_subdomain
from rules_engine.model.kubernetes.placement import Toleration
from rules_engine.model.problems.source import Location, SourceText


class Form(Enum):
    """The form of a field: one value, a map of strings, or a list of objects."""

    SCALAR = "scalar"
    MAP = "map"
    LIST = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodField:
    """A field of a pod or a container, below `parent`.

    `shape`: the type of its value, or of an item of a list, in shapes.json. `key`: the member that identifies an item;
    "": all of its members do.
    """

    name: str
    parent: JsonPath
    form: Form = Form.SCALAR
    shape: str = "string"
    key: str = ""

    @property
    def in_container(self) -> bool:
        return not self.parent

    @property
    def path(self) -> JsonPath:
        return (*self.parent, self.name)

    def problem(self, value: str) -> str:
        """Return why the API server would refuse a computed value of the field; "" if it would not."""
        if self.name in ("labels", "nodeSelector"):
            return "" if is_label_value(value) else "is no label value"
        named = self.form is Form.SCALAR and not is_subdomain(value)
        return "is no name of an object (a DNS subdomain)" if named else ""


_SPEC: JsonPath = ("spec",)

_FIELDS = (
    PodField(name="labels", parent=("metadata",), form=Form.MAP),
    PodField(name="annotations", parent=("metadata",), form=Form.MAP),
    PodField(name="tolerations", parent=_SPEC, form=Form.LIST, shape="Toleration"),
    PodField(name="nodeSelector", parent=_SPEC, form=Form.MAP),
    PodField(name="runtimeClassName", parent=_SPEC),
    PodField(name="priorityClassName", parent=_SPEC),
    PodField(name="schedulerName", parent=_SPEC),
    PodField(name="imagePullSecrets", parent=_SPEC, form=Form.LIST, shape="LocalObjectReference", key="name"),
    PodField(name="volumes", parent=_SPEC, form=Form.LIST, shape="Volume", key="name"),
    PodField(name="env", parent=(), form=Form.LIST, shape="EnvVar", key="name"),
    PodField(name="volumeMounts", parent=(), form=Form.LIST, shape="VolumeMount", key="mountPath"),
)

FIELDS: Mapping[str, PodField] = {each.name: each for each in _FIELDS}
"""The fields that rules may add members to, by name."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A computed part of a member: the expression of the value at `path`, whose type is `shape` in shapes.json."""

    path: JsonPath
    expression: SourceText
    shape: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A value that pods get: of a scalar field, of a key of a map, or an item of a list.

    `name`: the key, or what identifies the item among those of a pod; "" for a scalar field. `value` is without the
    `computed` parts.
    """

    location: Location = field(repr=False, compare=False)
    field: PodField
    name: str = ""
    value: Json = None
    computed: tuple[Computed, ...] = ()

    @property
    def title(self) -> str:
        """The member in messages, such as `nodeSelector.pool` or `env.NCCL_DEBUG`."""
        name = self.name
        if self.field.shape == "Toleration":
            seconds = as_mapping(self.value).get("tolerationSeconds")
            name = toleration_text(toleration_of(self.value)) + ("" if seconds is None else f" for {seconds}s")
        return f"{self.field.name}.{name}" if name else self.field.name

    def expression_path(self, path: str, part: Computed) -> str:
        """Return the path in the document of a part's expression. `path`: of the member."""
        if self.field.form is Form.MAP:
            return path.replace(f".{self.field.name}.", f".{self.field.name}Expression.", 1)
        return f"{'.'.join((path, *map(str, part.path)))}Expression"

    @property
    def written(self) -> Json:
        """The value as its author wrote it, with the texts of expressions."""
        value = self.value
        for part in self.computed:
            value = value_with(value, part.path, f"={part.expression.text}")
        return value


def value_with(value: Json, path: JsonPath, part: Json) -> Json:
    """Return a value with another part; objects on its path are created."""
    if not path:
        return part
    name, *below = path
    if isinstance(value, list):
        return [value_with(item, tuple(below), part) if index == name else item for index, item in enumerate(value)]
    members = as_mapping(value)
    return {**members, str(name): value_with(members.get(str(name)), tuple(below), part)}


def tolerations_in(members: Iterable[Member]) -> tuple[Toleration, ...]:
    """Return the tolerations among members."""
    return tuple(toleration_of(each.value) for each in members if each.field.shape == "Toleration")


def toleration_of(value: Json) -> Toleration:
    """Return a toleration with its operator, whose default is Equal."""
    members = {name: str(as_mapping(value).get(name) or "") for name in ("key", "operator", "value", "effect")}
    return Toleration(**{**members, "operator": members["operator"] or "Equal"})


def toleration_text(toleration: Toleration) -> str:
    """Return a toleration in the syntax of `kubectl describe`."""
    value, effect = toleration.value and f"={toleration.value}", toleration.effect and f":{toleration.effect}"
    operator = " op=Exists" if toleration.operator == "Exists" else ""
    return f"{toleration.key}{value}{effect}{operator}".strip()
