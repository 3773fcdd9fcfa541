#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// What a store must hold, by a plain computation on the graph that it was made from.

#include "graph/graph_probe.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/range.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace orthant::graph {

using Entries = std::map<std::pair<std::int64_t, std::int64_t>, double>; // (row, column) -> value or count

inline std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// A in original ids.
inline Entries matrix_of(testing::WholeGraph const& graph, bool is_directed, bool is_weighted) {
  std::map<std::pair<std::int64_t, std::int64_t>, double> edges;
  for (std::size_t i = 0; i < graph.edges.size(); ++i) {
    auto [source, target] = graph.edges[i];
    if (!is_directed && source > target) std::swap(source, target);
    auto& value = edges[{target, source}];
    value = is_weighted ? value + static_cast<double>(graph.weights[i]) : 1;
  }
  Entries entries;
  for (auto const& [place, value] : edges) {
    entries[place] = value;
    if (!is_directed) entries[{place.second, place.first}] = value;
  }
  return entries;
}

inline std::vector<std::int64_t> ids_of(GraphStore const& store, Order order) {
  return store.read_original_ids(order, {0, store.facts().num_vertices});
}

/// Compares the block of both parities on every grid of axis sizes 1..3 with `expected`, A in original ids.
inline void expect_blocks(GraphStore const& store, Entries const& expected) {
  auto const n = store.facts().num_vertices;
  for (auto const parity : {Parity::even, Parity::odd}) {
    auto const row_ids = ids_of(store, row_order(parity));
    auto const column_ids = ids_of(store, column_order(parity));
    for (auto const& [p, q] : {std::pair(1, 1), std::pair(2, 3), std::pair(3, 1), std::pair(1, 4)}) {
      Entries found;
      std::int64_t num_found = 0;
      Entries with_loops;
      for (int i = 0; i < p; ++i)
        for (int j = 0; j < q; ++j) {
          auto const rows = runtime::balanced_range(n, p, i);
          auto const columns = runtime::balanced_range(n, q, j);
          auto const collect = [&](CsrBlock const& block, Entries& entries) {
            ASSERT_EQ(block.row_offsets.size(), index(rows.size()) + 1);
            for (std::int64_t r = 0; r < rows.size(); ++r)
              for (auto k = block.row_offsets[index(r)]; k < block.row_offsets[index(r) + 1]; ++k) {
                auto const column = block.columns[index(k)];
                ASSERT_TRUE(0 <= column && column < columns.size());
                if (k > block.row_offsets[index(r)]) {
                  ASSERT_LT(block.columns[index(k) - 1], column);
                }
                entries[{row_ids[index(rows.begin + r)], column_ids[index(columns.begin + column)]}] =
                    block.values.empty() ? 1 : static_cast<double>(block.values[index(k)]);
              }
          };
          auto const given = store.read_block(parity, rows, columns, SelfLoops::as_given);
          num_found += given.num_nonzeros();
          collect(given, found);
          auto const added = store.read_block(parity, rows, columns, SelfLoops::added);
          collect(added, with_loops);
          std::int64_t num_selves = 0;
          for (std::int64_t r = 0; r < rows.size(); ++r)
            for (auto k = added.row_offsets[index(r)]; k < added.row_offsets[index(r) + 1]; ++k)
              if (row_ids[index(rows.begin + r)] ==
                  column_ids[index(columns.begin + added.columns[index(k)])])
                ++num_selves;
          EXPECT_EQ(num_selves,
                    added.num_nonzeros() -
                        store.read_block(parity, rows, columns, SelfLoops::dropped).num_nonzeros());
        }
      ASSERT_EQ(num_found, static_cast<std::int64_t>(expected.size())) << p << 'x' << q;
      ASSERT_TRUE(found == expected) << p << 'x' << q << (parity == Parity::even ? " even" : " odd");
      auto expected_loops = expected;
      for (std::int64_t v = 0; v < n; ++v)
        expected_loops[{v, v}] = 1;
      ASSERT_TRUE(with_loops == expected_loops) << p << 'x' << q;
    }
  }
}

/// Row sums of A' + I in original ids.
inline std::vector<double> row_sums(Entries const& entries, std::int64_t n) {
  std::vector<double> sums(index(n), 1.0);
  for (auto const& [place, value] : entries)
    if (place.first != place.second) sums[index(place.first)] += value;
  return sums;
}

