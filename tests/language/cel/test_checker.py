"""Problems of expressions that are reported at load."""

import pytest

from rules_engine.language.cel import CelProblems, Environment, compile_expression, types
from rules_engine.model.problems.source import SourceText
from tests.language.cel.evaluating import problems

POLICY = Environment(
    {
        "object": types.POD,
        "oldObject": types.POD,
        "request": types.ADMISSION_REQUEST,
        "namespaceObject": types.NAMESPACE,
        "node": types.shape_type("Node"),
        "params": types.object_of("params", {"team": types.STRING}),
        "variables": types.object_of("variables", {"team": types.STRING}),
        "cluster": types.CLUSTER,
        "anything": types.DYN,
    }
)

PROBLEMS = [
    ("[0].exists(x, .x == 1)", "1:15: undeclared reference to '.x' (did you mean 'x'?) [cel-undeclared]"),
    ("objct.spec", "1:1: undeclared reference to 'objct' (did you mean 'object'?) [cel-undeclared]"),
    (
        "authorizer.group('')",
        "1:1: authorizer is not available: rules are evaluated without calls to the API server [cel-undeclared]",
    ),
    ("object.spec.containrs", "1:13: PodSpec has no field 'containrs' (did you mean 'containers'?) [cel-field]"),
    ("has(object.spec.contaners)", "1:17: PodSpec has no field 'contaners' (did you mean 'containers'?) [cel-field]"),
    ("object['sepc']", "1:8: Pod has no field 'sepc' (did you mean 'spec'?) [cel-field]"),
    (
        "object.spec.containers.all(c, c.imag == '')",
        "1:33: Container has no field 'imag' (did you mean 'image'?) [cel-field]",
    ),
    ("object.?sepc", "1:9: Pod has no field 'sepc' (did you mean 'spec'?) [cel-field]"),
    ("object.?spec.containrs", "1:14: PodSpec has no field 'containrs' (did you mean 'containers'?) [cel-field]"),
    ("request.usrInfo", "1:9: AdmissionRequest has no field 'usrInfo' (did you mean 'userInfo'?) [cel-field]"),
    ("namespaceObject.metadta", "1:17: Namespace has no field 'metadta' (did you mean 'metadata'?) [cel-field]"),
    (
        "node.status.allocateble",
        "1:13: NodeStatus has no field 'allocateble' (did you mean 'allocatable'?) [cel-field]",
    ),
    ("variables.tem", "1:11: variables has no field 'tem' (did you mean 'team'?) [cel-field]"),
    ("params.x", "1:8: params has no field 'x' [cel-field]"),
    ("None", "1:1: undeclared reference to 'None' (write null) [cel-undeclared]"),
    ("object.spec.hostIPC == True", "1:24: undeclared reference to 'True' (write true) [cel-undeclared]"),
    ("pod.spec.hostIPC", "1:1: undeclared reference to 'pod' (write object) [cel-undeclared]"),
    ("len(object.spec.containers)", "1:1: undeclared function 'len' (write ….size()) [cel-no-such-function]"),
    ("''.length()", "1:4: undeclared function 'length' (write ….size()) [cel-no-such-function]"),
    ("object.spec.containers.length", "1:24: list(Container) has no fields (write ….size()) [cel-type]"),
    ("object.spec.containers.size > 0", "1:24: list(Container) has no fields (write ….size()) [cel-type]"),
    ("object.metadata.name.startsWith", "1:22: string has no fields (write ….startsWith(…)) [cel-type]"),
    ("object.metadata.labels.size > 0", "1:24: a map has no field 'size' (write ….size()) [cel-type]"),
    (
        "object.spec.containers.image == ''",
        "1:24: list(Container) has no fields (write ….all(x, x.image …) or ….exists(x, x.image …)) [cel-type]",
    ),
    ("object.metadata.name.foo", "1:22: string has no fields [cel-type]"),
    ("object.spec.containers.foo", "1:24: list(Container) has no fields [cel-type]"),
    ("object.metadata.labels.a.b/c == ''", "1:23: 'a.b/c' is not a name (write ['a.b/c']) [cel-type]"),
    ("object.metadata.labels.a.b == ''", "1:23: 'a.b' is not a name (write ['a.b']) [cel-type]"),
    ('object.metadata.labels.a-b == ""', "1:23: 'a-b' is not a name (write [\"a-b\"]) [cel-type]"),
    ("object.metadata.labels.a.b/c.startsWith('')", "1:23: 'a.b/c' is not a name (write ['a.b/c']) [cel-type]"),
    ("object.metadata.labels.a - ''", "1:1: operator - cannot be applied to string and string [cel-type]"),
    ("object.metadta.labels.a - 1", "1:8: Pod has no field 'metadta' (did you mean 'metadata'?) [cel-field]"),
    ("object.metadata.labels[team] == ''", "1:24: undeclared reference to 'team' (write 'team') [cel-undeclared]"),
    ("object[spec] == ''", "1:8: undeclared reference to 'spec' (write 'spec') [cel-undeclared]"),
    ("[1][team] == 1", "1:5: undeclared reference to 'team' [cel-undeclared]"),
    ("object.metadata.name == gold", "1:25: undeclared reference to 'gold' (write 'gold') [cel-undeclared]"),
    ("gold in ['a']", "1:1: undeclared reference to 'gold' (write 'gold') [cel-undeclared]"),
    ("spec.hostIPC", "1:1: undeclared reference to 'spec' (write object.spec) [cel-undeclared]"),
    ("request.object.spec.hostIPC", "1:1: AdmissionRequest has no field 'object' (write object) [cel-field]"),
    (
        "object.spec.nodeName != null",
        "1:1: operator != cannot be applied to string and null_type (write has(object.spec.nodeName)) [cel-type]",
    ),
    (
        "null == object.spec.nodeName",
        ("1:1: operator == cannot be applied to null_type and string (write !has(object.spec.nodeName)) [cel-type]"),
    ),
    (
        "true && object.spec.nodeName == null",
        "1:9: operator == cannot be applied to string and null_type (write !has(object.spec.nodeName)) [cel-type]",
    ),
    (
        "object.metadata.labels.team != null",
        (
            "1:1: operator != cannot be applied to string and null_type"
            " (write object.metadata.?labels.team.hasValue()) [cel-type]"
        ),
    ),
    (
        "object.metadata.labels['a/b'] != null",
        (
            "1:1: operator != cannot be applied to string and null_type"
            " (write object.metadata.?labels[?'a/b'].hasValue()) [cel-type]"
        ),
    ),
    ("['a'].contains('a')", "1:1: list(string) has no contains() (write 'a' in ['a']) [cel-type]"),
    (
        "object.spec.containers.exists(c, c.args.contains('a'))",
        "1:34: list(string) has no contains() (write 'a' in c.?args.orValue([])) [cel-type]",
    ),
    ("1 == null", "1:1: operator == cannot be applied to int and null_type [cel-type]"),
    (
        "'a' in object.metadata.name",
        "1:1: operator in cannot be applied to string and string (write object.metadata.name.contains('a')) [cel-type]",
    ),
    ("'a' in 'b' + 'c'", "1:1: operator in cannot be applied to string and string [cel-type]"),
    ("[1].size() == '1'", "1:1: operator == cannot be applied to int and string (write [1].size() == 1) [cel-type]"),
    ("'1' < [1].size()", "1:1: operator < cannot be applied to string and int (write 1 < [1].size()) [cel-type]"),
    (
        "object.metadata.labels.contains('a')",
        "1:1: map(string, string) has no contains() (write 'a' in object.metadata.?labels.orValue({})) [cel-type]",
    ),
    (
        "''.matches('*-prod')",
        ("1:12: invalid regular expression: no argument for repetition operator: * (write '.*-prod') [cel-constant]"),
    ),
    (f"'{'a' * 200}' in ''", "1:1: operator in cannot be applied to string and string [cel-type]"),
    ("not (1 in [1])", "1:1: undeclared function 'not' (write !(…)) [cel-no-such-function]"),
    ("[1].any(x, x > 0)", "1:5: undeclared function 'any' (write ….exists(x, …)) [cel-no-such-function]"),
    ("0 < 1 < 2", "1:1: operator < cannot be applied to bool and int (write a < b && b < c) [cel-type]"),
    ("foo(1)", "1:1: undeclared function 'foo' [cel-no-such-function]"),
    ("math.abss(1)", "1:6: undeclared function 'math.abss' (did you mean 'math.abs'?) [cel-no-such-function]"),
    ("math.nothing(1)", "1:6: undeclared function 'math.nothing' [cel-no-such-function]"),
    ("optional.some(1)", "1:10: undeclared function 'optional.some' [cel-no-such-function]"),
    ("cel.bnd(1)", "1:5: undeclared function 'cel.bnd' (did you mean 'cel.bind'?) [cel-no-such-function]"),
    ("cel.bind(1)", "1:5: bind() takes 3 arguments, not 1 [cel-arguments]"),
    ("nothing.foo()", "1:1: undeclared reference to 'nothing' (did you mean 'anything'?) [cel-undeclared]"),
    ("anything.foo()", "1:10: undeclared function 'foo' [cel-no-such-function]"),
    ("sise('')", "1:1: undeclared function 'sise' (did you mean 'size'?) [cel-no-such-function]"),
    ("''.startWith('')", "1:4: undeclared function 'startWith' (did you mean 'startsWith'?) [cel-no-such-function]"),
    ("startsWith('', '')", "1:1: undeclared function 'startsWith' (write ….startsWith()) [cel-no-such-function]"),
    ("''.quantity()", "1:4: undeclared function 'quantity' (write quantity(…)) [cel-no-such-function]"),
    (
        "cluster.alocatable('')",
        "1:9: undeclared function 'alocatable' (did you mean 'allocatable'?) [cel-no-such-function]",
    ),
    ("[1].exsts(x, x > 0)", "1:5: undeclared function 'exsts' (did you mean 'exists'?) [cel-no-such-function]"),
    ("[1].all(x)", "1:5: all() takes 2 or 3 arguments, not 1 [cel-arguments]"),
    ("all([1], 1)", "1:1: undeclared function 'all' (write ….all()) [cel-no-such-function]"),
    ("object.has()", "1:8: undeclared function 'has' (write has(…)) [cel-no-such-function]"),
    ("has(object, 1)", "1:1: has() takes 1 argument, not 2 [cel-arguments]"),
    ("size()", "1:1: size() takes 1 argument, not 0 [cel-arguments]"),
    ("''.indexOf()", "1:4: indexOf() takes 1 or 2 arguments, not 0 [cel-arguments]"),
    ("math.greatest()", "1:6: math.greatest() takes 1 to 8 arguments, not 0 [cel-arguments]"),
    ("''.contains(1)", "1:4: there is no string.contains(int), only string.contains(string) [cel-type]"),
    (
        "[[1]].sort()",
        "1:7: there is no list(list(int)).sort(), only "
        + "".join(f"list({kind}).sort(), " for kind in ("int", "uint", "double", "bool"))
        + "… [cel-type]",
    ),
    ("[1].unwrapOpt()", "1:5: there is no list(int).unwrapOpt(), only list(optional_type(A)).unwrapOpt() [cel-type]"),
    ("quantity(1)", "1:1: there is no quantity(int), only quantity(string) (write quantity('1')) [cel-type]"),
    ("object.metadata.name == 1", "1:1: operator == cannot be applied to string and int [cel-type]"),
    ("1 + ''", "1:1: operator + cannot be applied to int and string [cel-type]"),
    ("1 in ['a']", "1:1: operator in cannot be applied to int and list(string) [cel-type]"),
    ("[1] < [2]", "1:1: operator < cannot be applied to list(int) and list(int) [cel-type]"),
    ("object == request", "1:1: operator == cannot be applied to Pod and AdmissionRequest [cel-type]"),
    ("cel.bind(x, [], x == [x])", "1:17: operator == cannot be applied to list(dyn) and list(list(dyn)) [cel-type]"),
    ("!1", "1:1: operator ! cannot be applied to int [cel-type]"),
    ("-''", "1:1: operator - cannot be applied to string [cel-type]"),
    ("true && 1", "1:9: an operand of && must be bool, not int [cel-type]"),
    ("'' || true", "1:1: an operand of || must be bool, not string [cel-type]"),
    ("1 ? 2 : 3", "1:1: the condition before ? must be bool, not int [cel-type]"),
    ("true ? 1 : ''", "1:1: the values before and after : are of different types, int and string [cel-type]"),
    ("''.a", "1:4: string has no fields [cel-type]"),
    ("{1: 2}.a", "1:8: map(int, int) has no string keys [cel-type]"),
    ("1[0]", "1:1: int cannot be indexed [cel-type]"),
    ("[1]['a']", "1:5: list(int) has no index of type string [cel-type]"),
    ("{'a': 1}[1]", "1:10: map(string, int) has no index of type int [cel-type]"),
    ("{1.5: 1}", "1:2: a map cannot have keys of type double [cel-type]"),
    ("[?1]", "1:3: a value after ? must be an optional, not int [cel-type]"),
    ("{?'a': 1}", "1:8: a value after ? must be an optional, not int [cel-type]"),
    ("1.optMap(x, x)", "1:1: the receiver of optMap() must be an optional, not int [cel-type]"),
    ("optional.of(1).optFlatMap(x, x)", "1:30: the result of optFlatMap() must be an optional, not int [cel-type]"),
    ("1.all(x, true)", "1:1: all() needs a list or a map, not int [cel-type]"),
    ("[1].all(x, x)", "1:12: the condition of all() must be bool, not int [cel-type]"),
    ("[1].map(x, x, x)", "1:12: the condition of map() must be bool, not int [cel-type]"),
    ("google.protobuf.Int32Value{x: 1}", "1:1: google.protobuf.Int32Value has no field 'x' [cel-field]"),
    ("google.protobuf.Int32Value{value: ''}", "1:35: the field value must be int, not string [cel-type]"),
    ("Pod{}", "1:1: undeclared message type 'Pod' [cel-undeclared]"),
    ("''.matches('(')", "1:12: invalid regular expression: missing ): ( [cel-constant]"),
    ("matches('', '[')", "1:13: invalid regular expression: missing ]: [ [cel-constant]"),
    ("''.find(r'\\1')", "1:9: invalid regular expression: invalid escape sequence: \\1 [cel-constant]"),
    (f"''.matches('{'a' * 1001}')", "1:12: a regular expression has at most 1000 characters [cel-constant]"),
    ("duration('1')", "1:10: the string is not a duration [cel-constant]"),
    ("timestamp('yesterday')", "1:11: the string is not a timestamp of RFC 3339 [cel-constant]"),
    ("quantity('1X')", "1:10: the string is not a quantity [cel-constant]"),
    ("ip('1.2.3')", "1:4: the string is not an IP address [cel-constant]"),
    ("[[1], 'a'].map(x, x)[0] + optional.of(1).value() + true.a", "1:57: bool has no fields [cel-type]"),
]


