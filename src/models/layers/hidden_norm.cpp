// SPDX-License-Identifier: Apache-2.0
#include "models/layers/hidden_norm.hpp"

#include "models/layers/block_loops.hpp"
#include "models/layers/rms_norm.hpp"
#include "pmm/rows/bias.hpp"
#include "pmm/rows/column_sums.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"

#include <array>
#include <utility>

namespace orthant::models {
namespace {

constexpr std::array<std::pair<Norm, std::string_view>, 4> norm_names{
    {{Norm::none, "none"}, {Norm::rms, "rms"}, {Norm::layer, "layer"}, {Norm::batch, "batch"}}};

} // namespace

Norm parse_norm(std::string_view word) {
  for (auto const& [norm, name] : norm_names)
    if (name == word) return norm;
  runtime::throw_user("--norm is layer, batch, rms or none, not '{}'", word);
}

std::string_view name_of(Norm norm) {
  for (auto const& [known, name] : norm_names)
    if (known == norm) return name;
  return {};
}

namespace {

using pmm::DistMatrix;
using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::part_of;
using runtime::Vector;

/// Row norm of a kind other than BatchNorm.
constexpr pmm::RowNorm row_norm_of(Norm kind) {
  return kind == Norm::rms ? pmm::RowNorm::rms : pmm::RowNorm::layer;
}

std::int64_t num_states(Norm kind, pmm::Block const& block) {
  return kind == Norm::batch ? block.columns.size() : block.rows.size();
}

LocalPass pass_of_restore(Norm kind, pmm::Block const& block, std::int64_t number_bytes,
                          std::int64_t scalar_bytes) {
  auto const z = block.size() * number_bytes;
  auto const num_of_each = is_centered(kind) ? 2 : 1;
  return {"restore_norm",
          z == 0 ? 0 : z + num_of_each * (block.rows.size() + block.columns.size()) * scalar_bytes, z};
}

pmm::RowBlock row_block(pmm::Block const& block) {
  return {block.rows.size(), block.columns.size()};
}

} // namespace

std::int64_t num_norm_sums(Norm kind, pmm::Block const& block) {
  return (is_centered(kind) ? 2 : 1) * num_states(kind, block);
}

void plan_norm_arrays(pmm::StepPlan& step, Norm kind, pmm::Placement const& z) {
  auto const bytes = step.scalar_bytes(num_states(kind, step.block(z)));
  if (is_centered(kind)) step.add_array("orthant::models::norm_mean", bytes);
  step.add_array("orthant::models::norm_inverse_deviation", bytes);
}

template<class T>
HiddenNorm<T>::HiddenNorm(DistMatrix<T> const& z, HiddenNormParts<Sum> parts,
                          std::shared_ptr<pmm::Workspace<Sum>> workspace, Vector<Sum> sums,
                          HiddenNormMemory<Sum>& memory)
    : z_(z),
      parts_(std::move(parts)),
      workspace_(std::move(workspace)),
      sums_(part_of(sums, 0, num_norm_sums(parts_.kind, z.block()))) {
  reserve_norm(*workspace_, parts_.kind, z.block());
  auto const count = num_states(parts_.kind, z.block());
  if (is_centered(parts_.kind)) mean_ = part_of(memory.mean.reserve(count), 0, count);
  inverse_deviation_ = part_of(memory.inverse_deviation.reserve(count), 0, count);
}

template<class T>
pmm::RowNormSettings HiddenNorm<T>::row_settings() const {
  return {row_norm_of(parts_.kind), z_.extents().columns,
          is_centered(parts_.kind) ? centered_norm_epsilon : rms_epsilon};
}

template<class T>
pmm::RowParts HiddenNorm<T>::row_parts() const {
  return z_.grid().size(z_.layout().columns) > 1 ? pmm::RowParts::summed : pmm::RowParts::whole;
}

template<class T>
void HiddenNorm<T>::reduce_row_sums(DefaultExec const& exec) const {
  if (sums_.extent(0) > 0) runtime::all_reduce(exec, z_.grid().over(z_.layout().columns), sums_);
}

template<class T>
void HiddenNorm<T>::forward(DefaultExec const& exec, Pass pass, DistMatrix<T> const& y) const {
  auto const& scale = parts_.scale.local();
  auto const& [shift, shift_gradient, mean, mean_of_batch, variance, variance_of_batch] = parts_.parameters;
  if (!is_batch_norm()) {
    auto& passes = z_.grid().passes();
    if (row_parts() == pmm::RowParts::summed) {
      pmm::sum_row_moments(exec, passes, row_norm_of(parts_.kind), z_.local(), sums_);
      reduce_row_sums(exec);
    }
    return pmm::apply_row_norm(exec, passes, row_settings(), row_parts(), z_.local(), sums_, scale,
                               shift.local(), {mean_, inverse_deviation_}, y.local());
  }
  if (pass == Pass::evaluation) {
    use_running_statistics(exec, mean.local(), variance.local(), batch_state());
  } else {
    // All ranks compute the same statistics. If gradients are summed over ranks elsewhere, only one rank contributes the statistics.
    auto const gives = !parts_.has_partial_gradients || z_.grid().coordinate(pmm::group_axes) == 0;
    find_batch_norm(exec, z_, batch_state(),
                    {mean_of_batch.local(), variance_of_batch.local(), gives ? Sum{1} : Sum{0}}, sums_,
                    *workspace_);
  }
  apply_batch_norm(exec, z_, batch_state(), scale, shift.local(), y);
}

template<class T>
void HiddenNorm<T>::restore(DefaultExec const& exec, DistMatrix<T> const& y) const {
  auto const& scale = parts_.scale.local();
  auto const& shift = parts_.parameters.shift.local();
  if (is_batch_norm()) return apply_batch_norm(exec, z_, batch_state(), scale, shift, y);
  z_.grid().passes().add(pass_of_restore(parts_.kind, z_.block(), sizeof(T), sizeof(Sum)));
  auto const num_columns = z_.block().columns.size();
  T const* const from = z_.storage().data();
  Sum const* const m = mean_.data();
  Sum const* const r = inverse_deviation_.data();
  Sum const* const g = scale.data();
  Sum const* const b = shift.data();
  T* const to = y.storage().data();
  auto const has_mean = is_centered(parts_.kind);
  for_each_element(
      exec, "orthant::models::restore_norm", z_.block().rows.size(), num_columns,
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        auto const k = i * num_columns + j;
        to[k] = T(has_mean ? g[j] * ((from[k] - m[i]) * r[i]) + b[j] : g[j] * (from[k] * r[i]));
      });
}

