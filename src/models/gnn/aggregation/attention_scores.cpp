// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/aggregation/attention_scores.hpp"

#include <cmath>

namespace orthant::models {
namespace {

template<class T>
struct Ends {
  pmm::Heads heads;
  std::int64_t num_rows;
  T const* z;
  T const* vectors;
  T* ends;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    T const* const numbers = z + (row * heads.count + head) * heads.width;
    T const* const of_row = vectors + head * 2 * heads.width;
    T const* const of_column = of_row + heads.width;
    T s = 0;
    T t = 0;
    for (std::int64_t c = 0; c < heads.width; ++c) {
      s += of_row[c] * numbers[c];
      t += of_column[c] * numbers[c];
    }
    ends[row * heads.count + head] = s;
    ends[(num_rows + row) * heads.count + head] = t;
  }
};

template<class T>
struct EndsGradient {
  pmm::Heads heads;
  std::int64_t num_rows;
  T const* vectors;
  T const* ends_gradient;
  T* dz;

  KOKKOS_FUNCTION void operator()(std::int64_t row, std::int64_t head) const {
    T* const numbers = dz + (row * heads.count + head) * heads.width;
    T const* const of_row = vectors + head * 2 * heads.width;
    T const* const of_column = of_row + heads.width;
    auto const ds = ends_gradient[row * heads.count + head];
    auto const dt = ends_gradient[(num_rows + row) * heads.count + head];
    for (std::int64_t c = 0; c < heads.width; ++c)
      numbers[c] += ds * of_row[c] + dt * of_column[c];
  }
};

/// Term of row i in the sum da.
template<class T>
struct EndsTerms {
  pmm::Heads heads;
  std::int64_t num_rows;
  T const* z;
  T const* ends_gradient;

  KOKKOS_FUNCTION T operator()(std::int64_t row, std::int64_t column) const {
    auto const head = column / (2 * heads.width);
    auto const place = column % (2 * heads.width);
    auto const is_of_row = place < heads.width;
    auto const gradient = ends_gradient[((is_of_row ? 0 : num_rows) + row) * heads.count + head];
    return gradient * z[(row * heads.count + head) * heads.width + (is_of_row ? place : place - heads.width)];
  }
  /// Adds the terms of all columns of a row.
  void add_row(std::int64_t row, T* sums) const {
    for (std::int64_t head = 0; head < heads.count; ++head, sums += 2 * heads.width) {
      T const* const numbers = z + (row * heads.count + head) * heads.width;
      auto const ds = ends_gradient[row * heads.count + head];
      auto const dt = ends_gradient[(num_rows + row) * heads.count + head];
#pragma GCC ivdep
      for (std::int64_t c = 0; c < heads.width; ++c) {
        sums[c] += ds * numbers[c];
        sums[heads.width + c] += dt * numbers[c];
      }
    }
  }
};

template<class T>
struct PlainTerms {
  std::int64_t num_columns;
  T const* terms;
  KOKKOS_FUNCTION T operator()(std::int64_t row, std::int64_t column) const {
    return terms[row * num_columns + column];
  }
  void add_row(std::int64_t row, T* sums) const {
    T const* const numbers = terms + row * num_columns;
#pragma GCC ivdep
    for (std::int64_t c = 0; c < num_columns; ++c)
      sums[c] += numbers[c];
  }
};

/// Term of row i in the sum db: dV and dQ of each head.
template<class T>
struct ShiftTerms {
  pmm::Heads heads;
  std::int64_t stride;
  T const* du;

  KOKKOS_FUNCTION T operator()(std::int64_t row, std::int64_t column) const {
    auto const head = column / (2 * heads.width);
    auto const place = column % (2 * heads.width);
    auto const first = place < heads.width ? 0 : 2 * heads.columns() - heads.width;
    return du[row * stride + first + head * heads.width + place];
  }
  void add_row(std::int64_t row, T* sums) const {
    for (std::int64_t head = 0; head < heads.count; ++head, sums += 2 * heads.width) {
      T const* const dv = du + row * stride + head * heads.width;
      T const* const dq = dv + 2 * heads.columns();
#pragma GCC ivdep
      for (std::int64_t c = 0; c < heads.width; ++c) {
        sums[c] += dv[c];
        sums[heads.width + c] += dq[c];
      }
    }
  }
};

template<class T>
T scale_of_dots(AttentionPlan const& plan) {
  return static_cast<T>(1 / std::sqrt(static_cast<double>(plan.head_width)));
}

} // namespace

template<class T>
void find_ends(DefaultExec const& exec, pmm::Heads const& heads, std::int64_t num_rows, Vector<T> const& z,
               Vector<T> const& vectors, Vector<T> const& ends) {
  pmm::for_each_row_and_head(exec, "orthant::models::attention_ends", num_rows, heads.count,
                             Ends<T>{heads, num_rows, z.data(), vectors.data(), ends.data()});
}

template<class T>
void add_ends_gradient(DefaultExec const& exec, pmm::Heads const& heads, std::int64_t num_rows,
                       Vector<T> const& vectors, Vector<T> const& ends_gradient, Vector<T> const& dz) {
  pmm::for_each_row_and_head(
      exec, "orthant::models::attention_ends_backward", num_rows, heads.count,
      EndsGradient<T>{heads, num_rows, vectors.data(), ends_gradient.data(), dz.data()});
}

template<class T>
void sum_ends(DefaultExec const& exec, pmm::Heads const& heads, RowSums<T> const& sums, Vector<T> const& z,
              Vector<T> const& ends_gradient, T* da) {
  sum_rows(exec, sums, EndsTerms<T>{heads, sums.num_rows, z.data(), ends_gradient.data()}, da);
}

