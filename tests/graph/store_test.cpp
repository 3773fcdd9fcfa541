// SPDX-License-Identifier: Apache-2.0
//
// A store against the graph it was made from: every block of many grids, from several numbers of ranks, and
// what damage does.
#include "graph/store/store_reader.hpp"

#include "graph/assembled_source.hpp"
#include "graph/export/export.hpp"
#include "graph/generate/dataset.hpp"
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "graph/read/open_graph.hpp"
#include "graph/store/vertex_owners.hpp"
#include "graph_probe.hpp"
#include "runtime/files/hdf5_output.hpp"
#include "support/scratch_folder.hpp"

#include <cmath>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <unistd.h>

namespace orthant::graph {
namespace {

using runtime::balanced_range;
using runtime::Communicator;
using runtime::Hdf5File;
using runtime::together;
using runtime::UserError;

using Entries = std::map<std::pair<std::int64_t, std::int64_t>, double>; // (row, column) -> value or count

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// A in original ids.
Entries matrix_of(testing::WholeGraph const& graph, bool is_directed, bool is_weighted) {
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

std::vector<std::int64_t> ids_of(GraphStore const& store, Order order) {
  return store.read_original_ids(order, {0, store.facts().num_vertices});
}

/// Compares the block of both parities on every grid of axis sizes 1..3 with `expected`, A in original ids.
void expect_blocks(GraphStore const& store, Entries const& expected) {
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
          auto const rows = balanced_range(n, p, i);
          auto const columns = balanced_range(n, q, j);
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
          auto const selves = store.find_self_loops(parity, added);
          for (std::int64_t r = 0; r < rows.size(); ++r)
            if (auto const place = selves[index(r)]; place >= 0) {
              ASSERT_EQ(row_ids[index(rows.begin + r)],
                        column_ids[index(columns.begin + added.columns[index(place)])]);
            }
          EXPECT_EQ(std::count_if(selves.begin(), selves.end(), [](auto place) { return place >= 0; }),
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
std::vector<double> row_sums(Entries const& entries, std::int64_t n) {
  std::vector<double> sums(index(n), 1.0);
  for (auto const& [place, value] : entries)
    if (place.first != place.second) sums[index(place.first)] += value;
  return sums;
}

void expect_scales(GraphStore const& store, Entries const& expected) {
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

void expect_attributes(GraphStore const& store, testing::WholeGraph const& graph) {
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
void expect_equal_files(std::filesystem::path const& a, std::filesystem::path const& b) {
  auto const first = Hdf5File::open(a);
  auto const second = Hdf5File::open(b);
  ASSERT_EQ(first.array_names(), second.array_names());
  EXPECT_EQ(first.read_text("/", "facts"), second.read_text("/", "facts"));
  for (auto const& name : first.array_names()) {
    ASSERT_EQ(first.extents(name), second.extents(name)) << name;
    ASSERT_EQ(first.type(name), second.type(name)) << name;
    ASSERT_EQ(first.read_all<double>(name), second.read_all<double>(name)) << name;
  }
}

/// Made-up sparse features: entry (v, c) where v + c is a multiple of 3, and rows that are empty.
class SparseRows final : public FeatureStream {
 public:
  SparseRows(Range rows, std::int64_t batch_rows, bool has_values)
      : next_(rows.begin),
        end_(rows.end),
        batch_rows_(batch_rows),
        has_values_(has_values) {}
  bool next(FeatureBatch& batch) override {
    batch = {};
    if (next_ == end_) return false;
    batch.rows = {next_, std::min(end_, next_ + batch_rows_)};
    next_ = batch.rows.end;
    batch.offsets.push_back(0);
    for (auto v = batch.rows.begin; v < batch.rows.end; ++v) {
      for (std::int32_t c = 0; c < 90 && v % 7 != 0; ++c)
        if ((v + c) % 3 == 0) {
          batch.columns.push_back(c);
          batch.values.push_back(has_values_ ? 0.5F + static_cast<float>(v % 5) : 1.0F);
        }
      batch.offsets.push_back(static_cast<std::int64_t>(batch.columns.size()));
    }
    return true;
  }
  [[nodiscard]] Progress progress() const override { return {}; }

 private:
  std::int64_t next_;
  std::int64_t end_;
  std::int64_t batch_rows_;
  bool has_values_;
};

class StoreTest : public ::testing::Test {
 protected:
  Communicator comm{MPI_COMM_WORLD, "world"};
  Communicator self{MPI_COMM_SELF, "self"};
  testing::ScratchFolder scratch{comm};

  /// Partitions on all ranks and on one, compares the files and the store with the source. `open` makes the
  /// source on a communicator.
  template<class Open>
  void check(Open&& open, PartitionOptions options = {}) {
    auto const source = open(comm);
    auto const whole = testing::read_whole(comm, *source);
    auto const& facts = source->facts();
    auto const path = scratch.path() / "graph.h5";
    options.replaces_output = true;
    auto const report = partition(comm, *source, path, options);
    EXPECT_EQ(report.num_edges_read, static_cast<std::int64_t>(whole.edges.size()));

    auto const store = GraphStore::open(comm, path);
    auto const expected = matrix_of(whole, facts.is_directed, facts.is_weighted);
    EXPECT_EQ(store.facts().num_entries, static_cast<std::int64_t>(expected.size()));
    expect_blocks(store, expected);
    if (options.normalization == Normalization::symmetric) expect_scales(store, expected);
    expect_attributes(store, whole);
    store.verify(comm);

    auto const alone = scratch.path() / "alone.h5";
    options.uses_wide_ids = true; // the other path, too
    if (comm.is_root()) static_cast<void>(partition(self, *open(self), alone, options));
    runtime::barrier(runtime::host, comm);
    expect_equal_files(path, alone);
    check_export(store, expected, whole);
  }

  void check_export(GraphStore const& store, Entries const& expected, testing::WholeGraph const& whole) {
    auto const source = open_store_as_source(comm, store);
    auto const back = testing::read_whole(comm, *source);
    EXPECT_TRUE(matrix_of(back, source->facts().is_directed, source->facts().is_weighted) == expected);
    EXPECT_EQ(std::set<Edge>(back.edges.begin(), back.edges.end()).size(), back.edges.size());
    EXPECT_EQ(back.features, whole.features);
    EXPECT_EQ(back.classes, whole.classes);
    EXPECT_EQ(back.indicator, whole.indicator);
    EXPECT_EQ(back.train, whole.train);
    EXPECT_EQ(back.valid, whole.valid);
    EXPECT_EQ(back.test, whole.test);
  }

  /// The message of the UserError that `work` throws on every rank.
  template<class Work>
  std::string message_of(Work&& work) {
    try {
      work();
    } catch (UserError const& error) {
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path karate() {
    auto const path = scratch.path() / "karate.h5";
    PartitionOptions options;
    options.replaces_output = true;
    partition(comm, *open_dataset(comm, "karate"), path, options);
    return path;
  }
};

TEST_F(StoreTest, HoldsKarateUnderEveryPermutation) {
  for (auto const kind : {PermutationKind::natural, PermutationKind::single, PermutationKind::twofold,
                          PermutationKind::cluster}) {
    PartitionOptions options;
    options.permutation = kind;
    options.seed = 5;
    check([](Communicator const& c) { return open_dataset(c, "karate"); }, options);
  }
}

TEST_F(StoreTest, HoldsAPowerLawWithRepeatsAndSelfLoops) {
  check([](Communicator const& c) {
    return open_dataset(c, "rmat:vertices=3000,edges=20000,features=0,classes=0");
  });
}

// A rank that exports reads the ids of its share and no others, 4 bytes each, and some checksums.
TEST_F(StoreTest, ExportReadsAShareOfTheIds) {
  constexpr std::int64_t n = 40'000;
  auto const path = scratch.path() / "share.h5";
  auto const made = open_dataset(comm, "ring:vertices=40000,features=0,classes=0");
  static_cast<void>(partition(comm, *made, path, {}));
  auto const store = GraphStore::open(comm, path);
  auto const before = store.bytes_read();

  auto const source = open_store_as_source(comm, store);

  auto const share = PositionOwners{n, comm.size()}.range(comm.rank()).size();
  EXPECT_LE(store.bytes_read() - before, 5 * share + 8192);
}

TEST_F(StoreTest, HoldsADirectedGraph) {
  for (auto const kind : {PermutationKind::twofold, PermutationKind::single}) {
    PartitionOptions options;
    options.permutation = kind;
    check([](Communicator const& c) { return open_dataset(c, "rmat:vertices=1200,edges=6000,directed=1"); },
          options);
  }
}

TEST_F(StoreTest, HoldsDenseFeaturesOfManyRows) {
  check([](Communicator const& c) {
    return open_dataset(c, "sbm:vertices=5000,edges=9000,features=19,classes=5");
  });
}

TEST_F(StoreTest, HoldsWeights) {
  auto const file =
      scratch.write("weighted.txt", "0 1 0.5\n1 0 0.25\n2 1 3\n2 2 7\n4 3 1\n0 1 2.5\n3 0 1e-3\n");
  for (bool const is_directed : {false, true}) {
    check([&](Communicator const& c) {
      Input input;
      input.path = file;
      input.is_directed = is_directed;
      return open_graph(c, input);
    });
  }
}

TEST_F(StoreTest, HoldsSparseFeaturesAndSeveralLabels) {
  scratch.write("multi/raw/edge.csv.gz", "0,1\n1,2\n2,3\n3,4\n4,0\n");
  scratch.write("multi/raw/node-label.csv.gz", "1,0,1\n0,0,nan\n1,1,1\n0,1,0\n0,0,0\n");
  scratch.write("multi/raw/num-node-list.csv.gz", "5\n");
  scratch.write("multi/raw/num-edge-list.csv.gz", "5\n");
  check([&](Communicator const& c) {
    Input input;
    input.path = scratch.path() / "multi";
    return open_graph(c, input);
  });

  // A third of the entries of 700 x 90; all 1 at first, then with values.
  for (bool const has_values : {false, true})
    check([&](Communicator const& c) {
      auto const rows = balanced_range(700, c.size(), c.rank());
      SourceParts parts;
      parts.name = "sparse";
      parts.num_vertices = 700;
      GeneratorOptions ring; // a graph without edges is refused
      ring.num_vertices = ring.num_edges = 700;
      parts.edges = detail::ring_edges(ring, {c.rank(), c.size()});
      parts.features = {FeatureKind::sparse, 90, [=](std::int64_t batch_rows) {
                          return std::make_unique<SparseRows>(rows, batch_rows, has_values);
                        }};
      return assemble_source(std::move(parts));
    });
}

TEST_F(StoreTest, HoldsTheSmallestGraphs) {
  for (auto const* const word : {"ring:vertices=1,edges=0", "ring:vertices=2", "ring:vertices=3"}) {
    auto const is_made = message_of([&] { static_cast<void>(open_dataset(comm, word)); });
    if (is_made == "no error") check([&](Communicator const& c) { return open_dataset(c, word); });
  }
  auto const file = scratch.write("one.txt", "0 0\n");
  check([&](Communicator const& c) {
    Input input;
    input.path = file;
    return open_graph(c, input);
  });
}

TEST_F(StoreTest, KeepsOrDropsRepeatsAndSelfLoops) {
  auto const file = scratch.write("loops.txt", "0 1\n0 1\n1 0\n2 2\n2 2\n1 2\n");
  Input input;
  input.path = file;
  auto const source = open_graph(comm, input);
  auto const count = [&](EdgeRules rules) {
    PartitionOptions options;
    options.rules = rules;
    options.replaces_output = true;
    auto const facts = partition(comm, *source, scratch.path() / "loops.h5", options).facts;
    return std::pair(facts.num_entries, facts.num_self_loops);
  };
  using Repeats = EdgeRules::Repeats;
  using Loops = EdgeRules::SelfLoops;
  EXPECT_EQ(count({Repeats::drop, Loops::keep}), std::pair(std::int64_t{5}, std::int64_t{1}));
  EXPECT_EQ(count({Repeats::drop, Loops::drop}), std::pair(std::int64_t{4}, std::int64_t{0}));
  EXPECT_EQ(count({Repeats::keep, Loops::keep}), std::pair(std::int64_t{10}, std::int64_t{2}));
}

TEST_F(StoreTest, NormalisesRowsOrNothing) {
  PartitionOptions options;
  options.replaces_output = true;
  options.normalization = Normalization::row;
  auto const path = scratch.path() / "row.h5";
  partition(comm, *open_dataset(comm, "karate"), path, options);
  auto const store = GraphStore::open(comm, path);
  auto const degrees = store.read_degrees(Order::p1, {0, 34});
  auto const scales = store.read_scales(Parity::even, {0, 34}, {0, 34});
  for (std::size_t i = 0; i < 34; ++i)
    EXPECT_DOUBLE_EQ(scales.rows[i], 1.0 / static_cast<double>(degrees[i] + 1));
  EXPECT_TRUE(scales.columns.empty());
  EXPECT_EQ(store.read_block(Parity::even, {0, 34}, {0, 34}).num_nonzeros(), 156 + 34);

  options.normalization = Normalization::none;
  partition(comm, *open_dataset(comm, "karate"), path, options);
  auto const plain = GraphStore::open(comm, path);
  EXPECT_TRUE(plain.read_scales(Parity::even, {0, 34}, {0, 34}).rows.empty());
  EXPECT_EQ(plain.read_block(Parity::even, {0, 34}, {0, 34}).num_nonzeros(), 156);
}

TEST_F(StoreTest, LivesInMemory) {
  auto const open = [](Communicator const& c) {
    return open_dataset(c, "sbm:vertices=600,features=7,classes=3");
  };
  auto const store = partition_in_memory(comm, open, {});
  auto const whole = testing::read_whole(comm, *open(comm));
  expect_blocks(store, matrix_of(whole, false, false));
  expect_attributes(store, whole);
  EXPECT_EQ(store.name(), "memory");
  EXPECT_NE(message_of([&] {
              static_cast<void>(partition_in_memory(
                  comm, [](Communicator const& c) { return open_dataset(c, "no-such-set"); }, {}));
            }).find("no-such-set"),
            std::string::npos);
}

// What a rank reads for its rectangle is at most 1.2 times that rectangle, on the grids that matter.
TEST_F(StoreTest, ReadsLittleMoreThanTheRectangle) {
  GeneratorOptions generator;
  generator.num_vertices = 70'839; // divides nothing
  generator.num_edges = 620'000;
  generator.kind = GeneratorKind::rmat;
  auto const path = scratch.path() / "big.h5";
  PartitionOptions options;
  partition(comm, *generate_graph(comm, generator), path, options);
  int block_number = 0;
  for (auto const& [p, q] : {std::pair(2, 2), std::pair(2, 1), std::pair(1, 2), std::pair(3, 2),
                             std::pair(2, 3), std::pair(1, 3), std::pair(16, 1), std::pair(1, 16)})
    for (auto const parity : {Parity::even, Parity::odd})
      for (int const i : {0, p / 2, p - 1})
        for (int const j : {0, q - 1}) {
          if (block_number++ % comm.size() != comm.rank()) continue; // shared out
          auto const store = GraphStore::open(comm, path);
          ASSERT_GE(store.facts().num_entries, 1'000'000);
          auto const n = store.facts().num_vertices;
          auto const block =
              store.read_block(parity, balanced_range(n, p, i), balanced_range(n, q, j), SelfLoops::as_given);
          EXPECT_LE(static_cast<double>(store.bytes_read()),
                    1.2 * 4 * static_cast<double>(block.num_nonzeros()))
              << p << 'x' << q << " block " << i << ',' << j;
        }
}

TEST_F(StoreTest, RefusesToReplaceUnasked) {
  auto const path = karate();
  auto const source = open_dataset(comm, "karate");
  EXPECT_NE(message_of([&] { partition(comm, *source, path, {}); }).find("--force"), std::string::npos);
  EXPECT_NE(message_of([&] { partition(comm, *source, scratch.path(), {}); }).find("is a directory"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              partition(comm, *source, scratch.path() / "no" / "such" / "g.h5", {});
            }).find("No such file"),
            std::string::npos);
}

TEST_F(StoreTest, LeavesTheOldFileWhereTheInputIsWrong) {
  auto const path = karate();
  auto const bad = scratch.write("bad.txt", "0 1\n1 2\n");
  PartitionOptions options;
  options.replaces_output = true;
  Input input;
  input.path = bad;
  input.random_split = {0.5, 0.2, 0.2};
  auto const source = open_graph(comm, input);
  options.metis_parts = 1000; // more parts than vertices: found after the work has begun
  EXPECT_NE(message_of([&] { partition(comm, *source, path, options); }).find("only 3 vertices"),
            std::string::npos);
  EXPECT_EQ(GraphStore::open(comm, path).facts().num_vertices, 34);
  EXPECT_EQ(test::num_partial_files(scratch.path()), 0);
}

TEST_F(StoreTest, RefusesOtherFiles) {
  auto const text = scratch.write("text.h5", "this is no HDF5 file");
  EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, text)); }).find("not an HDF5 file"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              static_cast<void>(GraphStore::open(comm, scratch.path() / "none.h5"));
            }).find("No such file"),
            std::string::npos);
  EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, scratch.path())); }).find("directory"),
            std::string::npos);

  auto const other = scratch.path() / "other.h5";
  {
    runtime::Hdf5Output file(comm, other, "weights");
    file.write_attribute("/", "format", std::string("weights"));
    file.publish();
  }
  EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, other)); }).find("no graph store"),
            std::string::npos);

  auto const newer = scratch.path() / "newer.h5";
  {
    runtime::Hdf5Output file(comm, newer, "store");
    file.write_attribute("/", "format", std::string("orthant graph store"));
    file.write_attribute("/", "version", store_version + 1);
    file.publish();
  }
  EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, newer)); }).find("version 2"),
            std::string::npos);
}