inline void expect_scales(GraphStore const& store, Entries const& expected) {
  auto const n = store.facts().num_vertices;
  auto const sums = row_sums(expected, n);
  for (auto const parity : {Parity::even, Parity::odd}) {
    auto const rows = ids_of(store, row_order(parity));
    auto const columns = ids_of(store, column_order(parity));
    auto const scales = store.read_scales(parity, {n / 3, n}, {0, n / 2});
    ASSERT_EQ(scales.rows.size(), index(n - n / 3));
    ASSERT_EQ(scales.columns.size(), index(n / 2));
    for (std::size_t i = 0; i < scales.rows.size(); ++i)
      ASSERT_NEAR(scales.rows[i], 1 / std::sqrt(sums[index(rows[i + index(n / 3)])]), 1e-6);
    for (std::size_t i = 0; i < scales.columns.size(); ++i)
      ASSERT_NEAR(scales.columns[i], 1 / std::sqrt(sums[index(columns[i])]), 1e-6);
  }
}

inline void expect_attributes(GraphStore const& store, testing::WholeGraph const& graph) {
  auto const& facts = store.facts();
  auto const n = facts.num_vertices;
  auto const width = facts.num_features;
  for (auto const order : {Order::p1, Order::p2}) {
    auto const ids = ids_of(store, order);
    auto const others = ids_of(store, other(order));
    auto const map = store.read_other_positions(order, {0, n});
    for (std::int64_t i = 0; i < n; ++i)
      ASSERT_EQ(others[index(map[index(i)])], ids[index(i)]);
    Range const rows{n / 4, n};
    if (facts.label_kind == LabelKind::single) {
      auto const labels = store.read_labels(order, rows);
      for (auto i = rows.begin; i < rows.end; ++i)
        ASSERT_EQ(labels[index(i - rows.begin)], graph.classes[index(ids[index(i)])]);
    }
    if (facts.label_kind == LabelKind::multi) {
      auto const c = facts.num_classes;
      auto const labels = store.read_label_indicator(order, rows, {1, c});
      for (auto i = rows.begin; i < rows.end; ++i)
        for (std::int64_t k = 1; k < c; ++k)
          ASSERT_EQ(labels[index((i - rows.begin) * (c - 1) + k - 1)],
                    graph.indicator[index(ids[index(i)] * c + k)]);
    }
    if (facts.has_split) {
      for (auto const& [part, list] :
           {std::pair(Split::train, &graph.train), std::pair(Split::valid, &graph.valid),
            std::pair(Split::test, &graph.test)}) {
        auto const mask = store.read_mask(part, order, rows);
        std::set<std::int64_t> const members(list->begin(), list->end());
        for (auto i = rows.begin; i < rows.end; ++i)
          ASSERT_EQ(mask[index(i - rows.begin)], members.count(ids[index(i)]));
        EXPECT_EQ(facts.split_sizes[index(static_cast<std::int64_t>(part))],
                  static_cast<std::int64_t>(list->size()));
      }
    }
    if (facts.feature_kind == FeatureKind::dense) {
      Range const columns{width / 3, width};
      auto const features = store.read_features(order, rows, columns);
      for (auto i = rows.begin; i < rows.end; ++i)
        for (auto c = columns.begin; c < columns.end; ++c)
          ASSERT_EQ(features[index((i - rows.begin) * columns.size() + c - columns.begin)],
                    graph.features[index(ids[index(i)] * width + c)]);
    }
  }
  if (facts.feature_kind == FeatureKind::sparse) {
    auto const ids = ids_of(store, Order::p2);
    Range const rows{n / 5, n};
    Range const columns{width / 3, width};
    auto const block = store.read_sparse_features(rows, columns);
    std::vector<float> dense(index(rows.size() * columns.size()));
    for (std::int64_t r = 0; r < rows.size(); ++r)
      for (auto k = block.row_offsets[index(r)]; k < block.row_offsets[index(r) + 1]; ++k)
        dense[index(r * columns.size() + block.columns[index(k)])] =
            block.values.empty() ? 1.0F : block.values[index(k)];
    for (std::int64_t r = 0; r < rows.size(); ++r)
      for (std::int64_t c = 0; c < columns.size(); ++c)
        ASSERT_EQ(dense[index(r * columns.size() + c)],
                  graph.features[index(ids[index(rows.begin + r)] * width + columns.begin + c)]);
  }
}

/// The arrays of two files are equal, element by element.
inline void expect_equal_files(std::filesystem::path const& a, std::filesystem::path const& b) {
  auto const first = runtime::Hdf5File::open(a);
  auto const second = runtime::Hdf5File::open(b);
  ASSERT_EQ(first.array_names(), second.array_names());
  EXPECT_EQ(first.read_text("/", "facts"), second.read_text("/", "facts"));
  for (auto const& name : first.array_names()) {
    ASSERT_EQ(first.extents(name), second.extents(name)) << name;
    ASSERT_EQ(first.type(name), second.type(name)) << name;
    ASSERT_EQ(first.read_all<double>(name), second.read_all<double>(name)) << name;
  }
}

} // namespace orthant::graph
