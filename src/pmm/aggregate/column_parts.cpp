// SPDX-License-Identifier: Apache-2.0
#include "pmm/aggregate/column_parts.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "runtime/numbers/formats.hpp"

#include <algorithm>

namespace orthant::pmm {
namespace {

/// Element (i, j) of the rows lies at begin n + i w_p + j - begin of the parts, where part p begins with
/// column `begin` and is w_p wide.
struct Parts {
  std::int64_t num_rows, width;
  int num_parts;

  KOKKOS_FUNCTION std::int64_t place(std::int64_t i, std::int64_t j) const {
    auto const columns =
        runtime::balanced_range(width, num_parts, runtime::balanced_part(width, num_parts, j));
    return columns.begin * num_rows + i * columns.size() + j - columns.begin;
  }
  /// Calls visit(place in the rows, place in the parts, count) for the runs of row i.
  template<class Visit>
  void for_each_run(std::int64_t i, Visit const& visit) const {
    for (int part = 0; part < num_parts; ++part) {
      auto const columns = runtime::balanced_range(width, num_parts, part);
      visit(i * width + columns.begin, columns.begin * num_rows + i * columns.size(), columns.size());
    }
  }
};

/// Copies every element between the places that `choose` picks of (in the rows, in the parts).
template<class T, class Choose>
void copy_elements(DefaultExec const& exec, char const* label, Parts const& parts, T const* from, T* to,
                   Choose const& choose) {
  if constexpr (runs_on_host) {
    for_each_part(exec, label, parts.num_rows, [=](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i)
        parts.for_each_run(i, [&](std::int64_t in_rows, std::int64_t in_parts, std::int64_t count) {
          auto const places = choose(in_rows, in_parts);
          std::copy_n(from + places.from, count, to + places.to);
        });
    });
  } else {
    Kokkos::parallel_for(
        label, Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, parts.num_rows * parts.width),
        KOKKOS_LAMBDA(std::int64_t k) {
          auto const places = choose(k, parts.place(k / parts.width, k % parts.width));
          to[places.to] = from[places.from];
        });
  }
}

struct PartPlaces {
  std::int64_t from, to;
};
struct RowsToParts {
  KOKKOS_FUNCTION PartPlaces operator()(std::int64_t in_rows, std::int64_t in_parts) const {
    return {in_rows, in_parts};
  }
};
struct PartsToRows {
  KOKKOS_FUNCTION PartPlaces operator()(std::int64_t in_rows, std::int64_t in_parts) const {
    return {in_parts, in_rows};
  }
};

template<class T>
void count_copy(runtime::PassLedger& passes, std::string_view name, std::int64_t num_elements) {
  auto const bytes = num_elements * static_cast<std::int64_t>(sizeof(T));
  passes.add({name, bytes, bytes});
}

} // namespace

template<class T>
void split_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& rows,
                   std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& parts) {
  count_copy<T>(passes, "split_columns", num_rows * width);
  copy_elements(exec, "orthant::pmm::split_columns", Parts{num_rows, width, num_parts},
                static_cast<T const*>(rows.data()), parts.data(), RowsToParts{});
}

template<class T>
void join_columns(DefaultExec const& exec, runtime::PassLedger& passes, Vector<T> const& parts,
                  std::int64_t num_rows, std::int64_t width, int num_parts, Vector<T> const& rows) {
  count_copy<T>(passes, "join_columns", num_rows * width);
  copy_elements(exec, "orthant::pmm::join_columns", Parts{num_rows, width, num_parts},
                static_cast<T const*>(parts.data()), rows.data(), PartsToRows{});
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void split_columns(DefaultExec const&, runtime::PassLedger&, Vector<T> const&, std::int64_t,      \
                              std::int64_t, int, Vector<T> const&);                                          \
  template void join_columns(DefaultExec const&, runtime::PassLedger&, Vector<T> const&, std::int64_t,       \
                             std::int64_t, int, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
ORTHANT_INSTANTIATE(runtime::Bf16Number)
ORTHANT_INSTANTIATE(runtime::Fp16Number)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::pmm
