// SPDX-License-Identifier: Apache-2.0
#include "pmm/token_rows/row_norm.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/rows/column_sums.hpp"
#include "pmm/token_rows/row_norm_kernels.hpp"
#include "pmm/token_rows/token_kernels_host.hpp"
#include "runtime/error.hpp"

namespace orthant::pmm {

using runtime::DefaultExec;
using runtime::LocalPass;
using runtime::Matrix;
using runtime::PassLedger;
using runtime::SumOf;
using runtime::Vector;

namespace {

/// Sizes of the arrays of a call in bytes, and the passes that follow from them.
struct NormBytes {
  std::int64_t x, columns, sums, state, rows;

  /// `number_bytes`: per element of a matrix; `scalar_bytes`: per sum.
  NormBytes(RowNorm kind, RowBlock const& block, std::int64_t number_bytes, std::int64_t scalar_bytes)
      : x(block.rows * block.columns * number_bytes),
        columns(block.columns * scalar_bytes),
        sums(block.rows * sums_per_row(kind) * scalar_bytes),
        state(sums), // LayerNorm: mean and r; RMSNorm: r
        rows(block.rows) {}

  [[nodiscard]] LocalPass moments() const { return summing({"sum_row_moments", x, sums}); }
  [[nodiscard]] LocalPass apply(RowParts parts, bool has_shift) const {
    auto const reads = x + columns * (has_shift ? 2 : 1);
    if (parts == RowParts::kept) return {"apply_row_norm", reads + state, x};
    LocalPass const pass{"apply_row_norm", reads + (parts == RowParts::summed ? sums : 0), x + state};
    return parts == RowParts::whole ? summing(pass) : pass;
  }
  [[nodiscard]] LocalPass gradient_sums() const {
    return summing({"sum_row_norm_gradient", 2 * x + columns + state, sums});
  }
  [[nodiscard]] LocalPass backward(RowParts parts, Residual residual, bool has_shift) const {
    LocalPass const pass{"row_norm_backward",
                         (residual == Residual::added ? 3 : 2) * x + columns + state +
                             (parts == RowParts::summed ? sums : 0),
                         x + columns * (has_shift ? 2 : 1)};
    return parts == RowParts::whole ? summing(pass) : pass;
  }

