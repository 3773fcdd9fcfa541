#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Device kernels of edge products and scores (equations: edge_products.hpp), on lists of edges by row or by column
// (kernels/list_teams.hpp). The lanes of a thread share the edges of a list, or the columns of a head if a row must be read
// per edge. The softmax is in edge_softmax_device.hpp; the host kernels are in edge_kernels_host.hpp.

#include "pmm/edges/edge_block.hpp"
#include "pmm/edges/edge_kernels_host.hpp"
#include "pmm/kernels/list_teams.hpp"
#include "pmm/kernels/packs.hpp"
#include "runtime/device/kokkos_compat.hpp"

namespace orthant::pmm::device_edges {

using detail::ListPart;
using host_edges::negative_slope;

template<class T>
KOKKOS_FUNCTION T leaky(T z) {
  return z > 0 ? z : static_cast<T>(negative_slope) * z;
}
template<class T>
KOKKOS_FUNCTION T leaky_slope(T z) {
  return z > 0 ? T{1} : static_cast<T>(negative_slope);
}

/// The term of features of edges in the argument of leaky.
template<class T>
struct FeatureTerm : host_edges::HostEdgeFeatures<T> {
  KOKKOS_FUNCTION T operator()(Offset e, std::int64_t column) const {
    T sum = 0;
    for (std::int64_t f = 0; f < this->count; ++f)
      sum += this->values[e * this->count + f] * this->factors[f * this->stride + column];
    return sum;
  }
};

template<class T>
inline constexpr int numbers_of_pack = 16 / static_cast<int>(sizeof(T));
template<class T>
KOKKOS_FUNCTION bool begins_packs(T const* numbers) {
  return may_hold<StoredNumbers<T, numbers_of_pack<T>>>(numbers);
}

/// Calls visit(edge) for the edges of a part; the lanes share the edges.
template<class Visit>
KOKKOS_FUNCTION void for_each_edge(RowTeam const& team, ListPart const& part, Visit const& visit) {
  Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, part.begin, part.end), visit);
}
template<class T, class Term>
KOKKOS_FUNCTION T sum_of_edges(RowTeam const& team, ListPart const& part, Term const& term) {
  T total = 0;
  Kokkos::parallel_reduce(
      Kokkos::ThreadVectorRange(team, part.begin, part.end), [&](Offset e, T& sum) { sum += term(e); },
      total);
  return total;
}

/// Number of items in the columns of a head that the lanes share: packs if pointers and width allow it, else columns.
template<class T>
std::int64_t num_packs(Heads const& heads, T const* left, T const* right) {
  auto const is_packed = heads.width % numbers_of_pack<T> == 0 && begins_packs(left) && begins_packs(right);
  return is_packed ? heads.width / numbers_of_pack<T> : heads.width;
}

/// Sums for four edges at once.
template<class T>
struct FourSums {
  T at[4] = {0, 0, 0, 0};
  KOKKOS_FUNCTION FourSums& operator+=(FourSums const& other) {
    for (int u = 0; u < 4; ++u)
      at[u] += other.at[u];
    return *this;
  }
};

/// values_eh := sum_c term(left_c, right_c of edge e, c, e) for the edges of a part. The lanes share the columns.
template<int pack, class T, class Term>
KOKKOS_FUNCTION void sums_of_columns(RowTeam const& team, ListPart const& part, Heads const& heads,
                                     T const* left, T const* right, LocalColumn const* columns, T* values,
                                     Term const& term) {
  using Numbers = StoredNumbers<T, pack>;
  auto const own = part.head * heads.width;
  for (auto first = part.begin; first < part.end; first += 4) {
    FourSums<T> totals;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, static_cast<int>(heads.width) / pack),
        [&](int k, FourSums<T>& sums) {
          auto const c = own + k * pack;
          auto const x = *reinterpret_cast<Numbers const*>(left + part.list * heads.columns() + c);
          Numbers y[4];
          for (int u = 0; u < 4; ++u) { // past the end, read the last edge again
            auto const e = first + u < part.end ? first + u : part.end - 1;
            y[u] = *reinterpret_cast<Numbers const*>(right + columns[e] * heads.columns() + c);
          }
          for (int u = 0; u < 4; ++u)
            for (int i = 0; i < pack; ++i)
              sums.at[u] +=
                  term(x.get(i), y[u].get(i), c + i, first + u < part.end ? first + u : part.end - 1);
        },
        Kokkos::Sum<FourSums<T>>(totals));
    Kokkos::single(Kokkos::PerThread(team), [&] {
      for (int u = 0; u < 4 && first + u < part.end; ++u)
        values[(first + u) * heads.count + part.head] = totals.at[u];
    });
  }
}
template<class T, class Term>
KOKKOS_FUNCTION void sums_of_columns(RowTeam const& team, ListPart const& part, Heads const& heads,
                                     T const* left, T const* right, LocalColumn const* columns, T* values,
                                     Term const& term) {
  if (heads.width % numbers_of_pack<T> == 0 && begins_packs(left) && begins_packs(right))
    sums_of_columns<numbers_of_pack<T>>(team, part, heads, left, right, columns, values, term);
  else
    sums_of_columns<1>(team, part, heads, left, right, columns, values, term);
}

