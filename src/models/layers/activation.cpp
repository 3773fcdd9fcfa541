// SPDX-License-Identifier: Apache-2.0
#include "models/layers/activation.hpp"

#include "models/layers/activation_kernels.hpp"
#include "pmm/kernels/list_teams.hpp"
#include "pmm/kernels/row_activation_host.hpp"
#include "runtime/error.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using pmm::PackedArray;
using runtime::array_bytes;
using runtime::DefaultExec;
using runtime::Matrix;
using runtime::PassLedger;
using runtime::SumOf;
using runtime::Vector;
using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

template<class T>
SumOf<T> keep_scale(double probability) {
  return static_cast<SumOf<T>>(1 / (1 - probability));
}

/// Whether the host kernels draw a mask: if some, but not all elements are dropped; with 16-bit elements also if none is dropped.
template<class T>
bool is_drawn_on_host(double probability) {
  auto const threshold = runtime::bernoulli_threshold(probability);
  return pmm::runs_on_host && (0 < threshold || runtime::is_16_bit<T>)&&threshold <= 0xFFFFFFFFu;
}

/// Label of the kernel.
std::string_view name_of_relu(bool draws_mask) {
  return draws_mask ? "relu_dropout" : "relu";
}

std::int64_t id_bytes(std::int64_t num_rows) {
  return num_rows * std::int64_t{sizeof(std::int64_t)};
}

/// Number of rows that a piece of a row-major block touches.
std::int64_t num_rows_in(std::int64_t first, std::int64_t count, std::int64_t num_columns) {
  return count == 0 ? 0 : (first + count - 1) / num_columns - first / num_columns + 1;
}

/// The vector's array, or a null array if the vector is empty.
template<class T>
PackedArray<T const> optional(Vector<T> const& numbers) {
  return PackedArray<T const>(numbers.extent(0) == 0 ? nullptr : numbers.data());
}

template<bool is_relu, class T>
void mask_rows(DefaultExec const& exec, char const* label, Matrix<T> const& from,
               Vector<SumOf<T>> const& bias, Dropout const& dropout, BlockKeys const& keys,
               Matrix<T> const& to) {
  auto const num_rows = static_cast<std::int64_t>(from.extent(0));
  if (is_drawn_on_host<T>(dropout.probability)) {
    pmm::host_rows::HostActivation<T> task{.num_columns = static_cast<std::int64_t>(from.extent(1)),
                                           .from = from.data(),
                                           .to = to.data(),
                                           .bias = bias.extent(0) == 0 ? nullptr : bias.data(),
                                           .has_relu = is_relu};
    set_dropout(task, dropout.probability, dropout.stream, keys.original_ids.data(), keys.first_column);
    return activate_rows(exec, label, num_rows, task);
  }
  // All other execution spaces.
  pmm::for_each_pack<T>(
      exec, label, static_cast<std::int64_t>(from.size()),
      detail::MaskPack<T, is_relu>{PackedArray<T const>(from.data()),
                                   PackedArray<T>(to.data()),
                                   optional(bias),
                                   {dropout, keys, 0, static_cast<std::int64_t>(from.extent(1))},
                                   0,
                                   keep_scale<T>(dropout.probability)});
}

/// z := relu(z + 1 b^T)
template<class T>
void relu(DefaultExec const& exec, Matrix<T> const& z, Vector<SumOf<T>> const& bias) {
  auto const num_columns = static_cast<std::int64_t>(z.extent(1));
  if constexpr (pmm::runs_on_host) {
    pmm::host_rows::activate_rows<T>(exec, "orthant::models::relu", static_cast<std::int64_t>(z.extent(0)),
                                     {.num_columns = num_columns,
                                      .from = z.data(),
                                      .to = z.data(),
                                      .bias = bias.extent(0) == 0 ? nullptr : bias.data(),
                                      .has_relu = true});
  } else {
    pmm::for_each_pack<T>(
        exec, "orthant::models::relu", static_cast<std::int64_t>(z.size()),
        detail::BiasReluPack<T>{PackedArray<T>(z.data()), optional(bias), pmm::Divisor(num_columns)});
  }
}

