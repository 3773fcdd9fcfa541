# SPDX-License-Identifier: Apache-2.0
"""Graphs whose vertices and edges have types: HeteroData of PyTorch Geometric, and heterogeneous graphs of DGL."""
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from ._arrays import Array, module_of, to_numpy
from ._graphs import ALIASES

Relation = Tuple[str, str, str]


@dataclass
class TypedParts:
    """counts: vertices of each type. arrays: by type, with the names of the program. edges: sources and targets."""

    counts: Dict[str, int]
    arrays: Dict[str, Dict[str, Any]]
    edges: Dict[Relation, Tuple[Array, Array]]


def _known(attributes: Any) -> Dict[str, Any]:
    return {name: attributes[alias] for name, aliases in ALIASES.items() for alias in reversed(aliases)
            if alias in attributes}


def take_typed_apart(graph: Any) -> Optional[TypedParts]:
    """None if the graph has no types."""
    if module_of(graph, "torch_geometric") and hasattr(graph, "node_types") and hasattr(graph, "edge_types"):
        edges = {kind: tuple(to_numpy(end) for end in graph[kind].edge_index) for kind in graph.edge_types}
        arrays = {kind: _known(graph[kind]) for kind in graph.node_types}
        return TypedParts({kind: int(graph[kind].num_nodes) for kind in graph.node_types}, arrays, edges)
    if module_of(graph, "dgl") and (len(graph.ntypes) > 1 or len(graph.etypes) > 1):
        edges = {kind: tuple(to_numpy(end) for end in graph.edges(etype=kind)) for kind in graph.canonical_etypes}
        arrays = {kind: _known(graph.nodes[kind].data) for kind in graph.ntypes}
        return TypedParts({kind: int(graph.num_nodes(kind)) for kind in graph.ntypes}, arrays, edges)
    return None


def folders_of(parts: TypedParts) -> List[str]:
    """Of types and relations, which the program finds by "__"."""
    for kind in parts.edges:
        for name in kind:
            if not name or "__" in name or "/" in name or name.startswith("."):
                raise ValueError(f"the type '{name}' cannot be part of the name of a folder SOURCE__NAME__TARGET")
    return [*parts.counts, *("__".join(kind) for kind in parts.edges)]