template<class T>
void sum_terms(DefaultExec const& exec, RowSums<T> const& sums, Vector<T> const& terms, T* da) {
  sum_rows(exec, sums, PlainTerms<T>{sums.num_columns, terms.data()}, da);
}

template<class T>
void average_heads(DefaultExec const& exec, pmm::Heads const& heads, std::int64_t num_rows,
                   Vector<T> const& all, Vector<T> const& mean) {
  T const* const from = all.data();
  T* const to = mean.data();
  for_each_number(
      exec, "orthant::models::average_heads", num_rows * heads.width, KOKKOS_LAMBDA(std::int64_t k) {
        auto const row = k / heads.width;
        auto const column = k % heads.width;
        T sum = 0;
        for (std::int64_t head = 0; head < heads.count; ++head)
          sum += from[(row * heads.count + head) * heads.width + column];
        to[k] = sum / static_cast<T>(heads.count);
      });
}

template<class T>
void spread_heads(DefaultExec const& exec, pmm::Heads const& heads, std::int64_t num_rows,
                  Vector<T> const& mean, Vector<T> const& all) {
  T const* const from = mean.data();
  T* const to = all.data();
  for_each_number(
      exec, "orthant::models::spread_heads", num_rows * heads.columns(), KOKKOS_LAMBDA(std::int64_t k) {
        auto const row = k / heads.columns();
        to[k] = from[row * heads.width + k % heads.width] / static_cast<T>(heads.count);
      });
}

template<class T>
void shift_projected(DefaultExec const& exec, AttentionPlan const& plan, std::int64_t num_rows,
                     Vector<T> const& vectors, Vector<T> const& u) {
  auto const heads = plan.heads();
  auto const stride = plan.num_projected();
  auto const scale = scale_of_dots<T>(plan);
  for_each_number(
      exec, "orthant::models::shift_projected", num_rows * heads.columns(), KOKKOS_LAMBDA(std::int64_t k) {
        auto const column = k % heads.columns();
        auto const place = k / heads.columns() * stride + column;
        auto const of_head = column / heads.width * 2 * heads.width + column % heads.width;
        u[place] += vectors[of_head];
        auto& query = u[place + 2 * heads.columns()];
        query = (query + vectors[of_head + heads.width]) * scale;
      });
}

template<class T>
void add_skipped(DefaultExec const& exec, AttentionPlan const& plan, std::int64_t num_rows,
                 Vector<T> const& u, Vector<T> const& result) {
  auto const width = plan.num_outputs();
  auto const stride = plan.num_projected();
  for_each_number(
      exec, "orthant::models::add_skipped", num_rows * width,
      KOKKOS_LAMBDA(std::int64_t k) { result[k] += u[k / width * stride + stride - width + k % width]; });
}

template<class T>
void shift_projected_backward(DefaultExec const& exec, AttentionPlan const& plan, std::int64_t num_rows,
                              Vector<T> const& result_gradient, Vector<T> const& du) {
  auto const width = plan.num_outputs();
  auto const columns = plan.heads().columns();
  auto const stride = plan.num_projected();
  auto const scale = scale_of_dots<T>(plan);
  for_each_number(
      exec, "orthant::models::shift_projected_backward", num_rows * (columns + width),
      KOKKOS_LAMBDA(std::int64_t k) {
        auto const row = k / (columns + width);
        auto const column = k % (columns + width);
        auto& number = du[row * stride + 2 * columns + column];
        number = column < columns ? number * scale : result_gradient[row * width + column - columns];
      });
}

template<class T>
void sum_shifts(DefaultExec const& exec, AttentionPlan const& plan, RowSums<T> const& sums,
                Vector<T> const& du, T* db) {
  sum_rows(exec, sums, ShiftTerms<T>{plan.heads(), plan.num_projected(), du.data()}, db);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void find_ends(DefaultExec const&, pmm::Heads const&, std::int64_t, Vector<T> const&,             \
                          Vector<T> const&, Vector<T> const&);                                               \
  template void add_ends_gradient(DefaultExec const&, pmm::Heads const&, std::int64_t, Vector<T> const&,     \
                                  Vector<T> const&, Vector<T> const&);                                       \
  template void sum_ends(DefaultExec const&, pmm::Heads const&, RowSums<T> const&, Vector<T> const&,         \
                         Vector<T> const&, T*);                                                              \
  template void sum_terms(DefaultExec const&, RowSums<T> const&, Vector<T> const&, T*);                      \
  template void average_heads(DefaultExec const&, pmm::Heads const&, std::int64_t, Vector<T> const&,         \
                              Vector<T> const&);                                                             \
  template void spread_heads(DefaultExec const&, pmm::Heads const&, std::int64_t, Vector<T> const&,          \
                             Vector<T> const&);                                                              \
  template void shift_projected(DefaultExec const&, AttentionPlan const&, std::int64_t, Vector<T> const&,    \
                                Vector<T> const&);                                                           \
  template void add_skipped(DefaultExec const&, AttentionPlan const&, std::int64_t, Vector<T> const&,        \
                            Vector<T> const&);                                                               \
  template void shift_projected_backward(DefaultExec const&, AttentionPlan const&, std::int64_t,             \
                                         Vector<T> const&, Vector<T> const&);                                \
  template void sum_shifts(DefaultExec const&, AttentionPlan const&, RowSums<T> const&, Vector<T> const&, T*);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
