// SPDX-License-Identifier: Apache-2.0
#include "models/layers/activation_step.hpp"

#include "models/layers/rms_norm.hpp"
#include "pmm/kernels/row_activation_host.hpp"
#include "pmm/rows/activations.hpp"
#include "pmm/rows/bias.hpp"
#include "runtime/error.hpp"

namespace orthant::models {
namespace {

using runtime::array_bytes;
using runtime::DefaultExec;
using runtime::Matrix;
using runtime::PassLedger;
using runtime::SumOf;
using runtime::Vector;

std::int64_t row_id_bytes(std::int64_t num_rows) {
  return num_rows * std::int64_t{sizeof(std::int64_t)};
}

/// Label of the kernel.
std::string_view name_of_forward(bool draws_mask) {
  return draws_mask ? "relu_dropout" : "relu";
}
std::string_view name_of_backward(bool sums_columns) {
  return sums_columns ? "relu_dropout_backward_sum" : "relu_dropout_backward";
}

template<class T>
void require_mask(Vector<std::uint32_t> const& passed, Matrix<T> const& of) {
  ORTHANT_REQUIRE(pmm::runs_on_host, "bits of what passed a ReLU are for host processors");
  auto const num_words =
      num_mask_words(static_cast<std::int64_t>(of.extent(0)), static_cast<std::int64_t>(of.extent(1)));
  ORTHANT_REQUIRE(static_cast<std::int64_t>(passed.extent(0)) >= num_words, passed.extent(0),
                  " words of bits for ", of.extent(0), " x ", of.extent(1));
}

/// Bytes of the bits of a matrix; the borrowed array may be longer.
std::int64_t mask_bytes(std::int64_t num_rows, std::int64_t num_columns) {
  return num_mask_words(num_rows, num_columns) * std::int64_t{sizeof(std::uint32_t)};
}
template<class T>
std::int64_t mask_bytes(Matrix<T> const& of) {
  return mask_bytes(static_cast<std::int64_t>(of.extent(0)), static_cast<std::int64_t>(of.extent(1)));
}
std::int64_t mask_bytes(pmm::Block const& block) {
  return mask_bytes(block.stored_rows.size(), block.columns.size());
}

} // namespace

template<class T>
void relu_with_mask(DefaultExec const& exec, PassLedger& passes, Matrix<T> const& z,
                    Vector<SumOf<T>> const& bias, Dropout const& dropout, BlockKeys const& keys,
                    Vector<std::uint32_t> const& passed) {
  require_mask(passed, z);
  ORTHANT_REQUIRE(bias.extent(0) == 0 || bias.extent(0) == z.extent(1), "a bias of ", bias.extent(0), " for ",
                  z.extent(1), " columns");
  auto const num_rows = static_cast<std::int64_t>(z.extent(0));
  auto const draws_mask = dropout.probability > 0;
  passes.add({name_of_forward(draws_mask), array_bytes(z, bias) + (draws_mask ? row_id_bytes(num_rows) : 0),
              array_bytes(z) + mask_bytes(z), 0, draws_mask ? static_cast<std::int64_t>(z.size()) : 0});
  pmm::host_rows::HostActivation<T> task{.num_columns = static_cast<std::int64_t>(z.extent(1)),
                                         .from = z.data(),
                                         .to = z.data(),
                                         .bias = bias.extent(0) == 0 ? nullptr : bias.data(),
                                         .has_relu = true,
                                         .passed = passed.data()};
  if (draws_mask) {
    if (runtime::bernoulli_threshold(dropout.probability) >
        0xFFFFFFFFu) { // every 32-bit word is below it: all elements are dropped
      Kokkos::deep_copy(exec, z, T{});
      return Kokkos::deep_copy(exec, passed, std::uint32_t{0});
    }
    set_dropout(task, dropout.probability, dropout.stream, keys.original_ids.data(), keys.first_column);
  }
  activate_rows(exec, draws_mask ? "orthant::models::relu_dropout" : "orthant::models::relu", num_rows, task);
}

template<class T>
void relu_backward_by_mask(DefaultExec const& exec, PassLedger& passes, Vector<std::uint32_t> const& passed,
                           double probability, Matrix<T> const& gradient,
                           Vector<SumOf<T>> const& column_sums) {
  require_mask(passed, gradient);
  auto const sums_columns = column_sums.extent(0) > 0;
  passes.add({name_of_backward(sums_columns), array_bytes(gradient) + mask_bytes(gradient),
              array_bytes(gradient, column_sums)});
  pmm::host_rows::HostActivationBackward<T> const task{
      .num_rows = static_cast<std::int64_t>(gradient.extent(0)),
      .num_columns = static_cast<std::int64_t>(gradient.extent(1)),
      .gradient = gradient.data(),
      .sums = sums_columns ? column_sums.data() : nullptr,
      .scale = static_cast<SumOf<T>>(1 / (1 - probability)),
      .passed = passed.data()};
  activate_columns_backward(exec,
                            sums_columns ? "orthant::models::relu_dropout_backward_sum"
                                         : "orthant::models::relu_dropout_backward",
                            task);
}

void plan_relu_with_mask(pmm::StepPlan& step, pmm::Placement const& z, bool has_bias, bool draws_mask,
                         runtime::Wire format) {
  auto const block = step.block(z);
  auto const bytes = step.wire_bytes(block.num_stored, format);
  step.add_pass({name_of_forward(draws_mask),
                 bytes + (has_bias ? step.scalar_bytes(block.columns.size()) : 0) +
                     (draws_mask ? row_id_bytes(block.stored_rows.size()) : 0),
                 bytes + mask_bytes(block), 0, draws_mask ? block.num_stored : 0});
}

void plan_relu_backward_by_mask(pmm::StepPlan& step, pmm::Placement const& z, bool sums_columns,
                                runtime::Wire format) {
  auto const block = step.block(z);
  auto const bytes = step.wire_bytes(block.num_stored, format);
  step.add_pass({name_of_backward(sums_columns), bytes + mask_bytes(block),
                 bytes + (sums_columns ? step.scalar_bytes(block.columns.size()) : 0)});
}

void plan_relu_mask(pmm::StepPlan& step, pmm::Placement const& z) {
  step.add_array("orthant::models::passed", mask_bytes(step.block(z)));
}

std::int64_t count_passed(DefaultExec const& exec, Vector<std::uint32_t> const& passed) {
  std::int64_t count = 0;
  Kokkos::parallel_reduce(
      "orthant::models::count_passed",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(passed.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t & sum) {
        for (auto word = passed(static_cast<std::size_t>(i)); word != 0; word &= word - 1)
          ++sum;
      },
      count);
  return count;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void relu_with_mask(DefaultExec const&, PassLedger&, Matrix<T> const&, Vector<SumOf<T>> const&,   \
                               Dropout const&, BlockKeys const&, Vector<std::uint32_t> const&);              \
  template void relu_backward_by_mask(DefaultExec const&, PassLedger&, Vector<std::uint32_t> const&, double, \
                                      Matrix<T> const&, Vector<SumOf<T>> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

void plan_activation(pmm::StepPlan& step, ActivationStep const& a) {
  if (a.has_bias && !a.parts.is_fused()) pmm::plan_add_bias(step, a.z, a.format);
  if (a.parts.keeps_mask) return plan_relu_with_mask(step, a.z, a.has_bias, a.draws_mask, a.format);
  if (a.parts.fuses_norm()) return plan_rms_norm(step, a.z, a.draws_mask, a.is_residual, a.format);
  if (a.parts.has_own_norm()) plan_norm(step, a.parts.norm, a.z, a.pass, a.format);
  if (a.parts.activation == Activation::relu) {
    plan_bias_relu_dropout(step, a.z, a.has_bias && a.parts.is_fused(), a.draws_mask, a.format);
  } else {
    pmm::plan_activate(step, a.parts.activation, step.block(a.z).num_stored, a.format);
    if (a.draws_mask) plan_apply_dropout(step, a.z, a.format);
  }
  if (!a.is_residual) return;
  auto const bytes = step.wire_bytes(step.block(a.z).num_stored, a.format);
  step.add_pass({"add", 2 * bytes, bytes});
}

namespace {

void plan_passes_back(pmm::StepPlan& step, ActivationStep const& a) {
  if (a.parts.keeps_mask) return plan_relu_backward_by_mask(step, a.z, a.has_bias, a.format);
  if (a.parts.fuses_norm()) {
    plan_rms_norm_backward(step, a.z, a.format);
    if (!a.has_partial_gradients) pmm::plan_reduce_sums(step, a.z);
    return;
  }
  if (a.copies_gradient) {
    auto const bytes = step.wire_bytes(step.block(a.z).num_padded, a.format);
    step.add_pass({"copy", bytes, bytes});
  }
  auto const is_relu = a.parts.activation == Activation::relu;
  auto const has_norm = a.parts.has_own_norm();
  // Otherwise the result itself shows which elements are positive.
  auto const needs_input = !is_relu || (has_norm && a.is_residual);
  if (needs_input && a.draws_mask) plan_apply_dropout(step, a.z, a.format);
  if (needs_input && has_norm) plan_restore_norm(step, a.parts.norm, a.z, a.format);
  if (is_relu)
    plan_relu_dropout_backward(step, a.z, a.has_bias && !has_norm, a.format);
  else
    pmm::plan_activate_backward(step, a.parts.activation, step.block(a.z).num_stored, a.format);
  if (has_norm) plan_norm_backward(step, a.parts.norm, a.z, a.has_partial_gradients, a.format);
}

} // namespace

void plan_activation_backward(pmm::StepPlan& step, ActivationStep const& a) {
  plan_passes_back(step, a);
  if (a.has_bias && !a.parts.is_fused()) pmm::plan_sum_columns(step, a.z, a.format);
  if (a.has_bias && !a.has_partial_gradients) pmm::plan_reduce_sums(step, a.z);
}

} // namespace orthant::models
