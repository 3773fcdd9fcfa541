#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Features of edges, which are kept, or become features of vertices as OGB's examples make them for ogbn-proteins:
//
//   x_i := the sum, or the mean, of f_e over the edges e at i
//
// In an undirected graph these are the listed edges with i at either end (a self loop counts once); in a directed graph, those that lead
// to i. Repeats count as often as they are listed. A vertex without edges has zeros.

#include "graph/graph_source.hpp"
#include "runtime/comm/communicator.hpp"

namespace orthant::graph {

struct Opener;

/// Lets the stream of edges also have their features, and sets their number. Rank 0 reads texts. Features in fp64 are read as fp32. Not
/// collective. Throws UserError if rows and edges do not match, or if edges have weights.
void keep_edge_features(Opener& opener);

/// Name of the features in OGB's raw/data.npz.
inline constexpr char const* edge_feature_member = "edge_feat.npy";

/// Reads the edges again (a text that no file counts, twice). Each rank holds the features of its share of the vertices, 4 bytes each, and 16 more while they are added up.
/// Features in fp64 are read as fp32. Collective. Throws UserError on all ranks if rows and edges do not match.
[[nodiscard]] FeaturePart features_from_edges(runtime::Communicator const& comm, Opener const& opener);
/// Memory of a rank with as many of the vertices.
[[nodiscard]] SourceMemory memory_of_edge_features(std::int64_t num_vertices, std::int64_t num_columns);

} // namespace orthant::graph