@pytest.mark.parametrize(("expression", "problem"), PROBLEMS)
def test_a_mistake_is_reported_at_load(expression: str, problem: str) -> None:
    assert problems(expression, POLICY) == [problem]


FINE = [
    ("object.metadata.labels.anything == 'x'", "bool"),
    ("object.metadata.annotations['nvidia.com/gpu.deploy']", "string"),
    ("object.spec.containers.exists(c, 'nvidia.com/gpu' in c.resources.limits)", "bool"),
    ("object.spec.containers[0].resources.limits['cpu']", "string"),
    ("object.spec.containers[?0].name", "optional_type(string)"),
    ("object.spec.containers.map(c, c.name)", "list(string)"),
    ("object.spec.containers.transformMap(i, c, c.name)", "map(int, string)"),
    ("object.spec.containers.filter(c, has(c.resources))", "list(Container)"),
    ("object.spec.containers.sortBy(c, c.name)", "list(Container)"),
    ("object.metadata.labels.transformMapEntry(k, v, {v: k})", "map(string, string)"),
    ("object.metadata.labels.transformMapEntry(k, v, anything)", "map(dyn, dyn)"),
    ("object.metadata.labels.exists(k, k == '')", "bool"),
    ("object.exists(k, k == '')", "bool"),
    ("'spec' in object", "bool"),
    ("object[anything]", "dyn"),
    ("object == oldObject", "bool"),
    ("oldObject == null", "bool"),
    ("{'a': 1} == object", "bool"),
    ("[object, null]", "list(Pod)"),
    ("optional.of('').orValue(anything)", "dyn"),
    ("optional.of('').orValue('')", "string"),
    ("[1] + anything", "list(dyn)"),
    ("[1].indexOf(anything)", "int"),
    ("sets.contains([1], anything)", "bool"),
    ("{'a': ''} == object.metadata.labels", "bool"),
    ("[null, 1]", "list(dyn)"),
    ("[1, 'a']", "list(dyn)"),
    ("[[], [1]]", "list(list(int))"),
    ("[[1], ['a']]", "list(list(dyn))"),
    ("anything.a.b[0].size()", "int"),
    ("anything + 1", "int"),
    ("anything + anything", "dyn"),
    ("-anything", "dyn"),
    ("!anything", "bool"),
    ("anything.all(x, x)", "bool"),
    ("anything.optMap(x, x)", "optional_type(dyn)"),
    ("[].map(x, x)", "list(dyn)"),
    ("[?optional.none()]", "list(dyn)"),
    ("cluster.allocatable('nvidia.com/gpu') + cluster.available('a') - cluster.total('b')", "int"),
    ("variables.team + params.team", "string"),
    ("request.operation == 'CREATE' && !request.dryRun", "bool"),
    ("request.userInfo.groups.map(g, g.size()).sum()", "int"),
    ("namespaceObject.metadata.labels['team']", "string"),
    ("node.status.allocatable['nvidia.com/gpu']", "string"),
    (
        "object.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.size()",
        "int",
    ),
    ("true ? object : null", "Pod"),
    ("true ? anything : 1", "dyn"),
    ("cel.bind(x, [1], x[0])", "int"),
    ("type(1) == int", "bool"),
    ("google.protobuf.Int32Value{value: 1}", "int"),
    ("google.protobuf.Value{}", "dyn"),
    ("math.greatest(1, 2)", "dyn"),
    ("optional.of(1).or(optional.of(2)).value()", "int"),
    ("'%s'.format([1, 'a'])", "string"),
    ("anything.matches(anything)", "bool"),
    ("''.matches(string(1))", "bool"),
    ("[1] + []", "list(int)"),
    ("1 < 2.5", "bool"),
    ("timestamp('2024-01-01T00:00:00Z') - timestamp(0)", "google.protobuf.Duration"),
]