/// Functor of the backward pass on a device.
template<class T>
detail::BackwardPack<T> backward_pack(Matrix<T> const& activation, double probability,
                                      Matrix<T> const& gradient) {
  return {PackedArray<T const>(activation.data()), PackedArray<T>(gradient.data()),
          keep_scale<T>(probability)};
}

/// Also sums columns unless `column_sums` is empty.
template<class T>
void backward_on_host(DefaultExec const& exec, char const* label, Matrix<T> const& activation,
                      double probability, Matrix<T> const& gradient, Vector<SumOf<T>> const& column_sums) {
  pmm::host_rows::HostActivationBackward<T> const task{static_cast<std::int64_t>(gradient.extent(0)),
                                                       static_cast<std::int64_t>(gradient.extent(1)),
                                                       activation.data(),
                                                       gradient.data(),
                                                       column_sums.extent(0) == 0 ? nullptr
                                                                                  : column_sums.data(),
                                                       keep_scale<T>(probability)};
  activate_columns_backward(exec, label, task);
}

/// A contiguous piece consists of the end of a row, whole rows and the beginning of a row.
template<class T>
void apply_dropout_to_piece_on_host(DefaultExec const& exec, Vector<T> const& from, Dropout const& dropout,
                                    BlockKeys const& keys, std::int64_t first, std::int64_t num_columns,
                                    Vector<T> const& to) {
  auto const end = first + static_cast<std::int64_t>(from.extent(0));
  for (auto place = first; place < end;) {
    auto const row = place / num_columns;
    auto const column = place % num_columns;
    auto const is_whole = column == 0 && end - place >= num_columns;
    auto const num_rows = is_whole ? (end - place) / num_columns : 1;
    auto const width = is_whole ? num_columns : std::min(end - place, num_columns - column);
    pmm::host_rows::HostActivation<T> task{
        .num_columns = width, .from = from.data() + (place - first), .to = to.data() + (place - first)};
    set_dropout(task, dropout.probability, dropout.stream, keys.original_ids.data() + row,
                keys.first_column + column);
    activate_rows(exec, "orthant::models::apply_dropout_to_piece", num_rows, task);
    place += num_rows * width;
  }
}

} // namespace

Activation parse_activation(std::string_view word) {
  for (std::size_t kind = 0; kind < pmm::activation_facts.size(); ++kind)
    if (name_of(static_cast<Activation>(kind)) == word) return static_cast<Activation>(kind);
  std::vector<std::string_view> known;
  for (std::size_t kind = 0; kind < pmm::activation_facts.size(); ++kind)
    known.push_back(name_of(static_cast<Activation>(kind)));
  runtime::throw_user("--activation is one of {}, not '{}'", fmt::join(known, ", "), word);
}

void plan_bias_relu_dropout(pmm::StepPlan& step, pmm::Placement const& z, bool has_bias, bool draws_mask,
                            runtime::Wire format) {
  auto const block = step.block(z);
  auto const bytes = step.wire_bytes(block.num_stored, format);
  step.add_pass({name_of_relu(draws_mask),
                 bytes + (has_bias ? step.scalar_bytes(block.columns.size()) : 0) +
                     (draws_mask ? id_bytes(block.stored_rows.size()) : 0),
                 bytes, 0, draws_mask ? block.num_stored : 0});
}

void plan_relu_dropout_backward(pmm::StepPlan& step, pmm::Placement const& z, bool sums_columns,
                                runtime::Wire format) {
  auto const block = step.block(z);
  auto const bytes = step.wire_bytes(block.num_stored, format);
  if (sums_columns)
    step.add_pass({"relu_dropout_backward_sum", 2 * bytes, bytes + step.scalar_bytes(block.columns.size())});
  else
    step.add_pass({"relu_dropout_backward", 2 * bytes, bytes});
}

void plan_apply_dropout(pmm::StepPlan& step, pmm::Placement const& placement, runtime::Wire format) {
  auto const block = step.block(placement);
  auto const is_piece = placement.layout.storage != pmm::Storage::replicated;
  auto const bytes = step.wire_bytes(block.num_stored, format);
  step.add_pass({is_piece ? "apply_dropout_to_piece" : "apply_dropout",
                 bytes + id_bytes(num_rows_in(block.first, block.num_stored, block.columns.size())), bytes, 0,
                 block.num_stored});
}

