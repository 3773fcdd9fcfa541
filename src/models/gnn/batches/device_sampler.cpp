// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/batches/device_sampler.hpp"

#include "models/gnn/batches/device_sampler_kernels.hpp"
#include "models/gnn/batches/device_sampler_tables.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <utility>

namespace orthant::models {
namespace device_sampling {

template<class T>
struct State {
  State(runtime::DefaultExec const& with_exec, sampling::BatchBuilder<T> const& builder);

  ~State() { wait_for_unfinished(); }
  void wait_for_unfinished() const {
    if (is_unfinished)
      runtime::compat::fence(exec, "orthant::models::DeviceSampler/a batch that nobody took");
  }
  void enqueue();
  void mark_members(sampling::BatchKeys const& keys);
  void find_vertices(std::size_t r);
  void lay_out(RowLists& lists, SampledRows const& rows, std::int64_t* total);
  void scale_by_degrees(std::size_t r, bool is_symmetric);
  void cut(std::size_t b, std::size_t side);
  void scale(std::size_t b);
  void find_self_loops(std::size_t b);
  void choose_capacities(std::int64_t batch_size);
  [[nodiscard]] bool grow();
  void make_views();

  BatchMemory<T>& memory() { return memories[current]; }
  [[nodiscard]] SampledRows rows_of(std::size_t r) {
    auto& range = ranges[r];
    return {memory().vertices[r].positions.reserve(range.capacity).data(),
            range.chosen.reserve(range.num_positions()), range.capacity};
  }
  [[nodiscard]] std::size_t range_of(std::size_t b, std::size_t side) const {
    return side == 0 ? blocks[b].rows : blocks[b].columns;
  }
  /// Places of sizes: vertices of range r; entries of sampled rows, and those kept, of a block's side; neighbors of the vertices of r.
  [[nodiscard]] std::size_t size_of_range(std::size_t r) const { return r; }
  [[nodiscard]] std::size_t size_of_rows(std::size_t b, std::size_t side) const {
    return ranges.size() + 4 * b + 2 * side;
  }
  [[nodiscard]] std::size_t size_of_kept(std::size_t b, std::size_t side) const {
    return size_of_rows(b, side) + 1;
  }
  [[nodiscard]] std::size_t size_of_neighbours(std::size_t r) const {
    return ranges.size() + 4 * blocks.size() + r;
  }

  runtime::DefaultExec exec;
  sampling::Sampler const& sampler;
  std::int64_t num_vertices;
  std::vector<DeviceRange<T>> ranges;
  std::vector<SampledFrom<T>> blocks;
  std::array<BatchMemory<T>, 2> memories;
  std::size_t current = 0;
  bool is_unfinished = false; // start() without finish()
  std::int64_t num_repeats = 0;