template<class T>
void HiddenNorm<T>::backward(DefaultExec const& exec, DistMatrix<T> const& gradient) const {
  ORTHANT_REQUIRE(z_.placement() == gradient.placement(), z_.placement().to_string(), " and ",
                  gradient.placement().to_string());
  if (is_batch_norm())
    backward_of_batch(exec, gradient);
  else
    backward_of_rows(exec, gradient);
}

template<class T>
void HiddenNorm<T>::backward_of_rows(DefaultExec const& exec, DistMatrix<T> const& gradient) const {
  auto& passes = z_.grid().passes();
  pmm::RowNormState<Sum> const state{mean_, inverse_deviation_};
  auto const& scale = parts_.scale.local();
  auto const& d_scale = parts_.scale_gradient;
  auto const& d_shift = parts_.parameters.shift_gradient;
  if (row_parts() == pmm::RowParts::summed) {
    pmm::sum_row_norm_gradient(exec, passes, row_norm_of(parts_.kind), z_.local(), scale, state,
                               gradient.local(), sums_);
    reduce_row_sums(exec);
  }
  pmm::row_norm_backward(exec, passes, row_settings(), row_parts(), pmm::Residual::none, z_.local(), scale,
                         state, gradient.local(), sums_, gradient.local(), d_scale.local(), d_shift.local(),
                         *workspace_);
  if (parts_.has_partial_gradients) return;
  pmm::reduce_sums(exec, gradient, d_scale);
  if (is_centered(parts_.kind)) pmm::reduce_sums(exec, gradient, d_shift);
}

