// SPDX-License-Identifier: Apache-2.0
//
// Stores of graphs whose edges have features, beside a plain loop over the edges, and mistakes.
#include "graph/read/open_graph.hpp"
#include "graph/store/listed_block.hpp"
#include "graph/store/store_editor.hpp"
#include "graph/store/store_fixture.hpp"
#include "support/user_messages.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace orthant::graph {
namespace {

using test::message_of;
using ::testing::HasSubstr;

constexpr std::int64_t num_vertices =
    3001; // several tiles' bins and chunks of checksums; the last vertex has no edges
constexpr std::int64_t num_columns = 11; // more than travel in one message
using Features =
    std::map<std::pair<std::int64_t, std::int64_t>, std::vector<double>>; // (row, column) -> features

/// Distinct edges, of which no two lead between the same vertices; every 50th vertex has a self loop.
std::vector<Edge> some_edges() {
  std::vector<Edge> edges;
  constexpr auto n = num_vertices - 1;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t const step : {1, 7, 300, 1111})
      if ((i * step) % 3 != 1) edges.push_back({(i + step) % n, i});
    if (i % 50 == 0) edges.push_back({i, i});
  }
  return edges;
}
float number(std::int64_t edge, std::int64_t column) {
  return static_cast<float>((edge * 37 + column * 101) % 4096) / 64 - 20;
}

/// Of A in original ids: with the self loops of the input, without any, or with means of rows in added ones.
Features expected_of(std::vector<Edge> const& edges, bool is_directed, SelfLoops self_loops) {
  Features expected;
  for (std::size_t e = 0; e < edges.size(); ++e) {
    std::vector<double> row;
    for (std::int64_t column = 0; column < num_columns; ++column)
      row.push_back(static_cast<double>(number(static_cast<std::int64_t>(e), column)));
    auto const [source, target] = edges[e];
    if (source == target && self_loops != SelfLoops::as_given) continue;
    expected[{target, source}] = row;
    if (!is_directed) expected[{source, target}] = row;
  }
  if (self_loops != SelfLoops::added) return expected;
  Features means;
  std::vector<double> counts(num_vertices);
  for (std::int64_t v = 0; v < num_vertices; ++v)
    means[{v, v}].resize(num_columns);
  for (auto const& [place, row] : expected) {
    ++counts[index(place.first)];
    for (std::size_t f = 0; f < row.size(); ++f)
      means[{place.first, place.first}][f] += row[f];
  }
  for (auto& [place, row] : means)
    for (auto& sum : row)
      sum /= std::max(1.0, counts[index(place.first)]);
  expected.merge(means);
  return expected;
}

class EdgeFeaturesStore : public StoreTest {
 protected:
  std::filesystem::path write(std::vector<Edge> const& edges, std::string const& name = "attr") const {
    std::vector<std::int64_t> ends;
    std::vector<float> numbers;
    for (auto const& edge : edges)
      ends.push_back(edge.source);
    for (auto const& edge : edges)
      ends.push_back(edge.target);
    auto const count = std::ssize(edges);
    for (std::int64_t e = 0; e < count; ++e)
      for (std::int64_t column = 0; column < num_columns; ++column)
        numbers.push_back(number(e, column));
    scratch.write(name + "/edge_index.npy", testing::npy<std::int64_t>("<i8", {2, count}, ends));
    scratch.write(name + "/edge_attr.npy", testing::npy<float>("<f4", {count, num_columns}, numbers));
    scratch.write(name + "/meta.json", fmt::format("{{\"num_nodes\": {}}}", num_vertices));
    return scratch.path() / name;
  }
  /// The same as texts of OGB.
  std::filesystem::path write_texts(std::vector<Edge> const& edges) const {
    std::string ends;
    std::string numbers;
    for (std::size_t e = 0; e < edges.size(); ++e) {
      ends += fmt::format("{},{}\n", edges[e].source, edges[e].target);
      for (std::int64_t column = 0; column < num_columns; ++column)
        numbers += fmt::format("{}{}", number(static_cast<std::int64_t>(e), column),
                               column + 1 == num_columns ? '\n' : ',');
    }
    scratch.write("text/raw/edge.csv.gz", ends);
    scratch.write("text/raw/edge-feat.csv.gz", numbers);
    scratch.write("text/raw/num-node-list.csv.gz", fmt::format("{}\n", num_vertices));
    return scratch.path() / "text";
  }
  static Input input_of(std::filesystem::path const& path, bool is_directed = false) {
    return {.path = path, .is_directed = is_directed, .edge_features = EdgeFeatures::kept};
  }
  std::string told(Input const& input, PartitionOptions options = {}) const {
    options.replaces_output = true;
    return message_of([&] {
      static_cast<void>(partition(comm, *open_graph(comm, input), scratch.path() / "wrong.h5", options));
    });
  }

