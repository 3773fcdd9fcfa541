// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_reader.hpp"

#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"

#include <gtest/gtest.h>
#include <set>

namespace orthant::graph {
namespace {

std::string fingerprint(runtime::Communicator const& comm, std::string const& description, std::uint64_t seed,
                        PartitionOptions const& how = {}) {
  auto const store = partition_in_memory(
      comm, [&](runtime::Communicator const& self) { return open_dataset(self, description, seed); }, how);
  return fingerprint_of(comm, store);
}

constexpr auto graph = "sbm:vertices=60,edges=200,features=5,classes=3";

TEST(Fingerprint, DoesNotDependOnTheOrderOfTheVerticesOrOnTheRanks) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  runtime::Communicator const self(MPI_COMM_SELF, "self");
  auto const expected = fingerprint(self, graph, 1);
  EXPECT_EQ(expected.size(), 16U);
  for (auto const permutation : {PermutationKind::natural, PermutationKind::single, PermutationKind::twofold,
                                 PermutationKind::cluster})
    for (std::uint64_t const seed : {0, 7}) {
      PartitionOptions how;
      how.permutation = permutation;
      how.seed = seed;
      EXPECT_EQ(fingerprint(world, graph, 1, how), expected) << name_of(permutation) << ", " << seed;
    }
}

TEST(Fingerprint, TellsDataSetsApart) {
  runtime::Communicator const world(MPI_COMM_WORLD, "world");
  PartitionOptions by_rows;
  by_rows.normalization = Normalization::row;
  std::set<std::string> const all{fingerprint(world, graph, 1),
                                  fingerprint(world, graph, 2),
                                  fingerprint(world, graph, 1, by_rows),
                                  fingerprint(world, "sbm:vertices=60,edges=210,features=5,classes=3", 1),
                                  fingerprint(world, "sbm:vertices=60,edges=200,features=6,classes=3", 1),
                                  fingerprint(world, "sbm:vertices=60,edges=200,features=5,classes=4", 1)};
  EXPECT_EQ(all.size(), 6U);
}

} // namespace
} // namespace orthant::graph
