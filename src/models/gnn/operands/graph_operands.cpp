// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/operands/graph_operands.hpp"

#include "models/parameters/device_copy.hpp"
#include "pmm/matrix/relayout.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using graph::Parity;
using pmm::Placement;
using runtime::Range;

constexpr std::int64_t stored_bytes = sizeof(float); // of a value in a store

/// If the store has one order, the matrices of even and odd layers are equal.
AdjacencyKey key_of(graph::StoreFacts const& facts, pmm::AxisSet rows, pmm::AxisSet columns, bool is_even) {
  return {rows, columns, is_even || !facts.has_two_orders()};
}

/// 1 / (sum of each row over the whole feature matrix), or 1 if the sum is 0. Collective over the column axis.
std::vector<double> inverse_row_sums(pmm::ProcessGrid const& grid, Placement const& placement,
                                     std::vector<double> sums) {
  runtime::all_reduce(runtime::host, grid.over(placement.layout.columns), sums);
  for (auto& sum : sums)
    sum = sum == 0 ? 1 : 1 / sum;
  return sums;
}

} // namespace

FeatureNorm parse_feature_norm(std::string_view word) {
  if (word == "row") return FeatureNorm::row;
  if (word == "none") return FeatureNorm::none;
  runtime::throw_user("--feature-norm is row or none, not '{}'", word);
}

template<class T>
pmm::DistSparse<T> AdjacencyBlocks<T>::get(Placement const& placement, bool is_even) {
  auto const& facts = store_.facts();
  auto const rows = placement.layout.rows;
  auto const columns = placement.layout.columns;
  auto const key = key_of(facts, rows, columns, is_even);
  auto const parity = is_even ? Parity::even : Parity::odd;
  auto const block = pmm::block_of(grid_, placement);

  // If the store has one order, even and odd layers share a block; only the names of its orders differ.
  if (auto const known = blocks_.find(key); known != blocks_.end())
    return {grid_, placement, known->second.forward(), known->second.adjoint()};
  auto const scales =
      runtime::together(grid_.group(), [&] { return store_.read_scales(parity, block.rows, block.columns); });
  auto const with_scales = [&](runtime::CsrMatrix<T> const& csr) {
    return pmm::SparseBlock<T>{csr, to_vector<T>("orthant::models::row_scale", scales.rows),
                               to_vector<T>("orthant::models::column_scale", scales.columns)};
  };
  if (facts.is_symmetric) {
    // A_odd[k,r] = A_even[r,k]^T: the transpose of the known block is this block, and that block is the transpose of this one.
    if (auto const known = blocks_.find(key_of(facts, columns, rows, !is_even)); known != blocks_.end()) {
      auto forward = known->second.adjoint();
      auto adjoint = known->second.forward();
      if (!is_operator_symmetric(facts)) {
        auto const contents = dropped_ == nullptr ? pmm::Contents::fixed : pmm::Contents::changing;
        auto const scaled = with_scales(forward.block().csr);
        forward = pmm::LocalSpmm<T>(scaled, contents);
        adjoint = pmm::LocalSpmm<T>({adjoint.block().csr, scaled.column_scale, scaled.row_scale}, contents);
      }
      pmm::DistSparse<T> shared(grid_, placement, std::move(forward), std::move(adjoint));
      return blocks_.emplace(key, std::move(shared)).first->second;
    }
  }
  auto const csr = runtime::together(
      grid_.group(), [&] { return to_csr<T>(store_.read_block(parity, block.rows, block.columns)); });
  if (dropped_ == nullptr) {
    pmm::DistSparse<T> made(grid_, placement, with_scales(csr), pmm::Adjoint::kept);
    return blocks_.emplace(key, std::move(made)).first->second;
  }
  auto const& layout = placement.layout;
  auto const [row_ids, column_ids] = runtime::together(grid_.group(), [&] {
    return std::pair(read_ids(store_, order_of(layout.row_order), block.rows),
                     read_ids(store_, order_of(layout.column_order), block.columns));
  });
  auto const whole = with_scales(csr);
  auto const forward = with_dropped_values(whole, row_ids, column_ids, *dropped_);
  auto const adjoint = with_dropped_values(transposed(whole), column_ids, row_ids, *dropped_);
  pmm::DistSparse<T> made(grid_, placement, pmm::LocalSpmm<T>(forward), pmm::LocalSpmm<T>(adjoint));
  return blocks_.emplace(key, std::move(made)).first->second;
}

