// SPDX-License-Identifier: Apache-2.0
#include "pmm/spmm/local_spmm.hpp"

#include "pmm/spmm/local_spmm_device.hpp"
#include "pmm/spmm/local_spmm_host_ways.hpp"
#include "runtime/error.hpp"

#include <limits>
#include <type_traits>
#include <utility>

namespace orthant::pmm::detail {
namespace {

std::int32_t num_steps(RowPiece const& piece) {
  return (piece.length + gathers_at_once - 1) / gathers_at_once;
}

void append_long_row(RowPlan& plan, std::int32_t row, std::int64_t begin, std::int64_t end) {
  auto const first = plan.num_places;
  for (auto start = begin; start < end; start += longest_piece)
    plan.pieces.push_back({start,
                           static_cast<std::int32_t>(std::min<std::int64_t>(end - start, longest_piece)), row,
                           plan.num_places++});
  auto const num_pieces = plan.num_places - first;
  if (num_pieces <= pieces_of_a_group) {
    plan.long_rows.push_back({first, static_cast<std::int32_t>(num_pieces), 1, row});
    return;
  }
  auto const num_groups = (num_pieces + pieces_of_a_group - 1) / pieces_of_a_group;
  for (auto place = first; place < plan.num_places; place += pieces_of_a_group)
    plan.groups.push_back(
        {place, static_cast<std::int32_t>(std::min<std::int64_t>(plan.num_places - place, pieces_of_a_group)),
         1, -1});
  plan.long_rows.push_back({first, static_cast<std::int32_t>(num_groups), pieces_of_a_group, row});
}

} // namespace

RowPlan plan_rows(std::span<std::int64_t const> offsets, runtime::Range rows) {
  ORTHANT_REQUIRE(static_cast<std::int64_t>(offsets.size()) == rows.size() + 1 &&
                      rows.end <= std::numeric_limits<std::int32_t>::max(),
                  rows.size(), " rows up to ", rows.end, ", ", offsets.size(), " offsets");
  RowPlan plan;
  for (auto row = rows.begin; row < rows.end; ++row) {
    auto const begin = offsets[static_cast<std::size_t>(row - rows.begin)];
    auto const end = offsets[static_cast<std::size_t>(row - rows.begin) + 1];
    if (end - begin > longest_piece)
      append_long_row(plan, static_cast<std::int32_t>(row), begin, end);
    else
      plan.pieces.push_back(
          {begin, static_cast<std::int32_t>(end - begin), static_cast<std::int32_t>(row), -1});
  }
  for (auto window = plan.pieces.begin(); window != plan.pieces.end();) {
    auto const next = window + std::min<std::ptrdiff_t>(plan.pieces.end() - window, plan_window);
    std::stable_sort(window, next, [](RowPiece const& one, RowPiece const& other) {
      return num_steps(one) > num_steps(other);
    });
    window = next;
  }
  std::stable_sort(plan.long_rows.begin(), plan.long_rows.end(),
                   [](PieceSum const& one, PieceSum const& other) { return one.count > other.count; });
  return plan;
}

} // namespace orthant::pmm::detail

namespace orthant::pmm {
namespace {

/// Null if the View is empty, which means that the scale or the values are absent.
template<class T>
T const* pointer_or_null(Vector<T> const& view) {
  return view.extent(0) == 0 ? nullptr : view.data();
}

/// `weights`: empty, or one per non-zero, which replace the values and column scales of the block.
template<class T, class Operand, class Result>
detail::HostSpmm<T, Operand> host_product(SparseBlock<T> const& a, Vector<T> const& weights,
                                          Matrix<Operand> const& b, Matrix<Result> const& c) {
  auto const has_weights = weights.extent(0) > 0;
  auto const width = static_cast<std::int64_t>(b.extent(1));
  T* sums = nullptr;
  Operand* rounded = nullptr;
  if constexpr (std::is_same_v<Result, T>)
    sums = c.data();
  else
    rounded = c.data();
  return {a.csr.num_rows,
          a.csr.num_columns,
          a.csr.row_offsets.data(),
          a.csr.columns.data(),
          pointer_or_null(has_weights ? weights : a.csr.values),
          pointer_or_null(a.row_scale),
          has_weights ? nullptr : pointer_or_null(a.column_scale),
          pointer_or_null(a.row_groups),
          pointer_or_null(a.self_columns),
          pointer_or_null(a.self_scale),
          b.data(),
          width,
          sums,
          width,
          b.extent(1),
          detail::Prefetch::none,
          rounded};
}

template<class View>
auto on_host(View const& view) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
}

template<class T>
Vector<T> on_device(Kokkos::View<T*, Kokkos::HostSpace> const& host, std::string const& label) {
  Vector<T> view(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), host.extent(0));
  Kokkos::deep_copy(view, host);
  return view;
}

} // namespace

