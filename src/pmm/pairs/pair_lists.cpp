// SPDX-License-Identifier: Apache-2.0
#include "pmm/pairs/pair_layers.hpp"

#include "runtime/error.hpp"

#include <limits>

namespace orthant::pmm {
namespace {

template<class Number>
Vector<Number> first_of(Vector<Number> const& memory, std::size_t count) {
  return Vector<Number>(memory.data(), count);
}

template<class Number>
void copy_in(Vector<Number> const& to, std::span<Number const> from) {
  Kokkos::deep_copy(
      to, Kokkos::View<Number const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(from.data(), from.size()));
}

Vector<Offset> offsets_of(std::string const& label, std::int64_t count) {
  return Vector<Offset>(label, static_cast<std::size_t>(count) + 1);
}

} // namespace

PairLists::PairLists(std::int64_t num_rows, std::int64_t num_columns, std::int64_t capacity)
    : columns_("orthant::pmm::pair_columns"),
      rows_("orthant::pmm::pair_rows"),
      places_("orthant::pmm::pair_places"),
      column_offsets_(static_cast<std::size_t>(num_columns) + 1),
      next_(column_offsets_.size()) {
  ORTHANT_REQUIRE(std::max(num_rows, num_columns) <= std::numeric_limits<LocalColumn>::max(), num_rows, " x ",
                  num_columns, " rows that pairs are made of");
  auto const none = first_of(columns_.reserve(capacity), 0);
  auto const length = static_cast<std::size_t>(capacity);
  listed_rows_.reserve(length);
  listed_places_.reserve(length);
  block_ = {num_rows,
            num_columns,
            offsets_of("orthant::pmm::pair_row_offsets", num_rows),
            none,
            offsets_of("orthant::pmm::pair_column_offsets", num_columns),
            first_of(rows_.reserve(capacity), 0),
            first_of(places_.reserve(capacity), 0)};
}

void PairLists::set(std::span<Offset const> offsets, std::span<LocalColumn const> columns) {
  ORTHANT_REQUIRE(std::ssize(offsets) == block_.num_rows + 1 && offsets.back() == std::ssize(columns),
                  offsets.size(), " offsets of ", columns.size(), " pairs of ", block_.num_rows, " rows");
  std::fill(column_offsets_.begin(), column_offsets_.end(), 0);
  for (auto const column : columns)
    ++column_offsets_[static_cast<std::size_t>(column) + 1];
  for (std::size_t j = 1; j < column_offsets_.size(); ++j)
    column_offsets_[j] += column_offsets_[j - 1];
  next_ = column_offsets_;
  listed_rows_.resize(columns.size());
  listed_places_.resize(columns.size());
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
    for (auto k = offsets[i]; k < offsets[i + 1]; ++k) {
      auto const column = static_cast<std::size_t>(columns[static_cast<std::size_t>(k)]);
      auto const place = static_cast<std::size_t>(next_[column]++);
      listed_rows_[place] = static_cast<LocalColumn>(i);
      listed_places_[place] = k;
    }
  auto const count = std::ssize(columns);
  block_.columns = first_of(columns_.reserve(count), columns.size());
  block_.rows = first_of(rows_.reserve(count), columns.size());
  block_.places = first_of(places_.reserve(count), columns.size());
  copy_in(block_.row_offsets, offsets);
  copy_in(block_.columns, columns);
  copy_in(block_.column_offsets, std::span<Offset const>(column_offsets_));
  copy_in(block_.rows, std::span<LocalColumn const>(listed_rows_));
  copy_in(block_.places, std::span<Offset const>(listed_places_));
}

void plan_pair_lists(StepPlan& step, EdgeCounts const& counts) {
  constexpr auto offset_bytes = static_cast<std::int64_t>(sizeof(Offset));
  constexpr auto column_bytes = static_cast<std::int64_t>(sizeof(LocalColumn));
  step.add_array("orthant::pmm::pair_columns", counts.edges * column_bytes);
  step.add_array("orthant::pmm::pair_row_offsets", (counts.rows + 1) * offset_bytes);
  step.add_array("orthant::pmm::pair_column_offsets", (counts.columns + 1) * offset_bytes);
  step.add_array("orthant::pmm::pair_rows", counts.edges * column_bytes);
  step.add_array("orthant::pmm::pair_places", counts.edges * offset_bytes);
  step.add_array("lists of pairs on the host",
                 2 * (counts.columns + 1) * offset_bytes + counts.edges * (offset_bytes + column_bytes));
}

} // namespace orthant::pmm
