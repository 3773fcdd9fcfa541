#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A loss of links on dense matrices, by its definition: all pairs of vertices by original id.

#include "graph/links/edge_split.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/numbers/bijection.hpp"
#include "runtime/numbers/random.hpp"
#include "support/reference.hpp"

#include <set>
#include <utility>
#include <vector>

namespace orthant::testing {

using IdPair = std::pair<std::int64_t, std::int64_t>;

/// The links that a store trains on, each edge once, smaller id first.
inline std::vector<IdPair> edges_of(graph::GraphStore const& store) {
  auto const n = store.facts().num_vertices;
  auto const rows = store.read_original_ids(graph::Order::p1, {0, n});
  auto const columns = store.read_original_ids(graph::Order::p2, {0, n});
  auto const block = store.read_block(graph::Parity::even, {0, n}, {0, n}, graph::SelfLoops::dropped);
  std::vector<IdPair> edges;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (auto k = block.row_offsets[i]; k < block.row_offsets[i + 1]; ++k)
      if (auto const v = columns[static_cast<std::size_t>(block.columns[static_cast<std::size_t>(k)])];
          rows[i] < v)
        edges.emplace_back(rows[i], v);
  return edges;
}

/// Number k of `num_edges` negatives of an epoch, for all k; those that are edges are left out.
inline std::vector<IdPair> negatives_of(graph::GraphStore const& store, std::vector<IdPair> const& edges,
                                        std::uint64_t seed, std::uint64_t epoch) {
  using runtime::Purpose;
  using runtime::RandomStream;
  auto const n = static_cast<std::uint64_t>(store.facts().num_vertices);
  std::set<IdPair> const known(edges.begin(), edges.end());
  runtime::KeyedBijection const order(n, RandomStream(seed, Purpose::negative_links, epoch, 1).key());
  RandomStream const stream(seed, Purpose::negative_links, epoch, 2);
  std::vector<IdPair> negatives;
  for (std::uint64_t k = 0; k < edges.size(); ++k) {
    auto const u = static_cast<std::int64_t>(order(k % n));
    auto w = static_cast<std::int64_t>(stream.integer(n - 1, k));
    if (w >= u) ++w;
    if (!known.contains(std::minmax(u, w))) negatives.emplace_back(u, w);
  }
  return negatives;
}

struct LinkReference {
  double loss = 0;
  Dense gradient{0, 0};
};

/// 1 / (2 E) of the sum over links of binary cross-entropy of dot products of rows of h, and its gradient.
inline LinkReference link_reference(Dense const& h, std::vector<IdPair> const& edges,
                                    std::vector<IdPair> const& negatives) {
  LinkReference result{0, Dense(h.rows, h.columns)};
  auto const weight = 1 / (2 * static_cast<double>(edges.size()));
  auto const add = [&](IdPair const& link, double label) {
    auto const [u, v] = link;
    double score = 0;
    for (std::int64_t c = 0; c < h.columns; ++c)
      score += h(u, c) * h(v, c);
    result.loss += weight * binary_loss(score, label);
    auto const slope = weight * (1 / (1 + std::exp(-score)) - label);
    for (std::int64_t c = 0; c < h.columns; ++c) {
      result.gradient(u, c) += slope * h(v, c);
      result.gradient(v, c) += slope * h(u, c);
    }
  };
  for (auto const& link : edges)
    add(link, 1);
  for (auto const& link : negatives)
    add(link, 0);
  return result;
}

} // namespace orthant::testing