 private:
  [[nodiscard]] LocalPass summing(LocalPass pass) const {
    pass.row_sums = rows;
    return pass;
  }
};

template<class T>
void require_norm_sizes(Matrix<T> const& x, Matrix<T> const& y) {
  ORTHANT_REQUIRE(x.extent(0) == y.extent(0) && x.extent(1) == y.extent(1), "norm of rows: arrays of ",
                  x.extent(0), " x ", x.extent(1), " and ", y.extent(0), " x ", y.extent(1),
                  " should be equal in size");
}

template<class T>
void require_length(char const* name, Vector<T> const& vector, std::size_t length) {
  ORTHANT_REQUIRE(vector.extent(0) >= length, "norm of rows: ", name, " has ", vector.extent(0),
                  " numbers, but needs ", length);
}

template<class T>
void require_state(RowNorm kind, Matrix<T> const& x, Vector<SumOf<T>> const& scale,
                   RowNormState<SumOf<T>> const& state) {
  require_length("scale", scale, x.extent(1));
  require_length("the inverse deviation", state.inverse_deviation, x.extent(0));
  if (kind == RowNorm::layer) require_length("the mean", state.mean, x.extent(0));
}

template<class T>
detail::NormRows<T> rows_of(RowNormSettings const& settings, Matrix<T> const& x,
                            Vector<SumOf<T>> const& scale, Vector<SumOf<T>> const& shift,
                            RowNormState<SumOf<T>> const& state) {
  return {x.data(),
          static_cast<std::int64_t>(x.extent(1)),
          1 / static_cast<double>(settings.width),
          settings.epsilon,
          settings.kind == RowNorm::layer,
          scale.data(),
          shift.extent(0) == 0 ? nullptr : shift.data(),
          state.mean.data(),
          state.inverse_deviation.data()};
}

template<class T, class Body>
void for_rows_of(DefaultExec const& exec, char const* label, Matrix<T> const& x, Body const& body) {
  for_each_row(exec, label, static_cast<std::int64_t>(x.extent(0)), static_cast<std::int64_t>(x.extent(1)),
               body);
}

template<class T>
std::size_t sums_of(RowNorm kind, Matrix<T> const& x) {
  return x.extent(0) * static_cast<std::size_t>(sums_per_row(kind));
}

/// Arguments of the host kernels that both directions share.
template<class T>
host_tokens::HostRowNorm<T> host_task(RowNormSettings const& settings, Matrix<T> const& x,
                                      Vector<SumOf<T>> const& scale, RowNormState<SumOf<T>> const& state,
                                      Vector<SumOf<T>> const& sums) {
  host_tokens::HostRowNorm<T> task;
  task.num_rows = static_cast<std::int64_t>(x.extent(0));
  task.num_columns = static_cast<std::int64_t>(x.extent(1));
  task.inverse_width = 1 / static_cast<double>(settings.width);
  task.epsilon = settings.epsilon;
  task.has_mean = settings.kind == RowNorm::layer;
  task.x = x.data();
  task.scale = scale.data();
  task.mean = state.mean.data();
  task.inverse_deviation = state.inverse_deviation.data();
  task.sums = sums.data();
  return task;
}

/// Calls kernel(task, begin, end) for parts of [0, count).
template<class T>
void run_parts(DefaultExec const& exec, char const* label, std::int64_t count,
               void (*kernel)(host_tokens::HostRowNorm<T> const&, std::int64_t, std::int64_t),
               host_tokens::HostRowNorm<T> const& task) {
  for_each_part(exec, label, count, [=](std::int64_t begin, std::int64_t end) { kernel(task, begin, end); });
}

constexpr auto sum_gradient_label = "orthant::pmm::sum_row_norm_gradient";
constexpr auto backward_label = "orthant::pmm::row_norm_backward";

template<class T>
void backward_on_host(DefaultExec const& exec, host_tokens::HostRowNorm<T> task, RowParts parts) {
  constexpr std::int64_t columns_apart = 32; // no two threads write in one cache line
  auto const& kernels = host_tokens::best_token_kernels<T>();
  // A single thread forms the sums of a row in the same kernel, while the row is in its cache.
  task.is_whole =
      parts == RowParts::whole && exec.concurrency() == 1 && task.num_columns <= host_tokens::columns_of_norm;
  if (parts == RowParts::whole && !task.is_whole)
    run_parts(exec, sum_gradient_label, task.num_rows, kernels.sum_norm_gradient, task);
  for_each_part(exec, backward_label, (task.num_columns + columns_apart - 1) / columns_apart,
                [=, kernel = kernels.norm_backward](std::int64_t begin, std::int64_t end) {
                  auto const last = end * columns_apart;
                  kernel(task, begin * columns_apart, last < task.num_columns ? last : task.num_columns);
                });
}

template<class T>
void backward_on_device(DefaultExec const& exec, detail::NormRows<T> const& rows, RowParts parts,
                        Residual residual, Matrix<T> const& x, Matrix<T> const& dy,
                        Vector<SumOf<T>> const& sums, Matrix<T> const& dx, Vector<SumOf<T>> const& d_scale,
                        Vector<SumOf<T>> const& d_shift, Workspace<SumOf<T>> const& work) {
  if (parts == RowParts::whole)
    for_rows_of(exec, sum_gradient_label, dy, detail::SumNormGradient<T>{rows, dy.data(), sums.data()});
  ColumnSlabs const slabs(static_cast<std::int64_t>(x.extent(0)), static_cast<std::int64_t>(x.extent(1)));
  auto const partial = work.lend(Slot::sums, slabs.num_partial_sums());
  if (d_shift.extent(0) != 0)
    sum_columns_in_slabs(exec, backward_label, slabs, LoadedPack<T>(dy), partial, d_shift);
  detail::NormGradientPack<T> const pack{rows,
                                         Divisor(slabs.num_columns),
                                         PackedArray<T const>(x.data()),
                                         PackedArray<T const>(dy.data()),
                                         sums.data(),
                                         residual == Residual::added,
                                         PackedArray<T>(dx.data())};
  sum_columns_in_slabs(exec, backward_label, slabs, pack, partial, d_scale);
}

} // namespace

template<class T>
void sum_row_moments(DefaultExec const& exec, PassLedger& passes, RowNorm kind, Matrix<T> const& x,
                     Vector<SumOf<T>> const& sums) {
  require_length("the array of sums", sums, sums_of(kind, x));
  passes.add(NormBytes(kind, row_block_of(x), sizeof(T), sizeof(SumOf<T>)).moments());
  constexpr auto label = "orthant::pmm::sum_row_moments";
  RowNormSettings const settings{kind, 1, 0};
  if constexpr (runs_on_host)
    run_parts(exec, label, static_cast<std::int64_t>(x.extent(0)),
              host_tokens::best_token_kernels<T>().sum_moments, host_task<T>(settings, x, {}, {}, sums));
  else
    for_rows_of(exec, label, x, detail::SumMoments<T>{rows_of<T>(settings, x, {}, {}, {}), sums.data()});
}

template<class T>
void apply_row_norm(DefaultExec const& exec, PassLedger& passes, RowNormSettings const& settings,
                    RowParts parts, Matrix<T> const& x, Vector<SumOf<T>> const& sums,
                    Vector<SumOf<T>> const& scale, Vector<SumOf<T>> const& shift,
                    RowNormState<SumOf<T>> const& state, Matrix<T> const& y) {
  require_norm_sizes(x, y);
  require_state(settings.kind, x, scale, state);
  auto const has_shift = shift.extent(0) != 0;
  if (has_shift) require_length("shift", shift, x.extent(1));
  if (parts == RowParts::summed) require_length("the array of sums", sums, sums_of(settings.kind, x));
  passes.add(NormBytes(settings.kind, row_block_of(x), sizeof(T), sizeof(SumOf<T>)).apply(parts, has_shift));
  constexpr auto label = "orthant::pmm::apply_row_norm";
  if constexpr (runs_on_host) {
    auto task = host_task(settings, x, scale, state, sums);
    task.is_whole = parts == RowParts::whole;
    task.has_state = parts == RowParts::kept;
    task.shift = has_shift ? shift.data() : nullptr;
    task.y = y.data();
    run_parts(exec, label, task.num_rows, host_tokens::best_token_kernels<T>().apply_norm, task);
  } else {
    for_rows_of(exec, label, x,
                detail::ApplyNorm<T>{rows_of(settings, x, scale, shift, state), parts,
                                     parts == RowParts::summed ? sums.data() : nullptr, y.data()});
  }
}

template<class T>
void sum_row_norm_gradient(DefaultExec const& exec, PassLedger& passes, RowNorm kind, Matrix<T> const& x,
                           Vector<SumOf<T>> const& scale, RowNormState<SumOf<T>> const& state,
                           Matrix<T> const& dy, Vector<SumOf<T>> const& sums) {
  require_norm_sizes(x, dy);
  require_state(kind, x, scale, state);
  require_length("the array of sums", sums, sums_of(kind, x));
  passes.add(NormBytes(kind, row_block_of(x), sizeof(T), sizeof(SumOf<T>)).gradient_sums());
  RowNormSettings const settings{kind, 1, 0};
  if constexpr (runs_on_host) {
    auto task = host_task(settings, x, scale, state, sums);
    task.dy = dy.data();
    run_parts(exec, sum_gradient_label, task.num_rows, host_tokens::best_token_kernels<T>().sum_norm_gradient,
              task);
  } else {
    for_rows_of(
        exec, sum_gradient_label, x,
        detail::SumNormGradient<T>{rows_of<T>(settings, x, scale, {}, state), dy.data(), sums.data()});
  }
}

template<class T>
void row_norm_backward(DefaultExec const& exec, PassLedger& passes, RowNormSettings const& settings,
                       RowParts parts, Residual residual, Matrix<T> const& x, Vector<SumOf<T>> const& scale,
                       RowNormState<SumOf<T>> const& state, Matrix<T> const& dy, Vector<SumOf<T>> const& sums,
                       Matrix<T> const& dx, Vector<SumOf<T>> const& d_scale, Vector<SumOf<T>> const& d_shift,
                       Workspace<SumOf<T>> const& work) {
  require_norm_sizes(x, dy);
  require_norm_sizes(x, dx);
  require_state(settings.kind, x, scale, state);
  require_length("the array of sums", sums, sums_of(settings.kind, x));
  require_length("the gradient of the scale", d_scale, x.extent(1));
  auto const has_shift = d_shift.extent(0) != 0;
  if (has_shift) require_length("the gradient of the shift", d_shift, x.extent(1));
  auto const block = row_block_of(x);
  passes.add(
      NormBytes(settings.kind, block, sizeof(T), sizeof(SumOf<T>)).backward(parts, residual, has_shift));
  if constexpr (runs_on_host) {
    auto task = host_task(settings, x, scale, state, sums);
    task.dy = dy.data();
    task.adds = residual == Residual::added;
    task.dx = dx.data();
    task.d_scale = d_scale.data();
    task.d_shift = has_shift ? d_shift.data() : nullptr;
    backward_on_host(exec, task, parts);
  } else {
    backward_on_device(exec, rows_of<T>(settings, x, scale, {}, state), parts, residual, x, dy, sums, dx,
                       d_scale, d_shift, work);
  }
}

namespace {

NormBytes row_norm_bytes_of(StepPlan const& step, RowNorm kind, RowBlock const& x, Wire format) {
  return {kind, x, step.wire_bytes(1, format), step.scalar_bytes(1)};
}

} // namespace

void plan_sum_row_moments(StepPlan& step, RowNorm kind, RowBlock const& x, Wire format) {
  step.add_pass(row_norm_bytes_of(step, kind, x, format).moments());
}
void plan_apply_row_norm(StepPlan& step, RowNorm kind, RowParts parts, bool has_shift, RowBlock const& x,
                         Wire format) {
  step.add_pass(row_norm_bytes_of(step, kind, x, format).apply(parts, has_shift));
}
void plan_sum_row_norm_gradient(StepPlan& step, RowNorm kind, RowBlock const& x, Wire format) {
  step.add_pass(row_norm_bytes_of(step, kind, x, format).gradient_sums());
}
void plan_row_norm_backward(StepPlan& step, RowNorm kind, RowParts parts, Residual residual, bool has_shift,
                            RowBlock const& x, Wire format) {
  step.add_pass(row_norm_bytes_of(step, kind, x, format).backward(parts, residual, has_shift));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void sum_row_moments(DefaultExec const&, PassLedger&, RowNorm, Matrix<T> const&,                  \
                                Vector<SumOf<T>> const&);                                                    \
  template void apply_row_norm(DefaultExec const&, PassLedger&, RowNormSettings const&, RowParts,            \
                               Matrix<T> const&, Vector<SumOf<T>> const&, Vector<SumOf<T>> const&,           \
                               Vector<SumOf<T>> const&, RowNormState<SumOf<T>> const&, Matrix<T> const&);    \
  template void sum_row_norm_gradient(DefaultExec const&, PassLedger&, RowNorm, Matrix<T> const&,            \
                                      Vector<SumOf<T>> const&, RowNormState<SumOf<T>> const&,                \
                                      Matrix<T> const&, Vector<SumOf<T>> const&);                            \
  template void row_norm_backward(                                                                           \
      DefaultExec const&, PassLedger&, RowNormSettings const&, RowParts, Residual, Matrix<T> const&,         \
      Vector<SumOf<T>> const&, RowNormState<SumOf<T>> const&, Matrix<T> const&, Vector<SumOf<T>> const&,     \
      Matrix<T> const&, Vector<SumOf<T>> const&, Vector<SumOf<T>> const&, Workspace<SumOf<T>> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
