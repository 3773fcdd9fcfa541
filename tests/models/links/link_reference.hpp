#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A loss of links on dense matrices, by its definition: all pairs of vertices by original id.

#include "graph/partition/link_sets.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/numbers/random.hpp"
#include "support/reference.hpp"

#include <algorithm>
#include <cmath>
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

/// The perceptron of a decoder: W_1 [width x K], b_1 [1 x K], w_2 [K x 1] and b_2 [1 x 1].
struct DecoderNumbers {
  Dense w1, b1, w2, b2;
};

struct DecoderReference {
  double loss = 0;
  Dense gradient{0, 0};
  DecoderNumbers gradients;
};

/// <relu(W_1^T (h_u * h_v) + b_1), w_2> + b_2; `hidden` gets what the relu reads.
inline double decoded_score(Dense const& h, DecoderNumbers const& decoder, IdPair const& link,
                            std::vector<double>& hidden) {
  hidden.clear();
  auto score = decoder.b2(0, 0);
  for (std::int64_t k = 0; k < decoder.w1.columns; ++k) {
    auto sum = decoder.b1(0, k);
    for (std::int64_t c = 0; c < h.columns; ++c)
      sum += h(link.first, c) * h(link.second, c) * decoder.w1(c, k);
    hidden.push_back(sum);
    score += std::max(sum, 0.0) * decoder.w2(k, 0);
  }
  return score;
}

/// The same loss by such a perceptron, and all gradients, link by link.
inline DecoderReference decoder_reference(Dense const& h, DecoderNumbers const& decoder,
                                          std::vector<IdPair> const& edges,
                                          std::vector<IdPair> const& negatives) {
  auto const alike = [](Dense const& matrix) { return Dense(matrix.rows, matrix.columns); };
  DecoderReference result{
      0, alike(h), {alike(decoder.w1), alike(decoder.b1), alike(decoder.w2), alike(decoder.b2)}};
  auto& [dw1, db1, dw2, db2] = result.gradients;
  auto const weight = 1 / (2 * static_cast<double>(edges.size()));
  std::vector<double> hidden;
  auto const add = [&](IdPair const& link, double label) {
    auto const [u, v] = link;
    auto const score = decoded_score(h, decoder, link, hidden);
    result.loss += weight * binary_loss(score, label);
    auto const slope = weight * (1 / (1 + std::exp(-score)) - label);
    db2(0, 0) += slope;
    for (std::int64_t k = 0; k < decoder.w1.columns; ++k) {
      auto const z = hidden[static_cast<std::size_t>(k)];
      if (z <= 0) continue;
      dw2(k, 0) += slope * z;
      auto const dz = slope * decoder.w2(k, 0);
      db1(0, k) += dz;
      for (std::int64_t c = 0; c < h.columns; ++c) {
        dw1(c, k) += dz * h(u, c) * h(v, c);
        result.gradient(u, c) += dz * decoder.w1(c, k) * h(v, c);
        result.gradient(v, c) += dz * decoder.w1(c, k) * h(u, c);
      }
    }
  };
  for (auto const& link : edges)
    add(link, 1);
  for (auto const& link : negatives)
    add(link, 0);
  return result;
}

} // namespace orthant::testing
