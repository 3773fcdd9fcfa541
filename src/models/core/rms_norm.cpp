// SPDX-License-Identifier: Apache-2.0
#include "models/core/rms_norm.hpp"

#include "models/core/rms_norm_kernels.hpp"
#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/long_sums.hpp"
#include "runtime/comm/collectives.hpp"

#include <utility>

namespace orthant::models {
namespace {

using detail::Masks;
using pmm::PackedArray;
using runtime::DefaultExec;
using runtime::Matrix;
using runtime::Vector;
using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

Masks masks_of(Dropout const& dropout, BlockKeys const& keys) {
  return {dropout.stream, runtime::bernoulli_threshold(dropout.probability), keys.original_ids,
          static_cast<std::uint64_t>(keys.first_column)};
}

/// sums(i) := sum_j z_ij^2
template<class T>
struct SquareRows {
  Matrix<T> z;
  Vector<T> sums;
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    auto const i = static_cast<std::size_t>(row);
    T sum = 0;
    for (std::size_t j = 0; j < z.extent(1); ++j)
      sum += z(i, j) * z(i, j);
    sums(i) = sum;
  }
};

/// inverse_rms(i), a sum of squares, := r_i; result := d or += d; passed. A row is a work item.
template<class T>
struct NormaliseRows {
  Matrix<T> z;
  Vector<T> scale;
  Masks masks;
  T keep_scale;
  T inverse_width; // 1 / D
  RmsNormState<T> state;
  std::size_t words_per_row;
  Matrix<T> result;
  bool adds;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    auto const i = static_cast<std::size_t>(row);
    auto const mean_square = state.inverse_rms(i) * inverse_width;
    auto const r = T{1} / runtime::compat::sqrt(mean_square + static_cast<T>(rms_epsilon));
    state.inverse_rms(i) = r;
    auto const num_columns = z.extent(1);
    for (std::size_t word = 0; word < words_per_row; ++word) {
      auto const begin = 32 * word;
      auto const count = num_columns - begin < 32 ? num_columns - begin : 32;
      auto const kept = masks.kept(i, begin, count);
      std::uint32_t positive = 0;
      for (std::size_t k = 0; k < count; ++k) {
        auto const j = begin + k;
        auto const n = r * z(i, j) * scale(j);
        // A NaN passes: it must reach the loss, where it is reported.
        auto const d = (kept >> k & 1) == 0 || n < T{0} ? T{0} : n * keep_scale;
        result(i, j) = adds ? result(i, j) + d : d;
        positive |= static_cast<std::uint32_t>(n > T{0}) << k;
      }
      state.passed(i * words_per_row + word) = kept & positive;
    }
  }
};

/// gradient := dn; sums(i) := sum_j dn_ij g_j r_i z_ij. A row is a work item.
template<class T>
struct MaskGradientRows {
  Matrix<T> z;
  Vector<T> scale;
  T keep_scale;
  RmsNormState<T> state;
  std::size_t words_per_row;
  Matrix<T> gradient;
  Vector<T> sums;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    auto const i = static_cast<std::size_t>(row);
    T sum = 0;
    for (std::size_t j = 0; j < z.extent(1); ++j) {
      auto const passed = (state.passed(i * words_per_row + (j >> 5)) >> (j & 31) & 1) != 0;
      auto const dn = passed ? gradient(i, j) * keep_scale : T{0};
      gradient(i, j) = dn;
      sum += dn * scale(j) * z(i, j);
    }
    sums(i) = sum * state.inverse_rms(i);
  }
};

/// scale_gradient(j) := sum_i dn_ij r_i z_ij. A team takes a tile of neighbouring columns, so that a row of
/// the tile is read in one piece.
template<class T>
struct SumScaleGradient {
  using TeamPolicy = Kokkos::TeamPolicy<DefaultExec>;
  static constexpr std::int64_t tile = pmm::columns_of_long_sums;

  Matrix<T> z;
  Vector<T> inverse_rms;
  Matrix<T> gradient;
  Vector<T> scale_gradient;

  void operator()(typename TeamPolicy::member_type const& team) const {
    auto const num_columns = static_cast<std::int64_t>(z.extent(1));
    auto const first = team.league_rank() * tile;
    auto const width = num_columns - first < tile ? num_columns - first : tile;
    T const* const dn = gradient.data() + first;
    T const* const numbers = z.data() + first;
    T const* const r = inverse_rms.data();
    pmm::sum_rows_in_blocks<T>(static_cast<std::int64_t>(z.extent(0)), width, scale_gradient.data() + first,
                               [=](std::int64_t begin, std::int64_t end, T* partial) {
                                 for (auto i = begin; i < end; ++i)
                                   for (std::int64_t j = 0; j < width; ++j)
                                     partial[j] +=
                                         dn[i * num_columns + j] * r[i] * numbers[i * num_columns + j];
                               });
  }
};