@pytest.mark.parametrize(("expression", "result"), FINE)
def test_the_result_has_a_known_type(expression: str, result: str) -> None:
    assert str(compile_expression(SourceText.inline(expression), POLICY).result) == result


def test_all_problems_are_reported_in_order_of_place() -> None:
    assert problems("object.spce == 1 && foo(nothing) && object.metadata.name.size() > ''", POLICY) == [
        "1:8: Pod has no field 'spce' (did you mean 'spec'?) [cel-field]",
        "1:21: undeclared function 'foo' [cel-no-such-function]",
        "1:25: undeclared reference to 'nothing' (did you mean 'anything'?) [cel-undeclared]",
        "1:37: operator > cannot be applied to int and string [cel-type]",
    ]


def test_an_expression_must_have_the_required_type() -> None:
    with pytest.raises(CelProblems) as caught:
        compile_expression(SourceText.inline("object.metadata.name"), POLICY, result=types.BOOL)
    (problem,) = caught.value.problems
    assert problem.message == "the expression must be bool, not string"
    assert (problem.code, problem.length) == ("cel-result-type", 20)
    for unknown in ("anything", "true"):
        compile_expression(SourceText.inline(unknown), POLICY, result=types.BOOL)


def test_a_program_has_the_variables_that_it_reads() -> None:
    program = compile_expression(
        SourceText.inline("[1].all(node, node > 0 && object.a == request.name)"),
        Environment({"object": types.DYN, "request": types.DYN, "node": types.DYN}),
    )
    assert program.reads == {"object", "request"}
    assert program.source.text.startswith("[1]")


