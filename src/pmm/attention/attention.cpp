// SPDX-License-Identifier: Apache-2.0
#include "pmm/attention/attention.hpp"

#include "pmm/attention/attention_backward_device.hpp"
#include "pmm/attention/attention_host.hpp"
#include "pmm/attention/attention_library.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace orthant::pmm {

using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::PassLedger;
using runtime::Vector;

namespace {

template<class T>
void require_panel(char const* name, Panel<T> const& panel, std::int64_t num_rows, std::int64_t num_columns) {
  ORTHANT_REQUIRE(panel.num_rows == num_rows && panel.num_columns == num_columns &&
                      panel.row_stride >= num_columns,
                  "attention: ", name, " is ", panel.num_rows, " x ", panel.num_columns, ", but should be ",
                  num_rows, " x ", num_columns);
}

template<class T>
void require_operands(AttentionShape const& shape, AttentionOperands<T> const& operands) {
  require_panel("q", operands.q, shape.num_tokens(), shape.query_columns());
  require_panel("k", operands.k, shape.num_keys(), shape.key_columns());
  require_panel("v", operands.v, shape.num_keys(), shape.key_columns());
}

template<class T>
void require_shape(AttentionShape const& shape, AttentionOperands<T> const& operands,
                   Vector<T> const& log_sum_exp, AttentionDropout const& dropout,
                   Vector<std::int64_t> const& positions) {
  ORTHANT_REQUIRE(shape.num_sequences >= 0 && shape.sequence > 0 && shape.num_heads > 0 && shape.head_dim > 0,
                  "attention of ", shape.num_sequences, " sequences of ", shape.sequence, " tokens, ",
                  shape.num_heads, " heads of ", shape.head_dim);
  ORTHANT_REQUIRE(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0, shape.num_kv_heads,
                  " heads of keys do not divide ", shape.num_heads, " heads of queries");
  ORTHANT_REQUIRE(shape.num_parts >= 1 && shape.part >= 0 && shape.part < shape.num_parts &&
                      (shape.num_parts == 1 || (shape.sequence % 2 == 0 && positions.extent(0) > 0)),
                  "attention of part ", shape.part, " of ", shape.num_parts, " of sequences, with ",
                  shape.sequence, " tokens and ", positions.extent(0), " positions");
  require_operands(shape, operands);
  ORTHANT_REQUIRE(static_cast<std::int64_t>(log_sum_exp.extent(0)) >= shape.num_row_numbers(),
                  "attention: a number per token and head is ", shape.num_row_numbers(), ", not ",
                  log_sum_exp.extent(0));
  ORTHANT_REQUIRE(positions.extent(0) == 0 ||
                      static_cast<std::int64_t>(positions.extent(0)) == shape.num_tokens(),
                  positions.extent(0), " positions in documents of ", shape.num_tokens(), " tokens");
  ORTHANT_REQUIRE(dropout.probability >= 0 && dropout.probability < 1, "dropout with probability ",
                  dropout.probability);
  ORTHANT_REQUIRE(dropout.probability == 0 ||
                      (static_cast<std::int64_t>(dropout.token_ids.extent(0)) >= shape.num_tokens() &&
                       dropout.first_head + shape.num_heads <= dropout.num_heads),
                  "dropout of attention needs the number of each token, and ", shape.num_heads,
                  " heads from ", dropout.first_head, " on of ", dropout.num_heads);
}

/// Sizes in bytes of the arrays that both passes move, and the passes that follow from them.
struct AttentionBytes {
  std::int64_t queries, keys, row_numbers, ids, rows, drawn;

  AttentionBytes(AttentionShape const& shape, std::int64_t scalar_bytes, bool draws_mask)
      : queries(shape.num_tokens() * shape.query_columns() * scalar_bytes),
        keys(shape.num_keys() * shape.key_columns() * scalar_bytes),
        row_numbers(shape.num_row_numbers() * scalar_bytes),
        ids(draws_mask ? shape.num_tokens() * std::int64_t{sizeof(std::int64_t)} : 0),
        rows(shape.num_row_numbers()),
        drawn(draws_mask ? attention_flops(shape) / (4 * shape.head_dim) : 0) {} // one random number per pair

