// SPDX-License-Identifier: Apache-2.0
#include "models/layers/rms_norm.hpp"

#include "models/layers/rms_norm_kernels.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/long_sums.hpp"
#include "pmm/kernels/row_kernels_host.hpp"
#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {
namespace {

using detail::Masks;
using pmm::PackedArray;
using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::SumOf;
using runtime::Vector;

Masks masks_of(Dropout const& dropout, BlockKeys const& keys) {
  return {dropout.stream, runtime::bernoulli_threshold(dropout.probability), keys.original_ids,
          static_cast<std::uint64_t>(keys.first_column)};
}

template<class T>
std::size_t words_per_row(pmm::DistMatrix<T> const& z) {
  return static_cast<std::size_t>(RmsNormState<SumOf<T>>::words_of(z.block().columns.size()));
}

template<class T>
void require_alike(pmm::DistMatrix<T> const& z, pmm::DistMatrix<T> const& other,
                   pmm::DistVector<SumOf<T>> const& scale, RmsNormState<SumOf<T>> const& state) {
  ORTHANT_REQUIRE(z.placement() == other.placement() && z.layout().storage == pmm::Storage::replicated,
                  z.placement().to_string(), " and ", other.placement().to_string());
  ORTHANT_REQUIRE(scale.axes() == z.layout().columns && scale.length() == z.extents().columns, "a scale of ",
                  scale.length(), " along ", pmm::name_of(scale.axes()), " for ", z.placement().to_string());
  auto const num_rows = static_cast<std::size_t>(z.block().rows.size());
  ORTHANT_REQUIRE(state.inverse_rms.extent(0) >= num_rows &&
                  state.passed.extent(0) >= num_rows * words_per_row(z));
}

template<class T>
SumOf<T> dropout_scale(double probability) {
  return static_cast<SumOf<T>>(1 / (1 - probability));
}

template<class T>
SumOf<T> inverse_width(pmm::DistMatrix<T> const& z) {
  return SumOf<T>{1} / static_cast<SumOf<T>>(z.extents().columns);
}

/// sums(i) for the rows of the block, summed over the column axis.
template<class T>
void reduce_rows(DefaultExec const& exec, pmm::DistMatrix<T> const& z, Vector<SumOf<T>> const& sums) {
  auto const num_rows = static_cast<std::size_t>(z.block().rows.size());
  if (num_rows > 0)
    runtime::all_reduce(exec, z.grid().over(z.layout().columns),
                        Kokkos::subview(sums, std::pair(std::size_t{0}, num_rows)));
}

template<class T>
PackedArray<T const> packed(Vector<T> const& numbers) {
  return PackedArray<T const>(numbers.data());
}

void plan_reduce_rows(pmm::StepPlan& step, pmm::Placement const& z) {
  auto const num_rows = step.block(z).rows.size();
  if (num_rows > 0)
    step.add_call(runtime::Operation::all_reduce, z.layout.columns,
                  step.wire_bytes(num_rows, runtime::Wire::native));
}

template<class T>
void normalise_on_device(DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                         pmm::DistVector<SumOf<T>> const& scale, Dropout const& dropout,
                         BlockKeys const& keys, RmsNormState<SumOf<T>> const& state,
                         pmm::DistMatrix<T> const* addend, pmm::DistMatrix<T> const& result) {
  auto const num_rows = z.block().rows.size();
  auto const num_columns = z.block().columns.size();
  auto const has_squares = z.grid().size(z.layout().columns) > 1;
  if (has_squares) {
    pmm::for_each_row(exec, "orthant::models::rms_norm_relu_dropout/squares", num_rows,
                      num_columns / pmm::pack_size,
                      detail::SquareRow<T>{packed(z.storage()), num_columns, state.inverse_rms.data()});
  }
  reduce_rows(exec, z, state.inverse_rms);
  pmm::for_each_row(
      exec, "orthant::models::rms_norm_relu_dropout", num_rows, num_columns / detail::columns_a_lane,
      detail::NormaliseRow<T>{
          packed(z.storage()), packed(scale.local()), num_columns, masks_of(dropout, keys),
          dropout_scale<T>(dropout.probability), inverse_width(z), has_squares, state.inverse_rms.data(),
          reinterpret_cast<std::uint8_t*>(state.passed.data()), static_cast<std::int64_t>(words_per_row(z)),
          PackedArray<T const>(addend == nullptr ? nullptr : addend->storage().data()),
          PackedArray<T>(result.storage().data())});
}

template<class T>
void backward_on_device(DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                        pmm::DistVector<SumOf<T>> const& scale, double probability,
                        RmsNormState<SumOf<T>> const& state, Vector<SumOf<T>> const& row_sums,
                        pmm::DistMatrix<T> const& gradient, pmm::DistMatrix<T> const& z_gradient,
                        pmm::DistVector<SumOf<T>> const& scale_gradient,
                        pmm::Workspace<SumOf<T>> const& work) {
  auto const num_rows = z.block().rows.size();
  auto const num_columns = z.block().columns.size();
  detail::GradientSource<T> const source{packed(z.storage()),
                                         packed(scale.local()),
                                         pmm::Divisor(num_columns),
                                         dropout_scale<T>(probability),
                                         state.inverse_rms.data(),
                                         state.passed.data(),
                                         static_cast<std::int64_t>(words_per_row(z))};
  pmm::for_each_row(exec, "orthant::models::rms_norm_relu_dropout_backward/row_sums", num_rows,
                    num_columns / pmm::pack_size,
                    detail::GradientRowSum<T>{source, packed(gradient.storage()), row_sums.data()});
  reduce_rows(exec, z, row_sums);
  pmm::ColumnSlabs const slabs(num_rows, num_columns);
  pmm::sum_columns_in_slabs(exec, "orthant::models::rms_norm_relu_dropout_backward", slabs,
                            detail::GradientPack<T>{source, packed(gradient.storage()),
                                                    PackedArray<T>(z_gradient.storage().data()),
                                                    row_sums.data(), inverse_width(z)},
                            work.lend(pmm::Slot::sums, slabs.num_partial_sums()), scale_gradient.local());
}

/// Bytes that both functions read and write for a given z.
struct RmsNormBytes {
  std::int64_t z, scale, row_numbers, passed, ids, num_numbers;
  bool sums_over_ranks;