def test_a_macro_variable_hides_a_variable_and_a_namespace() -> None:
    assert problems("[{'a': 1}].all(object, object.a == 1)", POLICY) == []
    assert problems("['x'].all(math, math.abs(1) == 1)", POLICY) == [
        "1:22: undeclared function 'abs' (write math.abs(…)) [cel-no-such-function]"
    ]
    assert problems("[1].all(object, .object.spec == null)", POLICY) == []


def test_variables_may_have_dots_and_a_container() -> None:
    environment = Environment({"a.b": types.INT, "pkg.c": types.INT, "c": types.STRING}, container="pkg.inner")
    assert problems("a.b + c + pkg.c", environment) == []
    assert problems("a.x", environment) == ["1:1: undeclared reference to 'a' [cel-undeclared]"]
    assert problems(".c + ''", environment) == []


def test_an_environment_can_be_extended() -> None:
    environment = Environment({"x": types.INT}).with_variables(x=types.STRING, y=types.INT)
    assert problems("x + string(y)", environment) == []


def test_a_type_is_written_as_in_cel() -> None:
    assert str(types.map_of(types.STRING, types.list_of(types.INT))) == "map(string, list(int))"
    assert types.list_of(types.INT).plain == types.Type("list")
    assert types.POD.fields["spec"] == types.shape_type("PodSpec")
    assert "containers" in set(types.shape_type("PodSpec").fields)
    assert len(types.shape_type("Pod").fields) == 5