template<class T>
struct Dots {
  Offset const* offsets;
  LocalColumn const* columns;
  Heads heads;
  T const* x;
  T const* y;
  T* values;

  [[nodiscard]] std::int64_t num_items() const { return num_packs(heads, x, y); }
  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    sums_of_columns(team, part, heads, x, y, columns, values,
                    [](T l, T r, std::int64_t, Offset) { return l * r; });
    return 0;
  }
};

/// result_kh := sum of w(v_eh) operand_lh over the entries of list k; each entry has an edge e and its other end l.
template<class T>
struct WeightedSums {
  static constexpr int outputs = 1;

  Offset const* offsets;
  LocalColumn const* others;
  Offset const* places; // null if entry e is edge e
  Heads heads;
  T const* values;
  T factor;
  T const* operand;
  T* result;
  bool are_signed = false;

  [[nodiscard]] bool is_aligned() const { return begins_packs(operand); }
  template<int pack>
  KOKKOS_FUNCTION void add(ListPart const& part, std::int64_t column, T (&sums)[1][pack]) const {
    constexpr int at_once = 8;
    using Numbers = StoredNumbers<T, pack>;
    T const* const from = operand + part.head * heads.width + column;
    for (auto first = part.begin; first < part.end; first += at_once) {
      T weight[at_once];
      Numbers numbers[at_once];
      for (int u = 0; u < at_once; ++u) { // past the end, read the last entry again with weight 0
        auto const entry = first + u < part.end ? first + u : part.end - 1;
        auto const value = values[(places == nullptr ? entry : places[entry]) * heads.count + part.head];
        auto const is_left_out = first + u >= part.end || (value <= 0 && !are_signed);
        weight[u] = is_left_out ? T{0} : value * factor;
        numbers[u] = *reinterpret_cast<Numbers const*>(from + others[entry] * heads.columns());
      }
      for (int u = 0; u < at_once; ++u)
        for (int i = 0; i < pack; ++i)
          sums[0][i] += weight[u] == 0 ? T{0} : weight[u] * numbers[u].get(i);
    }
  }
  KOKKOS_FUNCTION void finish(int, std::int64_t list, std::int64_t head, std::int64_t column, T total) const {
    result[(list * heads.count + head) * heads.width + column] = total;
  }
};

template<class T>
struct StaticScores {
  Offset const* offsets;
  LocalColumn const* columns;
  std::int64_t num_heads;
  T const* s;
  T const* t;
  T* values;
  FeatureTerm<T> features;

  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    auto const own = s[part.list * num_heads + part.head];
    for_each_edge(team, part, [&](Offset e) {
      auto const z = own + t[columns[e] * num_heads + part.head] + features(e, part.head);
      values[e * num_heads + part.head] = leaky(z);
    });
    return 0;
  }
};

template<class T>
struct StaticBackward {
  Offset const* offsets;
  LocalColumn const* columns;
  std::int64_t num_heads;
  T const* s;
  T const* t;
  T* gradient;
  T* ds;
  FeatureTerm<T> features;

  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    auto const own = s[part.list * num_heads + part.head];
    return sum_of_edges<T>(team, part, [&](Offset e) {
      auto& g = gradient[e * num_heads + part.head];
      return g *= leaky_slope(own + t[columns[e] * num_heads + part.head] + features(e, part.head));
    });
  }
  KOKKOS_FUNCTION void finish(std::int64_t row, std::int64_t head, T total) const {
    ds[row * num_heads + head] = total;
  }
};

/// dt_jh := sum_i g_ijh.
template<class T>
struct SumsOfColumns {
  Offset const* offsets;
  Offset const* places;
  std::int64_t num_heads;
  T const* gradient;
  T* dt;

  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    return sum_of_edges<T>(team, part,
                           [&](Offset entry) { return gradient[places[entry] * num_heads + part.head]; });
  }
  KOKKOS_FUNCTION void finish(std::int64_t column, std::int64_t head, T total) const {
    dt[column * num_heads + head] = total;
  }
};

template<class T>
struct DynamicScores {
  Offset const* offsets;
  LocalColumn const* columns;
  Heads heads;
  T const* l;
  T const* r;
  T const* a;
  T* values;
  FeatureTerm<T> features;

