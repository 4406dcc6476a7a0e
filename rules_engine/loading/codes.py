"""Stable codes of the problems that this package reports."""

from enum import Enum


class Code(Enum):
    """Code of a problem; the values are a contract with tools that filter reports."""

    # Files
    MISSING_FILE = "missing-file"
    UNREADABLE_FILE = "unreadable-file"
    NOT_A_REGULAR_FILE = "not-a-regular-file"
    FILE_TOO_LARGE = "file-too-large"
    TOO_MANY_FILES = "too-many-files"
    NO_FILES = "no-files"
    EMPTY_FILE = "empty-file"
    NOT_UTF_8 = "not-utf-8"

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
    DUPLICATE_RUNG = "duplicate-rung"
    SEVERAL_ASSUMED = "several-assumed"
    MISSING_WEIGHT = "missing-weight"
    GPU_COEFFICIENT = "gpu-coefficient"
    STEERING_ANNOTATION = "steering-annotation"
    NOTHING_TO_INHERIT = "nothing-to-inherit"
    CONFLICTING_ACTIONS = "conflicting-actions"

    # Tests, inventories and manifests
    BAD_REFERENCE = "bad-reference"
    NOT_A_POD = "not-a-pod"
    NOT_A_CLUSTER = "not-a-cluster"
    DUPLICATE_NODE = "duplicate-node"
    IMPOSSIBLE_MIG = "impossible-mig"
    ALLOCATABLE_CONFLICT = "allocatable-conflict"
    BAD_POD = "bad-pod"
    UNKNOWN_POD_FIELD = "unknown-pod-field"
    NO_CONTAINERS = "no-containers"
    DUPLICATE_CONTAINER = "duplicate-container"
    UNKNOWN_NODE = "unknown-node"
    UNBOUND_POD = "unbound-pod"
    UNREAD_OBJECT = "unread-object"
