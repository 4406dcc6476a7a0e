"""Rules of a ConfigMap, read from an API server."""

from base64 import b64encode

import pytest

from rules_engine.rules.sources.rule_files import DEFAULT_RULES, read_rules
from rules_engine.rules.sources.rule_sources import PREFIXES, RuleSource, SourceError, parse_source, read_sources
from rules_engine.server.cluster.config_map import PREFIX, config_map_parser
from rules_engine.server.cluster.connection import Connection
from tests.support.apiserver import ApiServer, Body
from tests.support.cluster import plain
from tests.support.loading import codes, rule

PATH = "/api/v1/namespaces/gpu-rules/configmaps/rules"
NAME = "configmap:gpu-rules/rules"
INJECTION = rule("ResourceInjection", "{gpuType: V100, gpuTypeAnnotation: a/b, coefficients: {cpu: 4}}")


def source(api: ApiServer, text: str = NAME) -> RuleSource:
    return parse_source(text, {**PREFIXES, PREFIX: config_map_parser(Connection(plain(api)))})


def problems(api: ApiServer) -> list[str]:
    return [str(problem) for problem in read_sources([source(api)]).problems]


def test_a_config_map_has_the_rules_of_its_folder(api: ApiServer) -> None:
    api.single[PATH] = {"data": {file.name: file.read_text(encoding="utf-8") for file in DEFAULT_RULES.glob("*.yaml")}}
    files, expected = read_sources([source(api)]), read_rules([DEFAULT_RULES])
    assert files.problems == ()
    assert files.loaded.digest == expected.loaded.digest
    assert str(source(api)) == NAME


def test_entries_are_read_like_files_of_a_mounted_folder(api: ApiServer) -> None:
    api.single[PATH] = {
        "data": {"z.yaml": "a: [", "notes.md": "x", ".hidden.yaml": "x"},
        "binaryData": {"a.yml": b64encode(INJECTION.encode()).decode(), "b.yaml": b64encode(b"\xff").decode()},
    }
    files = read_sources([source(api)])
    assert [str(found.location) for found in files.loaded.rules] == [f"{NAME}/a.yml:3:18"]
    assert codes(files.problems) == ["yaml-syntax", "not-utf-8"]
    assert [problem.location.file for problem in files.problems] == [f"{NAME}/z.yaml", f"{NAME}/b.yaml"]


def test_a_value_that_is_not_base64(api: ApiServer) -> None:
    api.single[PATH] = {"data": {"a.yaml": INJECTION}, "binaryData": {"b.yaml": "?"}}
    assert problems(api) == [
        f"{NAME}:1:1: error: cannot be read: the value of 'b.yaml' is not base64 [unreadable-file]"
    ]


@pytest.mark.parametrize("found", [{}, {"data": None}, {"data": {"a.md": "x"}}, {"data": {"a.yaml": 1}}])
def test_a_config_map_without_rule_files(api: ApiServer, found: dict[str, object]) -> None:
    api.single[PATH] = found
    assert problems(api) == [f"{NAME}:1:1: error: no .yaml, .yml or .json file in this folder [no-files]"]


def test_a_config_map_that_does_not_exist(api: ApiServer) -> None:
    assert problems(api) == [f"{NAME}:1:1: error: ConfigMap not found [missing-file]"]


def test_a_config_map_that_may_not_be_read(api: ApiServer) -> None:
    api.forbidden.add(PATH)
    [problem] = problems(api)
    assert problem.startswith(f"{NAME}:1:1: error: cannot be read: 403: {PATH} is forbidden")


def test_a_response_that_is_no_object(api: ApiServer) -> None:
    api.single[PATH] = {}
    api.fail(PATH, Body(b"[]"))
    assert problems(api) == [f"{NAME}:1:1: error: cannot be read: {PATH}: not a JSON object [unreadable-file]"]


@pytest.mark.parametrize("text", ["configmap:", "configmap:rules", "configmap:a/b/c", "configmap:A/b", "configmap:a/"])
def test_a_text_that_names_no_config_map(api: ApiServer, text: str) -> None:
    with pytest.raises(SourceError) as caught:
        source(api, text)
    assert str(caught.value) == f"'{text}' is not configmap:NAMESPACE/NAME"
