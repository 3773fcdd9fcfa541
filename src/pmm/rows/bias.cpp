// SPDX-License-Identifier: Apache-2.0
#include "pmm/rows/bias.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/long_sums.hpp"
#include "pmm/kernels/row_kernels_host.hpp"
#include "pmm/rows/column_sums.hpp"
#include "runtime/error.hpp"

namespace orthant::pmm {

using runtime::array_bytes;
using runtime::SumOf;

namespace {

/// sums(j) := sum_i from(i, j) on hosts. A team sums a tile of neighboring columns, so that a row of the tile is read
/// contiguously. The order of additions does not depend on the number of teams.
template<class T>
struct SumColumns {
  using TeamPolicy = Kokkos::TeamPolicy<DefaultExec>;
  static constexpr std::int64_t tile = columns_of_long_sums;

  Matrix<T> from;
  Vector<SumOf<T>> sums;

  void operator()(typename TeamPolicy::member_type const& team) const {
    auto const num_columns = static_cast<std::int64_t>(from.extent(1));
    auto const first = team.league_rank() * tile;
    auto const width = num_columns - first < tile ? num_columns - first : tile;
    T const* const source = from.data() + first;
    sum_rows_in_blocks<SumOf<T>>(static_cast<std::int64_t>(from.extent(0)), width, sums.data() + first,
                                 [=](std::int64_t begin, std::int64_t end, SumOf<T>* partial) {
                                   for (auto i = begin; i < end; ++i)
                                     for (std::int64_t j = 0; j < width; ++j)
                                       partial[j] += source[i * num_columns + j];
                                 });
  }
};

template<class T>
void require_fits(DistMatrix<T> const& matrix, DistVector<SumOf<T>> const& bias) {
  ORTHANT_REQUIRE(bias.axes() == matrix.layout().columns && bias.length() == matrix.extents().columns,
                  "a bias of ", bias.length(), " along ", name_of(bias.axes()), " for ",
                  matrix.placement().to_string());
}

/// z(row, :) += bias. Used on hosts; a work item is a row.
template<class T>
struct AddBias {
  Matrix<T> z;
  Vector<SumOf<T>> bias;
  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    for (std::size_t j = 0; j < bias.extent(0); ++j) {
      auto& number = z(static_cast<std::size_t>(row), j);
      number = T(number + bias(j));
    }
  }
};

} // namespace

template<class T>
void add_bias(DefaultExec const& exec, DistMatrix<T> const& z, DistVector<SumOf<T>> const& bias) {
  require_fits(z, bias);
  auto const local = z.local();
  z.grid().passes().add({"add_bias", array_bytes(local, bias.local()), array_bytes(local)});
  constexpr auto label = "orthant::pmm::add_bias";
  if constexpr (runs_on_host && runtime::is_16_bit<T>) {
    host_rows::HostActivation<T> const task{.num_columns = static_cast<std::int64_t>(local.extent(1)),
                                            .from = local.data(),
                                            .to = local.data(),
                                            .bias = bias.local().data()};
    auto const kernel = host_rows::best_row_kernels<T>().activate;
    for_each_part(exec, label, z.block().stored_rows.size(),
                  [=](std::int64_t begin, std::int64_t end) { kernel(task, begin, end); });
  } else if constexpr (runs_on_host)
    Kokkos::parallel_for(
        label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, z.block().stored_rows.size()),
        AddBias<T>{local, bias.local()});
  else
    for_each_pack<T>(exec, label, static_cast<std::int64_t>(local.size()),
                     AddBiasToPack<T>(local, bias.local()));
}

template<class T>
void sum_columns(DefaultExec const& exec, DistMatrix<T> const& gradient,
                 DistVector<SumOf<T>> const& bias_gradient, Workspace<SumOf<T>> const& work) {
  require_fits(gradient, bias_gradient);
  auto const from = gradient.local();
  auto const& sums = bias_gradient.local();
  if (sums.extent(0) == 0) return;
  gradient.grid().passes().add({"sum_rows", array_bytes(from), array_bytes(sums)});
  if constexpr (runs_on_host) {
    constexpr auto tile = SumColumns<T>::tile;
    auto const num_tiles = (static_cast<std::int64_t>(from.extent(1)) + tile - 1) / tile;
    Kokkos::parallel_for("orthant::pmm::sum_rows",
                         typename SumColumns<T>::TeamPolicy(exec, static_cast<int>(num_tiles), 1, 1),
                         SumColumns<T>{from, sums});
  } else {
    ColumnSlabs const slabs(static_cast<std::int64_t>(from.extent(0)),
                            static_cast<std::int64_t>(from.extent(1)));
    sum_columns_in_slabs(exec, "orthant::pmm::sum_rows", slabs, LoadedPack<T>(from),
                         work.lend(Slot::sums, slabs.num_partial_sums()), sums);
  }
}

template<class T>
void sum_rows(DefaultExec const& exec, DistMatrix<T> const& gradient,
              DistVector<SumOf<T>> const& bias_gradient, Workspace<SumOf<T>> const& work) {
  sum_columns(exec, gradient, bias_gradient, work);
  reduce_sums(exec, gradient, bias_gradient);
}

template<class T>
void reduce_sums(DefaultExec const& exec, DistMatrix<T> const& gradient,
                 DistVector<SumOf<T>> const& bias_gradient) {
  require_fits(gradient, bias_gradient);
  auto const sums = bias_gradient.local();
  if (sums.extent(0) == 0) return;
  runtime::all_reduce(exec, gradient.grid().over(gradient.layout().rows), sums);
  if (gradient.layout().storage == Storage::row_sharded)
    runtime::all_reduce(exec, gradient.grid().over(gradient.layout().third()), sums);
}

void plan_add_bias(StepPlan& step, Placement const& z, Wire format) {
  auto const block = step.block(z);
  auto const bytes = step.wire_bytes(block.num_stored, format);
  step.add_pass({"add_bias", bytes + step.scalar_bytes(block.columns.size()), bytes});
}

void plan_sum_columns(StepPlan& step, Placement const& gradient, Wire format) {
  auto const block = step.block(gradient);
  step.add_pass(
      {"sum_rows", step.wire_bytes(block.num_stored, format), step.scalar_bytes(block.columns.size())});
}

void plan_reduce_sums(StepPlan& step, Placement const& gradient) {
  auto const bytes = step.wire_bytes(step.block(gradient).columns.size(), Wire::native);
  if (bytes == 0) return;
  step.add_call(runtime::Operation::all_reduce, gradient.layout.rows, bytes);
  if (gradient.layout.storage == Storage::row_sharded)
    step.add_call(runtime::Operation::all_reduce, gradient.layout.third(), bytes);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void add_bias(DefaultExec const&, DistMatrix<T> const&, DistVector<SumOf<T>> const&);             \
  template void sum_columns(DefaultExec const&, DistMatrix<T> const&, DistVector<SumOf<T>> const&,           \
                            Workspace<SumOf<T>> const&);                                                     \
  template void sum_rows(DefaultExec const&, DistMatrix<T> const&, DistVector<SumOf<T>> const&,              \
                         Workspace<SumOf<T>> const&);                                                        \
  template void reduce_sums(DefaultExec const&, DistMatrix<T> const&, DistVector<SumOf<T>> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
