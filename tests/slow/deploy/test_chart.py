"""The rendered chart: complete, with minimal rights, and consistent with the rules and the options of the server."""

import copy
import json
import re
import textwrap
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from deploy import render
from rules_engine.exports.configuration import DELETION_CONDITION, build_configurations, derive_calls, helm_values
from rules_engine.exports.drift import find_drift
from rules_engine.exports.settings import Service, Settings
from rules_engine.language.cel import Budget, EvaluationError, compile_expression, types
from rules_engine.model.kubernetes.cluster_objects import API_KINDS, AUTOSCALER_STATUS, STATUS_NAME
from rules_engine.model.problems.source import SourceText
from rules_engine.model.rules.admission import Endpoint
from rules_engine.model.rules.rule import Match, Rule
from rules_engine.rules.evaluation import RuleSet
from rules_engine.rules.sources.rule_files import DEFAULT_RULES, read_rules
from rules_engine.rules.sources.rule_sources import PathSource
from rules_engine.server.commands import main
from rules_engine.server.settings import SETTINGS, ServeOption
from tests.support.authoring import ladder, validation, write
from tests.support.chart import NAME, NAMESPACE, RULES, Object, helm, one, rejection, rendered, set_options
from tests.support.conditions import KUBERNETES
from tests.support.evaluation import GPU, compiled
from tests.support.evaluation import validation as validation_of
from tests.support.webhooks import pod_defaults
from tools.helm import LATER_PACKAGE, HelmNotFoundError, run_helm, unpacked_helm

OWN_RULES = {"ladder.yaml": ladder("own", "amd.com/gpu", offered="Available")}


def own_values(folder: Path) -> dict[str, Any]:
    """Write OWN_RULES to a folder, and return their values from `webhook-config --output helm-values`."""
    write(folder, OWN_RULES)
    return dict(helm_values(read_rules([folder]).rule_set, OWN_RULES))


EVERYTHING: Mapping[str, Any] = {
    "image": {"repository": "r.example/gpu-rules", "digest": f"sha256:{'0' * 64}", "pullSecrets": [{"name": "p"}]},
    "server": {
        "maxStalenessSeconds": 60, "drainSeconds": 7, "graceSeconds": 20, "maxConcurrent": 8,
        "requestTimeoutSeconds": 1.5, "logFormat": "line", "decisionLog": True, "decisionLogMessages": True,
        "decisionLogRequests": True,
        "events": True, "reserveFor": "all",
        "extraArgs": ["--test-on-reload"], "declare": "kind: ClusterInventory\n",
    },
    "rbac": {"nodes": True, "pods": True, "namespaces": True, "classes": True},
    "clientCA": {"configMap": "api-server-ca"},
    "metrics": {"enabled": True, "serviceMonitor": {"enabled": True, "labels": {"release": "prom"}, "interval": "15s"}},
    "doctor": {
        "enabled": True, "intervalSeconds": 60, "since": "2h", "events": True, "extraArgs": ["--timeout=600"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    },
    "podAnnotations": {"a": "b"}, "podLabels": {"team": "gpu"}, "nodeSelector": {"pool": "system"},
    "tolerations": [{"operator": "Exists"}], "priorityClassName": "system-cluster-critical",
    "networkPolicy": {"enabled": True, "apiServerCIDRs": ["10.0.0.1/32"]},
    "webhook": {
        "excludeNamespaces": ["infra"],
        "mutating": {"failurePolicy": "Fail", "timeoutSeconds": 2},
        "validating": {"failurePolicy": "Fail", "timeoutSeconds": 3},
    },
}  # fmt: skip
CA = b64encode(b"-----BEGIN CERTIFICATE-----").decode()
NOTHING: Mapping[str, Any] = {
    "replicas": 1,
    "metrics": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False, "maxUnavailable": 1},
    "webhook": {
        "compare": False,
        "caBundle": CA,
        "mutating": {"failurePolicy": "Ignore", "timeoutSeconds": 5},
        "validating": {"failurePolicy": "Ignore", "timeoutSeconds": 5},
    },
    "rbac": {"nodes": False, "pods": False, "namespaces": False},
    "server": {"keepRules": False},
    "tls": {"mode": "existingSecret", "secretName": "mine"},
}
CERT_MANAGER: Mapping[str, Any] = {"tls": {"mode": "certManager"}}
OWN_ISSUER: Mapping[str, Any] = {
    "tls": {"mode": "certManager", "certManager": {"issuerRef": {"name": "corp", "kind": "ClusterIssuer"}}}
}
DOCTOR = f"{NAME}-doctor"
WITH_DOCTOR: Mapping[str, Any] = {"doctor": {"enabled": True}}
HOST_NETWORK: Mapping[str, Any] = {"hostNetwork": True, "ports": {"https": 10260, "metrics": 10261}}
AUDIT: Mapping[str, Any] = {"rules": {**RULES, "mode": "Audit", "namespaces": ["ml", "nlp"]}}
DEFAULT = read_rules([DEFAULT_RULES]).rule_set
VARIANTS = {
    "defaults": {},
    "everything": EVERYTHING,
    "nothing": NOTHING,
    "cert-manager": CERT_MANAGER,
    "own issuer": OWN_ISSUER,
    "doctor": WITH_DOCTOR,
    "host network": HOST_NETWORK,
    "native": helm_values(DEFAULT, OWN_RULES, remaining=DEFAULT),
    "audit": AUDIT,
}

variants = pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS.keys())


@pytest.fixture
def default_rules() -> RuleSet:
    return DEFAULT


def deployment(objects: list[Object], name: str = NAME) -> Object:
    found: Object = one(objects, "Deployment", name)["spec"]
    return found


def deployments(objects: list[Object]) -> list[Object]:
    return [item["spec"] for item in objects if item["kind"] == "Deployment"]


def container(objects: list[Object], name: str = NAME) -> Object:
    (found,) = deployment(objects, name)["template"]["spec"]["containers"]
    checked: Object = found
    return checked


@variants
def test_helm_lint_reports_nothing(values: Mapping[str, Any]) -> None:
    code, output, errors = helm("lint", "--strict", render.CHART, *set_options(json.dumps(values)))

    assert code == 0, output + errors