  /// `number_bytes`: per element of z; `scalar_bytes`: per sum.
  RmsNormBytes(pmm::Block const& block, std::int64_t number_bytes, std::int64_t scalar_bytes, int num_ranks)
      : z(block.size() * number_bytes),
        scale(block.columns.size() * scalar_bytes),
        row_numbers(block.rows.size() * scalar_bytes),
        passed(block.rows.size() * RmsNormState<float>::words_of(block.columns.size()) *
               std::int64_t{sizeof(std::uint32_t)}),
        ids(block.rows.size() * std::int64_t{sizeof(std::int64_t)}),
        num_numbers(block.size()),
        sums_over_ranks(num_ranks > 1) {}

  [[nodiscard]] LocalPass squares() const { return {"rms_norm_relu_dropout/squares", z, row_numbers}; }
  [[nodiscard]] LocalPass forward(bool draws_mask, bool has_addend) const {
    return {"rms_norm_relu_dropout",
            z + scale + (sums_over_ranks ? row_numbers : 0) + (draws_mask ? ids : 0) + (has_addend ? z : 0),
            row_numbers + passed + z, 0, draws_mask ? num_numbers : 0};
  }
  /// z, its gradient, and the state of the forward pass.
  [[nodiscard]] std::int64_t read_backward() const { return 2 * z + scale + row_numbers + passed; }
  [[nodiscard]] LocalPass row_sums() const {
    return {"rms_norm_relu_dropout_backward/row_sums", read_backward(), row_numbers};
  }
  [[nodiscard]] LocalPass backward() const {
    return {"rms_norm_relu_dropout_backward", read_backward() + (sums_over_ranks ? row_numbers : 0),
            z + scale};
  }
};

template<class T>
RmsNormBytes norm_bytes(pmm::DistMatrix<T> const& z) {
  return {z.block(), sizeof(T), sizeof(SumOf<T>), z.grid().size(z.layout().columns)};
}
RmsNormBytes norm_bytes(pmm::StepPlan const& step, pmm::Placement const& z, runtime::Wire format) {
  return {step.block(z), step.wire_bytes(1, format), step.scalar_bytes(1),
          step.shape().size(z.layout.columns)};
}

template<class T>
void normalise_on_host(DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                       pmm::DistVector<SumOf<T>> const& scale, Dropout const& dropout, BlockKeys const& keys,
                       RmsNormState<SumOf<T>> const& state, pmm::DistMatrix<T> const* addend,
                       pmm::DistMatrix<T> const& result) {
  auto const& kernels = pmm::host_rows::best_row_kernels<T>();
  auto const threshold = runtime::bernoulli_threshold(dropout.probability); // at most 2^32
  auto const num_rows = z.block().rows.size();
  pmm::host_rows::HostNorm<T> const task{.num_columns = z.block().columns.size(),
                                         .z = z.storage().data(),
                                         .factors = scale.local().data(),
                                         .inverse_width = inverse_width(z),
                                         .epsilon = static_cast<SumOf<T>>(rms_epsilon),
                                         .keep_scale = dropout_scale<T>(dropout.probability),
                                         .has_squares = z.grid().size(z.layout().columns) > 1,
                                         .inverse_rms = state.inverse_rms.data(),
                                         .passed = state.passed.data(),
                                         .row_keys = threshold == 0 ? nullptr : keys.original_ids.data(),
                                         .first_column = static_cast<std::uint64_t>(keys.first_column),
                                         .key = dropout.stream.key(),
                                         .last_dropped =
                                             static_cast<std::uint32_t>(threshold == 0 ? 0 : threshold - 1),
                                         .addend = addend == nullptr ? nullptr : addend->storage().data(),
                                         .result = result.storage().data()};
  if (task.has_squares) {
    pmm::for_each_part(exec, "orthant::models::rms_norm_relu_dropout/squares", num_rows,
                       [=](std::int64_t begin, std::int64_t end) { kernels.square_rows(task, begin, end); });
  }
  reduce_rows(exec, z, state.inverse_rms);
  pmm::for_each_part(exec, "orthant::models::rms_norm_relu_dropout", num_rows,
                     [=](std::int64_t begin, std::int64_t end) { kernels.normalise(task, begin, end); });
}

template<class T>
void backward_on_host(DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                      pmm::DistVector<SumOf<T>> const& scale, double probability,
                      RmsNormState<SumOf<T>> const& state, Vector<SumOf<T>> const& row_sums,
                      pmm::DistMatrix<T> const& gradient, pmm::DistMatrix<T> const& z_gradient,
                      pmm::DistVector<SumOf<T>> const& scale_gradient) {
  constexpr std::int64_t columns_apart = 32; // a word of bits; threads do not write to the same cache line
  auto const& kernels = pmm::host_rows::best_row_kernels<T>();
  auto const num_columns = z.block().columns.size();
  pmm::host_rows::HostNormBackward<T> task{.num_rows = z.block().rows.size(),
                                           .num_columns = num_columns,
                                           .z = z.storage().data(),
                                           .factors = scale.local().data(),
                                           .inverse_width = inverse_width(z),
                                           .keep_scale = dropout_scale<T>(probability),
                                           .inverse_rms = state.inverse_rms.data(),
                                           .passed = state.passed.data(),
                                           .gradient = gradient.storage().data(),
                                           .row_sums = row_sums.data(),
                                           .z_gradient = z_gradient.storage().data(),
                                           .factor_gradient = scale_gradient.local().data()};
  // A single thread that has whole rows sums each row while it is in cache.
  task.sums_rows = exec.concurrency() == 1 && z.grid().size(z.layout().columns) == 1 &&
                   num_columns <= pmm::columns_of_long_sums;
  if (!task.sums_rows) {
    pmm::for_each_part(
        exec, "orthant::models::rms_norm_relu_dropout_backward/row_sums", task.num_rows,
        [=](std::int64_t begin, std::int64_t end) { kernels.sum_norm_gradient(task, begin, end); });
  }
  reduce_rows(exec, z, row_sums);
  pmm::for_each_part(
      exec, "orthant::models::rms_norm_relu_dropout_backward",
      (num_columns + columns_apart - 1) / columns_apart, [=](std::int64_t begin, std::int64_t end) {
        kernels.normalise_backward(task, begin * columns_apart, std::min(num_columns, end * columns_apart));
      });
}

} // namespace