  [[nodiscard]] std::int64_t num_items() const { return num_packs(heads, l, r); }
  KOKKOS_FUNCTION T sum(RowTeam const& team, ListPart const& part) const {
    sums_of_columns(team, part, heads, l, r, columns, values,
                    [&](T x, T y, std::int64_t c, Offset e) { return a[c] * leaky(x + y + features(e, c)); });
    return 0;
  }
};

/// Computes dL, and the addends of da per row.
template<class T>
struct DynamicRows {
  static constexpr int outputs = 2;

  Offset const* offsets;
  LocalColumn const* columns;
  Heads heads;
  T const* l;
  T const* r;
  T const* a;
  T const* gradient;
  T* dl;
  T* terms;
  FeatureTerm<T> features;

  [[nodiscard]] bool is_aligned() const { return begins_packs(l) && begins_packs(r); }
  template<int pack>
  KOKKOS_FUNCTION void add(ListPart const& part, std::int64_t column, T (&sums)[2][pack]) const {
    using Numbers = StoredNumbers<T, pack>;
    auto const own = part.head * heads.width + column;
    auto const left = *reinterpret_cast<Numbers const*>(l + part.list * heads.columns() + own);
    for (auto e = part.begin; e < part.end; ++e) {
      auto const g = gradient[e * heads.count + part.head];
      auto const right = *reinterpret_cast<Numbers const*>(r + columns[e] * heads.columns() + own);
      for (int i = 0; i < pack; ++i) {
        auto const z = left.get(i) + right.get(i) + features(e, own + i);
        sums[0][i] += g * a[own + i] * leaky_slope(z);
        sums[1][i] += g * leaky(z);
      }
    }
  }
  KOKKOS_FUNCTION void finish(int output, std::int64_t row, std::int64_t head, std::int64_t column,
                              T total) const {
    (output == 0 ? dl : terms)[(row * heads.count + head) * heads.width + column] = total;
  }
};

/// dR_jhc += sum_i g_ijh a_hc leaky'(z).
template<class T>
struct DynamicColumns {
  static constexpr int outputs = 1;

  Offset const* offsets;
  LocalColumn const* rows;
  Offset const* places;
  Heads heads;
  T const* l;
  T const* r;
  T const* a;
  T const* gradient;
  T* dr;
  FeatureTerm<T> features;

  [[nodiscard]] bool is_aligned() const { return begins_packs(l) && begins_packs(r); }
  template<int pack>
  KOKKOS_FUNCTION void add(ListPart const& part, std::int64_t column, T (&sums)[1][pack]) const {
    using Numbers = StoredNumbers<T, pack>;
    auto const own = part.head * heads.width + column;
    auto const right = *reinterpret_cast<Numbers const*>(r + part.list * heads.columns() + own);
    for (auto entry = part.begin; entry < part.end; ++entry) {
      auto const edge = places[entry];
      auto const g = gradient[edge * heads.count + part.head];
      auto const left = *reinterpret_cast<Numbers const*>(l + rows[entry] * heads.columns() + own);
      for (int i = 0; i < pack; ++i)
        sums[0][i] += g * a[own + i] * leaky_slope(left.get(i) + right.get(i) + features(edge, own + i));
    }
  }
  KOKKOS_FUNCTION void finish(int, std::int64_t list, std::int64_t head, std::int64_t column, T total) const {
    dr[(list * heads.count + head) * heads.width + column] += total;
  }
};

/// Runs one of these kernels on all its lists, which have `num_entries` entries together. Enqueues on exec; does not fence.
template<template<class> class Kernel, class T>
void run(DefaultExec const& exec, char const* label, std::int64_t num_lists, std::int64_t num_entries,
         Kernel<T> const& kernel, std::int64_t longest = longest_of_thread) {
  if constexpr (requires { Kernel<T>::outputs; })
    sum_list_rows<T>(exec, label, {kernel.offsets, num_lists, kernel.heads.count, longest},
                     kernel.heads.width, kernel);
  else if constexpr (requires { kernel.num_items(); })
    sum_lists<T>(exec, label, {kernel.offsets, num_lists, kernel.heads.count, longest}, kernel.num_items(),
                 kernel);
  else
    sum_lists<T>(exec, label, {kernel.offsets, num_lists, kernel.num_heads, longest},
                 num_lists == 0 ? 0 : num_entries / num_lists / 4, kernel);
}

} // namespace orthant::pmm::device_edges

namespace Kokkos {
template<class T>
struct reduction_identity<orthant::pmm::device_edges::FourSums<T>> {
  KOKKOS_FUNCTION static orthant::pmm::device_edges::FourSums<T> sum() { return {}; }
};
} // namespace Kokkos