@variants
def test_a_helm_that_drops_null_values_renders_the_same(values: Mapping[str, Any]) -> None:
    try:
        later = unpacked_helm(LATER_PACKAGE)
    except HelmNotFoundError as error:
        pytest.skip(str(error))
    options = set_options(json.dumps(values))
    linted = run_helm("lint", "--strict", render.CHART, *options, program=later, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    output = run_helm(
        "template", NAME, render.CHART, "--skip-tests", "--namespace", NAMESPACE, *options, program=later
    ).stdout
    assert sorted(map(str, yaml.safe_load_all(output))) == sorted(map(str, rendered(values)))


def test_a_helm_that_drops_null_values_refuses_rules_without_rights() -> None:
    try:
        later = unpacked_helm(LATER_PACKAGE)
    except HelmNotFoundError as error:
        pytest.skip(str(error))
    webhook: Any = {endpoint: {"operations": [], "matchConditions": []} for endpoint in ("mutating", "validating")}
    options = set_options(json.dumps({"rules": {"a.yaml": "x"}, "webhook": webhook}))
    refused = run_helm("template", NAME, render.CHART, *options, program=later, check=False)
    assert refused.returncode != 0
    assert "rules is set but rbac.nodes is not" in refused.stderr


@variants
def test_objects_are_complete_and_unique(values: Mapping[str, Any]) -> None:
    objects = rendered(values)
    clustered = (
        "ClusterRole", "ClusterRoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    )  # fmt: skip

    for item in objects:
        assert item["apiVersion"], item
        assert re.fullmatch("[a-z0-9-]{1,63}", item["metadata"]["name"])
        assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "gpu-rules"
        assert item["metadata"].get("namespace") == (None if item["kind"] in clustered else NAMESPACE)
    named = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(named) == len(set(named))


def spread_terms(objects: list[Object]) -> list[Object]:
    """Return the topology spread and anti-affinity terms of the pods."""
    spec = deployment(objects)["template"]["spec"]
    preferred = spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    return [*spec["topologySpreadConstraints"], *(term["podAffinityTerm"] for term in preferred)]


@variants
def test_selectors_match_the_pods_of_one_deployment(values: Mapping[str, Any]) -> None:
    objects = rendered(values)
    for name in (item["metadata"]["name"] for item in objects if item["kind"] == "Deployment"):
        ours = [item for item in objects if item["metadata"]["name"] == name]
        labels = deployment(objects, name)["template"]["metadata"]["labels"]
        others = [
            spec["template"]["metadata"]["labels"] for spec in deployments(objects) if spec != deployment(ours, name)
        ]
        selectors = [
            deployment(objects, name)["selector"]["matchLabels"],
            one(objects, "Service", name)["spec"]["selector"],
        ]
        selectors += [i["spec"]["selector"]["matchLabels"] for i in ours if i["kind"] == "PodDisruptionBudget"]
        selectors += [i["spec"]["podSelector"]["matchLabels"] for i in ours if i["kind"] == "NetworkPolicy"]
        selectors += [term["labelSelector"]["matchLabels"] for term in spread_terms(ours)] if name == NAME else []

        for selector in selectors:
            assert selector
            assert selector.items() <= labels.items()
            assert not [other for other in others if selector.items() <= other.items()]


@variants
def test_pods_meet_the_restricted_pod_security_standard(values: Mapping[str, Any]) -> None:
    for deployed in deployments(rendered(values)):
        assert_restricted(deployed["template"]["spec"], host_network=values == HOST_NETWORK)


def assert_restricted(spec: Object, *, host_network: bool) -> None:
    (only,) = spec["containers"]

    # No user and group: OpenShift assigns its own, and refuses others.
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert only["securityContext"]["allowPrivilegeEscalation"] is False
    assert only["securityContext"]["readOnlyRootFilesystem"] is True
    assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"hostNetwork", "hostPID", "hostIPC"} & spec.keys() == ({"hostNetwork"} if host_network else set())
    kinds = {kind for volume in spec["volumes"] for kind in volume.keys() - {"name"}}
    assert kinds <= {"configMap", "emptyDir", "secret"}
    mounted = {mount["name"] for mount in only["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
    writable = [mount["mountPath"] for mount in only["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["/tmp"]
    assert only["resources"]["requests"].keys() == {"cpu", "memory"}


def test_releases_in_one_namespace_do_not_share_names_or_pods() -> None:
    code, output, errors = helm("template", "blue", render.CHART, "--namespace", NAMESPACE, *set_options("{}"))
    assert code == 0, errors
    blue, ours = [item for item in yaml.safe_load_all(output) if item], rendered()

    assert {item["metadata"]["name"].partition("gpu-rules")[0] for item in blue} == {"blue-"}
    service, pods = one(blue, "Service", "blue-gpu-rules"), deployment(ours)["template"]
    assert not service["spec"]["selector"].items() <= pods["metadata"]["labels"].items()


def test_an_older_kubernetes_version_is_refused() -> None:
    code, _, errors = helm("template", NAME, render.CHART, "--kube-version", "1.29.0")

    assert code != 0
    assert "requires kubeVersion: >=1.30" in errors


def test_replicas_are_spread_and_one_is_always_available() -> None:
    objects = rendered()
    spec = deployment(objects)

    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    budget = one(objects, "PodDisruptionBudget")["spec"]
    # Pods that are not ready must not block the drain of a node.
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    keys = [term["topologyKey"] for term in spread_terms(objects)]
    assert keys == ["topology.kubernetes.io/zone", "kubernetes.io/hostname", "kubernetes.io/hostname"]


def test_replicas_can_share_the_only_node() -> None:
    spec = deployment(rendered())["template"]["spec"]

    assert {term["whenUnsatisfiable"] for term in spec["topologySpreadConstraints"]} == {"ScheduleAnyway"}
    assert spec["affinity"]["podAntiAffinity"].keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}


@pytest.mark.parametrize(("values", "seconds"), [({}, 20), (EVERYTHING, 32)])
def test_the_grace_period_covers_draining_and_requests(values: Mapping[str, Any], seconds: int) -> None:
    assert deployment(rendered(values))["template"]["spec"]["terminationGracePeriodSeconds"] == seconds


# Probes and listeners.


def probe_targets(objects: list[Object], name: str = NAME) -> set[tuple[str, str]]:
    """Return port and scheme of the probes. Only readiness uses /readyz, so that a draining pod is not killed."""
    kinds = ("startup", "liveness", "readiness")
    probes = {kind: container(objects, name)[f"{kind}Probe"]["httpGet"] for kind in kinds}
    paths = {kind: probe["path"] for kind, probe in probes.items()}
    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    return {(probe["port"], probe["scheme"]) for probe in probes.values()}


def test_probes_use_the_plain_listener() -> None:
    assert probe_targets(rendered(EVERYTHING)) == {("metrics", "HTTP")}


def test_without_metrics_probes_use_the_tls_listener() -> None:
    objects = rendered(NOTHING)

    assert probe_targets(objects) == {("https", "HTTPS")}
    assert [port["name"] for port in container(objects)["ports"]] == ["https"]
    assert [port["name"] for port in one(objects, "Service")["spec"]["ports"]] == ["https"]


def test_client_certificates_require_the_plain_listener() -> None:
    assert "clientCA.configMap requires metrics.enabled" in rejection({**NOTHING, "clientCA": {"configMap": "ca"}})


@variants
def test_named_ports_exist(values: Mapping[str, Any]) -> None:
    objects = rendered(values)
    there = {port["name"]: port["containerPort"] for port in container(objects)["ports"]}
    arguments = container(objects)["args"]

    assert {port["targetPort"] for port in one(objects, "Service")["spec"]["ports"]} == there.keys()
    for flag, port in (("--listen", "https"), ("--metrics-listen", "metrics")):
        if port in there:
            assert f"{flag}=0.0.0.0:{there[port]}" in arguments


# The server's options.


@variants
def test_the_server_accepts_every_option_of_the_chart(values: Mapping[str, Any], tmp_path: Path) -> None:
    serve, *given = container(rendered(values))["args"]
    for argument in given:
        path = argument.partition("=/")[2]
        if path and path != "etc/gpu-rules/rules":
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()
    (tmp_path / "etc/gpu-rules/rules").mkdir(parents=True)
    here = [argument.replace("=/etc/", f"={tmp_path}/etc/") for argument in given]

    # Parsed as on the command line: an unknown option or an invalid value raises.
    assert serve == "serve"
    assert main.commands["serve"].make_context("serve", here).params


def test_every_value_of_the_server_becomes_an_option() -> None:
    given = container(rendered(EVERYTHING))["args"]

    assert given[0] == "serve"
    assert {
        "--max-staleness=60", "--drain-seconds=7", "--grace-seconds=20", "--max-concurrent=8",
        "--declare=/etc/gpu-rules/declared/nodes.yaml", "--request-timeout=1.5", "--decision-log=-",
        "--decision-log-messages", "--events", "--reserve-for=all", "--test-on-reload", "--log-format=line",
        "--client-ca=/etc/gpu-rules/client-ca/ca.crt",
    } <= set(given)  # fmt: skip


@pytest.mark.parametrize("setting", [it for it in SETTINGS if it.chart], ids=lambda it: it.option)
def test_values_of_the_server_have_the_bounds_of_their_options(setting: ServeOption) -> None:
    schema = json.loads((render.CHART / "values.schema.json").read_text())
    member = schema["properties"]["server"]["properties"][setting.chart]

    match setting.attributes.get("type"):
        case click.Choice() as choice:
            assert member["enum"] == [*choice.choices]
        case click.IntRange() | click.FloatRange() as bounds:
            assert (member["minimum"], member["maximum"]) == (bounds.min, bounds.max)
        case _:
            assert setting.attributes["is_flag"]
            assert member["type"] == "boolean"


OTHER_DEFAULTS = {
    "drainSeconds": "a large cluster takes longer to remove a pod from its Services",
    "logFormat": "logs of a cluster are collected as JSON",
}
"""Values of the chart that differ from the server's defaults, each with the reason."""


def test_defaults_of_the_chart_are_those_of_the_server() -> None:
    values = yaml.safe_load((render.CHART / "values.yaml").read_text())["server"]
    given = {setting.chart: (values[setting.chart], setting.default) for setting in SETTINGS if setting.chart}

    assert {name for name, (value, default) in given.items() if value not in (None, default)} == OTHER_DEFAULTS.keys()


def test_the_chart_covers_every_option_that_a_pod_can_use() -> None:
    given = {name for values in VARIANTS.values() for name in options(rendered(values))}

    not_in_pods = {"--tls-dir", "--receive-seconds", "--ready-fd", "--kubeconfig", "--context"}
    assert {setting.option for setting in SETTINGS} - given == not_in_pods
    assert not given - {setting.option for setting in SETTINGS}


def options(objects: list[Object]) -> dict[str, str]:
    """Return the value of each option of the server, "" for a flag."""
    _, *given = container(objects)["args"]
    return {name: value for name, _, value in (argument.partition("=") for argument in given)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (EVERYTHING, {"--declare": "nodes.yaml", "--client-ca": "ca.crt of api-server-ca"}),
        (CERT_MANAGER, {"--tls-cert": f"tls.crt of {NAME}-tls", "--tls-key": f"tls.key of {NAME}-tls"}),
        (NOTHING, {"--tls-cert": "tls.crt of mine", "--tls-key": "tls.key of mine"}),
    ],
)
def test_files_named_by_options_are_mounted(values: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    objects = rendered(values)
    mounts = {mount["mountPath"]: mount["name"] for mount in container(objects)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in deployment(objects)["template"]["spec"]["volumes"]}

    def found(path: str) -> Any:
        """Return all files of a ConfigMap of the chart, or one of them, or one of an object from elsewhere."""
        place = next(mount for mount in mounts if path == mount or path.startswith(f"{mount}/"))
        volume, file = volumes[mounts[place]], path.removeprefix(place).removeprefix("/")
        source = volume["configMap"]["name"] if "configMap" in volume else volume["secret"]["secretName"]
        ours = [item for item in objects if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", source)]
        if not ours:
            return f"{file} of {source}"
        return file if file in ours[0]["data"] else set(ours[0]["data"])

    named = {option: found(path) for option, path in options(objects).items() if path.startswith("/")}
    rules = one(objects, "ConfigMap", f"{NAME}-rules")["data"].keys()
    assert named == {"--rules": rules, **expected}


@variants
def test_mounted_files_are_updated_with_their_source(values: Mapping[str, Any]) -> None:
    for deployed in deployments(rendered(values)):
        (only,) = deployed["template"]["spec"]["containers"]
        assert not [mount for mount in only["volumeMounts"] if "subPath" in mount]


def test_the_server_can_read_the_private_key_without_root() -> None:
    spec = deployment(rendered(CERT_MANAGER))["template"]["spec"]

    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "tls")
    assert volume["secret"]["defaultMode"] == 0o444


@variants
def test_only_the_servers_pods_get_the_token_of_its_account(values: Mapping[str, Any]) -> None:
    objects = rendered(values)
    spec = deployment(objects)["template"]["spec"]

    assert options(objects)["--cluster"] == "in-cluster"
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (NAME, True)
    # Other pods that use the account do not get its token by default.
    assert one(objects, "ServiceAccount")["automountServiceAccountToken"] is False


def test_variables_of_services_are_not_taken_for_options() -> None:
    assert deployment(rendered())["template"]["spec"]["enableServiceLinks"] is False


def test_a_bootstrapped_certificate_is_for_the_called_service() -> None:
    objects = rendered({"tls": {"mode": "bootstrap", "secretName": "kept"}})
    given = options(objects)

    assert one(objects, "Secret", "kept")
    assert given["--tls-bootstrap"] == f"{NAMESPACE}/kept"
    for found in webhook_configurations(objects):
        service = found["webhooks"][0]["clientConfig"]["service"]
        assert given["--tls-service"] == f"{service['name']}.{service['namespace']}.svc"
        assert given["--webhook-name"] == found["metadata"]["name"]
        assert one(objects, "Service", service["name"])["spec"]["ports"][0]["port"] == service["port"]


@pytest.mark.parametrize(("values", "name"), [(CERT_MANAGER, NAME), (NOTHING, None)])
def test_webhook_configurations_are_compared_if_enabled(values: Mapping[str, Any], name: str | None) -> None:
    assert options(rendered(values)).get("--webhook-name") == name


# The network.


TEST_POD = {
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": f"{NAME}-test", "app.kubernetes.io/instance": NAME}}
}


def test_the_default_network_policy() -> None:
    spec = one(rendered(), "NetworkPolicy")["spec"]

    assert sorted(spec["policyTypes"]) == ["Egress", "Ingress"]
    assert spec["ingress"] == [
        {"ports": [{"port": "https", "protocol": "TCP"}]},
        {"ports": [{"port": "metrics", "protocol": "TCP"}], "from": [{"namespaceSelector": {}}, TEST_POD]},
    ]
    assert spec["egress"] == [{"ports": [{"port": port, "protocol": "TCP"} for port in (443, 6443)]}]


def test_peers_of_the_network_policy_can_be_restricted() -> None:
    prometheus = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    given: Mapping[str, Any] = {
        "apiServerCIDRs": ["10.0.0.1/32", "fd00::1/128"],
        "apiServerPorts": [8443],
        "metricsFrom": [prometheus],
    }
    objects = rendered({"networkPolicy": given})
    webhook, metrics = one(objects, "NetworkPolicy")["spec"]["ingress"]

    assert webhook["from"] == [{"ipBlock": {"cidr": cidr}} for cidr in given["apiServerCIDRs"]]
    assert metrics["from"] == [prometheus, TEST_POD]
    assert one(objects, "NetworkPolicy")["spec"]["egress"] == [{"ports": [{"port": 8443, "protocol": "TCP"}]}]


def test_without_metrics_only_the_webhook_is_reachable() -> None:
    (only,) = one(rendered({"metrics": {"enabled": False}}), "NetworkPolicy")["spec"]["ingress"]

    assert only["ports"] == [{"port": "https", "protocol": "TCP"}]


# Rights.

Right = tuple[str, str, str, str]
"""API group, resource, name or *, verb."""

READ_CLASSES = {
    (group, resource, "*", verb)
    for group, resource in (("scheduling.k8s.io", "priorityclasses"), ("node.k8s.io", "runtimeclasses"))
    for verb in ("list", "watch")
}
READ_NODES = {
    (group, resource, "*", operation)
    for group, resource in (
        ("", "nodes"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceslices"),
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceclaimtemplates"),
        ("resource.k8s.io", "devicetaintrules"),
    )
    for operation in ("list", "watch")
}
COMPARE = {
    ("admissionregistration.k8s.io", f"{kind}webhookconfigurations", NAME, "get") for kind in ("mutating", "validating")
}
PATCH = {(group, resource, name, "patch") for group, resource, name, _ in COMPARE}
SECRET = {("", "secrets", f"{NAME}-tls", operation) for operation in ("get", "update")}
KEEP = {("", "configmaps", f"{NAME}-kept-rules", operation) for operation in ("get", "update")}
EVENTS = {("", "events", "*", "create")}


def rights(objects: list[Object], account: str = NAME) -> set[Right]:
    """Return all rights of an account. Asserts that each role is bound to the account that it is named after only."""
    found: set[Right] = set()
    every = [item for item in objects if item["kind"] in ("ClusterRole", "Role")]
    roles = [item for item in every if item["metadata"]["name"].startswith(DOCTOR) == (account == DOCTOR)]
    for role in roles:
        binding = one(objects, f"{role['kind']}Binding", role["metadata"]["name"])
        assert binding["roleRef"]["kind"] == role["kind"]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            found |= {
                (group, resource, name, operation)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for name in rule.get("resourceNames", ["*"])
                for operation in rule["verbs"]
            }
    assert len([item for item in objects if item["kind"].endswith("RoleBinding")]) == len(every)
    return found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, READ_NODES | COMPARE | PATCH | SECRET | KEEP),
        (CERT_MANAGER, READ_NODES | COMPARE | KEEP),
        (NOTHING, set()),
        ({**NOTHING, "server": {"drainSeconds": 5, "graceSeconds": 5, "events": True, "keepRules": False}}, EVENTS),
        ({**NOTHING, "rbac": {"nodes": False, "pods": True, "namespaces": False}},
         {("", "pods", "*", "list"), ("", "pods", "*", "watch")}),
        ({**NOTHING, "rbac": {**NOTHING["rbac"], "classes": True}}, READ_CLASSES),
    ],
)  # fmt: skip
def test_the_server_has_only_the_rights_of_enabled_features(values: Mapping[str, Any], expected: set[Right]) -> None:
    assert rights(rendered(values)) == expected


def test_each_feature_has_a_role_and_own_objects_a_namespaced_one() -> None:
    objects = rendered({"server": {"drainSeconds": 5, "graceSeconds": 5, "events": True}})
    roles = {item["metadata"]["name"]: item for item in objects if item["kind"] in ("ClusterRole", "Role")}
    granted = {
        name: (role["kind"], {found for rule in role["rules"] for found in rule["resources"]})
        for name, role in roles.items()
    }

    assert granted == {
        f"{NAME}-cluster": ("ClusterRole", {resource for _, resource, _, _ in READ_NODES}),
        f"{NAME}-webhooks": ("ClusterRole", {resource for _, resource, _, _ in COMPARE}),
        f"{NAME}-events": ("ClusterRole", {"events"}),
        f"{NAME}-tls": ("Role", {"secrets"}),
        f"{NAME}-kept-rules": ("Role", {"configmaps"}),
    }


def test_an_upgrade_does_not_overwrite_what_the_server_writes() -> None:
    secret, kept = one(rendered(), "Secret", f"{NAME}-tls"), one(rendered(), "ConfigMap", f"{NAME}-kept-rules")

    assert secret.keys() == {"apiVersion", "kind", "metadata", "type"}
    assert kept.keys() == {"apiVersion", "kind", "metadata"}
    assert (
        f"--keep-rules={NAMESPACE}/{NAME}-kept-rules"
        in deployment(rendered())["template"]["spec"]["containers"][0]["args"]
    )


# The doctor.


def test_the_doctor_is_off_by_default() -> None:
    assert [item["metadata"]["name"] for item in rendered() if "doctor" in item["metadata"]["name"]] == []
    assert DOCTOR not in "".join(path.read_text() for path in render.MANIFESTS.iterdir())


def doctor_arguments(values: Mapping[str, Any]) -> list[str]:
    arguments: list[str] = container(rendered(values), DOCTOR)["args"]
    assert arguments[0] == "doctor"
    return arguments[1:]


@pytest.mark.parametrize("values", [WITH_DOCTOR, EVERYTHING])
def test_the_doctor_accepts_every_option_of_the_chart(values: Mapping[str, Any], tmp_path: Path) -> None:
    given = [argument.replace("=/etc/gpu-rules/rules", f"={tmp_path}") for argument in doctor_arguments(values)]

    found = main.commands["doctor"].make_context("doctor", given).params
    assert (found["watch"], found["rules"], str(found["metrics_listen"])) == (
        True,
        (PathSource(tmp_path),),
        "0.0.0.0:9090",
    )


def test_values_of_the_doctor_become_options() -> None:
    assert {
        "--interval=60", "--since=2h", "--events", "--timeout=600", "--log-format=line",
    } <= set(doctor_arguments(EVERYTHING))  # fmt: skip
    assert "--events" not in doctor_arguments(WITH_DOCTOR)


def test_defaults_and_bounds_of_the_doctor_are_those_of_the_command() -> None:
    values = yaml.safe_load((render.CHART / "values.yaml").read_text())["doctor"]
    schema = json.loads((render.CHART / "values.schema.json").read_text())["properties"]["doctor"]["properties"]
    options = {option.name: option for option in main.commands["doctor"].params}
    interval, since = options["interval"], options["since"]

    assert isinstance(interval.type, click.FloatRange)
    assert (values["intervalSeconds"], values["since"]) == (interval.default, since.default)
    bounds = schema["intervalSeconds"]["minimum"], schema["intervalSeconds"]["maximum"]
    assert bounds == (interval.type.min, interval.type.max)
    for given in ("1s", "30m", "999999d", "1", "h", "1w", "-1h", "1.5h"):
        valid = re.search(schema["since"]["pattern"], given) is not None
        assert valid == accepts(since, given), given


def accepts(option: click.Parameter, value: str) -> bool:
    try:
        option.type.convert(value, option, None)
    except click.BadParameter:
        return False
    return True


def test_the_doctor_reads_the_rules_of_the_server() -> None:
    objects = rendered(WITH_DOCTOR)
    spec = deployment(objects, DOCTOR)["template"]["spec"]

    (mount,) = (mount for mount in container(objects, DOCTOR)["volumeMounts"] if mount["name"] == "rules")
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "rules")
    assert f"--rules={mount['mountPath']}" in container(objects, DOCTOR)["args"]
    assert one(objects, "ConfigMap", volume["configMap"]["name"])["data"]


def test_two_doctors_never_run_at_once() -> None:
    spec = deployment(rendered(WITH_DOCTOR), DOCTOR)

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


@pytest.mark.parametrize("events", [False, True])
def test_the_doctor_can_read_what_it_lists_and_write_only_events(events: bool) -> None:
    objects = rendered({"doctor": {"enabled": True, "events": events}})
    reads = {
        (each.group, each.resource.partition(".")[0], STATUS_NAME.name if kind == AUTOSCALER_STATUS else "*", "list")
        for kind, each in API_KINDS.items()
        if each.diagnosed
    }

    assert rights(objects, DOCTOR) == reads | (EVENTS if events else set())
    assert rights(objects) == rights(rendered())
    spec = deployment(objects, DOCTOR)["template"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (DOCTOR, True)
    assert one(objects, "ServiceAccount", DOCTOR)["automountServiceAccountToken"] is False


def test_probes_and_metrics_of_the_doctor_use_its_port() -> None:
    objects = rendered(EVERYTHING)
    (port,) = container(objects, DOCTOR)["ports"]
    probes = {
        kind: container(objects, DOCTOR)[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")
    }

    assert f"--metrics-listen=0.0.0.0:{port['containerPort']}" in container(objects, DOCTOR)["args"]
    assert {kind: probe["path"] for kind, probe in probes.items()} == {
        "startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz",
    }  # fmt: skip
    assert {(probe["port"], probe["scheme"]) for probe in probes.values()} == {(port["name"], "HTTP")}
    service = one(objects, "Service", DOCTOR)
    assert [exposed["targetPort"] for exposed in service["spec"]["ports"]] == [port["name"]]
    (endpoint,) = one(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["port"] in [exposed["name"] for exposed in service["spec"]["ports"]]
    selected = one(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert selected.items() <= service["metadata"]["labels"].items()


def test_the_doctor_may_be_scraped_and_reach_the_api_server_only() -> None:
    prometheus = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    given = {"metricsFrom": [prometheus], "apiServerPorts": [8443]}
    spec = one(rendered({**WITH_DOCTOR, "networkPolicy": given}), "NetworkPolicy", DOCTOR)["spec"]

    assert sorted(spec["policyTypes"]) == ["Egress", "Ingress"]
    assert spec["ingress"] == [{"ports": [{"port": "metrics", "protocol": "TCP"}], "from": [prometheus]}]
    assert spec["egress"] == [{"ports": [{"port": 8443, "protocol": "TCP"}]}]
    without = rendered({**WITH_DOCTOR, "networkPolicy": {"enabled": False}})
    assert [item for item in without if item["kind"] == "NetworkPolicy"] == []


# Webhook configurations.


def webhook_configurations(objects: list[Object]) -> list[Object]:
    return [one(objects, f"{kind}WebhookConfiguration") for kind in ("Mutating", "Validating")]


def test_webhooks_are_the_same_as_those_of_the_command(default_rules: RuleSet) -> None:
    settings = Settings(server=Service(NAME, NAMESPACE, 443), namespace=NAMESPACE)
    expected: tuple[Any, ...] = build_configurations(default_rules, settings)

    for found, made in zip(webhook_configurations(rendered()), expected, strict=True):
        assert found["webhooks"] == made["webhooks"]
        assert found["metadata"]["annotations"] == made["metadata"]["annotations"]


@variants
def test_the_server_finds_no_drift(values: Mapping[str, Any], default_rules: RuleSet) -> None:
    derived = derive_calls(default_rules, audit=values is AUDIT)
    for calls, found in zip(derived, webhook_configurations(rendered(values)), strict=True):
        assert find_drift(calls, NAME, found) == ()


def test_validations_of_updates_are_also_sent_resizes(tmp_path: Path) -> None:
    rules = {"v.yaml": validation("v", "object.spec.?hostNetwork != optional.of(true)", match="{operations: [UPDATE]}")}
    write(tmp_path, rules)
    rule_set = read_rules([tmp_path]).rule_set
    settings = Settings(server=Service(NAME, NAMESPACE, 443), namespace=NAMESPACE)
    expected: tuple[Any, ...] = build_configurations(rule_set, settings)

    _, validating = webhook_configurations(rendered(dict(helm_values(rule_set, rules))))
    assert validating["webhooks"] == expected[1]["webhooks"]
    assert validating["webhooks"][0]["rules"][0]["resources"] == ["pods", "pods/resize"]
    assert find_drift(derive_calls(rule_set)[1], NAME, validating) == ()


@pytest.mark.parametrize("namespaces", [("*",), ("ml",)])
def test_pods_without_gpus_have_a_webhook_of_their_own(namespaces: tuple[str, ...]) -> None:
    rule_set = compiled(pod_defaults(match=Match(namespaces=namespaces)))
    values: Any = helm_values(rule_set, {"rules.yaml": "# any"}, {Endpoint.MUTATE: "Fail"})
    values["webhook"]["mutating"]["timeoutSeconds"] = 7
    settings = Settings(namespace=NAMESPACE, failure_policies={Endpoint.MUTATE: "Fail"}, timeout_seconds=7)
    expected: Any = build_configurations(rule_set, settings)[0]

    found, _ = webhook_configurations(rendered(values))
    assert len(found["webhooks"]) == 2
    assert found["webhooks"] == expected["webhooks"]
    assert find_drift(derive_calls(rule_set)[0], NAME, found) == ()
    admitted = "Pods that request no GPUs are admitted: their webhook has failurePolicy Ignore."
    assert admitted in notes(values)
    assert admitted not in notes({"webhook": {"mutating": {"failurePolicy": "Fail"}}})


ALWAYS_FAIL = {endpoint: {"failurePolicy": "Fail"} for endpoint in ("mutating", "validating")}


def test_no_pod_depends_on_a_server_in_audit() -> None:
    rule_set = compiled(pod_defaults(), rule_of_every_pod("v"))
    values: Any = helm_values(rule_set, {"rules.yaml": "# any"}, dict.fromkeys(Endpoint, "Fail"))
    enforced = webhook_configurations(rendered(values))
    policies = [webhook["failurePolicy"] for found in enforced for webhook in found["webhooks"]]
    assert policies == ["Fail", "Ignore", "Fail"]
    values["rules"]["mode"] = "Audit"
    settings = Settings(namespace=NAMESPACE, audit=True)
    expected: Any = build_configurations(rule_set, settings)

    audited = webhook_configurations(rendered({**values, "replicas": 1}))
    assert [found["webhooks"] for found in audited] == [each["webhooks"] for each in expected]
    assert [webhook["failurePolicy"] for found in audited for webhook in found["webhooks"]] == ["Ignore"] * 3
    for calls, found in zip(derive_calls(rule_set, audit=True), audited, strict=True):
        assert find_drift(calls, NAME, found, settings) == ()
    assert "--mode=Audit" in container(rendered(values))["args"]
    assert "--mode=Audit" not in container(rendered({}))["args"]


def rule_of_every_pod(name: str) -> Rule:
    return validation_of("true", name=name, match=Match(resources=(GPU,)))


def test_sets_in_audit_have_the_webhooks_that_the_command_derives(default_rules: RuleSet) -> None:
    settings = Settings(server=Service(NAME, NAMESPACE, 443), namespace=NAMESPACE, audit=True, namespaces=("ml", "nlp"))
    expected: Any = build_configurations(default_rules, settings)
    found = webhook_configurations(rendered(AUDIT))

    assert [each["webhooks"] for each in found] == [each["webhooks"] for each in expected]
    for calls, each in zip(derive_calls(default_rules, audit=True), found, strict=True):
        assert find_drift(calls, NAME, each, settings) == ()
    assert {"--mode=Audit", "--namespaces=ml", "--namespaces=nlp"} <= {*container(rendered(AUDIT))["args"]}


def test_notes_say_the_mode_and_the_namespaces() -> None:
    printed = notes({**AUDIT, "webhook": ALWAYS_FAIL, "rbac": {"pods": True}, "server": {"events": True}})

    assert printed.startswith("gpu-rules decides on pods of ml, nlp by the rule sets ")
    assert "rules.mode is Audit: it logs what the rules would do, and allows every pod unchanged." in printed
    for text in ("failurePolicy is", "reserved for admitted pods", "no Events are sent"):
        assert text not in printed


def test_helm_test_creates_its_pod_in_a_namespace_whose_pods_are_sent() -> None:
    def namespace(values: Mapping[str, Any]) -> Any:
        options = set_options(json.dumps(values))
        code, output, errors = helm("template", NAME, render.CHART, "--namespace", NAMESPACE, *options)
        assert code == 0, errors
        return one([*yaml.safe_load_all(output)], "Role", f"{NAME}-test")["metadata"]["namespace"]

    assert namespace({}) == "default"
    assert namespace(AUDIT) == "ml"
    assert namespace({**AUDIT, "helmTest": {"namespace": "nlp"}}) == "nlp"
    assert namespace({"rules": {**AUDIT["rules"], "namespaces": ["123"]}}) == "123"
    assert "helmTest.namespace is x, whose pods are not sent" in rejection({**AUDIT, "helmTest": {"namespace": "x"}})


@pytest.mark.parametrize("narrowed", [{"mode": "Audit"}, {"namespaces": ["ml"]}])
def test_policies_that_enforce_everywhere_do_not_go_with_audit_or_namespaces(narrowed: Mapping[str, Any]) -> None:
    values = helm_values(DEFAULT, OWN_RULES, remaining=DEFAULT)
    rules: Any = values["rules"]

    assert "exported policies enforce in all namespaces" in rejection({**values, "rules": {**rules, **narrowed}})


def test_custom_rules_set_their_conditions_and_rights(tmp_path: Path) -> None:
    objects = rendered(own_values(tmp_path))
    rule_set = read_rules([tmp_path]).rule_set

    mutating, validating = webhook_configurations(objects)
    assert "amd.com/gpu" in mutating["webhooks"][0]["matchConditions"][0]["expression"]
    assert "amd.com/gpu" in validating["webhooks"][0]["matchConditions"][0]["expression"]  # reads free devices
    mutate, validate = derive_calls(rule_set)
    assert find_drift(mutate, NAME, mutating) == find_drift(validate, NAME, validating) == ()
    assert ("", "pods", "*", "watch") in rights(objects)
    assert one(objects, "ConfigMap", f"{NAME}-rules")["data"] == OWN_RULES


def test_values_of_versions_without_classes_are_accepted(tmp_path: Path) -> None:
    values = own_values(tmp_path)
    expected = rendered(values)
    del values["rbac"]["classes"]
    assert rendered(values) == expected


def test_texts_in_values_arrive_unchanged(tmp_path: Path) -> None:
    indented = textwrap.indent(OWN_RULES["ladder.yaml"], "  ")
    spaced = f"\n# One.  \n\n{OWN_RULES['ladder.yaml']}\n"
    files = {"a.yaml": indented, "b.yaml": spaced, "c.json": '{"kind": "FallbackLadder"}'}
    server = {"drainSeconds": 5, "graceSeconds": 5, "declare": indented}
    objects = rendered({**own_values(tmp_path), "rules": files, "server": server})

    assert one(objects, "ConfigMap", f"{NAME}-rules")["data"] == files
    assert one(objects, "ConfigMap", f"{NAME}-declared")["data"] == {"nodes.yaml": indented}


@pytest.mark.parametrize("left_out", ["webhook", "rbac"])
def test_custom_rules_without_derived_values_are_refused(left_out: str, tmp_path: Path) -> None:
    values = {key: value for key, value in own_values(tmp_path).items() if key != left_out}

    assert "gpu-rules webhook-config --rules FOLDER --output helm-values" in rejection(values)


@pytest.mark.parametrize(("endpoint", "path"), [("mutating", "/mutate"), ("validating", "/validate")])
def test_notes_warn_of_fail_and_of_sending_every_pod(endpoint: str, path: str) -> None:
    assert "failurePolicy is Fail" not in notes({})
    assert "failurePolicy is Fail" in notes({"webhook": {endpoint: {"failurePolicy": "Fail"}}})
    assert "Every pod is sent to /validate" not in notes({})
    assert "Every pod is sent to /validate" in notes({"webhook": {"validating": {"matchConditions": []}}})
    of_deletion = {"operations": ["CREATE", "UPDATE"], "matchConditions": [DELETION_CONDITION], "failurePolicy": "Fail"}
    every = notes({"webhook": {endpoint: of_deletion}})
    assert f"Every pod is sent to {path}: " in every
    assert (
        f"webhook.{endpoint}.failurePolicy is Fail: while the server does not answer, no pod is created or upd" in every
    )
    assert "kubectl label namespace NAME gpurules.io/admission=disabled" in every


def notes(values: Mapping[str, Any], *arguments: str) -> str:
    options = set_options(json.dumps(values))
    code, output, errors = helm("install", NAME, render.CHART, "--dry-run=client", *arguments, *options)
    assert code == 0, errors
    return output.partition("\nNOTES:\n")[2]


def test_notes_begin_with_the_next_commands(tmp_path: Path) -> None:
    printed = notes({}, "--namespace", NAMESPACE)

    assert f"by the rule sets {RULES['sets'][0]}, once it is ready. Next:" in printed
    commands = [line.strip() for line in printed.splitlines() if line.startswith("  ")]
    assert commands == [
        f"kubectl -n {NAMESPACE} rollout status deployment/{NAME}",
        f"helm test {NAME} -n {NAMESPACE} --logs",
        f"gpu-rules explain -f pod.yaml --rules configmap:{NAMESPACE}/{NAME}-rules --cluster kubeconfig",
        f"kubectl -n {NAMESPACE} logs -f deployment/{NAME}",
    ]
    assert "by the rules in ladder.yaml, once" in notes(own_values(tmp_path))
    assert "Pods of the namespace default are not sent" in notes({}, "--namespace", "default")
    assert "Pods of the namespace" not in printed
    assert "reaches the ports 8443 and 9090 (metrics and rules, in plain HTTP)" in notes({"hostNetwork": True})


def test_notes_warn_that_nothing_is_reserved_and_no_event_sent() -> None:
    reading: Mapping[str, Any] = {"rbac": {"pods": True}, "server": {"events": True}}
    reserved, events = "no devices are reserved for admitted pods", "no Events are sent"
    certificate = "the API server must present a client certificate of that CA"

    assert not any(text in notes({}) for text in (reserved, events, certificate))
    assert all(text in notes(reading) for text in (reserved, events))
    for counted in ({"clientCA": {"configMap": "ca"}}, {"server": {"events": True, "reserveFor": "all"}}):
        printed = notes({**reading, **counted})
        assert not any(text in printed for text in (reserved, events))
        assert (certificate in printed) == ("clientCA" in counted)


@pytest.mark.parametrize("endpoint", ["mutating", "validating"])
def test_notes_name_rules_that_deny_under_ignore(endpoint: str, tmp_path: Path) -> None:
    warning = f"webhook.{endpoint}.failurePolicy is Ignore, and these rules can deny a pod: "
    named: Any = helm_values(read_rules([DEFAULT_RULES]).rule_set, {})["webhook"]

    assert warning + ", ".join(named[endpoint]["denies"]) in notes({})
    assert warning not in notes({"webhook": {endpoint: {"failurePolicy": "Fail"}}})
    assert warning not in notes({"webhook": {endpoint: {"denies": []}}})
    own = own_values(tmp_path)
    assert "can deny a pod" not in notes(own), "a ladder that keeps the resource denies no pod"
    for values in own["webhook"].values():
        del values["denies"]
    assert "can deny a pod" not in notes(own), "values of an earlier version do not list the packaged rules"


def test_chart_and_command_exclude_labelled_namespaces(default_rules: RuleSet) -> None:
    ours = [found["webhooks"][0]["namespaceSelector"] for found in webhook_configurations(rendered())]
    made: Any = build_configurations(default_rules, Settings(server=Service(NAME, NAMESPACE, 443), namespace=NAMESPACE))

    assert ours == [found["webhooks"][0]["namespaceSelector"] for found in made]
    label = {"key": "gpurules.io/admission", "operator": "NotIn", "values": ["disabled"]}
    assert all(label in selector["matchExpressions"] for selector in ours)


def test_selectors_are_not_compared(default_rules: RuleSet) -> None:
    for calls, found in zip(derive_calls(default_rules), webhook_configurations(rendered()), strict=True):
        assert find_drift(calls, NAME, found) == ()
        found["webhooks"][0]["namespaceSelector"]["matchExpressions"].pop()
        assert find_drift(calls, NAME, found) == ()


def test_policies_timeouts_and_namespaces_can_be_set() -> None:
    (mutating,), (validating,) = (found["webhooks"] for found in webhook_configurations(rendered(EVERYTHING)))

    assert (mutating["failurePolicy"], mutating["timeoutSeconds"]) == ("Fail", 2)
    assert (validating["failurePolicy"], validating["timeoutSeconds"]) == ("Fail", 3)
    excluded, _ = mutating["namespaceSelector"]["matchExpressions"]
    assert excluded["values"] == [NAMESPACE, "infra", "kube-system"]
    assert validating["namespaceSelector"] == mutating["namespaceSelector"]


# The ValidatingAdmissionPolicy on the server's changes of its webhook configurations.


def policy(values: Mapping[str, Any] | None = None) -> Object:
    spec: Object = one(rendered(values), "ValidatingAdmissionPolicy", f"{NAME}-ca-bundle")["spec"]
    return spec


def denied(before: Object, after: Object, username: str = f"system:serviceaccount:{NAMESPACE}:{NAME}") -> bool:
    """Return True if the policy denies an update, as the API server evaluates it."""
    activation = {"object": after, "oldObject": before, "request": {"userInfo": {"username": username}}}

    def holds(expression: str) -> bool:
        program = compile_expression(SourceText.inline(expression), KUBERNETES, result=types.BOOL)
        return program.evaluate(activation, Budget()) is True

    spec = policy()
    if not all(holds(condition["expression"]) for condition in spec["matchConditions"]):
        return False
    try:
        return not all(holds(validation["expression"]) for validation in spec["validations"])
    except EvaluationError:
        return bool(spec["failurePolicy"] == "Fail")


def stored(configuration: Object) -> Object:
    """Return a configuration as the API server stores it, with its metadata and defaults."""
    found = copy.deepcopy(configuration)
    found["metadata"] |= {"generation": 1, "resourceVersion": "7", "uid": "u", "managedFields": [{"manager": "helm"}]}
    for webhook in found["webhooks"]:
        webhook["objectSelector"] = {}
        webhook["clientConfig"]["caBundle"] = "b2xk"
    return found


def test_the_server_may_change_the_ca_bundle() -> None:
    for found in webhook_configurations(rendered()):
        before = stored(found)
        after = copy.deepcopy(before)
        after["webhooks"][0]["clientConfig"]["caBundle"] = "bmV3"
        after["metadata"] |= {"generation": 2, "resourceVersion": "8", "managedFields": [{"manager": "python"}, {}]}
        assert not denied(before, after)
        for one_of_both in (before, after):
            other = copy.deepcopy(one_of_both)
            del other["webhooks"][0]["clientConfig"]["caBundle"]
            del other["metadata"]["managedFields"]
            assert not denied(other, after)
            assert not denied(before, other)


def paths_below(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from paths_below(part, (*path, key))


FREE = {("metadata", "generation"), ("metadata", "resourceVersion"), ("metadata", "managedFields")}


@pytest.mark.parametrize("kind", [0, 1])
def test_the_server_may_change_no_other_field(kind: int) -> None:
    before = stored(webhook_configurations(rendered())[kind])
    tried = 0
    for path in paths_below(before):
        if path[:2] in FREE or path[-1:] == ("caBundle",) or path in ((), ("apiVersion",), ("kind",)):
            continue
        removed, changed = copy.deepcopy(before), copy.deepcopy(before)
        for made in (removed, changed):
            *parents, last = path
            place = made
            for parent in parents:
                place = place[parent]
            if made is removed:
                del place[last]
            elif isinstance(place[last], dict):
                place[last]["added"] = "more"
            elif isinstance(place[last], list):
                place[last].append("more")
            else:
                place[last] = "other"
        if path == ("metadata",) or path[-1:] == ("clientConfig",) or path[2:] == ("name",):
            removed = changed  # required fields: the API server refuses an object without them
        assert denied(before, removed), path
        assert denied(before, changed), path
        tried += 1
    assert tried > 20


def test_webhooks_are_neither_added_nor_reordered() -> None:
    before = stored(webhook_configurations(rendered())[0])
    other = {**copy.deepcopy(before["webhooks"][0]), "name": "other.gpurules.io"}
    two = {**before, "webhooks": [before["webhooks"][0], other]}

    assert denied(before, two)
    assert denied(two, before)
    assert denied(two, {**two, "webhooks": two["webhooks"][::-1]})
    assert not denied(two, two)
    none = {key: value for key, value in before.items() if key != "webhooks"}
    assert denied(none, before)
    assert not denied(none, none)


def test_the_policy_restricts_only_the_server() -> None:
    before, _ = map(stored, webhook_configurations(rendered()))
    after = {**before, "webhooks": []}
    names = policy()["matchConstraints"]["resourceRules"]

    assert denied(before, after)
    assert not denied(before, after, username="kubernetes-admin")
    assert not denied(before, after, username=f"system:serviceaccount:other:{NAME}")
    (rule,) = names
    # The server takes Invalid for a conflict and tries again; it logs Forbidden.
    assert {validation["reason"] for validation in policy()["validations"]} == {"Forbidden"}
    assert rule["resourceNames"] == [found["metadata"]["name"] for found in webhook_configurations(rendered())][:1]
    granted = {(group, resource) for group, resource, _, operation in rights(rendered()) if operation == "patch"}
    assert {(group, resource) for group in rule["apiGroups"] for resource in rule["resources"]} == granted
    assert rule["operations"] == ["UPDATE"]


def test_the_policy_is_installed_only_with_the_right_to_patch() -> None:
    binding = one(rendered(), "ValidatingAdmissionPolicyBinding", f"{NAME}-ca-bundle")["spec"]
    assert binding == {"policyName": f"{NAME}-ca-bundle", "validationActions": ["Deny"]}
    for values in (CERT_MANAGER, NOTHING, {"tls": {"mode": "bootstrap", "bootstrap": {"admissionPolicy": False}}}):
        assert not [item for item in rendered(values) if item["kind"].startswith("ValidatingAdmissionPolicy")]


# Certificates.


@pytest.mark.parametrize("values", [CERT_MANAGER, OWN_ISSUER])
def test_cert_manager_issues_the_certificate_and_injects_its_ca(values: Mapping[str, Any]) -> None:
    objects = rendered(values)
    certificate = one(objects, "Certificate")["spec"]
    (volume,) = (v for v in deployment(objects)["template"]["spec"]["volumes"] if v["name"] == "tls")

    assert f"{NAME}.{NAMESPACE}.svc" in certificate["dnsNames"]
    assert volume["secret"]["secretName"] == certificate["secretName"]
    # A leaked key is not served forever.
    assert certificate["privateKey"]["rotationPolicy"] == "Always"
    for found in webhook_configurations(objects):
        assert found["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == f"{NAMESPACE}/{NAME}"


def test_without_an_issuer_a_ca_of_the_release_signs() -> None:
    objects = rendered(CERT_MANAGER)

    assert one(objects, "Certificate")["spec"]["issuerRef"]["name"] == one(objects, "Issuer")["metadata"]["name"]
    authority = one(objects, "Certificate", f"{NAME}-ca")["spec"]
    assert authority["isCA"] is True
    assert one(objects, "Issuer")["spec"]["ca"]["secretName"] == authority["secretName"]
    assert one(objects, "Issuer", authority["issuerRef"]["name"])["spec"] == {"selfSigned": {}}


def test_an_existing_issuer_replaces_that_of_the_release() -> None:
    objects = rendered(OWN_ISSUER)

    assert [item["kind"] for item in objects if "cert-manager" in item["apiVersion"]] == ["Certificate"]
    assert one(objects, "Certificate")["spec"]["issuerRef"] == {"name": "corp", "kind": "ClusterIssuer"}


def test_an_existing_secret_requires_its_ca() -> None:
    assert "tls.mode existingSecret requires webhook.caBundle" in rejection({"tls": {"mode": "existingSecret"}})


# Values.


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"replicas": 0}, "replicas"),
        ({"replica": 3}, "replica"),
        ({"tls": {"mode": "none"}}, "mode"),
        ({"image": {"repository": ""}}, "repository"),
        ({"image": {"repository": "a", "digest": "latest"}}, "digest"),
        ({"rules": {"rules.txt": "a"}}, "rules"),
        ({"rules": {"a.yaml": {"kind": "FallbackLadder"}}}, "rules"),
        ({"server": {"drainSeconds": -1, "graceSeconds": 1}}, "drainSeconds"),
        ({"server": {"drainSeconds": 1, "graceSeconds": 1, "extraArgs": ["serve"]}}, "extraArgs"),
        ({"webhook": {"mutating": {"failurePolicy": "Maybe"}}}, "failurePolicy"),
        ({"webhook": {"mutating": {"timeoutSeconds": 31}}}, "timeoutSeconds"),
        ({"webhook": {"validating": {"operations": ["DELETE"]}}}, "operations"),
        ({"networkPolicy": {"apiServerCIDRs": ["10.0.0.1"]}}, "apiServerCIDRs"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
        ({"podDisruptionBudget": {"maxUnavailable": "0%"}}, "maxUnavailable"),
        ({"podSecurityContext": {"runAsUser": 0}}, "runAsUser"),
        ({"podSecurityContext": {"runAsNonRoot": False}}, "runAsNonRoot"),
        ({"ports": {"https": 443}}, "https"),
        ({"tls": {"mode": "certManager", "certManager": {"issuerRef": {"kind": "ClusterIssuer"}}}}, "issuerRef"),
    ],
)
def test_invalid_values_are_refused_by_name(values: Mapping[str, Any], place: str) -> None:
    assert place in rejection(values)


def test_the_schema_has_the_same_members_as_the_defaults() -> None:
    values = yaml.safe_load((render.CHART / "values.yaml").read_text())
    schema = json.loads((render.CHART / "values.schema.json").read_text())
    free = {
        "webhook.mutating",
        "tls.certManager.issuerRef",
        "global",
        "podSecurityContext",
    }  # objects whose members are not all set by default

    def compare(value: Any, part: Any, path: str) -> None:
        if isinstance(value, dict) and "properties" in part and path not in free:
            assert value.keys() == part["properties"].keys(), path
            for key, inner in value.items():
                compare(inner, part["properties"][key], f"{path}.{key}".lstrip("."))

    compare(values, schema, "")


def test_unknown_members_are_refused_everywhere() -> None:
    schema = json.loads((render.CHART / "values.schema.json").read_text())

    def open_objects(part: Any, path: str) -> list[str]:
        members = {**part.get("properties", {}), **({"[]": part["items"]} if "items" in part else {})}
        here = [path] if "properties" in part and part.get("additionalProperties", True) is True else []
        return here + [found for name, member in members.items() for found in open_objects(member, f"{path}.{name}")]

    assert open_objects(schema, "") == [".global"], "it has the values of other charts, too"


ALL_KINDS: Mapping[str, Any] = {
    "rules": {**RULES},
    **OWN_ISSUER,
    **WITH_DOCTOR,
    "metrics": {kind: {"enabled": True} for kind in ("serviceMonitor", "dashboard", "alerts")},
}
OTHER_VALUES: Mapping[str, Any] = {
    "image.registry": "other.example",
    "image.repository": "other/image", "image.tag": "other", "image.digest": f"sha256:{'a' * 64}",
    "image.pullPolicy": "Always", "image.pullSecrets": [{"name": "other"}],
    "replicas": 3, "fullnameOverride": "other", "commonLabels": {"other": "value"},
    "global.imageRegistry": "other.example", "global.imagePullSecrets": [{"name": "other"}],
    "global.commonLabels": {"other": "value"},
    "hostNetwork": True, "ports.https": 7443, "ports.metrics": 7444,
    "podSecurityContext.runAsUser": 7, "podSecurityContext.runAsGroup": 7, "podSecurityContext.fsGroup": 7,
    "podSecurityContext.supplementalGroups": [7], "podSecurityContext.seLinuxOptions": {"type": "other"},
    "server.maxStalenessSeconds": 61, "server.drainSeconds": 62, "server.graceSeconds": 63, "server.maxConcurrent": 64,
    "server.requestTimeoutSeconds": 1.625, "server.logFormat": "line", "server.decisionLog": False,
    "server.decisionLogMessages": True, "server.decisionLogRequests": True, "server.keepRules": False,
    "server.events": True, "server.reserveFor": "all", "server.declare": "other: value",
    "server.extraArgs": ["--other"],
    "rules.mode": "Audit", "rules.namespaces": ["other"],
    "webhook.excludeNamespaces": ["other"], "webhook.compare": False,
    "webhook.mutating.failurePolicy": "Fail", "webhook.mutating.timeoutSeconds": 7,
    "webhook.validating.failurePolicy": "Fail", "webhook.validating.timeoutSeconds": 7,
    "rbac.nodes": False, "rbac.pods": True, "rbac.namespaces": True, "rbac.classes": True,
    "tls.mode": "bootstrap", "tls.secretName": "other", "tls.certManager.issuerRef.name": "other",
    "tls.certManager.issuerRef.kind": "Other", "tls.certManager.issuerRef.group": "other.example",
    "tls.certManager.duration": "77h", "tls.certManager.renewBefore": "7h",
    "clientCA.configMap": "other",
    "metrics.serviceMonitor.enabled": False, "metrics.serviceMonitor.labels": {"other": "value"},
    "metrics.serviceMonitor.interval": "7s", "metrics.dashboard.enabled": False,
    "metrics.dashboard.labels": {"other": "value"}, "metrics.alerts.enabled": False,
    "metrics.alerts.labels": {"other": "value"},
    "networkPolicy.enabled": False, "networkPolicy.apiServerCIDRs": ["10.7.7.7/32"],
    "networkPolicy.apiServerPorts": [7443], "networkPolicy.metricsFrom": [{"podSelector": {}}],
    "doctor.enabled": False, "doctor.intervalSeconds": 61, "doctor.since": "7m", "doctor.events": True,
    "doctor.extraArgs": ["--other"], "doctor.resources": {"limits": {"memory": "777Mi"}},
    "podDisruptionBudget.enabled": False, "podDisruptionBudget.maxUnavailable": "77%",
    "resources": {"limits": {"memory": "777Mi"}}, "podAnnotations": {"other": "value"}, "podLabels": {"other": "value"},
    "nodeSelector": {"other": "value"}, "tolerations": [{"key": "other"}], "priorityClassName": "other",
}  # fmt: skip
"""A value other than the default, by path."""

TESTED_ELSEWHERE = {
    "rules.sets",
    "webhook.sets",
    "webhook.caBundle",
    "nameOverride",
    "helmTest.namespace",
    "helmTest.resource",
    "metrics.enabled",
    "tls.bootstrap.admissionPolicy",
    "webhook.native",
    "webhook.mutating.otherPods",
} | {
    f"webhook.{endpoint}.{derived}"
    for endpoint in ("mutating", "validating")
    for derived in ("operations", "matchConditions", "digest", "denies")
}


@pytest.mark.parametrize("path", OTHER_VALUES)
def test_every_value_has_an_effect(path: str) -> None:
    *parents, name = path.split(".")
    values: Any = copy.deepcopy(ALL_KINDS)
    place = values
    for parent in parents:
        place = place.setdefault(parent, {})
    place[name] = OTHER_VALUES[path]

    assert rendered(values) != rendered(ALL_KINDS)


def test_the_values_above_are_complete() -> None:
    schema = json.loads((render.CHART / "values.schema.json").read_text())

    def paths(part: Any, path: str) -> list[str]:
        if "properties" not in part:
            return [path]
        return [found for name, member in part["properties"].items() for found in paths(member, f"{path}.{name}")]

    assert {path.lstrip(".") for path in paths(schema, "")} == OTHER_VALUES.keys() | TESTED_ELSEWHERE


def test_values_of_pods_are_set_in_the_pod_template() -> None:
    objects = rendered({**EVERYTHING, "replicas": 3, "resources": {"limits": {"memory": "1Gi"}}})
    spec, metadata = (deployment(objects)["template"][member] for member in ("spec", "metadata"))

    assert deployment(objects)["replicas"] == 3
    assert container(objects)["image"] == f"r.example/gpu-rules@sha256:{'0' * 64}"
    assert container(objects)["resources"]["limits"] == {"memory": "1Gi"}
    assert spec["imagePullSecrets"] == EVERYTHING["image"]["pullSecrets"]
    for name in ("nodeSelector", "tolerations", "priorityClassName"):
        assert spec[name] == EVERYTHING[name]
    assert metadata["annotations"] == EVERYTHING["podAnnotations"]
    assert metadata["labels"].items() >= EVERYTHING["podLabels"].items()


def test_the_image_tag_defaults_to_the_charts_version() -> None:
    version = yaml.safe_load((render.CHART / "Chart.yaml").read_text())["appVersion"]

    assert container(rendered())["image"] == f"gpu-rules:{version}"
    assert container(rendered({"image": {"repository": "a/b", "tag": "v2"}}))["image"] == "a/b:v2"


# Monitoring.


def test_the_service_monitor_selects_the_service_and_its_port() -> None:
    objects = rendered(EVERYTHING)
    monitor = one(objects, "ServiceMonitor")

    assert monitor["metadata"]["labels"]["release"] == "prom"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in one(objects, "Service")["spec"]["ports"]}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= one(objects, "Service")["metadata"]["labels"].items()


@pytest.mark.parametrize("feature", ["serviceMonitor", "alerts"])
def test_features_that_need_metrics_are_refused_without_them(feature: str) -> None:
    assert "need metrics.enabled" in rejection({"metrics": {"enabled": False, feature: {"enabled": True}}})


@pytest.mark.parametrize("value", ["decisionLogMessages", "decisionLogRequests"])
def test_additions_to_a_disabled_decision_log_are_refused(value: str) -> None:
    assert f"server.{value} requires server.decisionLog" in rejection({"server": {"decisionLog": False, value: True}})


@pytest.mark.parametrize(("feature", "file", "kind", "name"), [
    ("alerts", "prometheus-rules.yaml", "PrometheusRule", NAME),
    ("dashboard", "grafana-dashboard.json", "ConfigMap", f"{NAME}-dashboard"),
])  # fmt: skip
def test_alerts_and_dashboard_can_be_installed(feature: str, file: str, kind: str, name: str) -> None:
    values = {"metrics": {"enabled": True, feature: {"enabled": True}}}
    found = one(rendered(values), kind, name)
    text = (render.DEPLOY / file).read_text()
    if kind == "ConfigMap":
        assert json.loads(found["data"]["gpu-rules.json"]) == json.loads(text)
    else:
        assert found["spec"]["groups"] == yaml.safe_load(text)["groups"]


# Generated files.


def test_the_generated_files_of_the_chart_are_current() -> None:
    expected = render.chart_files()

    assert {path: path.read_text() for path in expected if path.exists()} == expected, "run make manifests"
    stray = {path for path in (render.CHART / "files").rglob("*") if path.is_file()} - expected.keys()
    assert stray == {render.CHART / "files" / "dry_run.py"}


def test_the_readme_lists_all_values_with_their_defaults() -> None:
    rows = [line.split(" | ") for line in (render.CHART / "README.md").read_text().splitlines() if line[:3] == "| `"]
    listed = {path.strip("|` "): yaml.safe_load(default.strip("`")) for path, default, _ in rows if default.strip()}

    def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
        if path in listed or not isinstance(value, dict):
            yield path, value
        else:
            for key, inner in value.items():
                yield from leaves(inner, f"{path}.{key}".lstrip("."))

    assert listed == dict(leaves(yaml.safe_load((render.CHART / "values.yaml").read_text()), ""))


def test_the_installed_rules_are_the_packaged_ones(tmp_path: Path, default_rules: RuleSet) -> None:
    write(tmp_path, one(rendered(), "ConfigMap", f"{NAME}-rules")["data"])
    installed = read_rules([tmp_path])

    assert not installed.failed
    assert [kind.rule.id for kind in installed.rule_set.rules] == [kind.rule.id for kind in default_rules.rules]
    assert installed.loaded.digest == read_rules([DEFAULT_RULES]).loaded.digest