template<class T>
void sum_scale_gradient(DefaultExec const& exec, pmm::DistMatrix<T> const& z, Vector<T> const& inverse_rms,
                        pmm::DistMatrix<T> const& gradient, pmm::DistVector<T> const& scale_gradient) {
  using Sum = SumScaleGradient<T>;
  auto const num_columns = z.block().columns.size();
  if (num_columns == 0) return;
  Kokkos::parallel_for(
      "orthant::models::rms_norm_relu_dropout_backward/scale",
      typename Sum::TeamPolicy(exec, static_cast<int>((num_columns + Sum::tile - 1) / Sum::tile), 1, 1),
      Sum{z.local(), inverse_rms, gradient.local(), scale_gradient.local()});
}

/// gradient, which holds dn, := dz. A row is a work item.
template<class T>
struct GradientRows {
  Matrix<T> z;
  Vector<T> scale;
  T inverse_width;
  Vector<T> inverse_rms;
  Vector<T> sums;
  Matrix<T> gradient;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    auto const i = static_cast<std::size_t>(row);
    auto const r = inverse_rms(i);
    auto const along = r * sums(i) * inverse_width;
    for (std::size_t j = 0; j < z.extent(1); ++j)
      gradient(i, j) = r * (gradient(i, j) * scale(j) - z(i, j) * along);
  }
};

template<class T>
std::size_t words_per_row(pmm::DistMatrix<T> const& z) {
  return static_cast<std::size_t>(RmsNormState<T>::words_of(z.block().columns.size()));
}

template<class T>
void require_alike(pmm::DistMatrix<T> const& z, pmm::DistMatrix<T> const& other,
                   pmm::DistVector<T> const& scale, RmsNormState<T> const& state) {
  ORTHANT_REQUIRE(z.placement() == other.placement() && z.layout().storage == pmm::Storage::replicated,
                  z.placement().to_string(), " and ", other.placement().to_string());
  ORTHANT_REQUIRE(scale.axes() == z.layout().columns && scale.length() == z.extents().columns, "a scale of ",
                  scale.length(), " along ", pmm::name_of(scale.axes()), " for ", z.placement().to_string());
  auto const num_rows = static_cast<std::size_t>(z.block().rows.size());
  ORTHANT_REQUIRE(state.inverse_rms.extent(0) >= num_rows &&
                  state.passed.extent(0) >= num_rows * words_per_row(z));
}

template<class T>
T keep_scale(double probability) {
  return static_cast<T>(1 / (1 - probability));
}

template<class T>
T inverse_width(pmm::DistMatrix<T> const& z) {
  return T{1} / static_cast<T>(z.extents().columns);
}

/// sums(i), for the rows of the block, summed over the column axis.
template<class T>
void reduce_rows(DefaultExec const& exec, pmm::DistMatrix<T> const& z, Vector<T> const& sums) {
  auto const num_rows = static_cast<std::size_t>(z.block().rows.size());
  if (num_rows > 0)
    runtime::all_reduce(exec, z.grid().over(z.layout().columns),
                        Kokkos::subview(sums, std::pair(std::size_t{0}, num_rows)));
}

template<class T>
PackedArray<T const> packed(Vector<T> const& numbers) {
  return PackedArray<T const>(numbers.data());
}

template<class T>
void normalise_on_device(DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                         pmm::DistVector<T> const& scale, Dropout const& dropout, BlockKeys const& keys,
                         RmsNormState<T> const& state, pmm::DistMatrix<T> const& result, Write write) {
  auto const num_rows = z.block().rows.size();
  auto const num_columns = z.block().columns.size();
  auto const has_squares = z.grid().size(z.layout().columns) > 1;
  if (has_squares) {
    pmm::for_each_row(exec, "orthant::models::rms_norm_relu_dropout/squares", num_rows,
                      num_columns / pmm::pack_size,
                      detail::SquareRow<T>{packed(z.storage()), num_columns, state.inverse_rms.data()});
  }
  reduce_rows(exec, z, state.inverse_rms);
  pmm::for_each_row(exec, "orthant::models::rms_norm_relu_dropout", num_rows,
                    num_columns / detail::columns_a_lane,
                    detail::NormaliseRow<T>{packed(z.storage()), packed(scale.local()), num_columns,
                                            masks_of(dropout, keys), keep_scale<T>(dropout.probability),
                                            inverse_width(z), has_squares, state.inverse_rms.data(),
                                            reinterpret_cast<std::uint8_t*>(state.passed.data()),
                                            static_cast<std::int64_t>(words_per_row(z)),
                                            PackedArray<T>(result.storage().data()), write == Write::add});
}

