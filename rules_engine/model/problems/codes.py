"""Stable codes of problems in all layers; the codes of a kind of rule are in its package."""

from enum import StrEnum


class ProblemCode(StrEnum):
    """Code of a problem; its value is a contract with tools that filter reports.

    Each subclass is an enumeration of codes. `authoring.problem_reference` has the cause and the remedy of each code.
    """


class Code(ProblemCode):
    """Codes of problems that do not belong to one kind of rule."""

    # Files
    MISSING_FILE = "missing-file"
    UNREADABLE_FILE = "unreadable-file"
    NOT_A_REGULAR_FILE = "not-a-regular-file"
    FILE_TOO_LARGE = "file-too-large"
    TOO_MANY_FILES = "too-many-files"
    NO_FILES = "no-files"
    EMPTY_FILE = "empty-file"
    NOT_UTF_8 = "not-utf-8"
    NO_ANSWER = "no-answer"

    # YAML
    YAML_SYNTAX = "yaml-syntax"
    YAML_CHARACTER = "yaml-character"
    YAML_TAG = "yaml-tag"
    YAML_ALIAS = "yaml-alias"
    YAML_KEY = "yaml-key"
    YAML_DUPLICATE_KEY = "yaml-duplicate-key"
    YAML_MERGE = "yaml-merge"
    YAML_BOOLEAN = "yaml-boolean"
    YAML_NUMBER = "yaml-number"
    YAML_DATE = "yaml-date"
    YAML_EQUALS = "yaml-equals"
    YAML_TOO_DEEP = "yaml-too-deep"
    YAML_TOO_MANY_VALUES = "yaml-too-many-values"
    EMPTY_DOCUMENT = "empty-document"

    # Comments that ignore warnings
    BAD_IGNORE = "bad-ignore"
    UNUSED_IGNORE = "unused-ignore"

    # Schemas
    UNKNOWN_KIND = "unknown-kind"
    UNKNOWN_API_VERSION = "unknown-api-version"
    UNKNOWN_FIELD = "unknown-field"
    MISSING_FIELD = "missing-field"
    IGNORED_FIELD = "ignored-field"
    CONFLICTING_FIELDS = "conflicting-fields"
    WRONG_TYPE = "wrong-type"
    WRONG_VALUE = "wrong-value"
    WRONG_FORM = "wrong-form"
    WRONG_COUNT = "wrong-count"

    # Rules
    DUPLICATE_DOCUMENT = "duplicate-document"
    DUPLICATE_NAME = "duplicate-name"
    BAD_SELECTOR = "bad-selector"
    BAD_QUANTITY = "bad-quantity"
    NEGATIVE_QUANTITY = "negative-quantity"
    UNLIKELY_UNIT = "unlikely-unit"
    UNLIKELY_RESOURCE = "unlikely-resource"
    UNKNOWN_MIG_PROFILE = "unknown-mig-profile"
    STEERING_ANNOTATION = "steering-annotation"
    WRITTEN_AND_READ = "written-and-read"
    NOTHING_TO_INHERIT = "nothing-to-inherit"
    UNUSED_ENTRY = "unused-entry"
    UNUSED_DEFAULT = "unused-default"
    USELESS_TOLERATION = "useless-toleration"

    # Tests, inventories and manifests
    BAD_REFERENCE = "bad-reference"
    NOT_A_POD = "not-a-pod"
    NOT_A_CLUSTER = "not-a-cluster"
    UNKNOWN_CLUSTER = "unknown-cluster"
    DUPLICATE_NODE = "duplicate-node"
    IMPOSSIBLE_MIG = "impossible-mig"
    ALLOCATABLE_CONFLICT = "allocatable-conflict"
    IMPOSSIBLE_PARTITION = "impossible-partition"
    BAD_DEVICE_SELECTOR = "bad-device-selector"
    BAD_POD = "bad-pod"
    BAD_AMOUNT = "bad-amount"
    UNKNOWN_POD_FIELD = "unknown-pod-field"
    NO_CONTAINERS = "no-containers"
    DUPLICATE_CONTAINER = "duplicate-container"
    UNKNOWN_NODE = "unknown-node"
    UNBOUND_POD = "unbound-pod"
    UNREAD_OBJECT = "unread-object"
    UNKNOWN_PODS = "unknown-pods"

    # Simulations
    NOT_A_SIMULATION = "not-a-simulation"
    NOT_A_WORKLOAD = "not-a-workload"
    UNKNOWN_PRIORITY_CLASS = "unknown-priority-class"
    AFTER_UNTIL = "after-until"
    TOO_MANY_PODS = "too-many-pods"

    # Expressions
    CEL_SYNTAX = "cel-syntax"
    CEL_TOO_LONG = "cel-too-long"
    CEL_TOO_DEEP = "cel-too-deep"
    CEL_UNDECLARED = "cel-undeclared"
    CEL_FIELD = "cel-field"
    CEL_NO_SUCH_FUNCTION = "cel-no-such-function"
    CEL_ARGUMENTS = "cel-arguments"
    CEL_TYPE = "cel-type"
    CEL_CONSTANT = "cel-constant"
    CEL_RESULT_TYPE = "cel-result-type"
    CEL_PARAMS = "cel-params"
    CEL_NEWER = "cel-newer"
    CEL_AMOUNT = "cel-amount"
    CEL_ABSENT = "cel-absent"
    CONSTANT_CONDITION = "constant-condition"
    UNUSED_VARIABLE = "unused-variable"
    UNUSED_PARAM = "unused-param"

    # Rules and tests together
    NO_RULES = "no-rules"
    MATCHES_NOTHING = "matches-nothing"
    EVERY_POD = "every-pod"
    SIMPLIFIED_CONDITION = "simplified-condition"
    UNKNOWN_RULE = "unknown-rule"
    UNKNOWN_RUNG = "unknown-rung"
    IDLE_RULE = "idle-rule"
    UNKNOWN_REASON = "unknown-reason"
    UNSEEN_CLAIMS = "unseen-claims"

    # Conversion of gpuinjector's configuration
    JSON_SYNTAX = "json-syntax"
    GPUINJECTOR_INVALID = "gpuinjector-invalid"
    GPUINJECTOR_DIFFERENT = "gpuinjector-different"
