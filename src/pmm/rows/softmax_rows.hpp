#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The steps of softmax on one row of logits, shared by the lanes of a thread (list_teams.hpp); row_loss_kernels.hpp
// combines them.

#include "pmm/kernels/list_teams.hpp"
#include "pmm/kernels/packs.hpp"
#include "pmm/rows/row_loss.hpp"

#include <limits>

namespace orthant::pmm::detail {

namespace math = runtime::compat;

/// Reducer of a maximum over the lanes of a thread. Its identity is -infinity; the identity of Kokkos::Max is the
/// smallest finite number. NaNs are ignored.
template<class T>
class Largest {
 public:
  using reducer = Largest;
  using value_type = T;
  using result_view_type = Kokkos::View<T, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

  KOKKOS_FUNCTION explicit Largest(T& result) : result_(&result) {}
  KOKKOS_FUNCTION void init(T& value) const { value = -std::numeric_limits<T>::infinity(); }
  KOKKOS_FUNCTION void join(T& value, T const& other) const {
    if (other > value) value = other;
  }
  [[nodiscard]] KOKKOS_FUNCTION T& reference() const { return *result_; }
  [[nodiscard]] KOKKOS_FUNCTION result_view_type view() const { return result_view_type(result_); }
  [[nodiscard]] KOKKOS_FUNCTION bool references_scalar() const { return true; }

 private:
  T* result_;
};

/// Reducer of a maximum and its index over the lanes of a thread. Of equal values the smallest index wins.
template<class T>
class LargestWithIndex {
 public:
  using reducer = LargestWithIndex;
  using value_type = runtime::ValueIndex<T>;
  using result_view_type = Kokkos::View<value_type, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

  KOKKOS_FUNCTION explicit LargestWithIndex(value_type& result) : result_(&result) {}
  KOKKOS_FUNCTION void init(value_type& value) const {
    value = {-std::numeric_limits<T>::infinity(), std::numeric_limits<std::int64_t>::max()};
  }
  KOKKOS_FUNCTION void join(value_type& value, value_type const& other) const {
    auto const is_better =
        other.value > value.value || (other.value == value.value && other.index < value.index);
    if (is_better) value = other;
  }
  [[nodiscard]] KOKKOS_FUNCTION value_type& reference() const { return *result_; }
  [[nodiscard]] KOKKOS_FUNCTION result_view_type view() const { return result_view_type(result_); }
  [[nodiscard]] KOKKOS_FUNCTION bool references_scalar() const { return true; }

 private:
  value_type* result_;
};

/// Q_i = sum_j q_ij of a row with this label.
template<class T>
KOKKOS_INLINE_FUNCTION T sum_of_shares(TargetShares<T> const& shares, std::int32_t label) {
  return shares.class_weights == nullptr
             ? T{1}
             : shares.of_label * shares.class_weights[label] + shares.of_classes * shares.sum_of_weights;
}

/// The coefficient of the z-loss of a row with this label: c w_y.
template<class T>
KOKKOS_INLINE_FUNCTION T z_loss_of(TargetShares<T> const& shares, std::int32_t label) {
  return shares.class_weights == nullptr ? shares.z_loss : shares.z_loss * shares.class_weights[label];
}

/// The factor of exp(z_ij - m_i) / s_i in the gradient: Q_i, and 2 c w_y L_i of a z-loss.
template<class T>
KOKKOS_INLINE_FUNCTION T factor_of_softmax(TargetShares<T> const& shares, std::int32_t label, T shift,
                                           T sum) {
  auto const of_shares = sum_of_shares(shares, label);
  return shares.z_loss == T{0} ? of_shares
                               : of_shares + T{2} * z_loss_of(shares, label) * (shift + math::log(sum));
}

/// Rows of logits and their targets q_ij (TargetShares).
template<class T>
struct SoftmaxRows {
  T const* logits;
  std::int64_t num_columns;
  std::int8_t const* groups;
  std::int32_t const* classes;
  std::int64_t first_class;
  TargetShares<T> shares;