template<class T>
void HiddenNorm<T>::backward_of_batch(DefaultExec const& exec, DistMatrix<T> const& gradient) const {
  sum_batch_norm_gradient(exec, z_, batch_state(), gradient, sums_, *workspace_);
  auto const num_columns = z_.block().columns.size();
  auto const give = [&] {
    Kokkos::deep_copy(exec, parts_.parameters.shift_gradient.local(), part_of(sums_, 0, num_columns));
    Kokkos::deep_copy(exec, parts_.scale_gradient.local(), part_of(sums_, num_columns, num_columns));
  };
  if (parts_.has_partial_gradients) give();
  if (num_columns > 0) runtime::all_reduce(exec, z_.grid().over(z_.layout().rows), sums_);
  if (!parts_.has_partial_gradients) give();
  apply_batch_norm_backward(exec, z_, batch_state(), parts_.scale.local(), sums_, gradient);
}

namespace {

pmm::RowParts row_parts_of(pmm::StepPlan const& step, pmm::Placement const& z) {
  return step.shape().size(z.layout.columns) > 1 ? pmm::RowParts::summed : pmm::RowParts::whole;
}

void plan_reduce_row_sums(pmm::StepPlan& step, Norm kind, pmm::Placement const& z) {
  if (auto const count = num_norm_sums(kind, step.block(z)); count > 0)
    step.add_call(runtime::Operation::all_reduce, z.layout.columns, step.scalar_bytes(count));
}

} // namespace

void plan_norm(pmm::StepPlan& step, Norm kind, pmm::Placement const& z, Pass pass, runtime::Wire format) {
  if (kind == Norm::batch) {
    if (pass == Pass::training) plan_find_batch_norm(step, z, format);
    return plan_apply_batch_norm(step, z, format);
  }
  auto const block = row_block(step.block(z));
  auto const parts = row_parts_of(step, z);
  if (parts == pmm::RowParts::summed) {
    pmm::plan_sum_row_moments(step, row_norm_of(kind), block, format);
    plan_reduce_row_sums(step, kind, z);
  }
  pmm::plan_apply_row_norm(step, row_norm_of(kind), parts, is_centered(kind), block, format);
}

void plan_restore_norm(pmm::StepPlan& step, Norm kind, pmm::Placement const& z, runtime::Wire format) {
  if (kind == Norm::batch) return plan_apply_batch_norm(step, z, format);
  step.add_pass(pass_of_restore(kind, step.block(z), step.wire_bytes(1, format), step.scalar_bytes(1)));
}

void plan_norm_backward(pmm::StepPlan& step, Norm kind, pmm::Placement const& z, bool has_partial_gradients,
                        runtime::Wire format) {
  if (kind == Norm::batch) {
    plan_sum_batch_norm_gradient(step, z, format);
    if (auto const count = num_norm_sums(kind, step.block(z)); count > 0)
      step.add_call(runtime::Operation::all_reduce, z.layout.rows, step.scalar_bytes(count));
    return plan_apply_batch_norm_backward(step, z, format);
  }
  auto const block = row_block(step.block(z));
  auto const parts = row_parts_of(step, z);
  if (parts == pmm::RowParts::summed) {
    pmm::plan_sum_row_norm_gradient(step, row_norm_of(kind), block, format);
    plan_reduce_row_sums(step, kind, z);
  }
  pmm::plan_row_norm_backward(step, row_norm_of(kind), parts, pmm::Residual::none, is_centered(kind), block,
                              format);
  if (has_partial_gradients) return;
  for (int sums = 0; sums < (is_centered(kind) ? 2 : 1); ++sums)
    pmm::plan_reduce_sums(step, z);
}

template class HiddenNorm<float>;
template class HiddenNorm<double>;
template class HiddenNorm<runtime::Bf16Number>;
template class HiddenNorm<runtime::Fp16Number>;

} // namespace orthant::models