runtime::Vector<std::int64_t> read_ids(graph::GraphStore const& store, graph::Order order, Range rows) {
  return to_vector<std::int64_t>("orthant::models::original_ids", store.read_original_ids(order, rows));
}

void plan_csr(pmm::StepPlan& step, std::int64_t num_rows, std::int64_t num_nonzeros, bool has_values) {
  auto const offset_bytes = (num_rows + 1) * std::int64_t{sizeof(runtime::Offset)};
  auto const column_bytes = num_nonzeros * std::int64_t{sizeof(runtime::LocalColumn)};
  auto const handed_out = offset_bytes + column_bytes + (has_values ? num_nonzeros * stored_bytes : 0);
  step.add_array("a block of the store", handed_out, pmm::Lifetime::operation);
  step.add_array("orthant::models::csr/row_offsets", offset_bytes);
  step.add_array("orthant::models::csr/columns", column_bytes);
  step.add_array("orthant::models::csr/values", has_values ? step.scalar_bytes(num_nonzeros) : 0);
  step.end_operation();
}

void plan_ids(pmm::StepPlan& step, std::int64_t num_rows, std::int64_t num_columns) {
  for (auto const count : {num_rows, num_columns})
    step.add_array("orthant::models::original_ids", count * std::int64_t{sizeof(std::int64_t)});
}

void AdjacencyBlocksPlan::get(pmm::StepPlan& step, Placement const& placement, bool is_even) {
  auto const rows = placement.layout.rows;
  auto const columns = placement.layout.columns;
  auto const block = step.block(placement);
  if (!blocks_.insert(key_of(facts_, rows, columns, is_even)).second) return;
  auto const has_transpose = facts_.is_symmetric && blocks_.contains(key_of(facts_, columns, rows, !is_even));
  if (has_transpose && is_operator_symmetric(facts_)) return;
  auto const has_row_scale = facts_.normalization != graph::Normalization::none;
  auto const has_column_scale = facts_.normalization == graph::Normalization::symmetric;
  auto const num_nonzeros = num_nonzeros_(placement);
  step.add_array("orthant::models::row_scale", has_row_scale ? step.scalar_bytes(block.rows.size()) : 0);
  step.add_array("orthant::models::column_scale",
                 has_column_scale ? step.scalar_bytes(block.columns.size()) : 0);
  if (has_transpose) return;
  plan_csr(step, block.rows.size(), num_nonzeros, facts_.is_weighted);
  plan_transposed(step, block.columns.size(), num_nonzeros, facts_.is_weighted);
  read_.push_back(placement);
  if (!drops_edges_) return;
  plan_ids(step, block.rows.size(), block.columns.size());
  for (int way = 0; way < 2; ++way) // the block and its transpose
    pmm::plan_dropped_values(step, num_nonzeros);
}

bool scales_columns(graph::StoreFacts const& facts, AdjacencyProducts products) {
  return facts.normalization == graph::Normalization::symmetric ||
         (facts.normalization == graph::Normalization::row && products == AdjacencyProducts::adjoint);
}

void AdjacencyBlocksPlan::keep_weights(pmm::StepPlan& step, Placement const& placement, bool is_even,
                                       AdjacencyProducts products) {
  if (!scales_columns(facts_, products)) return;
  auto const rows = placement.layout.rows;
  auto const columns = placement.layout.columns;
  std::pair block(key_of(facts_, rows, columns, is_even), products);
  if (is_operator_symmetric(facts_)) { // the adjoint of one block equals another block
    auto const other =
        products == AdjacencyProducts::direct ? AdjacencyProducts::adjoint : AdjacencyProducts::direct;
    block = std::min(block, std::pair(key_of(facts_, columns, rows, !is_even), other));
  }
  if (weighted_.insert(block).second) pmm::plan_weights(step, num_nonzeros_(placement));
}

