// SPDX-License-Identifier: Apache-2.0
#include "pmm/attention/sequence_parts.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <string>

namespace orthant::pmm {
namespace {

using runtime::DefaultExec;

enum class Order : std::uint8_t { by_token, by_part };

/// Copies row by row; a row is numbered by part.
template<class T>
struct OrderRows {
  AttentionShape shape;
  T const* from;
  T* to;
  std::int64_t width;
  Order order; // of `to`

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t token_of(std::int64_t i) const {
    auto const num_tokens = shape.num_tokens();
    return SequencePart{shape.sequence, shape.num_parts, i / num_tokens}.token_of(i % num_tokens);
  }
  KOKKOS_FUNCTION void element(std::int64_t i, std::int64_t j) const {
    auto const token = token_of(i);
    auto const is_by_token = order == Order::by_token;
    to[(is_by_token ? token : i) * width + j] = from[(is_by_token ? i : token) * width + j];
  }
  void row(std::int64_t i) const {
    auto const token = token_of(i);
    auto const is_by_token = order == Order::by_token;
    std::copy_n(from + (is_by_token ? i : token) * width, width, to + (is_by_token ? token : i) * width);
  }
};

runtime::LocalPass pass_of(std::int64_t bytes) {
  return {"order_rows", bytes, bytes};
}

template<class T>
void order_rows(DefaultExec const& exec, runtime::PassLedger& passes, AttentionShape const& shape,
                Panel<T> const& from, Panel<T> const& to, Order order) {
  for (auto const& panel : {from, to})
    ORTHANT_REQUIRE(panel.num_rows == shape.num_keys() && panel.num_columns == from.num_columns &&
                        panel.row_stride == panel.num_columns,
                    "rows of ", shape.num_parts, " parts: ", panel.num_rows, " x ", panel.num_columns,
                    " with a stride of ", panel.row_stride, ", not ", shape.num_keys(), " x ",
                    from.num_columns);
  passes.add(pass_of(from.num_rows * from.num_columns * std::int64_t{sizeof(T)}));
  for_each_row_or_element(exec, "orthant::pmm::order_rows", from.num_rows,
                          OrderRows<T>{shape, from.data, to.data, from.num_columns, order});
}

} // namespace

template<class T>
void order_by_token(DefaultExec const& exec, runtime::PassLedger& passes, AttentionShape const& shape,
                    Panel<T> const& by_part, std::type_identity_t<Panel<T>> const& by_token) {
  order_rows(exec, passes, shape, by_part, by_token, Order::by_token);
}

template<class T>
void order_by_part(DefaultExec const& exec, runtime::PassLedger& passes, AttentionShape const& shape,
                   Panel<T> const& by_token, std::type_identity_t<Panel<T>> const& by_part) {
  order_rows(exec, passes, shape, by_token, by_part, Order::by_part);
}

void plan_order_rows(StepPlan& step, AttentionShape const& shape, std::int64_t num_columns) {
  step.add_pass(pass_of(step.scalar_bytes(shape.num_keys() * num_columns)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void order_by_token(DefaultExec const&, runtime::PassLedger&, AttentionShape const&,              \
                               Panel<T> const&, Panel<T> const&);                                            \
  template void order_by_part(DefaultExec const&, runtime::PassLedger&, AttentionShape const&,               \
                              Panel<T> const&, Panel<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

namespace {

constexpr auto sent_label = "orthant::pmm::HeadExchange/sent";
constexpr auto received_label = "orthant::pmm::HeadExchange/received";

runtime::LocalPass exchange_pass(std::int64_t bytes) {
  return {"exchange_heads", bytes, bytes};
}

void plan_exchange(StepPlan& step, std::int64_t bytes) {
  auto const num_ranks = step.shape().context;
  step.add_call(runtime::Operation::all_to_all, Axis::context, bytes / num_ranks * (num_ranks - 1), bytes);
}

} // namespace

template<class T>
HeadExchange<T>::HeadExchange(ProcessGrid const& grid, std::int64_t num_sequences, SequencePart const& tokens,
                              std::int64_t num_columns)
    : grid_(grid),
      shape_{num_sequences, tokens.length, 1, 1, 1, tokens.num_parts, tokens.part} {
  ORTHANT_REQUIRE(num_columns % tokens.num_parts == 0, tokens.num_parts, " ranks cannot share ", num_columns,
                  " columns");
  auto const count = static_cast<std::size_t>(num_rows() * num_columns);
  sent_ = runtime::Vector<T>(std::string(sent_label), count);
  received_ = runtime::Vector<T>(std::string(received_label), count);
}

template<class T>
Panel<T> HeadExchange<T>::as_whole(runtime::Vector<T> const& numbers) const {
  return {numbers.data(), shape_.num_keys(),
          static_cast<std::int64_t>(numbers.extent(0)) / shape_.num_keys()};
}

template<class T>
Panel<T> HeadExchange<T>::room(std::int64_t num_columns) const {
  return {received_.data(), shape_.num_keys(), num_columns / shape_.num_parts};
}

template<class T>
template<class Body>
void HeadExchange<T>::for_each_block(Panel<T> const& part, runtime::Vector<T> const& message,
                                     Body const& body) const {
  auto const width = part.num_columns / shape_.num_parts;
  for (std::int64_t r = 0; r < shape_.num_parts; ++r)
    body(part.columns({r * width, (r + 1) * width}),
         Panel<T>(message.data() + r * num_rows() * width, num_rows(), width));
  grid_.passes().add(exchange_pass(num_rows() * part.num_columns * std::int64_t{sizeof(T)}));
}

template<class T>
void HeadExchange<T>::exchange(DefaultExec const& exec, std::int64_t num_columns) const {
  auto const count = num_rows() * num_columns;
  auto const received = runtime::part_of(received_, 0, count);
  runtime::all_to_all(exec, grid_.over(Axis::context), runtime::part_of(sent_, 0, count), received);
}

template<class T>
void HeadExchange<T>::to_whole(DefaultExec const& exec, Panel<T> const& part, Panel<T> const& whole) {
  for_each_block(part, sent_, [&](Panel<T> const& block, Panel<T> const& message) {
    copy_panel(exec, "orthant::pmm::exchange_heads", block, message);
  });
  exchange(exec, part.num_columns);
  order_by_token(exec, grid_.passes(), shape_, room(part.num_columns), whole);
}

template<class T>
Panel<T> HeadExchange<T>::to_whole(DefaultExec const& exec, Panel<T> const& part) {
  Panel<T> const whole(sent_.data(), shape_.num_keys(), part.num_columns / shape_.num_parts);
  to_whole(exec, part, whole);
  return whole;
}

template<class T>
void HeadExchange<T>::to_part(DefaultExec const& exec, Panel<T> const& whole, Panel<T> const& part) {
  order_by_part(exec, grid_.passes(), shape_, whole,
                Panel<T>(sent_.data(), shape_.num_keys(), whole.num_columns));
  exchange(exec, part.num_columns);
  for_each_block(part, received_, [&](Panel<T> const& block, Panel<T> const& message) {
    copy_panel(exec, "orthant::pmm::exchange_heads", message, block);
  });
}

template class HeadExchange<float>;
template class HeadExchange<double>;

void plan_head_exchange_arrays(StepPlan& step, std::int64_t num_numbers) {
  for (auto const* const label : {sent_label, received_label})
    step.add_array(label, step.scalar_bytes(num_numbers));
}

void plan_to_whole(StepPlan& step, std::int64_t num_numbers) {
  auto const bytes = step.scalar_bytes(num_numbers);
  step.add_pass(exchange_pass(bytes));
  plan_exchange(step, bytes);
  step.add_pass(pass_of(bytes));
}

void plan_to_part(StepPlan& step, std::int64_t num_numbers) {
  auto const bytes = step.scalar_bytes(num_numbers);
  step.add_pass(pass_of(bytes));
  plan_exchange(step, bytes);
  step.add_pass(exchange_pass(bytes));
}

} // namespace orthant::pmm
