// SPDX-License-Identifier: Apache-2.0
//
// How many bytes of a store a rank reads: those of its part, and little more.
#include "graph/generate/generators.hpp"
#include "graph/partition/partition.hpp"
#include "graph/store/distribution.hpp"
#include "graph/store/export.hpp"
#include "graph/store/store_reader.hpp"
#include "runtime/range.hpp"
#include "store_fixture.hpp"

#include <gtest/gtest.h>

namespace orthant::graph {
namespace {

using runtime::balanced_range;

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

} // namespace
} // namespace orthant::graph