void plan_dense_features(pmm::StepPlan& step, Placement const& placement, pmm::Lifetime lifetime) {
  auto const block = step.block(placement);
  plan_matrix(step, placement, "orthant::models::features", lifetime);
  step.add_array("features of the store", block.size() * stored_bytes, pmm::Lifetime::operation);
  step.add_array("factors of rows", block.rows.size() * std::int64_t{sizeof(double)},
                 pmm::Lifetime::operation);
  step.end_operation();
}

void plan_sparse_features(pmm::StepPlan& step, Placement const& placement, std::int64_t num_nonzeros,
                          bool has_values, FeatureNorm norm) {
  auto const block = step.block(placement);
  plan_csr(step, block.rows.size(), num_nonzeros, has_values);
  if (norm == FeatureNorm::row)
    step.add_array("orthant::models::feature_scale", step.scalar_bytes(block.rows.size()));
  plan_transposed(step, block.columns.size(), num_nonzeros, has_values);
}

void plan_block_keys(pmm::StepPlan& step, Placement const& placement) {
  auto const bytes = step.block(placement).rows.size() * std::int64_t{sizeof(std::int64_t)};
  step.add_array("ids of the store", bytes, pmm::Lifetime::operation);
  step.add_array("orthant::models::original_ids", bytes);
  step.end_operation();
}

namespace {

/// Reads features in order p1 from a store that has them in order p2. Each rank reads as many contiguous rows as it owns, and one
/// relayout sends every row to its owner.
template<class T>
pmm::DistMatrix<T> read_reordered_features(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                           Placement const& placement, FeatureNorm norm) {
  auto stored = placement;
  stored.layout.row_order = order_p2;
  auto const source = read_dense_features<T>(grid, store, stored, norm);
  auto const rows = pmm::block_of(grid, placement).rows;
  // The lists from which the relayout is planned are freed before the features are allocated.
  pmm::Relayout<T> const relayout(grid, stored, placement, runtime::together(grid.group(), [&] {
                                    return store.read_other_positions(graph::Order::p1, rows);
                                  }));
  pmm::DistMatrix<T> features(grid, placement, "orthant::models::features");
  runtime::DefaultExec const exec;
  relayout.run(exec, source, features);
  runtime::compat::fence(exec, "orthant::models::read_reordered_features/the source is let go");
  return features;
}

} // namespace

template<class T>
pmm::DistMatrix<T> read_dense_features(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                       Placement const& placement, FeatureNorm norm) {
  auto const order = order_of(placement.layout.row_order);
  if (order == graph::Order::p1 && store.facts().has_two_orders())
    return read_reordered_features<T>(grid, store, placement, norm);
  pmm::DistMatrix<T> features(grid, placement, "orthant::models::features");
  auto const block = features.block();
  auto const values =
      runtime::together(grid.group(), [&] { return store.read_features(order, block.rows, block.columns); });
  auto remainders = std::vector<float>();
  if (std::is_same_v<T, double> && store.facts().features_have_remainders)
    remainders = runtime::together(
        grid.group(), [&] { return store.read_feature_remainders(order, block.rows, block.columns); });
  auto const exact = [&](std::size_t i) {
    return static_cast<double>(values[i]) + (remainders.empty() ? 0.0 : static_cast<double>(remainders[i]));
  };
  auto const num_columns = static_cast<std::size_t>(block.columns.size());
  std::vector<double> factors(static_cast<std::size_t>(block.rows.size()), 1.0);
  if (norm == FeatureNorm::row) {
    std::vector<double> sums(factors.size(), 0.0);
    for (std::size_t i = 0; i < values.size(); ++i)
      sums[i / num_columns] += exact(i);
    factors = inverse_row_sums(grid, placement, std::move(sums));
  }
  auto const mirror = Kokkos::create_mirror_view(features.storage());
  for (std::size_t i = 0; i < values.size(); ++i)
    mirror(i) = static_cast<T>(exact(i) * factors[i / num_columns]);
  Kokkos::deep_copy(features.storage(), mirror);
  return features;
}

