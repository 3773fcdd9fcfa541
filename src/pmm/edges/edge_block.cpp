// SPDX-License-Identifier: Apache-2.0
#include "pmm/edges/edge_block.hpp"

#include "pmm/aggregate/row_lists.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace orthant::pmm {
namespace {

/// Number of columns whose lists are filled together. The ends of 2^16 lists stay in a processor's cache. If rows are short, the
/// ranges of columns are wider, so that visiting all rows per range costs no more than visiting the edges.
std::int64_t columns_together(std::int64_t num_rows, std::int64_t num_columns, std::int64_t num_edges) {
  constexpr std::int64_t least = std::int64_t{1} << 16;
  auto const most_ranges = std::max<std::int64_t>(1, num_edges / std::max<std::int64_t>(1, num_rows));
  return std::max(least, (num_columns + most_ranges - 1) / most_ranges);
}

/// An array for kernels with a copy on the host; upload() copies it to the memory of kernels.
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

  // Columns ascend within a row, so the edges of the next range of columns are the next edges of each row.
  std::vector<Offset> ends(offsets.data(), offsets.data() + csr.num_columns); // ends of the lists so far
  std::vector<Offset> next(row_offsets, row_offsets + csr.num_rows);          // next edge of each row
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

namespace {

using runtime::part_of;
using runtime::sum_of;

/// Index of element (row i, column c of the heads) in the rows of an owner, and in the parts of all ranks of b, one after the other.
struct HeadParts {
  std::int64_t num_rows, num_heads, width, stride, first_column;
  int num_parts;

  [[nodiscard]] KOKKOS_FUNCTION std::int64_t in_rows(std::int64_t i, std::int64_t c) const {
    return i * stride + first_column + c;
  }
  [[nodiscard]] KOKKOS_FUNCTION std::int64_t in_parts(std::int64_t i, std::int64_t c) const {
    auto const heads = runtime::balanced_range(num_heads, num_parts,
                                               runtime::balanced_part(num_heads, num_parts, c / width));
    return heads.begin * width * num_rows + i * heads.size() * width + c - heads.begin * width;
  }
};

HeadParts parts_of(BlockRowsSteps const& s) {
  return {s.num_own, s.width / s.part.width, s.part.width, s.stride, s.first_column, s.num_parts};
}

LocalPass pass_of_copy(std::int64_t bytes) {
  return {"copy_heads", bytes, bytes};
}

/// to := from, from rows to parts if `splits`, else from parts to rows.
template<bool splits, class T>
void copy_heads(DefaultExec const& exec, HeadParts const& parts, T const* from, T* to) {
  auto const width = parts.num_heads * parts.width;
  Kokkos::parallel_for(
      "orthant::pmm::copy_heads",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, parts.num_rows * width),
      KOKKOS_LAMBDA(std::int64_t k) {
        auto const in_rows = parts.in_rows(k / width, k % width);
        auto const in_parts = parts.in_parts(k / width, k % width);
        to[splits ? in_parts : in_rows] = from[splits ? in_rows : in_parts];
      });
}

} // namespace

template<class T>
void split_columns(DefaultExec const& exec, runtime::PassLedger& passes, std::int64_t num_rows,
                   std::int64_t width, int num_parts, Vector<T> const& rows, Vector<T> const& parts) {
  passes.add(pass_of_copy(num_rows * width * static_cast<std::int64_t>(sizeof(T))));
  copy_heads<true>(exec, {num_rows, width, 1, width, 0, num_parts}, rows.data(), parts.data());
}

template<class T>
void join_columns(DefaultExec const& exec, runtime::PassLedger& passes, std::int64_t num_rows,
                  std::int64_t width, int num_parts, Vector<T> const& parts, Vector<T> const& rows) {
  passes.add(pass_of_copy(num_rows * width * static_cast<std::int64_t>(sizeof(T))));
  copy_heads<false>(exec, {num_rows, width, 1, width, 0, num_parts}, parts.data(), rows.data());
}

