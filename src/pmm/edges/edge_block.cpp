// SPDX-License-Identifier: Apache-2.0
#include "pmm/edges/edge_block.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace orthant::pmm {
namespace {

/// Columns whose lists are filled together: the ends of so many lists stay in a processor's cache. More if rows are so short
/// that passing over all of them for each range would cost more than the edges do.
std::int64_t columns_together(std::int64_t num_rows, std::int64_t num_columns, std::int64_t num_edges) {
  constexpr std::int64_t least = std::int64_t{1} << 16;
  auto const most_ranges = std::max<std::int64_t>(1, num_edges / std::max<std::int64_t>(1, num_rows));
  return std::max(least, (num_columns + most_ranges - 1) / most_ranges);
}

/// An array for kernels, and its numbers on the host, which upload() brings there.
template<class Number>
class Uploaded {
 public:
  Uploaded(std::string const& label, std::size_t count)
      : view_(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), count),
        on_host_(Kokkos::create_mirror_view(view_)) {}
  [[nodiscard]] Number* data() const { return on_host_.data(); }
  [[nodiscard]] Vector<Number> upload() const {
    Kokkos::deep_copy(view_, on_host_);
    return view_;
  }

 private:
  Vector<Number> view_;
  decltype(Kokkos::create_mirror_view(std::declval<Vector<Number>>())) on_host_;
};

} // namespace

template<class T>
EdgeBlock make_edge_block(CsrMatrix<T> const& csr) {
  ORTHANT_REQUIRE(csr.num_rows <= std::numeric_limits<LocalColumn>::max(), csr.num_rows,
                  " rows of a block of edges");
  auto const row_offsets_there = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), csr.row_offsets);
  auto const columns_there = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), csr.columns);
  auto const* const row_offsets = row_offsets_there.data();
  auto const* const columns = columns_there.data();
  auto const num_edges = columns_there.extent(0);
  Uploaded<Offset> const offsets("orthant::pmm::edge_columns", static_cast<std::size_t>(csr.num_columns) + 1);
  Uploaded<LocalColumn> const rows("orthant::pmm::edge_rows", num_edges);
  Uploaded<Offset> const places("orthant::pmm::edge_places", num_edges);
  std::fill_n(offsets.data(), csr.num_columns + 1, Offset{0});
  for (std::size_t e = 0; e < num_edges; ++e)
    ++offsets.data()[columns[e] + 1];
  std::partial_sum(offsets.data(), offsets.data() + csr.num_columns + 1, offsets.data());

  // Columns ascend within a row: the edges of the next columns are the next ones of each row.
  std::vector<Offset> ends(offsets.data(), offsets.data() + csr.num_columns); // of the lists so far
  std::vector<Offset> next(row_offsets, row_offsets + csr.num_rows);          // edge of each row
  auto const width = columns_together(csr.num_rows, csr.num_columns, static_cast<std::int64_t>(num_edges));
  for (std::int64_t first = 0; first < csr.num_columns; first += width)
    for (std::int64_t i = 0; i < csr.num_rows; ++i) {
      auto& e = next[static_cast<std::size_t>(i)];
      for (; e < row_offsets[i + 1] && columns[e] < first + width; ++e) {
        auto const place = ends[static_cast<std::size_t>(columns[e])]++;
        rows.data()[place] = static_cast<LocalColumn>(i);
        places.data()[place] = e;
      }
    }
  return {csr.num_rows,     csr.num_columns, csr.row_offsets, csr.columns,
          offsets.upload(), rows.upload(),   places.upload()};
}

void plan_edge_block(StepPlan& step, EdgeCounts const& counts) {
  step.add_array("orthant::pmm::edge_columns", (counts.columns + 1) * std::int64_t{sizeof(Offset)});
  step.add_array("orthant::pmm::edge_rows", counts.edges * std::int64_t{sizeof(LocalColumn)});
  step.add_array("orthant::pmm::edge_places", counts.edges * std::int64_t{sizeof(Offset)});
}

template EdgeBlock make_edge_block(CsrMatrix<float> const&);
template EdgeBlock make_edge_block(CsrMatrix<double> const&);

} // namespace orthant::pmm