template<class T>
void backward_on_device(DefaultExec const& exec, pmm::DistMatrix<T> const& z, pmm::DistVector<T> const& scale,
                        double probability, RmsNormState<T> const& state, Vector<T> const& row_sums,
                        pmm::DistMatrix<T> const& gradient, pmm::DistVector<T> const& scale_gradient,
                        pmm::Workspace<T> const& work) {
  auto const num_rows = z.block().rows.size();
  auto const num_columns = z.block().columns.size();
  detail::GradientSource<T> const source{packed(z.storage()),
                                         packed(scale.local()),
                                         pmm::Divisor(num_columns),
                                         keep_scale<T>(probability),
                                         state.inverse_rms.data(),
                                         state.passed.data(),
                                         static_cast<std::int64_t>(words_per_row(z))};
  pmm::for_each_row(exec, "orthant::models::rms_norm_relu_dropout_backward/row_sums", num_rows,
                    num_columns / pmm::pack_size,
                    detail::GradientRowSum<T>{source, packed(gradient.storage()), row_sums.data()});
  reduce_rows(exec, z, row_sums);
  pmm::ColumnSlabs const slabs(num_rows, num_columns);
  pmm::sum_columns_in_slabs(exec, "orthant::models::rms_norm_relu_dropout_backward", slabs,
                            detail::GradientPack<T>{source, PackedArray<T>(gradient.storage().data()),
                                                    row_sums.data(), inverse_width(z)},
                            work.lend(pmm::Slot::sums, slabs.num_partial_sums()), scale_gradient.local());
}

} // namespace

template<class T>
void rms_norm_relu_dropout(DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                           pmm::DistVector<T> const& scale, Dropout const& dropout, BlockKeys const& keys,
                           RmsNormState<T> const& state, pmm::DistMatrix<T> const& result, Write write) {
  require_alike(z, result, scale, state);
  if constexpr (pmm::runs_on_host) {
    Policy const rows(exec, 0, z.block().rows.size());
    Kokkos::parallel_for("orthant::models::rms_norm_relu_dropout/squares", rows,
                         SquareRows<T>{z.local(), state.inverse_rms});
    reduce_rows(exec, z, state.inverse_rms);
    Kokkos::parallel_for("orthant::models::rms_norm_relu_dropout", rows,
                         NormaliseRows<T>{z.local(), scale.local(), masks_of(dropout, keys),
                                          keep_scale<T>(dropout.probability), inverse_width(z), state,
                                          words_per_row(z), result.local(), write == Write::add});
  } else {
    normalise_on_device(exec, z, scale, dropout, keys, state, result, write);
  }
}

template<class T>
void rms_norm_relu_dropout_backward(DefaultExec const& exec, pmm::DistMatrix<T> const& z,
                                    pmm::DistVector<T> const& scale, double probability,
                                    RmsNormState<T> const& state, Vector<T> const& row_sums,
                                    pmm::DistMatrix<T> const& gradient,
                                    pmm::DistVector<T> const& scale_gradient, pmm::Workspace<T> const& work) {
  require_alike(z, gradient, scale, state);
  require_alike(z, gradient, scale_gradient, state);
  if constexpr (pmm::runs_on_host) {
    Policy const rows(exec, 0, z.block().rows.size());
    Kokkos::parallel_for("orthant::models::rms_norm_relu_dropout_backward/mask", rows,
                         MaskGradientRows<T>{z.local(), scale.local(), keep_scale<T>(probability), state,
                                             words_per_row(z), gradient.local(), row_sums});
    reduce_rows(exec, z, row_sums);
    sum_scale_gradient(exec, z, state.inverse_rms, gradient, scale_gradient);
    Kokkos::parallel_for("orthant::models::rms_norm_relu_dropout_backward", rows,
                         GradientRows<T>{z.local(), scale.local(), inverse_width(z), state.inverse_rms,
                                         row_sums, gradient.local()});
  } else {
    backward_on_device(exec, z, scale, probability, state, row_sums, gradient, scale_gradient, work);
  }
}

void plan_rms_norm(pmm::StepPlan& step, pmm::Placement const& z) {
  auto const num_rows = step.block(z).rows.size();
  if (num_rows > 0)
    step.add_call(runtime::Operation::all_reduce, z.layout.columns,
                  step.wire_bytes(num_rows, runtime::Wire::native));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void rms_norm_relu_dropout(DefaultExec const&, pmm::DistMatrix<T> const&,                         \
                                      pmm::DistVector<T> const&, Dropout const&, BlockKeys const&,           \
                                      RmsNormState<T> const&, pmm::DistMatrix<T> const&, Write);             \
  template void rms_norm_relu_dropout_backward(DefaultExec const&, pmm::DistMatrix<T> const&,                \
                                               pmm::DistVector<T> const&, double, RmsNormState<T> const&,    \
                                               Vector<T> const&, pmm::DistMatrix<T> const&,                  \
                                               pmm::DistVector<T> const&, pmm::Workspace<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
