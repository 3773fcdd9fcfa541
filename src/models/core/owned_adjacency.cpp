// SPDX-License-Identifier: Apache-2.0
#include "models/core/owned_adjacency.hpp"

#include "graph/store/listed_block.hpp"
#include "models/core/device_copy.hpp"
#include "models/core/graph_operands.hpp"
#include "runtime/comm/together.hpp"

#include <utility>

namespace orthant::models {
namespace {

using graph::GraphStore;

template<class T>
pmm::SparseBlock<T> scaled(runtime::CsrMatrix<T> const& csr, graph::Scales const& scales) {
  return {csr, to_vector<T>("orthant::models::row_scale", scales.rows),
          to_vector<T>("orthant::models::column_scale", scales.columns)};
}

graph::Scales swapped(graph::Scales scales) {
  std::swap(scales.rows, scales.columns);
  return scales;
}

graph::Scales kept(std::optional<pmm::NeededSlabs> const& of_rows,
                   std::optional<pmm::NeededSlabs> const& of_columns, graph::Scales scales) {
  return {pmm::keep_needed(of_rows, std::move(scales.rows)),
          pmm::keep_needed(of_columns, std::move(scales.columns))};
}

} // namespace

void plan_owned_adjacency(pmm::StepPlan& step, graph::StoreFacts const& facts, pmm::CellSizes const& sizes,
                          std::int64_t num_nonzeros) {
  auto const num_rows = sizes.num_rows();
  auto const num_columns = sizes.num_columns();
  auto const plan_scales = [&](std::int64_t rows, std::int64_t columns) {
    step.add_array("orthant::models::row_scale", step.scalar_bytes(rows));
    step.add_array("orthant::models::column_scale", step.scalar_bytes(columns));
  };
  auto const by_rows = facts.normalization != graph::Normalization::none;
  auto const by_columns = facts.normalization == graph::Normalization::symmetric;
  step.add_array("entries as they are read", num_nonzeros * graph::listed_entry_bytes,
                 pmm::Lifetime::operation);
  plan_csr(step, num_rows, num_nonzeros, facts.is_weighted);
  plan_scales(by_rows ? num_rows : 0, by_columns ? num_columns : 0);
  if (backward_flow(facts) == pmm::Flow::forward)
    plan_scales(by_columns ? num_rows : 0, by_rows ? num_columns : 0);
  else
    plan_transposed(step, num_columns, num_nonzeros, facts.is_weighted);
}

template<class T>
OwnedAdjacency<T> read_owned_adjacency(pmm::ProcessGrid const& grid, GraphStore const& store,
                                       pmm::Roles const& roles, pmm::Gather gather) {
  auto const& shape = grid.shape();
  auto const n = store.facts().num_vertices;
  auto const rows = pmm::block_rows(shape, grid.coordinates(), roles, n);
  auto const columns = pmm::block_columns(shape, grid.coordinates(), roles, n);
  OwnedAdjacency<T> made;
  made.sizes = pmm::contiguous_cells(shape, grid.coordinates(), roles, n);
  auto const self_loops =
      store.facts().adds_self_loops() ? graph::SelfLoops::added : graph::SelfLoops::as_given;
  auto block =
      runtime::together(grid.group(), [&] { return read_listed_block(store, rows, columns, self_loops); });
  pmm::HostPattern const pattern{block.row_offsets, block.columns};
  auto const needed = pmm::plan_needed_rows(grid, roles, made.sizes, pattern, gather);
  made.needed = std::make_shared<pmm::NeededRows const>(needed);
  runtime::together(grid.group(), [&] {
    keep_needed(needed, pattern);
    block.rows = {0, std::ssize(block.row_offsets) - 1};
    block.columns_range = {0, needed.num_columns(made.sizes)};
    auto const csr = to_csr<T>(std::exchange(block, {}));
    auto const forward =
        scaled(csr, kept(needed.over_a, needed.over_c, read_listed_scales(store, rows, columns)));
    // A^^T = diag(s) A^T diag(r) for A^ = diag(r) A diag(s).
    auto const backward =
        backward_flow(store.facts()) == pmm::Flow::forward
            ? scaled(csr,
                     swapped(kept(needed.over_c, needed.over_a, read_listed_scales(store, columns, rows))))
            : pmm::transposed(forward);
    made.forward = pmm::LocalSpmm<T>(forward, pmm::Contents::fixed);
    made.backward = pmm::LocalSpmm<T>(backward, pmm::Contents::fixed);
  });
  return made;
}

template OwnedAdjacency<float> read_owned_adjacency(pmm::ProcessGrid const&, GraphStore const&,
                                                    pmm::Roles const&, pmm::Gather);
template OwnedAdjacency<double> read_owned_adjacency(pmm::ProcessGrid const&, GraphStore const&,
                                                     pmm::Roles const&, pmm::Gather);

} // namespace orthant::models
