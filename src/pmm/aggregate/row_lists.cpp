// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/row_lists.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>
#include <numeric>

namespace orthant::pmm {
namespace {

using runtime::LocalColumn;
using runtime::Offset;

/// Copies element (i, j), or row i, of the picked rows.
template<class T>
struct Picked {
  T const* rows;
  LocalColumn const* list;
  std::int64_t width;
  T* picked;

  KOKKOS_FUNCTION void element(std::int64_t i, std::int64_t j) const {
    picked[i * width + j] = rows[list[i] * width + j];
  }
  void row(std::int64_t i) const { std::copy_n(rows + list[i] * width, width, picked + i * width); }
};

/// Copies element (i, j), or row i, of the given rows to their places.
template<class T>
struct Placed {
  T const* placed;
  LocalColumn const* list;
  std::int64_t width;
  T* rows;

  KOKKOS_FUNCTION void element(std::int64_t i, std::int64_t j) const {
    rows[list[i] * width + j] = placed[i * width + j];
  }
  void row(std::int64_t i) const { std::copy_n(placed + i * width, width, rows + list[i] * width); }
};

template<class T>
struct Sums {
  T const* parts;
  Offset const* offsets;
  Offset const* addends;
  std::int64_t width;
  T* sums;

  KOKKOS_FUNCTION void element(std::int64_t i, std::int64_t j) const {
    auto sum = runtime::SumOf<T>{0};
    for (auto k = offsets[i]; k < offsets[i + 1]; ++k)
      sum += parts[addends[k] * width + j];
    sums[i * width + j] = T(sum);
  }
  /// Adds one whole addend after the other, so that each is read contiguously.
  void row(std::int64_t i) const {
    auto* const sum = sums + i * width;
    std::fill_n(sum, width, T{0});
    for (auto k = offsets[i]; k < offsets[i + 1]; ++k) {
      auto const* const addend = parts + addends[k] * width;
      for (std::int64_t j = 0; j < width; ++j)
        sum[j] = T(sum[j] + addend[j]);
    }
  }
};

template<class T>
struct SlabSums {
  T const* slabs;
  std::int64_t num_slabs;
  std::int64_t num_rows;
  std::int64_t width;
  T* sums;

