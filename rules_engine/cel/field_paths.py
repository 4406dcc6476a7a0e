"""Which members of its variables an expression can look at: what is different elsewhere makes no difference to it."""

from collections.abc import Iterator
from typing import TypeAlias

from rules_engine.cel.syntax.tree import Expression, Index, Literal, Name, Select, children

Chain: TypeAlias = tuple[str, ...]
"""A variable and the members that lead on from it."""


def chains(expression: Expression) -> Iterator[Chain]:
    """Every chain of members, as far as their names are known; one stands for all that is below it.

    Of `object.spec.containers.all(c, c.name != object.metadata.labels['app'])` these are object.spec.containers, c.name
    and object.metadata.labels.app. A macro's variable counts like any other: it hides one of the same name, and to name
    that as well does no harm.
    """
    chain = _chain(expression)
    if chain is not None:
        yield chain
    else:
        for child in children(expression):
            yield from chains(child)


def texts(expression: Expression) -> Iterator[str]:
    """Every constant string, and every member that is named."""
    match expression:
        case Literal(value=str(value)):
            yield value
        case Select(field=field):
            yield field
    for child in children(expression):
        yield from texts(child)


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
