// SPDX-License-Identifier: Apache-2.0
#include "pmm/pairs/pair_kernels.hpp"

#include "pmm/pairs/pair_slope.hpp"

namespace orthant::pmm {
namespace {

/// result_k := or += sum of values_e operand_l over the entries of list k, which name l and the pair e.
template<class T>
struct SignedSums {
  Offset const* offsets;
  LocalColumn const* others;
  Offset const* places; // null: entry e is pair e
  std::int64_t width;
  T const* values;
  T const* operand;
  T* result;
  bool keeps;

  KOKKOS_FUNCTION void operator()(std::int64_t k, std::int64_t) const {
    T* const sums = result + k * width;
    if (!keeps)
      for (std::int64_t c = 0; c < width; ++c)
        sums[c] = 0;
    for (auto entry = offsets[k]; entry < offsets[k + 1]; ++entry) {
      auto const value = values[places == nullptr ? entry : places[entry]];
      T const* const from = operand + others[entry] * width;
      for (std::int64_t c = 0; c < width; ++c)
        sums[c] += value * from[c];
    }
  }
};

template<class T>
struct LossOfPairs {
  T* scores;
  std::int64_t num_positive;
  double scale;
  double factor;

  KOKKOS_FUNCTION void operator()(std::int64_t e, double& sum) const {
    auto const z = static_cast<double>(scores[e]);
    auto const is_positive = e < num_positive;
    auto const power = ::exp(-::fabs(z)); // at most 1
    auto const wrong = is_positive ? -z : z;
    sum += scale * ((wrong > 0   ? wrong
                     : wrong < 0 ? 0.0
                                 : wrong) +
                    ::log1p(power)); // the last one: nan stays
    scores[e] = static_cast<T>(factor * scale * pair_slope(z, is_positive));
  }
};

LocalPass pass_of_addition(std::int64_t bytes) {
  return {"add_numbers", 2 * bytes, bytes};
}

/// An exponential and a logarithm of each.
LocalPass pass_of_loss(std::int64_t num_pairs, std::int64_t scalar_bytes) {
  auto const bytes = num_pairs * scalar_bytes;
  return {.name = "pair_loss_and_gradient",
          .bytes_read = bytes,
          .bytes_written = bytes,
          .exponentials = 2 * num_pairs};
}

} // namespace

template<class T>
void pair_sums(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width, Vector<T> const& values,
               Vector<T> const& y, Vector<T> const& p, Update update) {
  for_each_row_and_head(exec, "orthant::pmm::pair_sums", block.num_rows, 1,
                        SignedSums<T>{block.row_offsets.data(), block.columns.data(), nullptr, width,
                                      values.data(), y.data(), p.data(), update == Update::add});
}

template<class T>
void pair_sums_transposed(DefaultExec const& exec, EdgeBlock const& block, std::int64_t width,
                          Vector<T> const& values, Vector<T> const& x, Vector<T> const& d, Update update) {
  for_each_row_and_head(exec, "orthant::pmm::pair_sums_transposed", block.num_columns, 1,
                        SignedSums<T>{block.column_offsets.data(), block.rows.data(), block.places.data(),
                                      width, values.data(), x.data(), d.data(), update == Update::add});
}

template<class T>
void pair_loss_and_gradient(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& scores,
                            std::int64_t num_positive, double scale, double factor,
                            runtime::Number<double> const& loss) {
  passes.add(pass_of_loss(static_cast<std::int64_t>(scores.size()), sizeof(T)));
  Kokkos::parallel_reduce(
      "orthant::pmm::pair_loss_and_gradient",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(scores.extent(0))),
      LossOfPairs<T>{scores.data(), num_positive, scale, factor}, loss);
}

void plan_pair_loss(StepPlan& step, std::int64_t num_pairs) {
  step.add_pass(pass_of_loss(num_pairs, step.scalar_bytes(1)));
}

template<class T>
void add_numbers(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& from,
                 Vector<T> const& to) {
  passes.add(pass_of_addition(runtime::array_bytes(to)));
  Kokkos::parallel_for(
      "orthant::pmm::add_numbers",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(to.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) { to(i) += from(i); });
}

void plan_add_numbers(StepPlan& step, std::int64_t count) {
  step.add_pass(pass_of_addition(step.scalar_bytes(count)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void pair_sums(DefaultExec const&, EdgeBlock const&, std::int64_t, Vector<T> const&,              \
                          Vector<T> const&, Vector<T> const&, Update);                                       \
  template void pair_sums_transposed(DefaultExec const&, EdgeBlock const&, std::int64_t, Vector<T> const&,   \
                                     Vector<T> const&, Vector<T> const&, Update);                            \
  template void pair_loss_and_gradient(DefaultExec const&, runtime::PassLedger&, Vector<T> const&,           \
                                       std::int64_t, double, double, runtime::Number<double> const&);        \
  template void add_numbers(DefaultExec const&, runtime::PassLedger&, Vector<T> const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
