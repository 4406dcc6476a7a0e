"""RuleTests that pin the results of converted rules; names of cases list the amounts that differ from gpuinjector's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rules_engine.converting.convert import Conversion, ConvertedEntry
from rules_engine.converting.gpuinjector import MOST_GPUS, SHARED, Coefficient
from rules_engine.evaluation.admission import Admission, admit_pod
from rules_engine.kinds import compile_rules
from rules_engine.kinds.injection.value import ResourceInjection
from rules_engine.model.json.lenient import as_mapping
from rules_engine.model.json.patch import Json
from rules_engine.model.kubernetes.cluster import Cluster
from rules_engine.model.kubernetes.pod import Pod
from rules_engine.model.kubernetes.quantity import Quantity
from rules_engine.model.rules.admission import pod_request
from rules_engine.model.rules.rule import API_VERSION
from rules_engine.sources.yaml_text import dump_yaml

MAX_TEST_BYTES = 1024 * 1024
"""UTF-8 bytes of the cases in one RuleTest: with indentation and description, less than the limit of a file."""

_NONE = Quantity(0)
_POD = "test"
_PLAIN = "plain"
"""The container without GPUs."""

_ONE, _MOST, _TWO_CONTAINERS = (1,), (MOST_GPUS,), (1, 2)
"""Test pods of every entry, as the GPUs of their containers."""


def pin_results(conversion: Conversion, files: Sequence[str]) -> dict[str, str]:
    """Return the RuleTests of each rule, by file name; `files` are the rules' files, relative to the tests."""
    tests: dict[str, str] = {}
    for index, file in enumerate(files):
        rule = conversion.rules[index]
        for number, cases in enumerate(_split_cases(_rule_cases(conversion, index)), 1):
            name = rule.name if number == 1 else f"{rule.name}.{number}"
            tests[f"{name}.test.yaml"] = _rule_test(name, file, cases)
    return tests


def _rule_test(name: str, file: str, cases: list[Json]) -> str:
    spec: dict[str, Json] = {
        "description": "Results of gpuinjector. A case is named after its amounts where the rule gives others.",
        "rules": [file],
        "cases": cases,
    }
    return dump_yaml({"apiVersion": API_VERSION, "kind": "RuleTest", "metadata": {"name": name}, "spec": spec})


def _split_cases(cases: Iterable[dict[str, Json]]) -> Iterator[list[Json]]:
    """Yield the cases in lists of at most MAX_TEST_BYTES; a larger case is alone in its list."""
    part: list[Json] = []
    used = 0
    for case in cases:
        size = len(dump_yaml(case).encode())
        if part and used + size > MAX_TEST_BYTES:
            yield part
            part, used = [], 0
        part.append(case)
        used += size
    yield part


def _rule_cases(conversion: Conversion, index: int) -> Iterator[dict[str, Json]]:
    rule = conversion.rules[index]
    pins = _Pins(rule)
    entries = {entry.namespace: entry for entry in conversion.entries if entry.rule == index}
    excluded = rule.match.exclude_namespaces
    for namespace, entry in {"": None, **entries}.items():
        if namespace not in excluded:
            yield from pins.entry(namespace or _other_namespace({*entries, *excluded}), entry)
    for namespace in excluded:
        pod = pins.pod(_ONE, {})
        yield pins.case(f"nothing is injected in {namespace}", namespace, pod, pins.evaluate(pod, namespace))


def _other_namespace(namespaces: set[str]) -> str:
    """Return a namespace that is not in the configuration."""
    candidates = ("default", *(f"other-{number}" for number in range(1, len(namespaces) + 2)))
    return next(name for name in candidates if name not in namespaces)


