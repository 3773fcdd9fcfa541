// SPDX-License-Identifier: Apache-2.0
//
// How a store is opened: by rank 0 alone, and what the others are sent stays small at any size.
#include "graph/store/store_file.hpp"

#include "graph/generate/generators.hpp"
#include "graph/graph_probe.hpp"
#include "graph/partition/partition.hpp"
#include "graph/store/distribution.hpp"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <set>

namespace orthant::graph {
namespace {

using runtime::Communicator;
using runtime::Hdf5Type;

/// The tables of tiles of an undirected graph of that size, in a file that need not exist.
StoreCatalogue catalogue_of(std::int64_t num_vertices, std::int64_t num_entries) {
  StoreCatalogue catalogue;
  catalogue.facts.num_vertices = num_vertices;
  catalogue.facts.num_entries = num_entries;
  catalogue.facts.is_symmetric = true;
  auto const grid = tile_grid_of_topology(num_vertices, num_entries);
  auto const rows = grid.rows.num_parts;
  auto const columns = grid.columns.num_parts;
  for (auto const& name : array_names(catalogue.facts))
    catalogue.arrays[name] = {name, Hdf5Type::int64, {num_vertices}, 0};
  auto const group = std::string("/topology/even");
  catalogue.arrays[group + "/tile_row_offsets"].extents = {rows + 1};
  catalogue.arrays[group + "/tile_offsets"] = {
      group + "/tile_offsets", Hdf5Type::uint32, {rows, columns + 1}, 0};
  catalogue.arrays[group + "/tile_checksums"] = {
      group + "/tile_checksums", Hdf5Type::uint32, {rows, columns}, 0};
  return catalogue;
}

// What each of 2,048 or 16,384 ranks is sent does not depend on their number, and stays below 8 MiB.
TEST(StoreCatalogue, StaysSmallAtAnySize) {
  auto const usual = catalogue_of(10'000'000, 200'000'000);
  auto const huge = catalogue_of(1'000'000'000, 20'000'000'000);

  EXPECT_EQ(tables_to_hold(usual).size(), 3U);
  EXPECT_EQ(tables_to_hold(huge), std::vector<std::string>{"/topology/even/tile_row_offsets"});
  EXPECT_LT(usual.to_text().size(), std::size_t{1} << 14);
  EXPECT_LT(huge.to_text().size(), std::size_t{1} << 14);
}

TEST(StoreCatalogue, TravelsAsText) {
  auto const sent = catalogue_of(1'000'000, 20'000'000);

  auto const arrived = StoreCatalogue::from_text(sent.to_text());

  EXPECT_EQ(arrived.facts.to_json(), sent.facts.to_json());
  ASSERT_EQ(arrived.arrays.size(), sent.arrays.size());
  for (auto const& [name, array] : sent.arrays) {
    EXPECT_EQ(arrived.arrays.at(name).extents, array.extents) << name;
    EXPECT_EQ(arrived.arrays.at(name).type, array.type) << name;
  }
}

TEST(StoreFile, IsReadWithoutHdf5) {
  Communicator const comm(MPI_COMM_WORLD, "world");
  testing::ScratchFolder const scratch(comm);
  auto const path = scratch.path() / "karate.h5";
  partition(comm, *open_dataset(comm, "karate"), path, {});

  auto const file = StoreFile::open(comm, path);

  EXPECT_EQ(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
  EXPECT_TRUE(file.holds("/topology/even/tile_offsets"));
  EXPECT_EQ(file.bytes_read(), 0);
  auto const ids = file.read<std::int32_t>("/vertices/p1/original_ids", 0, {0, 34});
  EXPECT_EQ(std::set<std::int32_t>(ids.begin(), ids.end()).size(), 34U);
  EXPECT_EQ(file.bytes_read(), 34 * 4);
  EXPECT_THROW(static_cast<void>(file.read<std::int32_t>("/vertices/p1/original_ids", 0, {30, 35})),
               runtime::UserError);
  EXPECT_THROW(static_cast<void>(file.read<std::int32_t>("/vertices/p3/original_ids", 0, {0, 1})),
               runtime::UserError);
}

} // namespace
} // namespace orthant::graph
