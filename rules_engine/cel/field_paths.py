"""Members of the variables that an expression may read: its value does not depend on any others. Constants in it."""

from collections.abc import Iterator
from typing import TypeAlias

from rules_engine.cel.syntax.tree import Call, Expression, Index, Literal, Name, Select, children

Chain: TypeAlias = tuple[str, ...]
"""A variable and the members selected from it, in order."""


def chains(expression: Expression) -> Iterator[Chain]:
    """Yield every chain of members, as far as their names are constant; it stands for all members below it.

    `object.spec.containers.all(c, c.name != object.metadata.labels['app'])` has the chains object.spec.containers,
    c.name and object.metadata.labels.app. A macro's variable counts like any other: an additional chain does no harm.
    """
    chain = _chain(expression)
    if chain is not None:
        yield chain
    else:
        for child in children(expression):
            yield from chains(child)


def texts(expression: Expression) -> Iterator[str]:
    """Yield every constant string and every selected field."""
    match expression:
        case Literal(value=str(value)):
            yield value
        case Select(field=field):
            yield field
    for child in children(expression):
        yield from texts(child)


def constant_arguments(expression: Expression, function: str) -> Iterator[str]:
    """Yield every constant string that is an argument of a function or method of this name."""
    if isinstance(expression, Call) and expression.function == function:
        for argument in expression.arguments:
            if isinstance(argument, Literal) and isinstance(argument.value, str):
                yield argument.value
    for child in children(expression):
        yield from constant_arguments(child, function)


def _chain(expression: Expression) -> Chain | None:
    members: list[str] = []
    while not isinstance(expression, Name):
        match expression:
            case Select(operand=operand, field=field):
                members.append(field)
            case Index(operand=operand, key=Literal(value=str(field))):
                members.append(field)
            case _:
                return None
        expression = operand
    return (expression.name, *reversed(members))
