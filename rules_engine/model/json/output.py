"""Values that `--output json` prints: objects whose members are the fields, in camelCase."""

from msgspec import Struct


class Output(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An object in the JSON of a command.

    Its fields have the types of JSON, other Outputs, Enums, times, Fractions, or tuples and Mappings of those. Their
    meaning stands in `Annotated[…, Meta(description=…)]`; `gpu-rules schema` prints it. Each subclass repeats
    `frozen=True, kw_only=True`, which are not inherited.
    """


class SparseOutput(Output, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=False):
    """An object whose empty members are left out. Members that it does not know are ignored when it is read."""
