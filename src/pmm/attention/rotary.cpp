// SPDX-License-Identifier: Apache-2.0
#include "pmm/attention/rotary.hpp"

#include "runtime/arrays/views.hpp"
#include "runtime/error.hpp"

#include <cmath>
#include <string>

namespace orthant::pmm {

using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::PassLedger;

namespace {

constexpr auto label_of_table = "orthant::pmm::rotary_table";

std::int64_t table_numbers(std::int64_t sequence, std::int64_t head_dim) {
  return sequence * head_dim;
}

/// Turns the heads of one token.
template<class T>
struct RotateRow {
  Panel<T> x;
  T const* table;
  std::int64_t sequence;
  std::int64_t half;
  T sign; // of the sines: 1 forward, -1 backward

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    auto const* const cosines = table + row % sequence * 2 * half;
    auto const* const sines = cosines + half;
    auto* const end = x.data + row * x.row_stride + x.num_columns;
    for (auto* head = x.data + row * x.row_stride; head < end; head += 2 * half)
      for (std::int64_t j = 0; j < half; ++j) {
        auto const first = head[j];
        auto const second = head[j + half];
        auto const sine = sign * sines[j];
        head[j] = first * cosines[j] - second * sine;
        head[j + half] = second * cosines[j] + first * sine;
      }
  }
};

LocalPass pass_of(std::int64_t numbers, std::int64_t table, std::int64_t scalar_bytes) {
  return {"rotate", (numbers + table) * scalar_bytes, numbers * scalar_bytes};
}

} // namespace

template<class T>
RotaryTable<T>::RotaryTable(std::int64_t sequence, std::int64_t head_dim, double base)
    : sequence_(sequence),
      head_dim_(head_dim) {
  ORTHANT_REQUIRE(head_dim > 0 && head_dim % 2 == 0, "rotary positions turn pairs: a head has ", head_dim,
                  " numbers, but needs an even number of them");
  ORTHANT_REQUIRE(sequence > 0 && base > 0, "rotary positions of ", sequence, " tokens with base ", base);
  numbers_ = runtime::Vector<T>(Kokkos::view_alloc(Kokkos::WithoutInitializing, std::string(label_of_table)),
                                static_cast<std::size_t>(table_numbers(sequence, head_dim)));
  auto const host = Kokkos::create_mirror_view(numbers_);
  auto const half = head_dim / 2;
  for (std::int64_t place = 0; place < sequence; ++place)
    for (std::int64_t j = 0; j < half; ++j) {
      auto const exponent = -2.0 * static_cast<double>(j) / static_cast<double>(head_dim);
      auto const angle = static_cast<double>(place) * std::pow(base, exponent);
      auto const at = static_cast<std::size_t>(place * head_dim + j);
      host(at) = static_cast<T>(std::cos(angle));
      host(at + static_cast<std::size_t>(half)) = static_cast<T>(std::sin(angle));
    }
  Kokkos::deep_copy(numbers_, host);
}

template<class T>
void rotate(DefaultExec const& exec, PassLedger& passes, RotaryTable<T> const& table, std::int64_t sequence,
            Turn turn, std::type_identity_t<Panel<T>> const& x) {
  ORTHANT_REQUIRE(sequence > 0 && sequence <= table.sequence(), "rotary positions of ", table.sequence(),
                  " tokens do not reach the end of a sequence of ", sequence);
  ORTHANT_REQUIRE(x.num_rows % sequence == 0 && x.num_columns % table.head_dim() == 0, "x ", x.num_rows,
                  " x ", x.num_columns, " is not made of sequences of ", sequence, " tokens and heads of ",
                  table.head_dim());
  passes.add(pass_of(x.num_rows * x.num_columns, table_numbers(sequence, table.head_dim()), sizeof(T)));
  Kokkos::parallel_for("orthant::pmm::rotate",
                       Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, x.num_rows),
                       RotateRow<T>{x, table.numbers().data(), sequence, table.head_dim() / 2,
                                    turn == Turn::forward ? T{1} : T{-1}});
}

void plan_rotate(StepPlan& step, std::int64_t num_tokens, std::int64_t num_columns, std::int64_t sequence,
                 std::int64_t head_dim) {
  step.add_pass(pass_of(num_tokens * num_columns, table_numbers(sequence, head_dim), step.scalar_bytes(1)));
}

void plan_rotary_table(StepPlan& step, std::int64_t sequence, std::int64_t head_dim) {
  step.add_array(label_of_table, step.scalar_bytes(table_numbers(sequence, head_dim)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template class RotaryTable<T>;                                                                             \
  template void rotate(DefaultExec const&, PassLedger&, RotaryTable<T> const&, std::int64_t, Turn,           \
                       Panel<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