template<class T>
SparseBlock<T> transposed(SparseBlock<T> const& block) {
  auto const& a = block.csr;
  ORTHANT_REQUIRE(a.num_rows <= std::numeric_limits<runtime::LocalColumn>::max(), "a block of ", a.num_rows,
                  " rows has 32-bit columns in its transpose");
  ORTHANT_REQUIRE(block.row_groups.extent(0) == 0 && block.self_columns.extent(0) == 0,
                  "a sampled block has a transpose of its own");
  auto const num_nonzeros = static_cast<std::size_t>(a.num_nonzeros());
  auto const has_values = a.values.extent(0) > 0;
  auto const offsets = on_host(a.row_offsets);
  auto const columns = on_host(a.columns);
  auto const values = on_host(a.values);

  using Kokkos::HostSpace;
  Kokkos::View<runtime::Offset*, HostSpace> starts("orthant::pmm::transposed",
                                                   static_cast<std::size_t>(a.num_columns) + 1);
  for (std::size_t entry = 0; entry < num_nonzeros; ++entry)
    ++starts(static_cast<std::size_t>(columns(entry)) + 1);
  for (std::size_t j = 1; j < starts.extent(0); ++j)
    starts(j) += starts(j - 1);

  // Rows in order, so that the columns of each transposed row ascend. Afterwards, starts(j) is the start of row j + 1.
  Kokkos::View<runtime::LocalColumn*, HostSpace> rows("orthant::pmm::transposed", num_nonzeros);
  Kokkos::View<T*, HostSpace> moved("orthant::pmm::transposed", has_values ? num_nonzeros : 0);
  for (std::int64_t i = 0; i < a.num_rows; ++i)
    for (auto entry = offsets(static_cast<std::size_t>(i)); entry < offsets(static_cast<std::size_t>(i) + 1);
         ++entry) {
      auto const source = static_cast<std::size_t>(entry);
      auto const place = static_cast<std::size_t>(starts(static_cast<std::size_t>(columns(source)))++);
      rows(place) = static_cast<runtime::LocalColumn>(i);
      if (has_values) moved(place) = values(source);
    }
  for (std::size_t j = starts.extent(0); j-- > 1;)
    starts(j) = starts(j - 1);
  starts(0) = 0;

  SparseBlock<T> result;
  result.csr.num_rows = a.num_columns;
  result.csr.num_columns = a.num_rows;
  result.csr.row_offsets = on_device(starts, "orthant::pmm::row_offsets");
  result.csr.columns = on_device(rows, "orthant::pmm::columns");
  if (has_values) result.csr.values = on_device(moved, "orthant::pmm::values");
  result.row_scale = block.column_scale;
  result.column_scale = block.row_scale;
  return result;
}

void plan_transposed(StepPlan& step, std::int64_t num_columns, std::int64_t num_nonzeros, bool has_values) {
  auto const offset_bytes = (num_columns + 1) * std::int64_t{sizeof(runtime::Offset)};
  auto const column_bytes = num_nonzeros * std::int64_t{sizeof(runtime::LocalColumn)};
  auto const value_bytes = has_values ? step.scalar_bytes(num_nonzeros) : 0;
  step.add_array("orthant::pmm::transposed", offset_bytes + column_bytes + value_bytes, Lifetime::operation);
  step.add_array("orthant::pmm::row_offsets", offset_bytes);
  step.add_array("orthant::pmm::columns", column_bytes);
  step.add_array("orthant::pmm::values", value_bytes);
  step.end_operation();
}

void plan_weights(StepPlan& step, std::int64_t num_nonzeros) {
  if constexpr (runs_on_host) step.add_array("orthant::pmm::weights", step.scalar_bytes(num_nonzeros));
}

std::int64_t operand_copy_bytes(std::int64_t num_rows, std::int64_t width, std::int64_t number_bytes,
                                std::int64_t num_nonzeros) {
  return runs_on_host ? detail::copied_bytes(num_rows, width, number_bytes, num_nonzeros) : 0;
}

template<class T>
LocalSpmm<T>::LocalSpmm(SparseBlock<T> block, Contents contents) : block_(std::move(block)) {
  auto const& csr = block_.csr;
  auto const is_length = [](auto const& view, std::int64_t length) {
    return static_cast<std::int64_t>(view.extent(0)) == length;
  };
  ORTHANT_REQUIRE(is_length(csr.row_offsets, csr.num_rows + 1), csr.num_rows, " rows, ",
                  csr.row_offsets.extent(0), " offsets");
  ORTHANT_REQUIRE(csr.values.extent(0) == 0 || is_length(csr.values, csr.num_nonzeros()), csr.num_nonzeros(),
                  " non-zeros, ", csr.values.extent(0), " values");
  ORTHANT_REQUIRE(block_.row_scale.extent(0) == 0 || is_length(block_.row_scale, csr.num_rows), csr.num_rows,
                  " rows, ", block_.row_scale.extent(0), " scales");
  auto const has_groups = block_.row_groups.extent(0) > 0;
  ORTHANT_REQUIRE(!has_groups || is_length(block_.row_groups, csr.num_rows), csr.num_rows, " rows, ",
                  block_.row_groups.extent(0), " groups");
  auto const num_scales = static_cast<std::int64_t>(block_.column_scale.extent(0));
  ORTHANT_REQUIRE((num_scales == 0 && !has_groups) || num_scales == csr.num_columns ||
                      (has_groups && csr.num_columns > 0 && num_scales % csr.num_columns == 0),
                  csr.num_columns, " columns, ", num_scales, " scales");
  ORTHANT_REQUIRE(block_.self_columns.extent(0) == block_.self_scale.extent(0) &&
                      (block_.self_columns.extent(0) == 0 || is_length(block_.self_columns, csr.num_rows)),
                  csr.num_rows, " rows, ", block_.self_columns.extent(0), " self loops");
  if constexpr (runs_on_host) {
    if (contents == Contents::fixed && num_scales > 0 && !has_groups)
      weights_ = std::make_shared<detail::HostWeights<T>>();
  } else {
    device_ = std::make_shared<detail::DeviceSpmm<T>>(block_, contents);
    if (contents == Contents::fixed) library_ = detail::LibrarySpmm<T>::create(block_);
  }
}