void plan_split_columns(StepPlan& step, std::int64_t num_rows, std::int64_t width) {
  step.add_pass(pass_of_copy(step.scalar_bytes(num_rows * width)));
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void split_columns(DefaultExec const&, runtime::PassLedger&, std::int64_t, std::int64_t, int,     \
                              Vector<T> const&, Vector<T> const&);                                           \
  template void join_columns(DefaultExec const&, runtime::PassLedger&, std::int64_t, std::int64_t, int,      \
                             Vector<T> const&, Vector<T> const&);
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

MovedRows make_moved_rows(std::optional<NeededSlabs> const& slabs) {
  if (!slabs) return {};
  return {to_device("orthant::pmm::needed_rows", slabs->touched), slabs->asked, slabs->addend_offsets,
          slabs->addends};
}

BlockRowsSteps::BlockRowsSteps(GridShape const& shape, Coordinates const& coordinates,
                               BlockRowsPlan const& plan)
    : axis(plan.side == BlockSide::columns ? plan.roles.c : plan.roles.a),
      width(plan.heads.columns()),
      stride(plan.stride),
      first_column(plan.first_column),
      num_parts(shape.size(plan.roles.b)) {
  ORTHANT_REQUIRE(first_column + width <= stride, "columns ", first_column, " + ", width, " of ", stride);
  auto const b = coordinates.along(plan.roles.b);
  auto const& over_b = plan.side == BlockSide::columns ? plan.sizes.over_b : plan.sizes.rows_of_b();
  auto const& over_axis = plan.side == BlockSide::columns ? plan.sizes.over_c : plan.sizes.over_a;
  auto const heads_of = [&](std::int64_t i) {
    return runtime::balanced_range(plan.heads.count, num_parts, i);
  };
  part = {heads_of(b).size(), plan.heads.width};
  first_head = heads_of(b).begin;
  num_own = over_b[static_cast<std::size_t>(b)];
  num_slab = sum_of(over_b);
  num_block = sum_of(over_axis);
  auto const place = coordinates.along(axis);
  slab_begin = std::accumulate(over_axis.begin(), over_axis.begin() + place, std::int64_t{0});
  // must_exchange and must_gather must be the same on all ranks of their axis, so they do not depend on the part of one rank.
  must_exchange = num_parts > 1 && num_slab * width > 0;
  must_gather = shape.size(axis) > 1 && num_block * part.columns() > 0;
  is_strided = stride != width;
  for (std::int64_t i = 0; i < num_parts; ++i)
    columns.push_back(num_own * heads_of(i).size() * plan.heads.width);
  for (auto const count : over_b)
    rows.push_back(count * part.columns());
  for (auto const count : over_axis)
    slabs.push_back(count * part.columns());
  moves_needed = must_gather && plan.needed;
  if (!moves_needed) return;
  must_gather = false;
  for (auto const count : plan.needed->touched)
    touched.push_back(count * part.columns());
  for (auto const count : plan.needed->asked)
    asked.push_back(count * part.columns());
}

template<class T>
BlockRows<T>::BlockRows(ProcessGrid const& grid, BlockRowsPlan const& plan,
                        std::shared_ptr<Workspace<T>> workspace, MovedRows moved)
    : grid_(&grid),
      roles_(plan.roles),
      wire_(plan.wire),
      steps_(grid.shape(), grid.coordinates(), plan),
      workspace_(std::move(workspace)),
      moved_(std::move(moved)) {
  auto const num_listed = static_cast<std::int64_t>(moved_.touched.extent(0));
  ORTHANT_REQUIRE(num_listed == (plan.needed ? sum_of(plan.needed->touched) : 0), num_listed,
                  " rows are listed, not the planned ones");
  reserve_block_rows(*workspace_, steps_);
}

template<class T>
Vector<T> BlockRows<T>::bring(DefaultExec const& exec, Vector<T> const& own, Vector<T> const& memory) const {
  auto const& s = steps_;
  if (!s.has_copy()) return own;
  auto const bytes = s.num_own * s.width * static_cast<std::int64_t>(sizeof(T));
  auto slab = s.moves_needed && s.has_slab()
                  ? workspace_->lend(Slot::right, s.num_in_slab())
                  : part_of(memory, s.slab_begin * s.part.columns(), s.num_in_slab());
  if (s.must_exchange) {
    auto const split = workspace_->lend(Slot::left, s.num_own * s.width);
    grid_->passes().add(pass_of_copy(bytes));
    copy_heads<true>(exec, parts_of(s), own.data(), split.data());
    runtime::all_to_allv(exec, grid_->over(roles_.b), split, s.columns, slab, s.rows, wire_);
  } else if (s.is_strided) {
    grid_->passes().add(pass_of_copy(bytes));
    copy_heads<true>(exec, parts_of(s), own.data(), slab.data());
  } else {
    slab = part_of(own, 0, s.num_in_slab());
  }
  if (s.must_gather)
    runtime::all_gatherv(exec, grid_->over(s.axis), slab, part_of(memory, 0, s.num_in_block()), s.slabs,
                         wire_);
  if (s.moves_needed) {
    auto const sent = workspace_->lend(Slot::left, s.num_asked());
    auto const received = workspace_->lend(Slot::result, s.num_touched());
    pick_rows(exec, grid_->passes(), slab, moved_.asked, s.part.columns(), sent);
    runtime::all_to_allv(exec, grid_->over(s.axis), sent, s.asked, received, s.touched, wire_);
    place_rows(exec, grid_->passes(), received, moved_.touched, s.part.columns(), memory);
  }
  return memory;
}

template<class T>
void BlockRows<T>::bring_back(DefaultExec const& exec, Vector<T> const& block, Vector<T> const& own) const {
  auto const& s = steps_;
  ORTHANT_REQUIRE(s.has_copy() || block.data() == own.data(), "rows that do not move are the owner's");
  auto const bytes = s.num_own * s.width * static_cast<std::int64_t>(sizeof(T));
  auto const all = part_of(block, 0, s.num_in_block());
  auto slab = all;
  if (s.must_gather || s.moves_needed)
    slab = s.has_slab() ? workspace_->lend(Slot::right, s.num_in_slab()) : part_of(own, 0, s.num_in_slab());
  if (s.must_gather)
    runtime::reduce_scatterv(exec, grid_->over(s.axis), all, slab, s.slabs, runtime::Reduction::sum, wire_);
  if (s.moves_needed) {
    auto const sent = workspace_->lend(Slot::result, s.num_touched());
    auto const addends = workspace_->lend(Slot::left, s.num_asked());
    pick_rows(exec, grid_->passes(), all, moved_.touched, s.part.columns(), sent);
    runtime::all_to_allv(exec, grid_->over(s.axis), sent, s.touched, addends, s.asked, wire_);
    add_rows(exec, grid_->passes(), addends, moved_.addend_offsets, moved_.addends, s.part.columns(), slab);
  }
  if (s.must_exchange) {
    auto const split = workspace_->lend(Slot::left, s.num_own * s.width);
    runtime::all_to_allv(exec, grid_->over(roles_.b), slab, s.rows, split, s.columns, wire_);
    grid_->passes().add(pass_of_copy(bytes));
    copy_heads<false>(exec, parts_of(s), split.data(), own.data());
  } else if (s.is_strided) {
    grid_->passes().add(pass_of_copy(bytes));
    copy_heads<false>(exec, parts_of(s), slab.data(), own.data());
  }
}

namespace {

void plan_exchange(StepPlan& step, Axis axis, std::vector<std::int64_t> const& sent, runtime::Wire wire) {
  step.add_call(runtime::Operation::all_to_all, axis,
                step.wire_bytes_leaving(sent, step.coordinates().along(axis), wire));
}

} // namespace

void plan_bring(StepPlan& step, BlockRowsPlan const& plan) {
  BlockRowsSteps const s(step.shape(), step.coordinates(), plan);
  if (s.must_exchange || s.is_strided) step.add_pass(pass_of_copy(step.scalar_bytes(s.num_own * s.width)));
  if (s.must_exchange) plan_exchange(step, plan.roles.b, s.columns, plan.wire);
  if (s.must_gather)
    step.add_call(runtime::Operation::all_gather, s.axis, step.wire_bytes(s.slabs, plan.wire));
  if (!s.moves_needed) return;
  plan_pick_rows(step, sum_of(plan.needed->asked), s.part.columns());
  plan_exchange(step, s.axis, s.asked, plan.wire);
  plan_place_rows(step, sum_of(plan.needed->touched), s.part.columns());
}

void plan_bring_back(StepPlan& step, BlockRowsPlan const& plan) {
  BlockRowsSteps const s(step.shape(), step.coordinates(), plan);
  if (s.must_gather)
    step.add_call(runtime::Operation::reduce_scatter, s.axis, step.wire_bytes(s.slabs, plan.wire));
  if (s.moves_needed) {
    plan_pick_rows(step, sum_of(plan.needed->touched), s.part.columns());
    plan_exchange(step, s.axis, s.touched, plan.wire);
    plan_add_rows(step, s.num_slab, sum_of(plan.needed->asked), s.part.columns());
  }
  if (s.must_exchange) plan_exchange(step, plan.roles.b, s.rows, plan.wire);
  if (s.must_exchange || s.is_strided) step.add_pass(pass_of_copy(step.scalar_bytes(s.num_own * s.width)));
}

template class BlockRows<float>;
template class BlockRows<double>;

} // namespace orthant::pmm
