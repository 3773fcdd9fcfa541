// SPDX-License-Identifier: Apache-2.0
#include "pmm/edges/edge_block.hpp"

#include "runtime/error.hpp"

#include <limits>
#include <string>
#include <vector>

namespace orthant::pmm {
namespace {

template<class Number>
std::vector<Number> on_host(Vector<Number> const& view) {
  std::vector<Number> numbers(view.extent(0));
  Kokkos::deep_copy(
      Kokkos::View<Number*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(numbers.data(), numbers.size()),
      view);
  return numbers;
}

template<class Number>
Vector<Number> on_device(std::string const& label, std::vector<Number> const& numbers) {
  Vector<Number> view(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), numbers.size());
  Kokkos::deep_copy(view, Kokkos::View<Number const*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                              numbers.data(), numbers.size()));
  return view;
}

} // namespace

template<class T>
EdgeBlock make_edge_block(CsrMatrix<T> const& csr) {
  ORTHANT_REQUIRE(csr.num_rows <= std::numeric_limits<LocalColumn>::max(), csr.num_rows,
                  " rows of a block of edges");
  auto const row_offsets = on_host(csr.row_offsets);
  auto const columns = on_host(csr.columns);
  std::vector<Offset> offsets(static_cast<std::size_t>(csr.num_columns) + 1);
  for (auto const column : columns)
    ++offsets[static_cast<std::size_t>(column) + 1];
  for (std::size_t j = 1; j < offsets.size(); ++j)
    offsets[j] += offsets[j - 1];
  std::vector<LocalColumn> rows(columns.size());
  std::vector<Offset> places(columns.size());
  auto next = offsets;
  for (std::int64_t i = 0; i < csr.num_rows; ++i)
    for (auto e = row_offsets[static_cast<std::size_t>(i)]; e < row_offsets[static_cast<std::size_t>(i) + 1];
         ++e) {
      auto const place =
          static_cast<std::size_t>(next[static_cast<std::size_t>(columns[static_cast<std::size_t>(e)])]++);
      rows[place] = static_cast<LocalColumn>(i);
      places[place] = e;
    }
  return {csr.num_rows,
          csr.num_columns,
          csr.row_offsets,
          csr.columns,
          on_device("orthant::pmm::edge_columns", offsets),
          on_device("orthant::pmm::edge_rows", rows),
          on_device("orthant::pmm::edge_places", places)};
}

void plan_edge_block(StepPlan& step, EdgeCounts const& counts) {
  step.add_array("orthant::pmm::edge_columns", (counts.columns + 1) * std::int64_t{sizeof(Offset)});
  step.add_array("orthant::pmm::edge_rows", counts.edges * std::int64_t{sizeof(LocalColumn)});
  step.add_array("orthant::pmm::edge_places", counts.edges * std::int64_t{sizeof(Offset)});
}

template EdgeBlock make_edge_block(CsrMatrix<float> const&);
template EdgeBlock make_edge_block(CsrMatrix<double> const&);

} // namespace orthant::pmm