  Vector<std::uint64_t> members; // a bit per key
  Upload<DevicePart> uploaded_parts{"orthant::models::batch/parts"};
  Upload<double> uploaded_factors{"orthant::models::batch/factors"};
  Upload<double> uploaded_weights{"orthant::models::batch/weights_of_groups"};
  DeviceParts parts;          // of the current batch
  double const* factors = {}; // m(a, b)
  Vector<std::int64_t> sizes;
  Kokkos::View<std::int64_t*, runtime::compat::PinnedSpace> host_sizes;
};

template<class T>
State<T>::State(runtime::DefaultExec const& with_exec, sampling::BatchBuilder<T> const& builder)
    : exec(with_exec),
      sampler(builder.sampler()),
      num_vertices(builder.num_vertices()),
      members("orthant::models::sampler/members",
              static_cast<std::size_t>((builder.num_vertices() + items_a_word - 1) / items_a_word)) {
  ORTHANT_REQUIRE(num_vertices <= std::int64_t{1} << 32 && builder.edges() != sampling::BatchEdges::relations,
                  "kernels sample no relations and at most 2^32 vertices, not ", num_vertices,
                  ": use --batch-source host");
  for (auto const& range : builder.ranges())
    ranges.push_back(make_range<T>(range));
  for (auto const& block : builder.blocks())
    blocks.push_back(make_block(block));
  auto const num_sizes = 2 * ranges.size() + 4 * blocks.size();
  sizes = Vector<std::int64_t>("orthant::models::sampler/sizes", num_sizes);
  host_sizes = decltype(host_sizes)("orthant::models::sampler/sizes", num_sizes);
  for (auto& memory : memories)
    memory.resize(ranges.size(), blocks.size());
}

template<class T>
void State<T>::choose_capacities(std::int64_t batch_size) {
  auto const probability = static_cast<double>(batch_size) / static_cast<double>(num_vertices);
  if (ranges.empty() || ranges.front().capacity > 0) return; // chosen before
  for (auto& range : ranges) {
    auto const all = range.keys.extent(0);
    auto const most = most_of_draw(probability, all, static_cast<double>(all));
    range.capacity = std::clamp<std::int64_t>(most, 1, batch_size);
    range.neighbours.choose_capacity(probability);
  }
  for (std::size_t b = 0; b < blocks.size(); ++b)
    for (std::size_t side = 0; side < 2; ++side) {
      auto& from = blocks[b].sides[side];
      from.lists.choose_capacity(probability);
      auto const most = from.lists.capacity;
      from.capacity = most_of_draw(probability, static_cast<std::size_t>(most), static_cast<double>(most));
    }
}

/// Lengthens the arrays that were too short for the current batch. Returns whether there were any.
template<class T>
bool State<T>::grow() {
  bool has_grown = false;
  auto const fit = [&](std::int64_t& capacity, std::size_t size) {
    if (host_sizes(size) <= capacity) return;
    capacity = static_cast<std::int64_t>(runtime::grown_length(static_cast<std::size_t>(host_sizes(size))));
    has_grown = true;
  };
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    fit(ranges[r].capacity, size_of_range(r));
    fit(ranges[r].neighbours.capacity, size_of_neighbours(r));
  }
  for (std::size_t b = 0; b < blocks.size(); ++b)
    for (std::size_t side = 0; side < 2; ++side) {
      fit(blocks[b].sides[side].lists.capacity, size_of_rows(b, side));
      fit(blocks[b].sides[side].capacity, size_of_kept(b, side));
    }
  return has_grown;
}

template<class T>
void State<T>::mark_members(sampling::BatchKeys const& keys) {
  std::vector<DevicePart> sorted;
  for (auto const& part : keys.parts)
    sorted.push_back({part.order.value_or(runtime::KeyedBijection()), part.order.has_value(), part.keys.begin,
                      part.places.begin, part.places.size(),
                      static_cast<std::int8_t>(keys.num_strata() > 1 ? sorted.size() : 0)});
  std::ranges::sort(sorted, {}, &DevicePart::first_key);
  std::int64_t num_members = 0;
  for (auto& part : sorted)
    part.first_member = std::exchange(num_members, num_members + part.first_member);
  parts = {uploaded_parts.send(exec, sorted), std::ssize(sorted)};
  factors = uploaded_factors.send(exec, keys.factors);
  memory().batch.loss_weights = uploaded_weights.send(exec, keys.loss_weights);
  Kokkos::deep_copy(exec, members, std::uint64_t{0});
  Kokkos::parallel_for("orthant::models::mark_members", Each(exec, 0, num_members),
                       MarkMember{parts, members.data()});
}

template<class T>
void State<T>::find_vertices(std::size_t r) {
  auto& range = ranges[r];
  auto& of = memory().vertices[r];
  auto const has_groups = memory().batch.keys.num_strata() > 1;
  auto const rows = rows_of(r);
  FindVertices const find{
      members.data(),
      range.keys.data(),
      range.num_positions(),
      pointer_of(range.original_ids),
      pointer_of(range.other_positions),
      has_groups ? parts : DeviceParts(),
      range.capacity,
      of.positions.reserve(range.capacity).data(),
      of.original_ids.reserve(range.capacity).data(),
      of.other_positions.reserve(range.other_positions.extent(0) > 0 ? range.capacity : 0).data(),
      of.groups.reserve(has_groups ? range.capacity : 0).data()};
  select(exec, "orthant::models::find_vertices", find, rows.chosen, sizes.data() + size_of_range(r));
  list(exec, "orthant::models::list_vertices", find, rows.chosen);
}

template<class T>
void State<T>::lay_out(RowLists& lists, SampledRows const& rows, std::int64_t* total) {
  Kokkos::parallel_scan(
      "orthant::models::lay_rows_out", Each(exec, 0, rows.capacity + 1),
      LayRowsOut{rows, lists.offsets.data(), lists.begins.reserve(rows.capacity + 1).data(), total});
}

template<class T>
void State<T>::scale_by_degrees(std::size_t r, bool is_symmetric) {
  auto& range = ranges[r];
  auto const rows = rows_of(r);
  auto& lists = range.neighbours;
  lay_out(lists, rows, sizes.data() + size_of_neighbours(r));
  auto const kept = lists.kept.reserve(lists.capacity);
  auto const* begins = lists.begins.reserve(rows.capacity + 1).data();
  CutEntries<T> const entries{.rows = rows,
                              .begins = begins,
                              .offsets = lists.offsets.data(),
                              .columns = lists.columns.data(),
                              .set = members.data()};
  select(exec, "orthant::models::find_neighbours", entries, kept);
  Kokkos::parallel_for("orthant::models::scale_by_degree", Each(exec, 0, rows.capacity),
                       ScaleByDegree<T>{rows,
                                        {begins, kept},
                                        lists.offsets.data(),
                                        pointer_of(range.weights),
                                        range.of_self_loop,
                                        is_symmetric,
                                        memory().vertices[r].scale.reserve(range.capacity).data()});
}

template<class T>
void State<T>::cut(std::size_t b, std::size_t side) {
  auto& from = blocks[b].sides[side];
  auto& to = memory().blocks[b][side];
  auto const rows = rows_of(range_of(b, side));
  auto const columns = rows_of(range_of(b, 1 - side));
  lay_out(from.lists, rows, sizes.data() + size_of_rows(b, side));
  auto const kept = from.lists.kept.reserve(from.lists.capacity);
  auto const* begins = from.lists.begins.reserve(rows.capacity + 1).data();
  auto const has_values = from.values.extent(0) > 0;
  CutEntries<T> const entries{rows,
                              begins,
                              from.lists.offsets.data(),
                              from.lists.columns.data(),
                              columns.chosen.bits.data(),
                              columns.chosen,
                              pointer_of(from.values),
                              from.capacity,
                              to.columns.reserve(from.capacity).data(),
                              to.values.reserve(has_values ? from.capacity : 0).data()};
  select(exec, "orthant::models::find_entries", entries, kept, sizes.data() + size_of_kept(b, side));
  list(exec, "orthant::models::list_entries", entries, kept);
  Kokkos::parallel_for(
      "orthant::models::fill_row_offsets", Each(exec, 0, rows.capacity + 1),
      FillRowOffsets{rows, {begins, kept}, to.row_offsets.reserve(rows.capacity + 1).data()});
}

template<class T>
void State<T>::scale(std::size_t b) {
  auto& to = memory().blocks[b];
  auto const num_groups = memory().batch.keys.num_strata();
  for (std::size_t side = 0; side < 2; ++side) {
    auto const rows = rows_of(range_of(b, side));
    Kokkos::parallel_for("orthant::models::pick_scale", Each(exec, 0, rows.capacity),
                         PickScale<T>{rows, pointer_of(blocks[b].sides[side].row_scale),
                                      to[side].row_scale.reserve(rows.capacity).data()});
  }
  for (std::size_t side = 0; side < 2; ++side) {
    auto const columns = rows_of(range_of(b, 1 - side));
    auto const length = static_cast<std::int64_t>(num_groups) * columns.capacity;
    auto& groups = memory().vertices[range_of(b, 1 - side)].groups;
    Kokkos::parallel_for("orthant::models::scale_columns", Each(exec, 0, length),
                         ScaleColumns<T>{columns, to[1 - side].row_scale.reserve(columns.capacity).data(),
                                         num_groups > 1 ? groups.reserve(columns.capacity).data() : nullptr,
                                         factors, static_cast<std::int64_t>(num_groups), side == 1,
                                         to[side].column_scale.reserve(length).data()});
  }
}

template<class T>
void State<T>::find_self_loops(std::size_t b) {
  auto& block = blocks[b];
  auto& to = memory().blocks[b];
  auto const rows = rows_of(block.rows);
  auto const columns = rows_of(block.columns);
  auto const is_of_graph = block.scales == BlockScales::of_graph;
  auto const is_symmetric = block.scales == BlockScales::symmetric_in_batch;
  for (std::size_t side = 0; side < 2; ++side) {
    auto const capacity = side == 0 ? rows.capacity : columns.capacity;
    Kokkos::deep_copy(exec, to[side].self_columns.reserve(capacity), -1);
    Kokkos::deep_copy(exec, to[side].self_scale.reserve(capacity), T{0});
  }
  auto& ones = to[0].column_scale; // scales of the columns if rows alone are normalized
  if (!is_of_graph && !is_symmetric) Kokkos::deep_copy(exec, ones.reserve(columns.capacity), T{1});
  auto& of_columns = is_symmetric ? memory().vertices[block.columns].scale : ones;
  Kokkos::parallel_for(
      "orthant::models::find_self_loops", Each(exec, 0, rows.capacity),
      FindSelfLoops<T>{rows, columns.chosen, columns.capacity, block.self_columns.data(),
                       is_of_graph ? block.self_scale.data() : nullptr,
                       memory().vertices[block.rows].scale.reserve(0).data(), of_columns.reserve(0).data(),
                       to[0].self_columns.reserve(0).data(), to[1].self_columns.reserve(0).data(),
                       to[0].self_scale.reserve(0).data(), to[1].self_scale.reserve(0).data()});
}

template<class T>
void State<T>::enqueue() {
  choose_capacities(memory().batch.keys.size());
  mark_members(memory().batch.keys);
  for (std::size_t r = 0; r < ranges.size(); ++r)
    find_vertices(r);
  for (std::size_t r = 0; r < ranges.size(); ++r)
    if (!ranges[r].neighbours.empty())
      scale_by_degrees(r, blocks.front().scales == BlockScales::symmetric_in_batch);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    cut(b, 0);
    cut(b, 1);
    if (blocks[b].scales == BlockScales::of_graph) scale(b);
    find_self_loops(b);
  }
  Kokkos::deep_copy(exec, host_sizes, sizes);
}

