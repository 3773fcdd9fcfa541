#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Distributed matrices beside whole ones: made from them, compared with them, gathered to them. And ledgers
// beside the calls and the passes that were planned.

#include "pmm/cost/step_plan.hpp"
#include "pmm/matrix/dist_matrix.hpp"
#include "support/reference.hpp"

#include <array>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace orthant::runtime {
inline void PrintTo(LocalPass const& pass, std::ostream* out) {
  *out << pass.name << ": " << pass.bytes_read << " bytes read, " << pass.bytes_written << " written, "
       << pass.flops << " flops, " << pass.random_numbers << " random numbers, " << pass.exponentials
       << " exponentials, " << pass.row_sums << " sums of rows";
}
} // namespace orthant::runtime

namespace orthant::testing {

template<class T>
[[nodiscard]] auto host_copy(runtime::Vector<T> const& view) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
}

template<class T>
[[nodiscard]] runtime::Vector<T> device_copy(std::vector<T> const& values) {
  runtime::Vector<T> view("orthant::testing::device_copy", values.size());
  Kokkos::deep_copy(
      view, Kokkos::View<T const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(values.data(), values.size()));
  return view;
}

/// This rank's piece of `whole`.
template<class T>
[[nodiscard]] pmm::DistMatrix<T> distributed(pmm::ProcessGrid const& grid, pmm::Placement const& placement,
                                             Dense const& whole) {
  pmm::DistMatrix<T> matrix(grid, placement, "orthant::testing::distributed");
  auto const& block = matrix.block();
  auto const host = Kokkos::create_mirror_view(matrix.storage());
  for (std::int64_t i = 0; i < block.num_stored; ++i)
    host(static_cast<std::size_t>(i)) =
        static_cast<T>(whole(block.rows.begin + (block.first + i) / block.columns.size(),
                             block.columns.begin + (block.first + i) % block.columns.size()));
  Kokkos::deep_copy(matrix.storage(), host);
  return matrix;
}

/// A matrix full of a number that no result contains: what is not overwritten shows.
template<class T>
[[nodiscard]] pmm::DistMatrix<T> stained(pmm::ProcessGrid const& grid, pmm::Placement const& placement) {
  pmm::DistMatrix<T> matrix(grid, placement, "orthant::testing::stained");
  Kokkos::deep_copy(matrix.storage(), T{12345});
  return matrix;
}

/// Reals of either sign, the same on every grid.
template<class T>
[[nodiscard]] pmm::DistMatrix<T> drawn(pmm::ProcessGrid const& grid, pmm::Placement const& placement,
                                       std::uint64_t seed) {
  auto const& extents = placement.extents;
  return distributed<T>(grid, placement, make_dense(extents.rows, extents.columns, [&](auto i, auto j) {
                          return small_real(seed, i, j);
                        }));
}

/// Largest difference of this rank's piece from `whole`, NaN counting as infinite.
template<class T>
[[nodiscard]] double largest_error(pmm::DistMatrix<T> const& matrix, Dense const& whole) {
  auto const& block = matrix.block();
  auto const host = host_copy(matrix.storage());
  auto largest = 0.0;
  for (std::int64_t i = 0; i < block.num_stored; ++i) {
    auto const error = std::abs(static_cast<double>(host(static_cast<std::size_t>(i))) -
                                whole(block.rows.begin + (block.first + i) / block.columns.size(),
                                      block.columns.begin + (block.first + i) % block.columns.size()));
    largest = error <= largest ? largest : std::isnan(error) ? HUGE_VAL : error;
  }
  return largest;
}

/// The whole matrix on every rank, replicas counted once. Collective over the group.
template<class T>
[[nodiscard]] Dense gathered(pmm::DistMatrix<T> const& matrix) {
  Dense whole(matrix.extents().rows, matrix.extents().columns);
  auto const& block = matrix.block();
  auto const host = host_copy(matrix.storage());
  for (std::int64_t i = 0; matrix.is_first_replica() && i < block.num_stored; ++i)
    whole(block.rows.begin + (block.first + i) / block.columns.size(),
          block.columns.begin + (block.first + i) % block.columns.size()) = host(static_cast<std::size_t>(i));
  runtime::all_reduce(runtime::host, matrix.grid().group(), whole.numbers);
  return whole;
}

/// What a test sparse matrix is made of: entries where is_entry says so, integer values or a pattern, scales
/// that are powers of two (exact) or none.
struct SparseRecipe {
  std::uint64_t seed = 0;
  bool has_values = false;
  bool has_scales = false;

  [[nodiscard]] double row_scale(std::int64_t i) const {
    return has_scales ? 0.5 * static_cast<double>(1 << mixed(seed, i, -2) % 3) : 1;
  }
  [[nodiscard]] double column_scale(std::int64_t j) const {
    return has_scales ? 0.5 * static_cast<double>(1 << mixed(seed, j, -3) % 3) : 1;
  }
  [[nodiscard]] double value(std::int64_t i, std::int64_t j) const {
    return has_values ? small_integer(seed + 1, i, j) : 1;
  }
  [[nodiscard]] double operator()(std::int64_t i, std::int64_t j) const {
    return is_entry(seed, i, j) ? row_scale(i) * value(i, j) * column_scale(j) : 0;
  }
};