namespace {

/// Reads rows in order p1 of features stored in order p2. Reads all rows, in slabs.
graph::CsrBlock read_sparse_features_in_p1(graph::GraphStore const& store, Range rows, Range columns) {
  constexpr std::int64_t rows_per_slab = std::int64_t{1} << 16;
  std::vector<std::vector<std::int32_t>> columns_of(static_cast<std::size_t>(rows.size()));
  std::vector<std::vector<float>> values_of(columns_of.size());
  auto const n = store.facts().num_vertices;
  for (std::int64_t begin = 0; begin < n && rows.size() > 0; begin += rows_per_slab) {
    Range const slab{begin, std::min(begin + rows_per_slab, n)};
    auto const positions = store.read_other_positions(graph::Order::p2, slab);
    auto const block = store.read_sparse_features(slab, columns);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      if (!rows.contains(positions[i])) continue;
      auto const row = static_cast<std::size_t>(positions[i] - rows.begin);
      auto const [first, last] = std::pair(block.row_offsets[i], block.row_offsets[i + 1]);
      columns_of[row].assign(block.columns.begin() + first, block.columns.begin() + last);
      if (!block.values.empty())
        values_of[row].assign(block.values.begin() + first, block.values.begin() + last);
    }
  }
  graph::CsrBlock found{rows, columns, {0}, {}, {}};
  for (std::size_t row = 0; row < columns_of.size(); ++row) {
    found.columns.insert(found.columns.end(), columns_of[row].begin(), columns_of[row].end());
    found.values.insert(found.values.end(), values_of[row].begin(), values_of[row].end());
    found.row_offsets.push_back(std::ssize(found.columns));
  }
  return found;
}

} // namespace

template<class T>
pmm::DistSparse<T> read_sparse_features(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                                        Placement const& placement, FeatureNorm norm) {
  auto const range = pmm::block_of(grid, placement);
  auto const block = runtime::together(grid.group(), [&] {
    return order_of(placement.layout.row_order) == graph::Order::p2 || !store.facts().has_two_orders()
               ? store.read_sparse_features(range.rows, range.columns)
               : read_sparse_features_in_p1(store, range.rows, range.columns);
  });
  pmm::SparseBlock<T> scaled{to_csr<T>(block), {}, {}};
  if (norm == FeatureNorm::row) {
    std::vector<double> sums(static_cast<std::size_t>(block.rows.size()), 0.0);
    for (std::size_t row = 0; row < sums.size(); ++row)
      for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k)
        sums[row] +=
            block.values.empty() ? 1.0 : static_cast<double>(block.values[static_cast<std::size_t>(k)]);
    scaled.row_scale =
        to_vector<T>("orthant::models::feature_scale", inverse_row_sums(grid, placement, std::move(sums)));
  }
  return pmm::DistSparse<T>(grid, placement, scaled, pmm::Adjoint::kept);
}

BlockKeys read_block_keys(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                          Placement const& placement) {
  auto const block = pmm::block_of(grid, placement);
  auto const ids = runtime::together(grid.group(), [&] {
    return store.read_original_ids(order_of(placement.layout.row_order), block.rows);
  });
  return {to_vector<std::int64_t>("orthant::models::original_ids", ids), block.columns.begin};
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template class AdjacencyBlocks<T>;                                                                         \
  template pmm::DistMatrix<T> read_dense_features(pmm::ProcessGrid const&, graph::GraphStore const&,         \
                                                  Placement const&, FeatureNorm);                            \
  template pmm::DistSparse<T> read_sparse_features(pmm::ProcessGrid const&, graph::GraphStore const&,        \
                                                   Placement const&, FeatureNorm);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