template<class T>
void State<T>::make_views() {
  auto& batch = memory().batch;
  auto const has_groups = batch.keys.num_strata() > 1;
  auto const part_of = [](auto& growing, std::int64_t length) {
    auto const& numbers = growing.reserve(0);
    return std::remove_cvref_t<decltype(numbers)>(numbers.data(), static_cast<std::size_t>(length));
  };
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    auto& of = memory().vertices[r];
    auto const count = host_sizes(size_of_range(r));
    batch.vertices[r] = {part_of(of.positions, count), part_of(of.groups, has_groups ? count : 0),
                         part_of(of.original_ids, count),
                         part_of(of.other_positions, ranges[r].other_positions.extent(0) > 0 ? count : 0)};
  }
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    auto& from = blocks[b];
    auto const is_of_graph = from.scales == BlockScales::of_graph;
    std::array<pmm::SparseBlock<T>, 2> made;
    for (std::size_t side = 0; side < 2; ++side) {
      auto& of = memory().blocks[b][side];
      auto const num_rows = host_sizes(size_of_range(range_of(b, side)));
      auto const num_columns = host_sizes(size_of_range(range_of(b, 1 - side)));
      auto const num_kept = host_sizes(size_of_kept(b, side));
      made[side].csr = {num_rows, num_columns, part_of(of.row_offsets, num_rows + 1),
                        part_of(of.columns, num_kept),
                        part_of(of.values, from.sides[side].values.extent(0) > 0 ? num_kept : 0)};
      if (num_rows == 0) continue; // without rows there are no groups, so the number of column scales differs
      made[side].self_columns = part_of(of.self_columns, num_rows);
      made[side].self_scale = part_of(of.self_scale, num_rows);
      if (is_of_graph) {
        auto const num_groups = static_cast<std::int64_t>(batch.keys.num_strata());
        made[side].row_scale = part_of(of.row_scale, num_rows);
        made[side].column_scale = part_of(of.column_scale, num_groups * num_columns);
        made[side].row_groups = batch.vertices[range_of(b, side)].groups;
        continue;
      }
      auto const scale_of = [&](std::size_t of_side) { // of the rows of that side
        if (of_side == 1 && from.scales == BlockScales::row_in_batch)
          return part_of(memory().blocks[b][0].column_scale, host_sizes(size_of_range(from.columns)));
        auto const r = range_of(b, of_side);
        return part_of(memory().vertices[r].scale, host_sizes(size_of_range(r)));
      };
      made[side].row_scale = scale_of(side);
      made[side].column_scale = scale_of(1 - side);
    }
    batch.blocks[b] = {std::move(made[0]), std::move(made[1])};
  }
}

} // namespace device_sampling

