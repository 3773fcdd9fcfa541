// SPDX-License-Identifier: Apache-2.0
#include "models/layers/batch_norm.hpp"

#include "models/layers/block_loops.hpp"
#include "models/layers/hidden_norm.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <algorithm>

namespace orthant::models {
namespace {

using pmm::DistMatrix;
using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::SumOf;
using runtime::Vector;

constexpr std::int64_t most_sums = 2;

template<class T>
struct PlainTerms {
  using Sum = SumOf<T>;
  static constexpr std::int64_t count = 1;
  T const* z;
  std::int64_t num_columns;
  KOKKOS_FUNCTION void add(std::int64_t row, std::int64_t column, Sum* to, std::int64_t) const {
    *to += z[row * num_columns + column];
  }
};

template<class T>
struct SquaredDeviations {
  using Sum = SumOf<T>;
  static constexpr std::int64_t count = 1;
  T const* z;
  Sum const* mean;
  std::int64_t num_columns;
  KOKKOS_FUNCTION void add(std::int64_t row, std::int64_t column, Sum* to, std::int64_t) const {
    auto const d = Sum{z[row * num_columns + column]} - mean[column];
    *to += d * d;
  }
};

template<class T>
struct GradientTerms {
  using Sum = SumOf<T>;
  static constexpr std::int64_t count = 2;
  T const* z;
  Sum const* mean;
  Sum const* inverse_deviation;
  T const* gradient;
  std::int64_t num_columns;
  KOKKOS_FUNCTION void add(std::int64_t row, std::int64_t column, Sum* to, std::int64_t stride) const {
    auto const place = row * num_columns + column;
    to[0] += gradient[place];
    to[stride] += Sum{gradient[place]} * (Sum{z[place]} - mean[column]) * inverse_deviation[column];
  }
};

/// Bytes that the functions read and write for a given z.
struct BatchNormBytes {
  std::int64_t z, column_numbers;

  /// `number_bytes`: per element of z; `scalar_bytes`: per sum.
  BatchNormBytes(pmm::Block const& block, std::int64_t number_bytes, std::int64_t scalar_bytes)
      : z(block.size() * number_bytes),
        column_numbers(block.columns.size() * scalar_bytes) {}

  [[nodiscard]] LocalPass means() const { return {"batch_norm/means", z, column_numbers}; }
  [[nodiscard]] LocalPass deviations() const {
    return {"batch_norm/deviations", z + column_numbers, column_numbers};
  }
  [[nodiscard]] LocalPass apply() const { return {"batch_norm", z + 4 * column_numbers, z}; }
  [[nodiscard]] LocalPass sums() const {
    return {"batch_norm_backward/sums", 2 * z + 2 * column_numbers, 2 * column_numbers};
  }
  [[nodiscard]] LocalPass backward() const { return {"batch_norm_backward", 2 * z + 5 * column_numbers, z}; }
};

template<class T>
BatchNormBytes batch_norm_bytes(DistMatrix<T> const& z) {
  return {z.block(), sizeof(T), sizeof(SumOf<T>)};
}
BatchNormBytes batch_norm_bytes(pmm::StepPlan const& step, pmm::Placement const& z, runtime::Wire format) {
  return {step.block(z), step.wire_bytes(1, format), step.scalar_bytes(1)};
}

template<class T>
void require_fitting(DistMatrix<T> const& z, Vector<SumOf<T>> const& numbers, std::int64_t per_column) {
  ORTHANT_REQUIRE(z.layout().storage == pmm::Storage::replicated, z.placement().to_string());
  auto const num_columns = z.block().columns.size();
  ORTHANT_REQUIRE(static_cast<std::int64_t>(numbers.extent(0)) >= per_column * num_columns, numbers.extent(0),
                  " numbers for ", num_columns, " columns");
}

template<class T>
void reduce(DefaultExec const& exec, DistMatrix<T> const& z, Vector<SumOf<T>> const& sums) {
  auto const count = static_cast<std::size_t>(z.block().columns.size());
  if (count > 0)
    runtime::all_reduce(exec, z.grid().over(z.layout().rows), Vector<SumOf<T>>(sums.data(), count));
}

template<class Body>
void for_each_column(DefaultExec const& exec, char const* label, std::int64_t num_columns, Body const& body) {
  Kokkos::parallel_for(label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, num_columns), body);
}

} // namespace

std::int64_t num_batch_norm_sums(std::int64_t num_rows, std::int64_t num_columns) {
  return num_block_sums(num_rows) * most_sums * num_columns;
}

