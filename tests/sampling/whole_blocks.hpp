#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a batch on all pairs of axes of a grid, put together by original ids.

#include "pmm/grid/layout.hpp"
#include "runtime/comm/collectives.hpp"
#include "sampling/batch_builder.hpp"
#include "sampling_fixture.hpp"
#include "support/dist_checks.hpp"
#include "support/grids.hpp"

#include <functional>
#include <gtest/gtest.h>
#include <vector>

namespace orthant::testing {

using graph::Parity;
using sampling::Batch;
using sampling::BatchBuilder;
using sampling::BlockHandle;
using sampling::SampledBlock;
using sampling::SampledVertices;

/// Adds the entries of a block where they belong by original ids.
inline void add_entries(SampledBlock<double> const& block, SampledVertices const& rows,
                        SampledVertices const& columns, Dense& whole) {
  ASSERT_EQ(block.num_rows, static_cast<std::int64_t>(rows.size()));
  ASSERT_EQ(block.num_columns, static_cast<std::int64_t>(columns.size()));
  ASSERT_EQ(block.row_offsets.size(), rows.size() + 1);
  ASSERT_EQ(block.row_scale.size(), rows.size());
  ASSERT_EQ(block.column_scale.size(), position(block.num_groups) * columns.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    auto const group = block.row_groups.empty() ? 0 : block.row_groups[i];
    auto const row = rows.original_ids[i];
    for (auto k = position(block.row_offsets[i]); k < position(block.row_offsets[i + 1]); ++k) {
      auto const j = block.columns[k];
      if (k > position(block.row_offsets[i])) {
        ASSERT_LE(block.columns[k - 1], j); // equal only where repeats are kept
      }
      auto const column = columns.original_ids[position(j)];
      ASSERT_NE(row, column); // self loops are apart
      whole(row, column) += block.row_scale[i] * (block.values.empty() ? 1 : block.values[k]) *
                            block.column_scale[position(group * block.num_columns + j)];
    }
    if (auto const self = block.self_columns[i]; self >= 0) {
      ASSERT_EQ(columns.original_ids[position(self)], row);
      whole(row, row) += block.self_scale[i];
    }
  }
}

inline void expect_equal(Dense const& found, Dense const& expected) {
  for (std::int64_t i = 0; i < expected.rows; ++i)
    for (std::int64_t j = 0; j < expected.columns; ++j)
      ASSERT_NEAR(found(i, j), expected(i, j), 1e-12 * std::abs(expected(i, j))) << i << ", " << j;
}

class GridBlocks : public ::testing::TestWithParam<std::array<int, 4>> {
 protected:
  GridBlocks()
      : world_(MPI_COMM_WORLD, "world"),
        self_(MPI_COMM_SELF, "self"),
        grid_(world_, {GetParam()[0], GetParam()[1], GetParam()[2], GetParam()[3]}) {}

  /// This rank's part of a whole matrix of blocks, of which the ranks along `third` have copies.
  [[nodiscard]] Dense part_of(SampledBlock<double> const& block, SampledVertices const& rows,
                              SampledVertices const& columns, std::int64_t n, pmm::AxisSet third) const {
    Dense part(n, n);
    if (grid_.coordinate(third) == 0) add_entries(block, rows, columns, part);
    return part;
  }
  /// The whole matrices. One reduction for all, as ranks that wait for each other are what this test costs.
  void put_together(std::vector<Dense>& parts) const {
    std::vector<double> numbers;
    for (auto const& part : parts)
      numbers.insert(numbers.end(), part.numbers.begin(), part.numbers.end());
    runtime::all_reduce(runtime::host, grid_.group(), numbers);
    auto next = numbers.begin();
    for (auto& part : parts) {
      auto const end = next + static_cast<std::ptrdiff_t>(part.numbers.size());
      part.numbers.assign(next, end);
      next = end;
    }
  }

  void expect_nothing_sent() const {
    EXPECT_TRUE(counted_calls(grid_).empty());
    for (std::size_t i = 0; i < runtime::num_operations; ++i)
      for (auto const* comm : {&world_, &self_})
        EXPECT_EQ(comm->ledger()[static_cast<runtime::Operation>(i)].bytes, 0);
  }

  /// A batch on all blocks of the grid, every pair of axes and both parities, is what `expected_of` says by original
  /// ids, and to make it sends nothing.
  void check_batch(graph::GraphStore const& store, sampling::Sampler const& sampler,
                   sampling::BatchEdges edges, std::int64_t epoch, std::int64_t t,
                   std::function<Dense(sampling::BatchKeys const&)> const& expected_of) {
    auto const n = store.facts().num_vertices;
    struct Wanted {
      pmm::AxisSet third;
      BlockHandle block;
      std::size_t rows;
      std::size_t columns;
    };
    std::vector<Wanted> all;
    BatchBuilder<double> builder(world_, store, sampler, edges);
    for (auto const& [r, c] : axis_pairs())
      for (auto const parity : {Parity::even, Parity::odd}) {
        auto const block = pmm::block_of(grid_, {{r, c}, {n, n}});
        auto const handle = builder.add_block(parity, block.rows, block.columns);
        all.push_back({pmm::Layout{r, c}.third(), handle,
                       builder.add_range(graph::row_order(parity), block.rows),
                       builder.add_range(graph::column_order(parity), block.columns)});
      }
    Batch<double> batch;
    builder.build(epoch + 1, 0, batch); // what another batch leaves behind does no harm

    clear_ledgers(grid_);
    world_.ledger().clear();
    self_.ledger().clear();
    builder.build(epoch, t, batch);
    expect_nothing_sent();

    auto const expected = expected_of(batch.keys);
    auto const expected_transposed = transposed(expected);
    std::vector<Dense> found;
    for (auto const& wanted : all) {
      auto const& rows = batch.vertices[wanted.rows];
      auto const& columns = batch.vertices[wanted.columns];
      found.push_back(part_of(batch.forward(wanted.block), rows, columns, n, wanted.third));
      found.push_back(part_of(batch.adjoint(wanted.block), columns, rows, n, wanted.third));
    }
    put_together(found);
    for (std::size_t i = 0; i < found.size(); i += 2) {
      expect_equal(found[i], expected);
      expect_equal(found[i + 1], expected_transposed);
    }
  }

  runtime::Communicator world_;
  runtime::Communicator self_;
  pmm::ProcessGrid grid_;
};

} // namespace orthant::testing