template<class T>
DeviceSampler<T>::DeviceSampler(runtime::DefaultExec const& exec, sampling::BatchBuilder<T> const& builder)
    : state_(std::make_unique<device_sampling::State<T>>(exec, builder)) {}

template<class T>
DeviceSampler<T>::~DeviceSampler() = default;

template<class T>
void DeviceSampler<T>::start(std::int64_t epoch, std::int64_t index) {
  auto& p = *state_;
  p.wait_for_unfinished(); // its copies to the device
  p.is_unfinished = true;
  p.current = 1 - p.current;
  auto& batch = p.memory().batch;
  batch.index = index;
  p.sampler.describe(epoch, index, batch.keys);
  p.enqueue();
}

template<class T>
DeviceBatch<T> const& DeviceSampler<T>::finish() {
  auto& p = *state_;
  p.is_unfinished = false;
  while (true) {
    runtime::compat::fence(p.exec, "orthant::models::DeviceSampler/sizes of a batch");
    if (!p.grow()) break;
    ++p.num_repeats;
    p.enqueue();
  }
  p.make_views();
  return p.memory().batch;
}

template<class T>
std::int64_t DeviceSampler<T>::num_repeats() const {
  return state_->num_repeats;
}

template class DeviceSampler<float>;
template class DeviceSampler<double>;

} // namespace orthant::models
