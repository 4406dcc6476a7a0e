"""The contract of import-linter that pyproject.toml uses: one list of packages, each with its layers."""

from collections.abc import Sequence

from grimp import ImportGraph, Layer
from importlinter import Contract, ContractCheck, fields, output


class PackageLayersContract(Contract):
    """Each of `packages` is `PACKAGE: TOP > MIDDLE | BESIDE IT > BOTTOM`: a layer imports only those below it.

    Modules of one layer do not import each other, and every module of a package is in one of its layers. One in
    parentheses need not exist.
    """

    packages = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        wrong: list[str] = []
        for line in self.packages:  # type: ignore[attr-defined]
            package, _, written = line.partition(": ")
            layers = [[name.strip(" ()") for name in layer.split("|")] for layer in written.split(" > ")]
            wrong += _unlisted(graph, package, written, layers)
            layered = [Layer(*(f"{package}.{name}" for name in layer)) for layer in layers]
            present = [Layer(*(name for name in layer.module_tails if name in graph.modules)) for layer in layered]
            for found in graph.find_illegal_dependencies_for_layers([layer for layer in present if layer.module_tails]):
                wrong += [f"{found.importer} imports {found.imported}: {' → '.join(_chain(found))}"]
        return ContractCheck(kept=not wrong, metadata={"wrong": sorted(wrong)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in check.metadata["wrong"]:
            output.print_error(line)


def _unlisted(graph: ImportGraph, package: str, written: str, layers: Sequence[Sequence[str]]) -> list[str]:
    """Return what is wrong with the names of a package."""
    listed = {name for layer in layers for name in layer}
    there = {child.rpartition(".")[2] for child in graph.find_children(package)}
    absent = {name for name in listed - there if f"({name})" not in written}
    return [
        *(f"{package}.{name} is in no layer" for name in there - listed),
        *(f"{package}.{name} is a layer and does not exist" for name in absent),
    ]


def _chain(found: object) -> Sequence[str]:
    route = next(iter(found.routes))  # type: ignore[attr-defined]
    return [min(route.heads), *route.middle, min(route.tails)]
