"""Code generation: a checked expression as a Python function.

Why generate: the interpreter visits every node at every evaluation, while Python's compiler makes of the same tree one
function in which `a.b` is `a["b"]`, `&&` is `and` and a macro is a loop. Shipped validations are evaluated 6 to 10
times as fast, small expressions 8 to 30 times (bench.cel).

Why exceptions lead to the interpreter: CEL absorbs errors (`false && 1/0 > 0` is false in either order) and every error
has a place. Code that did both would be as slow as the interpreter. But CEL has no side effects, so an evaluation can
start again: generated code assumes that nothing fails, and any exception discards its work and runs the interpreter,
which returns the value after all or raises the error with its place. So one rule holds for every generated line: it may
raise anything at any time, but never returns a value that the interpreter would not return. Static types are no proof,
since JSON may break the declarations that the checker relies on: where Python's operation differs from CEL's for some
class of value, generated code tests the class first.

Why the source contains no text of the expression: `exec` runs it. It consists of keywords, numbers and names that are
made here; strings, fields and functions of the expression are constants in the function's globals.
"""

from rules_engine.cel.run.codegen.function import Function, generate_function

__all__ = ["Function", "generate_function"]