class _Pins:
    """Cases of one rule that expect its current results."""

    def __init__(self, rule: ResourceInjection) -> None:
        self._rule = rule
        self._rule_set, _ = compile_rules((rule,))

    def entry(self, namespace: str, converted: ConvertedEntry | None) -> Iterator[dict[str, Json]]:
        """Yield the cases of an entry; None: the rule has no default."""
        coefficients = converted.coefficients if converted is not None else {}
        for gpus in (_ONE, _MOST, _TWO_CONTAINERS) if coefficients else (_ONE,):
            plain: dict[str, Quantity] = {}
            if gpus is _TWO_CONTAINERS:
                for name in coefficients.keys() & SHARED:
                    (share,) = coefficients[name].amounts(name, _ONE, _NONE) or (_NONE,)
                    plain[name] = share
            pod = self.pod(gpus, plain)
            admission = self.evaluate(pod, namespace)
            injected = self._amounts(namespace, admission)
            differences = []
            for name, coefficient in coefficients.items():
                old = coefficient.amounts(name, gpus, plain.get(name, _NONE))
                for index in range(len(gpus)):
                    new = injected[f"gpu-{index + 1}"][name]
                    if old is None or old[index] != new:
                        amount = "another amount" if old is None else f"{old[index]}"
                        differences.append(f"{name} of gpu-{index + 1} was {amount}")
            title = f"{' and '.join(map(str, gpus))} {'GPU' if gpus is _ONE else 'GPUs'} in {namespace}"
            if any(plain.values()):
                title += f" beside the container {_PLAIN}"
            yield self.case("; ".join([title, *differences]), namespace, pod, admission)
        yield from self._too_large(namespace, coefficients)

    def _too_large(self, namespace: str, coefficients: Mapping[str, Coefficient]) -> Iterator[dict[str, Json]]:
        """Yield the case of a pod that requests more than its total of a shared resource, if gpuinjector denies it."""
        shared = (
            name
            for name, coefficient in coefficients.items()
            if name in SHARED and coefficient.amounts(name, _ONE, _NONE) is not None
        )
        if name := next(shared, None):
            pod = self.pod(_ONE, {name: self._rule.entry(namespace).coefficients[name] + Quantity.of(1)})
            title = f"more {name} than the total in {namespace} is denied"
            yield self.case(title, namespace, pod, self.evaluate(pod, namespace), f"resource {name} too large")

    def pod(self, gpus: Sequence[int], plain: Mapping[str, Quantity]) -> dict[str, Json]:
        """Return a pod with a container for each number of GPUs, and one without GPUs if `plain` has amounts."""
        containers: list[Json] = [
            {"name": f"gpu-{number}", "resources": {"limits": {self._rule.gpu_resource: str(count)}}}
            for number, count in enumerate(gpus, 1)
        ]
        requests: dict[str, Json] = {name: str(amount) for name, amount in sorted(plain.items()) if amount}
        if requests:
            containers.append({"name": _PLAIN, "resources": {"requests": requests}})
        annotations: dict[str, Json] = {self._rule.gpu_type_annotation: self._rule.gpu_type}
        return {"metadata": {"name": _POD, "annotations": annotations}, "spec": {"containers": containers}}

    def evaluate(self, pod: Json, namespace: str) -> Admission:
        """Evaluate the rule on a pod."""
        return admit_pod(self._rule_set, pod_request(pod, namespace=namespace, operation="CREATE"), Cluster())

    def case(
        self, name: str, namespace: str, pod: dict[str, Json], admission: Admission, message: str = ""
    ) -> dict[str, Json]:
        """Return a case that expects the rule's result."""
        expect: dict[str, Json] = {"allowed": admission.allowed}
        if message:
            expect["message"] = message
        else:
            expect["containers"] = {
                container: {resource: str(amount) for resource, amount in amounts.items()}
                for container, amounts in self._amounts(namespace, admission).items()
            }
            annotations = self._annotations(namespace, admission)
            if annotations:
                expect["annotations"] = annotations
        return {"name": name, "pod": pod, "request": {"namespace": namespace}, "expect": expect}

    def _amounts(self, namespace: str, admission: Admission) -> dict[str, dict[str, Quantity]]:
        """Return the amounts of all injected resources, by container with GPUs; zero if absent."""
        entries = (self._rule.default, self._rule.entry(namespace))
        names = dict.fromkeys(name for entry in entries for name in entry.coefficients)
        return {
            container.name: {name: container.requested(name) or _NONE for name in names}
            for container in Pod.parse(admission.result).containers
            if container.name != _PLAIN
        }

    def _annotations(self, namespace: str, admission: Admission) -> dict[str, Json]:
        """Return the values of all injected annotations; None if absent."""
        entries = (self._rule.default, self._rule.entry(namespace))
        actual = as_mapping(as_mapping(as_mapping(admission.result).get("metadata")).get("annotations"))
        return {key: actual.get(key) for entry in entries for key in entry.annotations}