  [[nodiscard]] LocalPass forward(AttentionShape const& shape) const {
    return {.name = "attention_forward",
            .bytes_read = queries + 2 * keys + ids,
            .bytes_written = queries + row_numbers,
            .flops = attention_flops(shape),
            .random_numbers = drawn,
            .row_sums = rows};
  }
  [[nodiscard]] LocalPass backward(AttentionShape const& shape) const {
    return {.name = "attention_backward",
            .bytes_read = 3 * queries + 2 * keys + row_numbers + ids,
            .bytes_written = queries + 2 * keys,
            .flops = attention_backward_flops(shape),
            .random_numbers = drawn,
            .row_sums = rows};
  }
};

/// Null if there are none; the memory of an empty array need not be null.
std::int64_t const* pointer_to(Vector<std::int64_t> const& positions) {
  return positions.extent(0) == 0 ? nullptr : positions.data();
}

template<class T>
host_attention::Rows<T const> read(Panel<T> const& panel) {
  return {panel.data, panel.row_stride};
}
template<class T>
host_attention::Rows<T> write(Panel<T> const& panel) {
  return {panel.data, panel.row_stride};
}

template<class T>
host_attention::HostAttention<T> host_task(AttentionShape const& shape, AttentionOperands<T> const& operands,
                                           Panel<T> const& out, Vector<T> const& log_sum_exp,
                                           AttentionDropout const& dropout,
                                           Vector<std::int64_t> const& positions) {
  auto const threshold = runtime::bernoulli_threshold(dropout.probability); // at most 2^32
  host_attention::HostAttention<T> task;
  task.shape = shape;
  task.scale = static_cast<T>(1 / std::sqrt(static_cast<double>(shape.head_dim)));
  task.q = read(operands.q);
  task.k = read(operands.k);
  task.v = read(operands.v);
  task.out = write(out);
  task.log_sum_exp = log_sum_exp.data();
  task.positions = pointer_to(positions);
  if (threshold > 0) {
    task.token_ids = dropout.token_ids.data();
    task.first_head = dropout.first_head;
    task.all_heads = dropout.num_heads;
    task.key = dropout.stream.key();
    task.last_dropped = static_cast<std::uint32_t>(threshold - 1);
    task.keep_scale = static_cast<T>(1 / (1 - dropout.probability));
  }
  return task;
}

template<class T>
[[maybe_unused]] detail::AttentionTask<T>
device_task(AttentionShape const& shape, AttentionOperands<T> const& operands, Vector<T> const& log_sum_exp,
            AttentionDropout const& dropout, Vector<std::int64_t> const& positions) {
  auto const tile = detail::attention_tile<T>(shape.head_dim);
  ORTHANT_REQUIRE(tile > 0, "attention on a device keeps a few rows of a head in shared memory, but not of ",
                  shape.head_dim, " numbers each");
  return {shape, operands, log_sum_exp, dropout, pointer_to(positions), tile};
}

template<class T>
host_attention::HostAttentionKernels<T> const& best_kernels() {
  static auto const best = host_attention::supported_attention_kernels<T>().back();
  return best;
}

} // namespace