void plan_apply_dropout_to_entries(pmm::StepPlan& step, pmm::Placement const& placement, CsrRows rows,
                                   std::int64_t num_nonzeros, bool has_values) {
  auto const block = step.block(placement);
  auto const num_offsets = 1 + (rows == CsrRows::vertices ? block.rows : block.columns).size();
  auto const values = step.scalar_bytes(num_nonzeros);
  step.add_pass({"apply_dropout_to_entries",
                 num_offsets * std::int64_t{sizeof(runtime::Offset)} +
                     num_nonzeros * std::int64_t{sizeof(runtime::LocalColumn)} + (has_values ? values : 0) +
                     id_bytes(block.rows.size()),
                 values, 0, num_nonzeros});
}

template<class T>
void bias_relu_dropout(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z,
                       Vector<SumOf<T>> const& bias, Dropout const& dropout, BlockKeys const& keys) {
  ORTHANT_REQUIRE(bias.extent(0) == 0 || bias.extent(0) == z.extent(1), "a bias of ", bias.extent(0), " for ",
                  z.extent(1), " columns");
  auto const draws_mask = dropout.probability > 0;
  passes.add({name_of_relu(draws_mask),
              array_bytes(z, bias) + (draws_mask ? id_bytes(static_cast<std::int64_t>(z.extent(0))) : 0),
              array_bytes(z), 0, draws_mask ? static_cast<std::int64_t>(z.size()) : 0});
  if (draws_mask) return mask_rows<true>(exec, "orthant::models::relu_dropout", z, bias, dropout, keys, z);
  relu(exec, z, bias);
}

template<class T>
void relu_dropout(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z, Dropout const& dropout,
                  BlockKeys const& keys) {
  bias_relu_dropout(exec, passes, z, Vector<SumOf<T>>(), dropout, keys);
}

template<class T>
void relu_dropout_backward(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& activation,
                           double probability, Matrix<T> const& gradient) {
  passes.add({"relu_dropout_backward", array_bytes(activation, gradient), array_bytes(gradient)});
  if constexpr (pmm::runs_on_host) {
    backward_on_host(exec, "orthant::models::relu_dropout_backward", activation, probability, gradient, {});
  } else {
    pmm::for_each_pack<T>(exec, "orthant::models::relu_dropout_backward",
                          static_cast<std::int64_t>(gradient.size()),
                          backward_pack(activation, probability, gradient));
  }
}

template<class T>
void relu_dropout_backward_sum(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& activation,
                               double probability, Matrix<T> const& gradient,
                               Vector<SumOf<T>> const& column_sums, pmm::Workspace<SumOf<T>> const& work) {
  ORTHANT_REQUIRE(column_sums.extent(0) == gradient.extent(1), column_sums.extent(0), " sums for ",
                  gradient.extent(1), " columns");
  passes.add(
      {"relu_dropout_backward_sum", array_bytes(activation, gradient), array_bytes(gradient, column_sums)});
  if constexpr (pmm::runs_on_host) {
    backward_on_host(exec, "orthant::models::relu_dropout_backward_sum", activation, probability, gradient,
                     column_sums);
  } else {
    pmm::ColumnSlabs const slabs(static_cast<std::int64_t>(gradient.extent(0)),
                                 static_cast<std::int64_t>(gradient.extent(1)));
    pmm::sum_columns_in_slabs(exec, "orthant::models::relu_dropout_backward_sum", slabs,
                              backward_pack(activation, probability, gradient),
                              work.lend(pmm::Slot::sums, slabs.num_partial_sums()), column_sums);
  }
}

template<class T>
void apply_dropout(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& from, Dropout const& dropout,
                   BlockKeys const& keys, Matrix<T> const& to) {
  auto const num_rows = from.size() == 0 ? 0 : static_cast<std::int64_t>(from.extent(0));
  passes.add({"apply_dropout", array_bytes(from) + id_bytes(num_rows), array_bytes(to), 0,
              static_cast<std::int64_t>(from.size())});
  mask_rows<false>(exec, "orthant::models::apply_dropout", from, Vector<SumOf<T>>(), dropout, keys, to);
}

