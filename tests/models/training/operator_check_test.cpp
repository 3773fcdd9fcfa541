// SPDX-License-Identifier: Apache-2.0
//
// Graphs that cannot be normalized are refused with the number of rows of A^ that vanish or are not finite, whatever the grid.

#include "graph/checks/operator_check.hpp"
#include "graph/partition/partition.hpp"
#include "graph/read/open_graph.hpp"
#include "models/gnn/operands/graph_operands.hpp"
#include "runtime/comm/collectives.hpp"
#include "support/grids.hpp"
#include "support/scratch_folder.hpp"

#include <cmath>
#include <fstream>
#include <gmock/gmock.h>

namespace orthant::testing {
namespace {

class OperatorTest : public ::testing::TestWithParam<std::array<int, 3>> {
 protected:
  graph::GraphStore store_of(std::string const& edges) {
    auto const path = scratch_.file("edges.txt");
    if (world_.is_root()) std::ofstream(path) << edges;
    runtime::barrier(runtime::host, world_);
    return graph::partition_in_memory(world_,
                                      [&](runtime::Communicator const& self) {
                                        graph::Input input;
                                        input.path = path;
                                        return graph::open_graph(self, input);
                                      },
                                      {});
  }

  /// Rows of A^ whose factor is 0 or no number, of blocks on the grid.
  std::int64_t num_lost_rows(graph::GraphStore const& store) {
    auto const n = store.facts().num_vertices;
    pmm::Placement const placement{
        {pmm::Axis::x, pmm::Axis::y, pmm::Storage::replicated, models::order_p1, models::order_p2}, {n, n}};
    auto const matrix = models::AdjacencyBlocks<float>(grid_, store).get(placement, true);
    auto const factors =
        Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), matrix.forward().block().row_scale);
    std::int64_t count = 0;
    for (std::size_t i = 0; i < factors.extent(0); ++i)
      count += factors(i) == 0 || !std::isnormal(factors(i)) ? 1 : 0;
    return runtime::all_reduced(grid_.over(pmm::Axis::x), count);
  }

  runtime::Communicator world_{MPI_COMM_WORLD, "world"};
  test::ScratchFolder scratch_{MPI_COMM_WORLD};
  pmm::ProcessGrid grid_{world_, {1, GetParam()[0], GetParam()[1], GetParam()[2]}};
};

TEST_P(OperatorTest, RefusesWhatTheBlocksWouldLose) {
  using graph::Normalization;
  struct Case {
    char const* edges;
    Normalization normalization;
    std::int64_t num_lost;
  };
  for (auto const& [edges, normalization, num_lost] :
       {Case{"0 1 1\n1 2 -3\n2 3 1\n3 4 -1\n4 5 7\n", Normalization::symmetric, 2},
        Case{"0 1 1\n1 2 -3\n2 3 1\n3 4 -1\n4 5 7\n", Normalization::row, 0},
        Case{"0 1 -1\n1 2 2\n2 3 -3\n3 4 1\n", Normalization::row, 2},
        Case{"0 1 2e38\n1 2 3e38\n2 3 1\n", Normalization::row, 3},
        Case{"0 1 2\n1 2 0.5\n2 3 0.25\n", Normalization::symmetric, 0}}) {
    SCOPED_TRACE(edges);
    auto store = store_of(edges);
    store.set_operator({normalization, graph::SelfLoops::added});

    auto const found = graph::check_operator(world_, store, {});

    EXPECT_EQ(num_lost_rows(store), num_lost);
    if (num_lost == 0)
      EXPECT_EQ(found.refusal, "");
    else
      EXPECT_THAT(found.refusal, ::testing::HasSubstr(fmt::format("{} of {} vertices are not", num_lost,
                                                                  store.facts().num_vertices)));
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, OperatorTest, ::testing::ValuesIn(grids_3d(world_size())), GridName{});

} // namespace
} // namespace orthant::testing