template<class T>
void attention_forward(DefaultExec const& exec, PassLedger& passes, AttentionShape const& shape,
                       AttentionOperands<T> const& operands, std::type_identity_t<Panel<T>> const& out,
                       Vector<T> const& log_sum_exp, AttentionDropout const& dropout,
                       Vector<std::int64_t> const& positions) {
  require_shape(shape, operands, log_sum_exp, dropout, positions);
  require_panel("out", out, shape.num_tokens(), shape.query_columns());
  passes.add(AttentionBytes(shape, sizeof(T), dropout.probability > 0).forward(shape));
  if constexpr (runs_on_host) {
    auto const& kernels = best_kernels<T>();
    auto const task = host_task(shape, operands, out, log_sum_exp, dropout, positions);
    auto const scratch = kernels.forward_scratch(shape);
    for_each_part(exec, "orthant::pmm::attention_forward", shape.num_sequences * shape.num_heads,
                  [=, forward = kernels.forward](std::int64_t begin, std::int64_t end) {
                    forward(task, begin, end, thread_memory<T>(scratch));
                  });
  } else {
    if constexpr (std::is_same_v<T, float>)
      if (positions.extent(0) == 0 && // so each sequence is whole, and one document
          detail::attend_by_library(exec, shape, operands, out, log_sum_exp, dropout))
        return;
    detail::attend_on_device(exec, device_task(shape, operands, log_sum_exp, dropout, positions), out);
  }
}

template<class T>
void attention_backward(DefaultExec const& exec, PassLedger& passes, AttentionShape const& shape,
                        AttentionOperands<T> const& operands, std::type_identity_t<Panel<T>> const& out,
                        Vector<T> const& log_sum_exp, std::type_identity_t<Panel<T>> const& d_out,
                        AttentionOperands<T> const& gradients, Vector<T> const& row_terms,
                        AttentionDropout const& dropout, Vector<std::int64_t> const& positions) {
  require_shape(shape, operands, log_sum_exp, dropout, positions);
  require_operands(shape, gradients);
  require_panel("out", out, shape.num_tokens(), shape.query_columns());
  require_panel("d_out", d_out, shape.num_tokens(), shape.query_columns());
  ORTHANT_REQUIRE(static_cast<std::int64_t>(row_terms.extent(0)) >= shape.num_row_numbers(),
                  "attention: a number per token and head is ", shape.num_row_numbers(), ", not ",
                  row_terms.extent(0));
  passes.add(AttentionBytes(shape, sizeof(T), dropout.probability > 0).backward(shape));
  if constexpr (runs_on_host) {
    auto const& kernels = best_kernels<T>();
    auto task = host_task(shape, operands, out, log_sum_exp, dropout, positions);
    task.d_out = read(d_out);
    task.dq = write(gradients.q);
    task.dk = write(gradients.k);
    task.dv = write(gradients.v);
    auto const scratch = kernels.backward_scratch(shape);
    for_each_part(exec, "orthant::pmm::attention_backward", shape.num_sequences * shape.num_kv_heads,
                  [=, backward = kernels.backward](std::int64_t begin, std::int64_t end) {
                    backward(task, begin, end, thread_memory<T>(scratch));
                  });
  } else {
    if constexpr (std::is_same_v<T, float>)
      if (positions.extent(0) == 0 && detail::attend_backward_by_library(
                                          exec, shape, operands, out, log_sum_exp, d_out, gradients, dropout))
        return;
    detail::attend_backward_on_device(exec, device_task(shape, operands, log_sum_exp, dropout, positions),
                                      out, d_out, gradients, row_terms);
  }
}

std::int64_t attention_flops(AttentionShape const& shape) {
  // 2 products of 2 head_dim flops per pair; keys (keys + 1) / 2 pairs per sequence and head, in equal parts for the ranks that share it.
  return 2 * shape.num_sequences * shape.num_heads * shape.head_dim * shape.sequence * (shape.keys() + 1);
}

std::int64_t attention_backward_flops(AttentionShape const& shape) {
  return attention_flops(shape) / 2 * 5;
}

void plan_attention_forward(StepPlan& step, AttentionShape const& shape, bool draws_mask) {
  step.add_pass(AttentionBytes(shape, step.scalar_bytes(1), draws_mask).forward(shape));
}

