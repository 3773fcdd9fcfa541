// SPDX-License-Identifier: Apache-2.0
#include "pmm/attention/sequence_parts.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/error.hpp"

#include <algorithm>

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

} // namespace orthant::pmm
