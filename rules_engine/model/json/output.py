"""Values that `--output json` prints: objects whose members are the fields, in camelCase."""

from msgspec import Struct


class Output(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An object in the JSON of a command.

    Its fields have the types of JSON, other Outputs, Enums, times, Fractions, or tuples and Mappings of those. Their
    meaning stands in `Annotated[…, Meta(description=…)]`; `gpu-rules schema` prints it. Each subclass repeats
    `frozen=True, kw_only=True`, which are not inherited.
    """
