#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A folder for the stores of a test, and the whole check of one store.

#include "graph/generate/generators.hpp"
#include "graph/graph_probe.hpp"
#include "graph/partition/partition.hpp"
#include "graph/store/export.hpp"
#include "graph/store/store_reader.hpp"
#include "store_expectations.hpp"

#include <filesystem>
#include <gtest/gtest.h>
#include <set>

namespace orthant::graph {

class StoreTest : public ::testing::Test {
 protected:
  runtime::Communicator comm{MPI_COMM_WORLD, "world"};
  runtime::Communicator self{MPI_COMM_SELF, "self"};
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
    EXPECT_EQ(report.input.num_edges_read, static_cast<std::int64_t>(whole.edges.size()));

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

  std::filesystem::path karate() {
    auto const path = scratch.path() / "karate.h5";
    PartitionOptions options;
    options.replaces_output = true;
    partition(comm, *open_dataset(comm, "karate"), path, options);
    return path;
  }
};

} // namespace orthant::graph