  static void collect(CsrBlock const& block, std::vector<std::int64_t> const& rows,
                      std::vector<std::int64_t> const& columns, Features& found) {
    ASSERT_EQ(block.num_features, num_columns);
    ASSERT_EQ(block.features.size(), block.columns.size() * num_columns);
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (auto k = block.row_offsets[r]; k < block.row_offsets[r + 1]; ++k) {
        auto const first = block.features.begin() + k * num_columns;
        found[{rows[r], columns[index(block.columns[index(k)])]}].assign(first, first + num_columns);
      }
  }
  static void expect_near(Features const& found, Features const& expected) {
    ASSERT_EQ(found.size(), expected.size());
    for (auto const& [place, row] : expected) {
      ASSERT_TRUE(found.contains(place)) << place.first << ", " << place.second;
      for (std::size_t f = 0; f < row.size(); ++f)
        ASSERT_NEAR(found.at(place)[f], row[f], 1e-13) << place.first << ", " << place.second;
    }
  }
  /// Blocks of both parities, and of lists of ranges, on a grid of 2 x 3.
  static void expect_blocks(GraphStore const& store, Features const& expected, SelfLoops self_loops) {
    for (auto const parity : {Parity::even, Parity::odd}) {
      Features found;
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 3; ++j) {
          auto const rows = runtime::balanced_range(num_vertices, 2, i);
          auto const columns = runtime::balanced_range(num_vertices, 3, j);
          collect(store.read_block(parity, rows, columns, self_loops),
                  store.read_original_ids(row_order(parity), rows),
                  store.read_original_ids(column_order(parity), columns), found);
        }
      expect_near(found, expected);
    }
    auto const ids = ids_of(store, Order::p1);
    Ranges const halves{{1500, num_vertices}, {0, 1500}};
    std::vector<std::int64_t> listed(ids.begin() + 1500, ids.end());
    listed.insert(listed.end(), ids.begin(), ids.begin() + 1500);
    Features found;
    collect(read_listed_block(store, halves, halves, self_loops), listed, listed, found);
    expect_near(found, expected);
  }
};

TEST_F(EdgeFeaturesStore, HoldsThemInEveryOrder) {
  auto const edges = some_edges();
  auto const arrays = write(edges);
  auto const texts = write_texts(edges);
  for (bool const is_directed : {false, true})
    for (auto const order : {PermutationKind::twofold, PermutationKind::single, PermutationKind::natural}) {
      PartitionOptions options;
      options.permutation = order;
      options.replaces_output = true;
      auto const path = scratch.path() / "graph.h5";
      partition(comm, *open_graph(comm, input_of(arrays, is_directed)), path, options);

      auto store = GraphStore::open(comm, path);

      EXPECT_EQ(store.facts().num_edge_features, num_columns);
      EXPECT_EQ(store.facts().version(), 2);
      for (auto const self_loops : {SelfLoops::as_given, SelfLoops::added, SelfLoops::dropped})
        expect_blocks(store, expected_of(edges, is_directed, self_loops), self_loops);
      store.verify(comm);
      options.uses_wide_ids = true;
      auto const alone = scratch.path() / "alone.h5";
      auto const of_texts = scratch.path() / "texts.h5";
      if (comm.is_root()) partition(self, *open_graph(self, input_of(arrays, is_directed)), alone, options);
      runtime::barrier(runtime::host, comm);
      expect_equal_files(path, alone);
      partition(comm, *open_graph(comm, input_of(texts, is_directed)), of_texts, options);
      GraphStore::open(comm, of_texts).verify(comm);
      store.ignore_edge_features();
      EXPECT_TRUE(store.ignores_edge_features());
      EXPECT_TRUE(store.read_block(Parity::even, {0, 100}, {0, num_vertices}).features.empty());
    }
}

TEST_F(EdgeFeaturesStore, FindsDamage) {
  PartitionOptions options;
  auto const path = scratch.path() / "graph.h5";
  partition(comm, *open_graph(comm, input_of(write(some_edges()))), path, options);
  auto const told_of = [&](auto const& change) {
    auto const copy = scratch.path() / "damaged.h5";
    if (comm.is_root()) {
      std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
      testing::StoreEditor editor(copy);
      change(editor);
    }
    runtime::barrier(runtime::host, comm);
    return message_of([&] { GraphStore::open(comm, copy).verify(comm); });
  };
  auto const add_one = [](auto& numbers) { numbers[numbers.size() / 2] += 1; };

  EXPECT_THAT(told_of([&](auto& store) { store.template change<float>("/topology/even/features", add_one); }),
              HasSubstr("/topology/even/features"));
  // With right checksums
  EXPECT_THAT(
      told_of([&](auto& store) { store.template change<double>("/vertices/edge_feature_means", add_one); }),
      HasSubstr("/vertices/edge_feature_means does not hold the means of the features"));
  EXPECT_THAT(told_of([](auto& store) {
                store.change_facts([](auto& facts) { facts["num_edge_features"] = num_columns - 1; });
              }),
              HasSubstr("has the shape"));
}

TEST_F(EdgeFeaturesStore, RefusesMistakes) {
  auto edges = some_edges();
  auto const path = write(edges);
  PartitionOptions keeps;
  keeps.rules.repeats = EdgeRules::Repeats::keep;
  EXPECT_THAT(told(input_of(path), keeps),
              HasSubstr("--edge-features keep goes without --edge-split and --duplicates"));
  PartitionOptions splits;
  splits.edge_split = EdgeSplit{0.1, 0.1, 0};
  EXPECT_THAT(told(input_of(path), splits), HasSubstr("leave them out"));
  edges.push_back({edges.front().target, edges.front().source});
  EXPECT_THAT(told(input_of(write(edges, "both"))),
              HasSubstr("is listed more than once: edges with features must be distinct"));
  EXPECT_EQ(told(input_of(write(edges, "both"), true)), "no UserError");
  scratch.write("attr/edge_weight.npy",
                testing::npy<float>("<f4", {std::ssize(edges) - 1}, std::vector<float>(edges.size() - 1, 2)));
  EXPECT_THAT(told(input_of(path)), HasSubstr("edges have weights and features: give --weights ignore"));
  auto without = input_of(path);
  without.use_weights = false;
  EXPECT_EQ(told(without), "no UserError");
  EXPECT_THAT(told({.path = scratch.write("e.txt", "0 1\n"), .edge_features = EdgeFeatures::kept}),
              HasSubstr("--edge-features keep: "));
}

} // namespace
} // namespace orthant::graph