TEST_F(StoreTest, FindsAFlippedByte) {
  for (auto const* const name : {"/topology/even/entries", "/features/dense", "/labels/p1",
                                 "/vertices/p2/original_ids", "/topology/even/tile_offsets", "/split/p2"}) {
    auto const path = scratch.path() / "flip.h5";
    PartitionOptions options;
    options.replaces_output = true;
    auto const word = "sbm:vertices=2500,edges=9000,features=8,classes=3";
    partition(comm, *open_dataset(comm, word), path, options);
    if (comm.is_root()) {
      // Change one element by what the array itself says, in the middle of the file's bytes of it.
      auto const file = Hdf5File::open(path);
      auto const offset = file.offset_bytes(name);
      auto const descriptor = ::open(path.c_str(), O_RDWR);
      unsigned char byte = 0;
      auto const at = offset + 101;
      ASSERT_EQ(::pread(descriptor, &byte, 1, at), 1);
      byte ^= 4U;
      ASSERT_EQ(::pwrite(descriptor, &byte, 1, at), 1);
      ::close(descriptor);
    }
    runtime::barrier(runtime::host, comm);
    auto const message = message_of([&] { GraphStore::open(comm, path).verify(comm); });
    EXPECT_NE(message.find("is damaged"), std::string::npos) << name << ": " << message;
    EXPECT_NE(message.find(std::string(name).substr(0, 9)), std::string::npos) << message;
    auto const at_load = message_of([&] {
      auto const store = GraphStore::open(comm, path); // which finds damage of the small tables
      auto const n = store.facts().num_vertices;
      together(comm, [&] {
        static_cast<void>(store.read_block(Parity::even, {0, n}, {0, n}));
        static_cast<void>(store.read_original_ids(Order::p2, {0, n}));
        static_cast<void>(store.read_features(Order::p2, {0, n}, {0, 8}));
        static_cast<void>(store.read_labels(Order::p1, {0, n}));
        static_cast<void>(store.read_mask(Split::train, Order::p2, {0, n}));
      });
    });
    EXPECT_NE(at_load.find("is damaged"), std::string::npos) << name << ": " << at_load;
  }
}

TEST_F(StoreTest, NeverLoadsATruncatedFile) {
  auto const path = karate();
  auto const size = std::filesystem::file_size(path);
  for (auto const part : {0.0, 0.3, 0.7, 0.95}) {
    auto const cut = scratch.path() / "cut.h5";
    if (comm.is_root()) {
      std::filesystem::copy_file(path, cut, std::filesystem::copy_options::overwrite_existing);
      std::filesystem::resize_file(cut, static_cast<std::uintmax_t>(part * static_cast<double>(size)));
    }
    runtime::barrier(runtime::host, comm);
    EXPECT_NE(message_of([&] { static_cast<void>(GraphStore::open(comm, cut)); }), "no error") << part;
    runtime::barrier(runtime::host, comm);
  }
}

} // namespace
} // namespace orthant::graph