  SoftmaxRows(Matrix<T> const& z, RowTargets const& targets, std::int64_t first,
              TargetShares<T> const& of_targets = {})
      : logits(z.data()),
        num_columns(static_cast<std::int64_t>(z.extent(1))),
        groups(targets.groups.data()),
        classes(targets.classes.data()),
        first_class(first),
        shares(of_targets) {}

  /// w_j of a column of this rank.
  [[nodiscard]] KOKKOS_FUNCTION T weight(std::int64_t column) const {
    return shares.class_weights == nullptr ? T{1} : shares.class_weights[first_class + column];
  }

  [[nodiscard]] KOKKOS_FUNCTION bool carries_loss(std::int64_t row) const {
    return groups[row] == loss_row_group && classes[row] >= 0;
  }
  /// Column of the row's class; not less than num_columns if another rank has the class.
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t target(std::int64_t row) const {
    auto const column = static_cast<std::int64_t>(classes[row]) - first_class;
    return column < 0 ? num_columns : column;
  }

  [[nodiscard]] KOKKOS_FUNCTION T maximum(RowTeam const& team, std::int64_t row) const {
    auto const* const z = logits + row * num_columns;
    auto largest = -std::numeric_limits<T>::infinity();
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, num_columns),
        [&](std::int64_t j, T& found) {
          if (z[j] > found) found = z[j];
        },
        Largest<T>(largest));
    return largest;
  }

  [[nodiscard]] KOKKOS_FUNCTION T sum_of_exponentials(RowTeam const& team, std::int64_t row, T shift) const {
    auto const* const z = logits + row * num_columns;
    T total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, num_columns),
        [&](std::int64_t j, T& sum) { sum += math::exp(z[j] - shift); }, total);
    return total;
  }

  /// Writes {s_i, sum_j q_ij (z_ij - m_i)} over this rank's classes; `sum` is s_i.
  KOKKOS_FUNCTION void pack(RowTeam const& team, std::int64_t row, T shift, T sum, T* packed) const {
    auto const column = target(row);
    T differences = 0;
    if (shares.of_classes != T{0})
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(team, num_columns),
          [&](std::int64_t j, T& part) { part += weight(j) * (logits[row * num_columns + j] - shift); },
          differences);
    Kokkos::single(Kokkos::PerThread(team), [&] {
      packed[2 * row] = sum;
      packed[2 * row + 1] = (column < num_columns ? shares.of_label * weight(column) *
                                                        (logits[row * num_columns + column] - shift)
                                                  : T{0}) +
                            shares.of_classes * differences;
    });
  }

  KOKKOS_FUNCTION void write_gradient(RowTeam const& team, std::int64_t row, T shift, T sum, T scale,
                                      T* gradient) const {
    auto const* const z = logits + row * num_columns;
    auto* const dz = gradient + row * num_columns;
    auto const inverse_sum = factor_of_softmax(shares, classes[row], shift, sum) / sum;
    auto const right = target(row);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, num_columns), [&](std::int64_t j) {
      auto const share = j == right ? shares.of_label + shares.of_classes : shares.of_classes;
      dz[j] = (math::exp(z[j] - shift) * inverse_sum - weight(j) * share) * scale;
    });
  }

  KOKKOS_FUNCTION void write_zeros(RowTeam const& team, std::int64_t row, T* gradient) const {
    auto* const dz = gradient + row * num_columns;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, num_columns), [&](std::int64_t j) { dz[j] = T{0}; });
  }
};

/// Number of items that the lanes of a row share: about four classes per lane. Lanes exchange less than with one class per
/// lane, and loads are still whole sectors.
template<class T>
std::int64_t num_items(SoftmaxRows<T> const& rows) {
  return (rows.num_columns + pack_size - 1) / pack_size;
}

} // namespace orthant::pmm::detail