template<class T>
void rms_norm_relu_dropout(DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                           pmm::DistVector<SumOf<T>> const& scale, Dropout const& dropout,
                           BlockKeys const& keys, RmsNormState<SumOf<T>> const& state,
                           pmm::DistMatrix<T> const* addend, pmm::DistMatrix<T> const& result) {
  require_alike(z, result, scale, state);
  if (addend != nullptr) require_alike(z, *addend, scale, state);
  auto& passes = z.grid().passes();
  auto const bytes = norm_bytes(z);
  if (bytes.sums_over_ranks) passes.add(bytes.squares());
  passes.add(bytes.forward(dropout.probability > 0, addend != nullptr));
  if constexpr (pmm::runs_on_host)
    normalise_on_host(exec, z, scale, dropout, keys, state, addend, result);
  else
    normalise_on_device(exec, z, scale, dropout, keys, state, addend, result);
}

template<class T>
void rms_norm_relu_dropout_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                                    pmm::DistVector<SumOf<T>> const& scale, double probability,
                                    RmsNormState<SumOf<T>> const& state, Vector<SumOf<T>> const& row_sums,
                                    pmm::DistMatrix<T> const& gradient, pmm::DistMatrix<T> const& z_gradient,
                                    pmm::DistVector<SumOf<T>> const& scale_gradient,
                                    pmm::Workspace<SumOf<T>> const& work) {
  require_alike(z, gradient, scale, state);
  require_alike(z, z_gradient, scale, state);
  require_alike(z, gradient, scale_gradient, state);
  auto& passes = z.grid().passes();
  auto const bytes = norm_bytes(z);
  if (bytes.sums_over_ranks) passes.add(bytes.row_sums());
  passes.add(bytes.backward());
  if constexpr (pmm::runs_on_host)
    backward_on_host(exec, z, scale, probability, state, row_sums, gradient, z_gradient, scale_gradient);
  else
    backward_on_device(exec, z, scale, probability, state, row_sums, gradient, z_gradient, scale_gradient,
                       work);
}