void plan_attention_backward(StepPlan& step, AttentionShape const& shape, bool draws_mask) {
  step.add_pass(AttentionBytes(shape, step.scalar_bytes(1), draws_mask).backward(shape));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void attention_forward(DefaultExec const&, PassLedger&, AttentionShape const&,                    \
                                  AttentionOperands<T> const&, Panel<T> const&, Vector<T> const&,            \
                                  AttentionDropout const&, Vector<std::int64_t> const&);                     \
  template void attention_backward(DefaultExec const&, PassLedger&, AttentionShape const&,                   \
                                   AttentionOperands<T> const&, Panel<T> const&, Vector<T> const&,           \
                                   Panel<T> const&, AttentionOperands<T> const&, Vector<T> const&,           \
                                   AttentionDropout const&, Vector<std::int64_t> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

namespace {

constexpr auto label_of_table = "orthant::pmm::rotary_table";

std::int64_t table_numbers(std::int64_t sequence, std::int64_t head_dim) {
  return sequence * head_dim;
}

/// Rotates the heads of one token.
template<class T>
struct RotateRow {
  Panel<T> x;
  T const* table;
  std::int64_t sequence;
  std::int64_t half;
  T sign;                        // of the sines: 1 to rotate forward, -1 to rotate back
  std::int64_t const* positions; // [tokens], or null

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    auto const position = positions == nullptr ? row % sequence : positions[row];
    auto const* const cosines = table + position * 2 * half;
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

/// w_j after scaling.
double slowed(double frequency, std::optional<RotaryScaling> const& scaling) {
  if (!scaling) return frequency;
  auto const turns = static_cast<double>(scaling->num_positions) * frequency / (2 * std::numbers::pi);
  auto const share = std::clamp((turns - scaling->low) / (scaling->high - scaling->low), 0.0, 1.0);
  return frequency * ((1 - share) / scaling->factor + share);
}

LocalPass pass_of(std::int64_t numbers, std::int64_t table, std::int64_t scalar_bytes) {
  return {"rotate", (numbers + table) * scalar_bytes, numbers * scalar_bytes};
}

} // namespace

template<class T>
RotaryTable<T>::RotaryTable(std::int64_t sequence, std::int64_t head_dim, double base,
                            std::optional<RotaryScaling> const& scaling)
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
      auto const angle = static_cast<double>(place) * slowed(std::pow(base, exponent), scaling);
      auto const at = static_cast<std::size_t>(place * head_dim + j);
      host(at) = static_cast<T>(std::cos(angle));
      host(at + static_cast<std::size_t>(half)) = static_cast<T>(std::sin(angle));
    }
  Kokkos::deep_copy(numbers_, host);
}

template<class T>
void rotate(DefaultExec const& exec, PassLedger& passes, RotaryTable<T> const& table, std::int64_t sequence,
            Turn turn, std::type_identity_t<Panel<T>> const& x, Vector<std::int64_t> const& positions) {
  ORTHANT_REQUIRE(sequence > 0 && sequence <= table.sequence(), "rotary positions of ", table.sequence(),
                  " tokens do not reach the end of a sequence of ", sequence);
  ORTHANT_REQUIRE(x.num_rows % sequence == 0 && x.num_columns % table.head_dim() == 0, "x ", x.num_rows,
                  " x ", x.num_columns, " is not made of sequences of ", sequence, " tokens and heads of ",
                  table.head_dim());
  ORTHANT_REQUIRE(positions.extent(0) == 0 || static_cast<std::int64_t>(positions.extent(0)) == x.num_rows,
                  positions.extent(0), " positions of ", x.num_rows, " tokens");
  passes.add(pass_of(x.num_rows * x.num_columns, table_numbers(sequence, table.head_dim()), sizeof(T)));
  Kokkos::parallel_for("orthant::pmm::rotate",
                       Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, x.num_rows),
                       RotateRow<T>{x, table.numbers().data(), sequence, table.head_dim() / 2,
                                    turn == Turn::forward ? T{1} : T{-1}, pointer_to(positions)});
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
                       Panel<T> const&, Vector<std::int64_t> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
