// SPDX-License-Identifier: Apache-2.0
#include "models/lm/adapters/adapters.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/device/kokkos_compat.hpp"

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using Indices = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

/// weight(i) := base(i) + scale sum_k A(row, k) B(k, column) for element i of this rank's piece.
template<class T>
struct MergeFactors {
  T const* base;
  T* weight;
  T const* left;
  T const* right;
  std::int64_t first, width, num_factors;
  T scale;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const row = (first + i) / width;
    auto const column = (first + i) % width;
    T sum = 0;
    for (std::int64_t k = 0; k < num_factors; ++k)
      sum += left[row * num_factors + k] * right[k * width + column];
    weight[i] = base[i] + scale * sum;
  }
};

/// dA(row, k) := scale sum_j dW(row, j) B(k, j) over the elements of this rank's piece.
template<class T>
struct LeftGradient {
  T const* gradient; // of the weight
  T const* right;
  T* left_gradient;
  std::int64_t first, num_stored, width, num_factors;
  T scale;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const begin = i / num_factors * width;
    auto const* const factor = right + i % num_factors * width;
    auto const from = begin < first ? first : begin;
    auto const to = begin + width < first + num_stored ? begin + width : first + num_stored;
    T sum = 0;
    for (auto place = from; place < to; ++place)
      sum += gradient[place - first] * factor[place - begin];
    left_gradient[i] = scale * sum;
  }
};

/// dB(k, j) := scale sum_row A(row, k) dW(row, j), or 0 if column j belongs to another adapter.
template<class T>
struct RightGradient {
  T const* gradient; // of the weight
  T const* left;
  T* right_gradient;
  std::int32_t const* slots;
  std::int64_t num_slots, first_column;
  std::int64_t first, num_stored, width, num_factors, rank;
  T scale;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    auto const k = i / width;
    auto const column = i % width;
    T sum = 0;
    if (slots[(first_column + column) % num_slots] == k / rank) {
      auto row = column < first ? (first - column + width - 1) / width : 0;
      for (auto place = row * width + column; place < first + num_stored; place += width, ++row)
        sum += left[row * num_factors + k] * gradient[place - first];
    }
    right_gradient[i] = scale * sum;
  }
};

/// Bytes of a weight's piece and of its factors on a rank.
struct AdapterBytes {
  std::int64_t weight, left, right;

  [[nodiscard]] runtime::LocalPass merge() const { return {"merge_adapter", weight + left + right, weight}; }
  [[nodiscard]] runtime::LocalPass left_gradient() const {
    return {"adapter_gradient/left", weight + right, left};
  }
  [[nodiscard]] runtime::LocalPass right_gradient() const {
    return {"adapter_gradient/right", weight + left, right};
  }
};

AdapterBytes bytes_of(pmm::StepPlan const& step, pmm::Placement const& weight,
                      FactorPlacements const& factors) {
  return {step.scalar_bytes(step.block(weight).num_stored),
          step.scalar_bytes(step.block(factors.left).size()),
          step.scalar_bytes(step.block(factors.right).size())};
}

template<class T>
AdapterBytes bytes_of(Adapter<T> const& adapter) {
  auto const bytes = [](std::int64_t count) { return count * static_cast<std::int64_t>(sizeof(T)); };
  return {bytes(adapter.weight.block().num_stored), bytes(adapter.left.block().size()),
          bytes(adapter.right.block().size())};
}

} // namespace

void plan_merge_adapter(pmm::StepPlan& step, pmm::Placement const& weight, FactorPlacements const& factors) {
  step.add_pass(bytes_of(step, weight, factors).merge());
}

void plan_adapter_gradient(pmm::StepPlan& step, pmm::Placement const& weight,
                           FactorPlacements const& factors) {
  auto const bytes = bytes_of(step, weight, factors);
  step.add_pass(bytes.left_gradient());
  step.add_pass(bytes.right_gradient());
}

template<class T>
void Adapter<T>::merge(DefaultExec const& exec) const {
  auto const& block = weight.block();
  weight.grid().passes().add(bytes_of(*this).merge());
  Kokkos::parallel_for("orthant::models::merge_adapter", Indices(exec, 0, block.num_stored),
                       MergeFactors<T>{base.storage().data(), weight.storage().data(), left.storage().data(),
                                       right.storage().data(), block.first, block.columns.size(),
                                       left.extents().columns, static_cast<T>(scale)});
}

template<class T>
void Adapter<T>::project(DefaultExec const& exec) const {
  auto const& block = weight.block();
  auto const bytes = bytes_of(*this);
  auto const* const gradient = weight_gradient.storage().data();
  auto const num_factors = left.extents().columns;
  auto const width = block.columns.size();
  weight.grid().passes().add(bytes.left_gradient());
  Kokkos::parallel_for("orthant::models::adapter_gradient/left", Indices(exec, 0, left.block().size()),
                       LeftGradient<T>{gradient, right.storage().data(), left_gradient.storage().data(),
                                       block.first, block.num_stored, width, num_factors,
                                       static_cast<T>(scale)});
  weight.grid().passes().add(bytes.right_gradient());
  Kokkos::parallel_for("orthant::models::adapter_gradient/right", Indices(exec, 0, right.block().size()),
                       RightGradient<T>{gradient, left.storage().data(), right_gradient.storage().data(),
                                        slots.data(), static_cast<std::int64_t>(slots.extent(0)),
                                        block.columns.begin, block.first, block.num_stored, width,
                                        num_factors, rank, static_cast<T>(scale)});
}

template struct Adapter<float>;
template struct Adapter<double>;

} // namespace orthant::models