  KOKKOS_FUNCTION void element(std::int64_t i, std::int64_t j) const {
    auto sum = T{0};
    for (std::int64_t slab = 0; slab < num_slabs; ++slab)
      sum += slabs[(slab * num_rows + i) * width + j];
    sums[i * width + j] = sum;
  }
  /// Adds the row of one slab after the other, so that each is read contiguously.
  void row(std::int64_t i) const {
    auto* const sum = sums + i * width;
    std::fill_n(sum, width, T{0});
    for (std::int64_t slab = 0; slab < num_slabs; ++slab) {
      auto const* const addend = slabs + (slab * num_rows + i) * width;
      for (std::int64_t j = 0; j < width; ++j)
        sum[j] += addend[j];
    }
  }
};

/// Size of `count` numbers in bytes.
template<class T>
std::int64_t scalars(std::int64_t count) {
  return count * static_cast<std::int64_t>(sizeof(T));
}

} // namespace

void plan_pick_rows(StepPlan& step, std::int64_t num_picked, std::int64_t width, Wire format) {
  auto const moved = step.wire_bytes(num_picked * width, format);
  step.add_pass({"pick_rows", moved + num_picked * std::int64_t{sizeof(LocalColumn)}, moved});
}

void plan_place_rows(StepPlan& step, std::int64_t num_placed, std::int64_t width) {
  auto const moved = step.scalar_bytes(num_placed * width);
  step.add_pass({"place_rows", moved + num_placed * std::int64_t{sizeof(LocalColumn)}, moved});
}

void plan_add_rows(StepPlan& step, std::int64_t num_rows, std::int64_t num_addends, std::int64_t width,
                   Wire format) {
  auto const lists = (num_rows + 1 + num_addends) * std::int64_t{sizeof(Offset)};
  step.add_pass({"add_rows", step.wire_bytes(num_addends * width, format) + lists,
                 step.wire_bytes(num_rows * width, format)});
}

template<class T>
void pick_rows(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& rows,
               Vector<LocalColumn> const& list, std::int64_t width, Vector<T> const& picked) {
  auto const moved = scalars<T>(static_cast<std::int64_t>(list.extent(0)) * width);
  passes.add({"pick_rows", moved + runtime::array_bytes(list), moved});
  for_each_row_or_element(exec, "orthant::pmm::pick_rows", static_cast<std::int64_t>(list.extent(0)),
                          Picked<T>{rows.data(), list.data(), width, picked.data()});
}

template<class T>
void place_rows(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& placed,
                Vector<LocalColumn> const& list, std::int64_t width, Vector<T> const& rows) {
  auto const moved = scalars<T>(static_cast<std::int64_t>(list.extent(0)) * width);
  passes.add({"place_rows", moved + runtime::array_bytes(list), moved});
  for_each_row_or_element(exec, "orthant::pmm::place_rows", static_cast<std::int64_t>(list.extent(0)),
                          Placed<T>{placed.data(), list.data(), width, rows.data()});
}

template<class T>
void add_rows(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& parts,
              Vector<Offset> const& offsets, Vector<Offset> const& addends, std::int64_t width,
              Vector<T> const& sums) {
  auto const num_rows = static_cast<std::int64_t>(offsets.extent(0)) - 1;
  auto const num_addends = static_cast<std::int64_t>(addends.extent(0));
  passes.add({"add_rows", scalars<T>(num_addends * width) + runtime::array_bytes(offsets, addends),
              scalars<T>(num_rows * width)});
  for_each_row_or_element(exec, "orthant::pmm::add_rows", num_rows,
                          Sums<T>{parts.data(), offsets.data(), addends.data(), width, sums.data()});
}

template<class T>
void add_slabs(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& slabs,
               std::int64_t num_slabs, std::int64_t width, Vector<T> const& sums) {
  passes.add({"add_slabs", runtime::array_bytes(slabs), runtime::array_bytes(sums)});
  auto const num_rows = static_cast<std::int64_t>(sums.extent(0)) / width;
  for_each_row_or_element(exec, "orthant::pmm::add_slabs", num_rows,
                          SlabSums<T>{slabs.data(), num_slabs, num_rows, width, sums.data()});
}

namespace {

constexpr auto rows_label = "orthant::pmm::RowSelection/rows";
constexpr auto offsets_label = "orthant::pmm::RowSelection/offsets";
constexpr auto places_label = "orthant::pmm::RowSelection/places";

} // namespace

RowSelection make_row_selection(std::vector<LocalColumn> const& rows, std::int64_t num_rows) {
  std::vector<Offset> offsets(static_cast<std::size_t>(num_rows) + 1);
  for (auto const row : rows)
    offsets[static_cast<std::size_t>(row) + 1] = 1;
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  std::vector<Offset> places(rows.size());
  std::iota(places.begin(), places.end(), Offset{0});
  return {to_device(rows_label, rows), to_device(offsets_label, offsets), to_device(places_label, places)};
}

void plan_row_selection(StepPlan& step, std::int64_t num_selected, std::int64_t num_rows) {
  step.add_array(rows_label, num_selected * std::int64_t{sizeof(LocalColumn)});
  step.add_array(offsets_label, (num_rows + 1) * std::int64_t{sizeof(Offset)});
  step.add_array(places_label, num_selected * std::int64_t{sizeof(Offset)});
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void pick_rows(DefaultExec const&, runtime::PassLedger&, Vector<T> const&,                        \
                          Vector<LocalColumn> const&, std::int64_t, Vector<T> const&);                       \
  template void add_rows(DefaultExec const&, runtime::PassLedger&, Vector<T> const&, Vector<Offset> const&,  \
                         Vector<Offset> const&, std::int64_t, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

template void place_rows(DefaultExec const&, runtime::PassLedger&, Vector<float> const&,
                         Vector<LocalColumn> const&, std::int64_t, Vector<float> const&);
template void place_rows(DefaultExec const&, runtime::PassLedger&, Vector<double> const&,
                         Vector<LocalColumn> const&, std::int64_t, Vector<double> const&);
template void add_slabs(DefaultExec const&, runtime::PassLedger&, Vector<float> const&, std::int64_t,
                        std::int64_t, Vector<float> const&);
template void add_slabs(DefaultExec const&, runtime::PassLedger&, Vector<double> const&, std::int64_t,
                        std::int64_t, Vector<double> const&);

} // namespace orthant::pmm