template<class T>
void find_batch_norm(DefaultExec const& exec, DistMatrix<T> const& z, BatchNormState<SumOf<T>> const& state,
                     BatchStatistics<SumOf<T>> const& statistics, Vector<SumOf<T>> const& sums,
                     pmm::Workspace<SumOf<T>> const& work) {
  using Sum = SumOf<T>;
  require_fitting(z, sums, 2);
  require_fitting(z, state.mean, 1);
  require_fitting(z, statistics.mean, 1);
  auto const num_rows = z.block().rows.size();
  auto const num_columns = z.block().columns.size();
  auto const partial = work.lend(pmm::Slot::sums, num_batch_norm_sums(num_rows, num_columns));
  auto const n = static_cast<Sum>(z.extents().rows);
  auto& passes = z.grid().passes();
  T const* const numbers = z.storage().data();
  Sum const* const sum = sums.data();
  Sum* const mean = state.mean.data();

  passes.add(batch_norm_bytes(z).means());
  sum_over_rows(exec, {"orthant::models::batch_norm/means/blocks", "orthant::models::batch_norm/means"},
                num_rows, num_columns, PlainTerms<T>{numbers, num_columns}, partial, sums);
  reduce(exec, z, sums);
  for_each_column(
      exec, "orthant::models::batch_norm/mean", num_columns,
      KOKKOS_LAMBDA(std::int64_t j) { mean[j] = sum[j] / n; });

  passes.add(batch_norm_bytes(z).deviations());
  sum_over_rows(exec,
                {"orthant::models::batch_norm/deviations/blocks", "orthant::models::batch_norm/deviations"},
                num_rows, num_columns, SquaredDeviations<T>{numbers, mean, num_columns}, partial, sums);
  reduce(exec, z, sums);
  Sum* const inverse = state.inverse_deviation.data();
  Sum* const mean_of_batch = statistics.mean.data();
  Sum* const variance_of_batch = statistics.variance.data();
  auto const share = statistics.share;
  auto const unbiased = std::max(n - 1, Sum{1}); // avoids 0 / 0 for a single row
  auto const epsilon = static_cast<Sum>(centered_norm_epsilon);
  for_each_column(
      exec, "orthant::models::batch_norm/deviation", num_columns, KOKKOS_LAMBDA(std::int64_t j) {
        inverse[j] = 1 / runtime::compat::sqrt(sum[j] / n + epsilon);
        mean_of_batch[j] = share * mean[j];
        variance_of_batch[j] = share * (sum[j] / unbiased);
      });
}

template<class T>
void use_running_statistics(DefaultExec const& exec, Vector<T> const& mean, Vector<T> const& variance,
                            BatchNormState<T> const& state) {
  T const* const m = mean.data();
  T const* const v = variance.data();
  T* const to = state.mean.data();
  T* const inverse = state.inverse_deviation.data();
  auto const epsilon = static_cast<T>(centered_norm_epsilon);
  for_each_column(
      exec, "orthant::models::batch_norm/running", static_cast<std::int64_t>(mean.extent(0)),
      KOKKOS_LAMBDA(std::int64_t j) {
        to[j] = m[j];
        inverse[j] = 1 / runtime::compat::sqrt(v[j] + epsilon);
      });
}

template<class T>
void apply_batch_norm(DefaultExec const& exec, DistMatrix<T> const& z, BatchNormState<SumOf<T>> const& state,
                      Vector<SumOf<T>> const& scale, Vector<SumOf<T>> const& shift, DistMatrix<T> const& y) {
  require_fitting(z, scale, 1);
  require_fitting(z, shift, 1);
  // Ranks without elements have no memory for y or z, so their pointers may be equal.
  auto const are_apart = z.storage().extent(0) == 0 || z.storage().data() != y.storage().data();
  ORTHANT_REQUIRE(z.placement() == y.placement() && are_apart);
  z.grid().passes().add(batch_norm_bytes(z).apply());
  auto const num_columns = z.block().columns.size();
  T const* const from = z.storage().data();
  SumOf<T> const* const m = state.mean.data();
  SumOf<T> const* const r = state.inverse_deviation.data();
  SumOf<T> const* const g = scale.data();
  SumOf<T> const* const b = shift.data();
  T* const to = y.storage().data();
  for_each_element(
      exec, "orthant::models::batch_norm", z.block().rows.size(), num_columns,
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        auto const k = i * num_columns + j;
        to[k] = T(g[j] * ((from[k] - m[j]) * r[j]) + b[j]);
      });
}

