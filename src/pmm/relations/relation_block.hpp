#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// This rank's block of a graph with relations, for the mean over the neighbors of each relation (R-GCN, arXiv 1703.06103, equation 2):
//
//   Q_i := sum_r (1 / c_ir) sum_{j in N_r(i)} F_j W_r            c_ir = |N_r(i)|, over the columns of all ranks
//
// A *pair* (r, i) is a row i with a neighbor of relation r in the block. Pairs are numbered relation by relation, so the pairs of r
// are a range of rows, and the products with W_r are dense products of these ranges:
//
//   U := S F              S [pairs x columns], S_(r,i),j = 1 / c_ir
//   Z_r := U_r W_r        rows first_pairs[r] .. first_pairs[r + 1]
//   P := G Z              G [rows x pairs], G_i,(r,i) = 1
//
// Adjoints: dZ := G^T dP, dU_r := dZ_r W_r^T, dW_r := U_r^T dZ_r, dF := S^T dU. Cost of the dense products: pairs x widths of W_r,
// independent of the number of relations. There are at most as many pairs as edges and self relations of vertices together.

#include "pmm/cost/step_plan.hpp"
#include "pmm/grid/process_grid.hpp"
#include "pmm/spmm/local_spmm.hpp"

#include <cstdint>
#include <vector>

namespace orthant::pmm {

/// Entries of a block on the host, in CSR. Entries of a row may have equal columns if their relations differ.
struct TypedEntries {
  std::int64_t num_rows = 0, num_columns = 0;
  std::int64_t num_relations = 0;
  std::int64_t num_selves =
      0; // the last relations are self relations, one for each type with roots: edges from a vertex to itself
  std::vector<std::int64_t>
      roots{}; // [roots] index of each root's self relation, from 0 (relation_product.hpp)
  std::vector<std::int64_t> row_offsets{}; // [num_rows + 1]
  std::vector<std::int32_t> columns{};     // [entries], ascending within a row
  std::vector<std::uint16_t> relations{};  // [entries], less than num_relations
  std::vector<std::int32_t>
      counts{}; // [entries] c_ir of the entry's relation and row, 1 for self relations; empty: not counted yet
  std::vector<runtime::Offset>
      relation_offsets{}; // [num_rows + 1]; empty: the relations of rows are not listed yet
  std::vector<std::uint16_t> row_relations{}; // relations of each row's edges on all ranks, ascending
};

/// A block in host memory: lists of S, of its transpose and of G. Arrays are reused.
template<class T>
struct HostRelationBlock {
  std::int64_t num_rows = 0, num_columns = 0;
  std::vector<std::int64_t> first_pairs; // [relations + 1]
  std::int64_t num_selves = 0;
  std::vector<std::int64_t> roots;
  std::vector<runtime::Offset> pair_offsets;       // [pairs + 1]
  std::vector<runtime::LocalColumn> pair_columns;  // [entries]
  std::vector<T> inverse_counts;                   // [pairs] 1 / c_ir
  std::vector<runtime::Offset> column_offsets;     // [columns + 1]
  std::vector<runtime::LocalColumn> column_pairs;  // [entries]
  std::vector<runtime::Offset> row_offsets;        // [rows + 1]
  std::vector<runtime::LocalColumn> row_pairs;     // [pairs]
  std::vector<runtime::Offset> one_each;           // [pairs + 1] 0, 1, 2, ..
  std::vector<runtime::LocalColumn> rows_of_pairs; // [pairs]
  std::vector<T> ones;                             // one for each pair of a self relation
};

/// block := the entries, which must be counted. Local, on the host: no Kokkos. Throws Error if there are 2^31 pairs or more. Cost:
/// O(entries + rows + columns + relations).
template<class T>
void list_relation_block(TypedEntries const& entries, HostRelationBlock<T>& block);

template<class T>
struct RelationBlock {
  LocalSpmm<T> means, means_back;        // S and its transpose
  LocalSpmm<T> sums, sums_back;          // G and its transpose
  std::vector<std::int64_t> first_pairs; // [relations + 1]
  std::int64_t num_selves = 0;           // number of self relations, which are the last relations
  std::vector<std::int64_t> roots;       // as in TypedEntries
  Vector<T> ones;                        // one for each pair of a self relation

