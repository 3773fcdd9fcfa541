// SPDX-License-Identifier: Apache-2.0
#include "models/activation.hpp"

namespace orthant::models {
namespace {

using runtime::DefaultExec;
using runtime::Matrix;
using runtime::RandomStream;
using runtime::Vector;
using Policy = Kokkos::RangePolicy<DefaultExec, std::int64_t>;

/// to(i, j) := M scale f(from(i, j)), f = relu or the identity. A row is a work item: its four-word blocks of
/// random bits are drawn once for four neighbouring features.
template<class T, bool is_relu>
struct MaskRows {
  Matrix<T> from;
  Matrix<T> to;
  Vector<std::int64_t> original_ids;
  std::uint64_t first_column;
  RandomStream stream;
  std::uint64_t drop_threshold; // a word below it drops the element
  T scale;

  KOKKOS_FUNCTION void operator()(std::int64_t row) const {
    auto const i = static_cast<std::size_t>(row);
    auto const vertex = static_cast<std::uint64_t>(original_ids(i));
    auto const num_columns = from.extent(1);
    auto block = stream.block(vertex, first_column >> 2);
    for (std::size_t j = 0; j < num_columns; ++j) {
      auto const feature = first_column + j;
      if ((feature & 3) == 0) block = stream.block(vertex, feature >> 2);
      auto const is_kept = block[static_cast<unsigned>(feature & 3)] >= drop_threshold;
      auto const value = from(i, j);
      // A NaN passes: it must reach the loss, where it is reported.
      to(i, j) = !is_kept || (is_relu && value < T{0}) ? T{0} : value * scale;
    }
  }
};

template<class T>
T keep_scale(double probability) {
  return static_cast<T>(1 / (1 - probability));
}

template<bool is_relu, class T>
void mask_rows(DefaultExec const& exec, char const* label, Matrix<T> const& from, Dropout const& dropout,
               BlockKeys const& keys, Matrix<T> const& to) {
  Kokkos::parallel_for(label, Policy(exec, 0, static_cast<std::int64_t>(from.extent(0))),
                       MaskRows<T, is_relu>{from, to, keys.original_ids,
                                            static_cast<std::uint64_t>(keys.first_column), dropout.stream,
                                            runtime::bernoulli_threshold(dropout.probability),
                                            keep_scale<T>(dropout.probability)});
}

} // namespace

template<class T>
void relu_dropout(DefaultExec const& exec, Matrix<T> const& z, Dropout const& dropout,
                  BlockKeys const& keys) {
  if (dropout.probability > 0)
    return mask_rows<true>(exec, "orthant::models::relu_dropout", z, dropout, keys, z);
  auto* const data = z.data();
  Kokkos::parallel_for(
      "orthant::models::relu", Policy(exec, 0, static_cast<std::int64_t>(z.size())),
      KOKKOS_LAMBDA(std::int64_t i) { data[i] = data[i] < T{0} ? T{0} : data[i]; });
}

template<class T>
void relu_dropout_backward(DefaultExec const& exec, Matrix<T> const& activation, double probability,
                           Matrix<T> const& gradient) {
  auto const scale = keep_scale<T>(probability);
  auto const* const active = activation.data();
  auto* const data = gradient.data();
  Kokkos::parallel_for(
      "orthant::models::relu_dropout_backward", Policy(exec, 0, static_cast<std::int64_t>(gradient.size())),
      KOKKOS_LAMBDA(std::int64_t i) { data[i] = active[i] > T{0} ? data[i] * scale : T{0}; });
}

template<class T>
void apply_dropout(DefaultExec const& exec, Matrix<T> const& from, Dropout const& dropout,
                   BlockKeys const& keys, Matrix<T> const& to) {
  mask_rows<false>(exec, "orthant::models::apply_dropout", from, dropout, keys, to);
}

template<class T>
void apply_dropout_to_piece(DefaultExec const& exec, Vector<T> const& from, Dropout const& dropout,
                            BlockKeys const& keys, std::int64_t first, std::int64_t num_columns,
                            Vector<T> const& to) {
  auto const [original_ids, first_column] = keys;
  auto const [probability, stream] = dropout;
  auto const scale = keep_scale<T>(probability);
  Kokkos::parallel_for(
      "orthant::models::apply_dropout_to_piece", Policy(exec, 0, static_cast<std::int64_t>(from.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const place = first + i;
        auto const vertex =
            static_cast<std::uint64_t>(original_ids(static_cast<std::size_t>(place / num_columns)));
        auto const feature = static_cast<std::uint64_t>(first_column + place % num_columns);
        auto const is_dropped = stream.bernoulli(probability, vertex, feature);
        to(static_cast<std::size_t>(i)) = is_dropped ? T{0} : from(static_cast<std::size_t>(i)) * scale;
      });
}

template<class T>
void apply_dropout_to_entries(DefaultExec const& exec, runtime::CsrMatrix<T> const& csr, CsrRows rows,
                              Dropout const& dropout, BlockKeys const& keys, Vector<T> const& to) {
  auto const [original_ids, first_column] = keys;
  auto const [probability, stream] = dropout;
  auto const scale = keep_scale<T>(probability);
  auto const rows_are_vertices = rows == CsrRows::vertices;
  Kokkos::parallel_for(
      "orthant::models::apply_dropout_to_entries", Policy(exec, 0, csr.num_rows),
      KOKKOS_LAMBDA(std::int64_t row) {
        auto const end = csr.row_offsets(static_cast<std::size_t>(row) + 1);
        for (auto k = csr.row_offsets(static_cast<std::size_t>(row)); k < end; ++k) {
          auto const entry = static_cast<std::size_t>(k);
          auto const column = static_cast<std::int64_t>(csr.columns(entry));
          auto const vertex = static_cast<std::size_t>(rows_are_vertices ? row : column);
          auto const feature = first_column + (rows_are_vertices ? column : row);
          auto const is_dropped =
              stream.bernoulli(probability, static_cast<std::uint64_t>(original_ids(vertex)),
                               static_cast<std::uint64_t>(feature));
          auto const value = csr.values.extent(0) == 0 ? T{1} : csr.values(entry);
          to(entry) = is_dropped ? T{0} : value * scale;
        }
      });
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void relu_dropout(DefaultExec const&, Matrix<T> const&, Dropout const&, BlockKeys const&);        \
  template void relu_dropout_backward(DefaultExec const&, Matrix<T> const&, double, Matrix<T> const&);       \
  template void apply_dropout(DefaultExec const&, Matrix<T> const&, Dropout const&, BlockKeys const&,        \
                              Matrix<T> const&);                                                             \
  template void apply_dropout_to_piece(DefaultExec const&, Vector<T> const&, Dropout const&,                 \
                                       BlockKeys const&, std::int64_t, std::int64_t, Vector<T> const&);      \
  template void apply_dropout_to_entries(DefaultExec const&, runtime::CsrMatrix<T> const&, CsrRows,          \
                                         Dropout const&, BlockKeys const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