template<class T>
void LocalSpmm<T>::keep_weights(DefaultExec const& exec) const {
  if (weights_ != nullptr) weights_->make(exec, block_);
}

template<class T>
template<class Operand, class Result>
void LocalSpmm<T>::apply(DefaultExec const& exec, Range rows, Matrix<Operand> const& b,
                         Matrix<Result> const& c) const {
  auto const& csr = block_.csr;
  ORTHANT_REQUIRE(static_cast<std::int64_t>(b.extent(0)) == csr.num_columns &&
                      static_cast<std::int64_t>(c.extent(0)) == csr.num_rows && b.extent(1) == c.extent(1) &&
                      0 <= rows.begin && rows.end <= csr.num_rows,
                  "C ", c.extent(0), " x ", c.extent(1), " := A ", csr.num_rows, " x ", csr.num_columns,
                  " times B ", b.extent(0), " x ", b.extent(1));
  if (rows.size() == 0 || b.extent(1) == 0) return;
  if constexpr (runs_on_host)
    detail::run_host_spmm(
        exec, host_product(block_, weights_ == nullptr ? Vector<T>() : weights_->values(), b, c), rows);
  else if constexpr (!std::is_same_v<Operand, T>)
    device_->apply(exec, rows, b, c);
  else if (library_ == nullptr || rows.size() != csr.num_rows)
    device_->apply(exec, rows, b, c);
  else
    library_->apply(exec, b, c, [&] { device_->apply(exec, rows, b, c); });
}

template<class T>
std::string LocalSpmm<T>::way_of(std::int64_t width) const {
  if constexpr (runs_on_host) {
    detail::HostSpmm<T> size;
    size.row_offsets = block_.csr.row_offsets.data();
    size.num_columns = block_.csr.num_columns;
    size.width = static_cast<std::size_t>(width);
    size.b_stride = width;
    return detail::chosen_way(size, {0, block_.csr.num_rows});
  } else {
    return library_ == nullptr ? "own" : library_->choice(static_cast<std::size_t>(width));
  }
}

template<class T>
std::vector<SpmmWay> LocalSpmm<T>::ways(DefaultExec const& exec, Matrix<T> const& b,
                                        Matrix<T> const& c) const {
  std::vector<SpmmWay> ways;
  Range const rows{0, block_.csr.num_rows};
  if constexpr (runs_on_host) {
    auto const product = host_product(block_, weights_ == nullptr ? Vector<T>() : weights_->values(), b, c);
    for (auto const way : detail::ways_of(product, rows))
      ways.push_back({detail::name_of(way), [*this, exec, product, rows, way, b, c] {
                        detail::run_host_spmm(exec, product, rows, way);
                      }});
  } else {
    ways.push_back({"own", [*this, exec, rows, b, c] { device_->apply(exec, rows, b, c); }});
    if (library_ != nullptr)
      if (auto way = library_->fastest(exec, b, c); way.run) ways.push_back(std::move(way));
  }
  return ways;
}

template SparseBlock<float> transposed(SparseBlock<float> const&);
template SparseBlock<double> transposed(SparseBlock<double> const&);
template class LocalSpmm<float>;
template class LocalSpmm<double>;
#define ORTHANT_INSTANTIATE(T, Operand, Result)                                                              \
  template void LocalSpmm<T>::apply(DefaultExec const&, Range, Matrix<Operand> const&,                       \
                                    Matrix<Result> const&) const;
ORTHANT_INSTANTIATE(float, float, float)
ORTHANT_INSTANTIATE(double, double, double)
ORTHANT_INSTANTIATE(float, runtime::Bf16Number, float)
ORTHANT_INSTANTIATE(float, runtime::Fp16Number, float)
ORTHANT_INSTANTIATE(float, runtime::Bf16Number, runtime::Bf16Number)
ORTHANT_INSTANTIATE(float, runtime::Fp16Number, runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
