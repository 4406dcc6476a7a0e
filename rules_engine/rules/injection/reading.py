"""Reading of a ResourceInjection from its document."""

from rules_engine.cluster.read.amounts import read_amounts, warn_of_units
from rules_engine.language.document_fields import common_fields, report_steering
from rules_engine.language.fields import key_origins, map_field, map_members, scalar_arguments, string_field, string_map
from rules_engine.language.yaml.nodes import MapNode, YamlNode
from rules_engine.model.problems.codes import Code
from rules_engine.model.problems.problem import Problems
from rules_engine.model.problems.source import Field
from rules_engine.model.rules.rule import SKIP_ANNOTATION
from rules_engine.rules.entries import report_nothing_to_inherit
from rules_engine.rules.injection.value import GPU_TYPE_ANNOTATION, InjectionCode, InjectionEntry, ResourceInjection


def read(root: MapNode, problems: Problems) -> ResourceInjection:
    """Read a ResourceInjection; it is valid only if neither the schema nor `problems` has an error."""
    spec = map_field(root, "spec")
    first_key = spec.key("coefficients") or spec.key("annotations")
    default = _read_entry(spec, first_key or root, first_key.source.text if first_key else "", problems)
    namespaces: dict[str, InjectionEntry] = {}
    for key, node in map_members(spec, "namespaces"):
        entry = _read_entry(node, key, f"namespaces.{key.source.text}", problems)
        if string_field(node, "inherit") == "Merge":
            report_nothing_to_inherit(default, node, problems)
            entry = _merge_entries(default, entry)
        namespaces[key.source.text] = entry
    injection = ResourceInjection(
        **common_fields(root, problems) | scalar_arguments(spec, ResourceInjection),
        default=default,
        gpu_type=string_field(spec, "gpuType") or None,
        namespaces=namespaces,
    )
    type_key = spec.key("gpuType")
    if type_key is not None and not spec.key("gpuTypeAnnotation"):
        message = (
            "injection with 'gpuType' needs 'gpuTypeAnnotation', the annotation of pods that holds the type: write "
            f"gpuTypeAnnotation: {GPU_TYPE_ANNOTATION} if pods have the former default"
        )
        problems.error(Code.MISSING_FIELD, message, type_key.location, type_key.length)
    _report_gpu_amounts(spec, injection.gpu_resource, problems)
    for entry_node in (spec, *(node for _, node in map_members(spec, "namespaces"))):
        for key, _ in map_field(entry_node, "annotations"):
            report_steering(key.source.text, {SKIP_ANNOTATION, injection.gpu_type_annotation}, key, problems)
    return injection


def _read_entry(node: MapNode, place: YamlNode, path: str, problems: Problems) -> InjectionEntry:
    coefficients = read_amounts(node, "coefficients", problems)
    warn_of_units(node, "coefficients", coefficients, problems, per_gpu=True)
    return InjectionEntry(
        location=place.location,
        fields=(Field(path, place.location),) if path else (),
        coefficients=coefficients,
        annotations=string_map(node, "annotations"),
        origin=key_origins(node, "coefficients", "annotations"),
    )


def _merge_entries(default: InjectionEntry, entry: InjectionEntry) -> InjectionEntry:
    inherited = default.coefficients.keys() - entry.coefficients.keys()
    return InjectionEntry(
        location=entry.location,
        fields=entry.fields,
        inherits=True,
        inherited={name: Field(f"coefficients.{name}", default.origin["coefficients", name]) for name in inherited},
        coefficients={**default.coefficients, **entry.coefficients},
        annotations={**default.annotations, **entry.annotations},
        origin={**default.origin, **entry.origin},
    )


def _report_gpu_amounts(spec: MapNode, gpu_resource: str, problems: Problems) -> None:
    for entry in (spec, *(node for _, node in map_members(spec, "namespaces"))):
        key = map_field(entry, "coefficients").key(gpu_resource)
        if key is not None:
            message = f"{gpu_resource} is the counted resource: an injection cannot change it"
            problems.error(InjectionCode.GPU_COEFFICIENT, message, key.location, key.length)