void plan_rms_norm(pmm::StepPlan& step, pmm::Placement const& z, bool draws_mask, bool has_addend,
                   runtime::Wire format) {
  auto const bytes = norm_bytes(step, z, format);
  if (bytes.sums_over_ranks) step.add_pass(bytes.squares());
  plan_reduce_rows(step, z);
  step.add_pass(bytes.forward(draws_mask, has_addend));
}

void plan_rms_norm_backward(pmm::StepPlan& step, pmm::Placement const& z, runtime::Wire format) {
  auto const bytes = norm_bytes(step, z, format);
  if (bytes.sums_over_ranks) step.add_pass(bytes.row_sums());
  plan_reduce_rows(step, z);
  step.add_pass(bytes.backward());
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void rms_norm_relu_dropout(DefaultExec const&, pmm::DistMatrix<T> const&,                         \
                                      pmm::DistVector<SumOf<T>> const&, Dropout const&, BlockKeys const&,    \
                                      RmsNormState<SumOf<T>> const&, pmm::DistMatrix<T> const*,              \
                                      pmm::DistMatrix<T> const&);                                            \
  template void rms_norm_relu_dropout_backward(                                                              \
      DefaultExec const&, pmm::DistMatrix<T> const&, pmm::DistVector<SumOf<T>> const&, double,               \
      RmsNormState<SumOf<T>> const&, Vector<SumOf<T>> const&, pmm::DistMatrix<T> const&,                     \
      pmm::DistMatrix<T> const&, pmm::DistVector<SumOf<T>> const&, pmm::Workspace<SumOf<T>> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