template<class T>
void apply_dropout_to_piece(DefaultExec const& exec, PassLedger& passes, Vector<T> const& from,
                            Dropout const& dropout, BlockKeys const& keys, std::int64_t first,
                            std::int64_t num_columns, Vector<T> const& to) {
  auto const num_rows = num_rows_in(first, static_cast<std::int64_t>(from.extent(0)), num_columns);
  passes.add({"apply_dropout_to_piece", array_bytes(from) + id_bytes(num_rows), array_bytes(to), 0,
              static_cast<std::int64_t>(from.size())});
  if (is_drawn_on_host<T>(dropout.probability))
    return apply_dropout_to_piece_on_host(exec, from, dropout, keys, first, num_columns, to);
  pmm::for_each_pack<T>(exec, "orthant::models::apply_dropout_to_piece",
                        static_cast<std::int64_t>(from.extent(0)),
                        detail::MaskPack<T, false>{PackedArray<T const>(from.data()),
                                                   PackedArray<T>(to.data()),
                                                   PackedArray<SumOf<T> const>(nullptr),
                                                   {dropout, keys, first, num_columns},
                                                   first,
                                                   keep_scale<T>(dropout.probability)});
}

template<class T>
void apply_dropout_to_entries(DefaultExec const& exec, PassLedger& passes, runtime::CsrMatrix<T> const& csr,
                              CsrRows rows, Dropout const& dropout, BlockKeys const& keys,
                              Vector<T> const& to) {
  passes.add({"apply_dropout_to_entries",
              array_bytes(csr.row_offsets, csr.columns, csr.values, keys.original_ids), array_bytes(to), 0,
              csr.num_nonzeros()});
  constexpr auto label = "orthant::models::apply_dropout_to_entries";
  detail::MaskEntries<T> const entries{csr,
                                       rows == CsrRows::vertices,
                                       keys.original_ids,
                                       keys.first_column,
                                       dropout.stream,
                                       runtime::bernoulli_threshold(dropout.probability),
                                       keep_scale<T>(dropout.probability),
                                       to};
  if constexpr (pmm::runs_on_host)
    Kokkos::parallel_for(label, Policy(exec, 0, csr.num_rows), entries);
  else
    pmm::for_each_row(exec, label, csr.num_rows, csr.num_nonzeros() / std::max(std::int64_t{1}, csr.num_rows),
                      entries);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void bias_relu_dropout(DefaultExec const&, PassLedger&, Matrix<T> const&,                         \
                                  Vector<SumOf<T>> const&, Dropout const&, BlockKeys const&);                \
  template void relu_dropout_backward_sum(DefaultExec const&, PassLedger&, Matrix<T> const&, double,         \
                                          Matrix<T> const&, Vector<SumOf<T>> const&,                         \
                                          pmm::Workspace<SumOf<T>> const&);                                  \
  template void relu_dropout(DefaultExec const&, PassLedger&, Matrix<T> const&, Dropout const&,              \
                             BlockKeys const&);                                                              \
  template void relu_dropout_backward(DefaultExec const&, PassLedger&, Matrix<T> const&, double,             \
                                      Matrix<T> const&);                                                     \
  template void apply_dropout(DefaultExec const&, PassLedger&, Matrix<T> const&, Dropout const&,             \
                              BlockKeys const&, Matrix<T> const&);                                           \
  template void apply_dropout_to_piece(DefaultExec const&, PassLedger&, Vector<T> const&, Dropout const&,    \
                                       BlockKeys const&, std::int64_t, std::int64_t, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE
template void apply_dropout_to_entries(DefaultExec const&, PassLedger&, runtime::CsrMatrix<float> const&,
                                       CsrRows, Dropout const&, BlockKeys const&, Vector<float> const&);
template void apply_dropout_to_entries(DefaultExec const&, PassLedger&, runtime::CsrMatrix<double> const&,
                                       CsrRows, Dropout const&, BlockKeys const&, Vector<double> const&);

} // namespace orthant::models