template<class T>
void sum_batch_norm_gradient(DefaultExec const& exec, DistMatrix<T> const& z,
                             BatchNormState<SumOf<T>> const& state, DistMatrix<T> const& gradient,
                             Vector<SumOf<T>> const& sums, pmm::Workspace<SumOf<T>> const& work) {
  require_fitting(z, sums, 2);
  z.grid().passes().add(batch_norm_bytes(z).sums());
  auto const num_rows = z.block().rows.size();
  auto const num_columns = z.block().columns.size();
  sum_over_rows(exec,
                {"orthant::models::batch_norm_backward/blocks", "orthant::models::batch_norm_backward/sums"},
                num_rows, num_columns,
                GradientTerms<T>{z.storage().data(), state.mean.data(), state.inverse_deviation.data(),
                                 gradient.storage().data(), num_columns},
                work.lend(pmm::Slot::sums, num_batch_norm_sums(num_rows, num_columns)), sums);
}

template<class T>
void apply_batch_norm_backward(DefaultExec const& exec, DistMatrix<T> const& z,
                               BatchNormState<SumOf<T>> const& state, Vector<SumOf<T>> const& scale,
                               Vector<SumOf<T>> const& sums, DistMatrix<T> const& gradient) {
  require_fitting(z, sums, 2);
  z.grid().passes().add(batch_norm_bytes(z).backward());
  auto const num_columns = z.block().columns.size();
  auto const inverse_n = 1 / static_cast<SumOf<T>>(z.extents().rows);
  T const* const from = z.storage().data();
  SumOf<T> const* const m = state.mean.data();
  SumOf<T> const* const r = state.inverse_deviation.data();
  SumOf<T> const* const g = scale.data();
  SumOf<T> const* const s = sums.data();
  SumOf<T> const* const t = s + num_columns;
  T* const d = gradient.storage().data();
  for_each_element(
      exec, "orthant::models::batch_norm_backward", z.block().rows.size(), num_columns,
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        auto const k = i * num_columns + j;
        auto const normalised = (from[k] - m[j]) * r[j];
        d[k] = T(g[j] * r[j] * (d[k] - inverse_n * (s[j] + normalised * t[j])));
      });
}

void plan_find_batch_norm(pmm::StepPlan& step, pmm::Placement const& z, runtime::Wire format) {
  auto const bytes = batch_norm_bytes(step, z, format);
  for (auto const& pass : {bytes.means(), bytes.deviations()}) {
    step.add_pass(pass);
    if (bytes.column_numbers > 0)
      step.add_call(runtime::Operation::all_reduce, z.layout.rows, bytes.column_numbers);
  }
}
void plan_apply_batch_norm(pmm::StepPlan& step, pmm::Placement const& z, runtime::Wire format) {
  step.add_pass(batch_norm_bytes(step, z, format).apply());
}
void plan_sum_batch_norm_gradient(pmm::StepPlan& step, pmm::Placement const& z, runtime::Wire format) {
  step.add_pass(batch_norm_bytes(step, z, format).sums());
}
void plan_apply_batch_norm_backward(pmm::StepPlan& step, pmm::Placement const& z, runtime::Wire format) {
  step.add_pass(batch_norm_bytes(step, z, format).backward());
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void find_batch_norm(DefaultExec const&, DistMatrix<T> const&, BatchNormState<SumOf<T>> const&,   \
                                BatchStatistics<SumOf<T>> const&, Vector<SumOf<T>> const&,                   \
                                pmm::Workspace<SumOf<T>> const&);                                            \
  template void apply_batch_norm(DefaultExec const&, DistMatrix<T> const&, BatchNormState<SumOf<T>> const&,  \
                                 Vector<SumOf<T>> const&, Vector<SumOf<T>> const&, DistMatrix<T> const&);    \
  template void sum_batch_norm_gradient(DefaultExec const&, DistMatrix<T> const&,                            \
                                        BatchNormState<SumOf<T>> const&, DistMatrix<T> const&,               \
                                        Vector<SumOf<T>> const&, pmm::Workspace<SumOf<T>> const&);           \
  template void apply_batch_norm_backward(DefaultExec const&, DistMatrix<T> const&,                          \
                                          BatchNormState<SumOf<T>> const&, Vector<SumOf<T>> const&,          \
                                          Vector<SumOf<T>> const&, DistMatrix<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE
template void use_running_statistics(DefaultExec const&, Vector<float> const&, Vector<float> const&,
                                     BatchNormState<float> const&);
template void use_running_statistics(DefaultExec const&, Vector<double> const&, Vector<double> const&,
                                     BatchNormState<double> const&);

} // namespace orthant::models