/// The block of a test sparse matrix.
template<class T>
[[nodiscard]] pmm::SparseBlock<T> sparse_block(SparseRecipe const& recipe, runtime::Range rows,
                                               runtime::Range columns) {
  std::vector<runtime::Offset> offsets{0};
  std::vector<runtime::LocalColumn> entries;
  std::vector<T> values;
  std::vector<T> row_scale;
  std::vector<T> column_scale;
  for (auto i = rows.begin; i < rows.end; ++i) {
    for (auto j = columns.begin; j < columns.end; ++j)
      if (is_entry(recipe.seed, i, j)) {
        entries.push_back(static_cast<runtime::LocalColumn>(j - columns.begin));
        if (recipe.has_values) values.push_back(static_cast<T>(recipe.value(i, j)));
      }
    offsets.push_back(static_cast<runtime::Offset>(entries.size()));
    if (recipe.has_scales) row_scale.push_back(static_cast<T>(recipe.row_scale(i)));
  }
  for (auto j = columns.begin; recipe.has_scales && j < columns.end; ++j)
    column_scale.push_back(static_cast<T>(recipe.column_scale(j)));
  pmm::SparseBlock<T> block;
  block.csr = {rows.size(), columns.size(), device_copy(offsets), device_copy(entries), device_copy(values)};
  block.row_scale = device_copy(row_scale);
  block.column_scale = device_copy(column_scale);
  return block;
}

/// Calls, bytes and sent bytes.
using CallTotals = std::map<std::pair<std::string, runtime::Operation>, std::array<std::int64_t, 3>>;

inline void clear_ledgers(pmm::ProcessGrid const& grid) {
  for (auto const& [axes, comm] : grid.communicators())
    comm.ledger().clear();
}

/// By axis and operation: what the ledgers hold.
inline CallTotals counted_calls(pmm::ProcessGrid const& grid) {
  CallTotals totals;
  for (auto const& [axes, comm] : grid.communicators())
    for (std::size_t i = 0; i < runtime::num_operations; ++i) {
      auto const operation = static_cast<runtime::Operation>(i);
      auto const& entry = comm.ledger()[operation];
      if (entry.calls > 0) totals[{comm.axis(), operation}] = {entry.calls, entry.bytes, entry.sent_bytes};
    }
  return totals;
}

/// The same of calls that were listed.
inline CallTotals planned_calls(std::vector<pmm::PlannedCall> const& calls) {
  CallTotals totals;
  for (auto const& call : calls) {
    auto& [num_calls, num_bytes, num_sent] = totals[{call.axis, call.operation}];
    ++num_calls;
    num_bytes += call.bytes;
    num_sent += call.sent_bytes;
  }
  return totals;
}

/// The passes over arrays that are counted while it lives; one at a time.
class CountedPasses {
 public:
  explicit CountedPasses(pmm::ProcessGrid const& grid) : ledger_(grid.passes()) { ledger_.list = &list_; }
  CountedPasses(CountedPasses const&) = delete;
  CountedPasses& operator=(CountedPasses const&) = delete;
  ~CountedPasses() { ledger_.list = nullptr; }

  [[nodiscard]] std::vector<runtime::LocalPass> const& list() const { return list_; }

 private:
  runtime::PassLedger& ledger_;
  std::vector<runtime::LocalPass> list_;
};

/// An empty list for this rank, of scalars of type T.
template<class T>
[[nodiscard]] pmm::StepPlan step_of(pmm::ProcessGrid const& grid) {
  return {grid.shape(), grid.coordinates(), sizeof(T)};
}
/// Of a left operand, as plan_product asks for it.
template<class T>
[[nodiscard]] std::optional<std::int64_t> num_nonzeros_of(pmm::DistMatrix<T> const& /*dense*/) {
  return std::nullopt;
}
template<class T>
[[nodiscard]] std::optional<std::int64_t> num_nonzeros_of(pmm::DistSparse<T> const& sparse) {
  return sparse.forward().block().csr.num_nonzeros();
}

inline CallTotals planned_calls(pmm::StepPlan const& step) {
  return planned_calls(calls_of(step));
}

/// Names of orders; any two would do.
inline constexpr pmm::IndexOrder p1{"p1"};
inline constexpr pmm::IndexOrder p2{"p2"};

using AxisPair = std::pair<pmm::AxisSet, pmm::AxisSet>; // of rows and columns

/// Every way to split rows and columns over two of the three axes.
inline std::vector<AxisPair> axis_pairs() {
  std::vector<AxisPair> pairs;
  for (auto const rows : pmm::spatial_axes)
    for (auto const columns : pmm::spatial_axes)
      if (rows != columns) pairs.emplace_back(rows, columns);
  return pairs;
}

/// Every way to split rows and columns over none, one or more of the three axes: 27.
inline std::vector<AxisPair> axis_set_pairs() {
  std::vector<AxisPair> pairs{{{}, {}}};
  for (auto const axis : pmm::spatial_axes) {
    auto const before = pairs;
    for (auto const& [rows, columns] : before) {
      pairs.emplace_back(rows.with(axis), columns);
      pairs.emplace_back(rows, columns.with(axis));
    }
  }
  return pairs;
}

inline constexpr std::array all_storages{pmm::Storage::replicated, pmm::Storage::flat_sharded,
                                         pmm::Storage::row_sharded};

} // namespace orthant::testing