  [[nodiscard]] std::int64_t num_rows() const { return sums.block().csr.num_rows; }
  [[nodiscard]] std::int64_t num_columns() const { return means.block().csr.num_columns; }
  [[nodiscard]] std::int64_t num_pairs() const { return first_pairs.back(); }
  /// Number of pairs of self relations.
  [[nodiscard]] std::int64_t num_self_pairs() const {
    return num_pairs() - first_pairs[first_pairs.size() - 1 - static_cast<std::size_t>(num_selves)];
  }
  [[nodiscard]] std::int64_t num_entries() const { return means.block().csr.num_nonzeros(); }
  [[nodiscard]] Range pairs_of(std::int64_t relation) const {
    auto const r = static_cast<std::size_t>(relation);
    return {first_pairs[r], first_pairs[r + 1]};
  }
  [[nodiscard]] Range pairs_of_root(std::int64_t root) const {
    auto const num_relations = std::ssize(first_pairs) - 1;
    return pairs_of(num_relations - num_selves + roots[static_cast<std::size_t>(root)]);
  }
  /// Number of pairs of all roots; those of a type with several roots count for each.
  [[nodiscard]] std::int64_t num_root_pairs() const {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < std::ssize(roots); ++i)
      count += pairs_of_root(i).size();
    return count;
  }
};

/// The block with these lists. `view_of(label, list)` makes their Views: copies, or memory that must outlive the result.
template<class T, class ViewOf>
[[nodiscard]] RelationBlock<T> relation_block_of(HostRelationBlock<T>& host, Contents contents,
                                                 ViewOf const& view_of) {
  auto const num_pairs = host.first_pairs.back();
  auto const csr_of = [&](std::int64_t rows, std::int64_t columns, auto& offsets, auto& list) {
    return CsrMatrix<T>{rows,
                        columns,
                        view_of("orthant::pmm::relation_offsets", offsets),
                        view_of("orthant::pmm::relation_columns", list),
                        {}};
  };
  auto const scales = view_of("orthant::pmm::inverse_counts", host.inverse_counts);
  auto const made = [&](CsrMatrix<T> const& csr, Vector<T> const& of_rows, Vector<T> const& of_columns) {
    return LocalSpmm<T>(SparseBlock<T>{csr, of_rows, of_columns}, contents);
  };
  RelationBlock<T> block;
  block.means = made(csr_of(num_pairs, host.num_columns, host.pair_offsets, host.pair_columns), scales, {});
  block.means_back =
      made(csr_of(host.num_columns, num_pairs, host.column_offsets, host.column_pairs), {}, scales);
  block.sums = made(csr_of(host.num_rows, num_pairs, host.row_offsets, host.row_pairs), {}, {});
  block.sums_back = made(csr_of(num_pairs, host.num_rows, host.one_each, host.rows_of_pairs), {}, {});
  block.first_pairs = host.first_pairs;
  block.num_selves = host.num_selves;
  block.roots = host.roots;
  block.ones = view_of("orthant::pmm::relation_ones", host.ones);
  return block;
}

/// Makes the block of entries that are not counted. The columns of a row are split over axis `columns`, so c_ir is summed over its ranks.
/// Collective over this axis, with one all_reduce for each relation except the self relations. Throws Error if there are 2^31 pairs or
/// more. Cost: O(entries + relations x rows).
template<class T>
[[nodiscard]] RelationBlock<T> make_relation_block(ProcessGrid const& grid, AxisSet columns,
                                                   TypedEntries entries);

/// Lists the arrays of a RelationBlock.
void plan_relation_block(StepPlan& step, std::int64_t num_rows, std::int64_t num_columns,
                         std::int64_t num_pairs, std::int64_t num_self_pairs, std::int64_t num_entries);

} // namespace orthant::pmm
