#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Small stores of all kinds, and A~ of a batch from its definition, in original ids, without any of the
// sampler's tables.

#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "graph/read/open_graph.hpp"
#include "sampling/sampler.hpp"
#include "support/reference.hpp"
#include "support/scratch_folder.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace orthant::testing {

inline std::size_t position(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// 44 vertices, 150 edges with weights in quarters, some of them listed twice.
inline std::string weighted_edges() {
  std::string text;
  for (std::int64_t e = 0; e < 150; ++e) {
    auto const source = mixed(1, e) % 44;
    auto const target = e % 9 == 0 ? source : mixed(2, e) % 44;
    auto const line = std::to_string(source) + ' ' + std::to_string(target) + ' ';
    for (std::int64_t repeat = 0; repeat < (e % 7 == 0 ? 2 : 1); ++repeat)
      text += line + std::to_string(0.25 * static_cast<double>(1 + mixed(3, e, repeat) % 12)) + '\n';
  }
  return text;
}

struct StoreRecipe {
  char const* name;
  char const* dataset; // empty: a file of weighted edges, some of them self loops and repeats
  graph::PermutationKind permutation = graph::PermutationKind::twofold;
  graph::Normalization normalization = graph::Normalization::symmetric;
  bool is_directed = false; // of the file
  bool keeps_repeats = false;
  std::int64_t num_clusters = 0;
  std::string (*edges)() = weighted_edges; // of the file
  std::int64_t num_vertices = 44;          // of the file
};

inline std::vector<StoreRecipe> store_recipes() {
  using graph::Normalization;
  using graph::PermutationKind;
  return {
      {"sbm", "sbm:vertices=61,edges=200,classes=3,features=4"},
      {"directed", "rmat:vertices=64,edges=300,classes=3,features=4,directed=1"},
      {"row", "sbm:vertices=47,edges=150,classes=3,features=4", PermutationKind::twofold, Normalization::row},
      {"single", "sbm:vertices=53,edges=160,classes=3,features=4", PermutationKind::single},
      {"natural", "rmat:vertices=40,edges=160,classes=3,features=4,directed=1", PermutationKind::natural},
      {"weighted", "", PermutationKind::twofold, Normalization::symmetric, false},
      {"weighted_directed", "", PermutationKind::twofold, Normalization::symmetric, true},
      {"own_loops", "", PermutationKind::twofold, Normalization::none, true},
      {"own_repeated_loops", "", PermutationKind::twofold, Normalization::none, true, true},
  };
}

/// Not collective: each rank makes its own.
inline graph::GraphStore make_store(runtime::Communicator const& self, StoreRecipe const& recipe) {
  test::ScratchFolder const scratch(self.mpi());
  test::write_file(scratch.file("edges.txt"), recipe.edges());
  graph::PartitionOptions how;
  how.permutation = recipe.permutation;
  how.normalization = recipe.normalization;
  how.seed = 3;
  how.num_clusters = recipe.num_clusters;
  if (recipe.keeps_repeats) how.rules.repeats = graph::EdgeRules::Repeats::keep;
  return graph::partition_in_memory(
      self,
      [&](runtime::Communicator const& comm) {
        if (*recipe.dataset != '\0') return graph::open_dataset(comm, recipe.dataset, 5);
        graph::Input input;
        input.path = scratch.file("edges.txt");
        input.is_directed = recipe.is_directed;
        input.num_vertices = recipe.num_vertices;
        input.random_split = {0.4, 0.3, 0.2};
        return graph::open_graph(comm, input);
      },
      how);
}

/// A in original ids, by counting.
inline Dense plain_matrix(graph::GraphStore const& store) {
  auto const n = store.facts().num_vertices;
  auto const rows = store.read_original_ids(graph::Order::p1, {0, n});
  auto const columns = store.read_original_ids(graph::Order::p2, {0, n});
  auto const block = store.read_block(graph::Parity::even, {0, n}, {0, n}, graph::SelfLoops::as_given);
  Dense a(n, n);
  for (std::int64_t i = 0; i < n; ++i)
    for (auto k = block.row_offsets[position(i)]; k < block.row_offsets[position(i) + 1]; ++k)
      a(rows[position(i)], columns[position(block.columns[position(k)])]) +=
          block.values.empty() ? 1 : static_cast<double>(block.values[position(k)]);
  return a;
}

/// A + I, or A itself, with the degrees that the vertices `is_in` have among each other; 0 outside them.
inline Dense normalised_part(Dense a, graph::Normalization normalization, std::vector<char> const& is_in) {
  auto const n = a.rows;
  bool const adds_loops = normalization != graph::Normalization::none;
  std::vector<double> sums(position(n));
  for (std::int64_t i = 0; i < n; ++i) {
    if (adds_loops) a(i, i) = 1;
    for (std::int64_t j = 0; j < n; ++j) {
      if (is_in[position(i)] == 0 || is_in[position(j)] == 0) a(i, j) = 0;
      sums[position(i)] += a(i, j);
    }
  }
  bool const is_row = normalization == graph::Normalization::row;
  if (!adds_loops) return a;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      if (a(i, j) != 0)
        a(i, j) /= is_row ? sums[position(i)] : std::sqrt(sums[position(i)] * sums[position(j)]);
  return a;
}

/// A^ in original ids.
inline Dense normalised_matrix(graph::GraphStore const& store) {
  return normalised_part(plain_matrix(store), store.facts().normalization,
                         std::vector<char>(position(store.facts().num_vertices), 1));
}

/// The vertices by key: all by original id, or the training vertices before the others.
inline std::vector<std::int64_t> vertices_by_key(graph::GraphStore const& store, std::size_t num_strata) {
  auto const n = store.facts().num_vertices;
  auto const ids = store.read_original_ids(graph::Order::p1, {0, n});
  auto const mask = store.read_mask(graph::Split::train, graph::Order::p1, {0, n});
  std::vector<char> trains(position(n));
  for (std::size_t i = 0; i < ids.size(); ++i)
    trains[position(ids[i])] = static_cast<char>(mask[i]);
  std::vector<std::int64_t> vertices;
  for (auto const wanted : {1, 0})
    for (std::int64_t v = 0; v < n; ++v)
      if (num_strata == 1 ? wanted == 1 : trains[position(v)] == wanted) vertices.push_back(v);
  return vertices;
}

/// The vertices sorted by what `stratum_of` says of them, then by original id. `values` by position of order p1.
template<class T, class StratumOf>
std::vector<std::int64_t> vertices_sorted(graph::GraphStore const& store, std::vector<T> const& values,
                                          StratumOf const& stratum_of) {
  auto const ids = store.read_original_ids(graph::Order::p1, {0, store.facts().num_vertices});
  std::vector<std::pair<std::int64_t, std::int64_t>> sorted;
  for (std::size_t i = 0; i < ids.size(); ++i)
    sorted.emplace_back(stratum_of(values[i]), ids[i]);
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::int64_t> vertices;
  for (auto const& [stratum, id] : sorted)
    vertices.push_back(id);
  return vertices;
}

/// Whether each vertex is in the batch, and its stratum; by original id.
struct BatchMembers {
  std::vector<char> is_in;
  std::vector<int> stratum;
};
inline BatchMembers members_of(sampling::BatchKeys const& keys,
                               std::vector<std::int64_t> const& vertices_by_key) {
  BatchMembers members{std::vector<char>(vertices_by_key.size()), std::vector<int>(vertices_by_key.size())};
  for (std::size_t i = 0; i < keys.keys.size(); ++i) {
    auto const vertex = position(vertices_by_key[position(keys.keys[i])]);
    members.is_in[vertex] = 1;
    auto end = keys.stratum_sizes[0];
    for (auto& stratum = members.stratum[vertex]; static_cast<std::int64_t>(i) >= end; ++stratum)
      end += keys.stratum_sizes[position(stratum + 1)];
  }
  return members;
}

/// A~ by its definition: rows and columns outside the batch are 0.
inline Dense sampled_matrix(Dense const& a, BatchMembers const& members,
                            std::vector<std::int64_t> const& stratum_sizes) {
  std::vector<double> num_in_batch(stratum_sizes.size());
  for (std::size_t v = 0; v < members.is_in.size(); ++v)
    if (members.is_in[v] != 0) ++num_in_batch[position(members.stratum[v])];
  Dense sampled(a.rows, a.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) {
      if (members.is_in[position(i)] == 0 || members.is_in[position(j)] == 0 || a(i, j) == 0) continue;
      auto const stratum = position(members.stratum[position(j)]);
      double const self = members.stratum[position(i)] == members.stratum[position(j)] ? 1 : 0;
      auto const m =
          i == j ? 1 : (static_cast<double>(stratum_sizes[stratum]) - self) / (num_in_batch[stratum] - self);
      sampled(i, j) = a(i, j) * m;
    }
  return sampled;
}

} // namespace orthant::testing
