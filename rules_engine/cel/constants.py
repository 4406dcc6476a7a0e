"""Constants in expressions."""

from collections.abc import Iterator

from rules_engine.cel.syntax.tree import Call, Expression, Literal, Select, children


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
