// SPDX-License-Identifier: Apache-2.0
#include "models/files/predictions.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/files/hdf5_output.hpp"

#include <limits>

namespace orthant::models {
namespace {

/// The arg-max class of each row of this rank's block, over all classes. Collective over the column axis.
template<class T>
std::vector<runtime::ValueIndex<T>> predicted_classes(pmm::ProcessGrid const& grid,
                                                      pmm::DistMatrix<T> const& logits) {
  auto const local = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), logits.local());
  auto const first_class = logits.block().columns.begin;
  std::vector<runtime::ValueIndex<T>> best(
      local.extent(0), {-std::numeric_limits<T>::infinity(), std::numeric_limits<std::int64_t>::max()});
  for (std::size_t i = 0; i < local.extent(0); ++i)
    for (std::size_t j = 0; j < local.extent(1); ++j)
      if (local(i, j) > best[i].value) best[i] = {local(i, j), first_class + static_cast<std::int64_t>(j)};
  runtime::all_reduce_arg_max(runtime::host, grid.over(logits.layout().columns), best);
  return best;
}

} // namespace

template<class T>
void write_predictions(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                       pmm::DistMatrix<T> const& logits, std::filesystem::path const& path) {
  auto const& world = grid.world();
  auto const num_vertices = store.facts().num_vertices;
  auto const size = static_cast<std::int64_t>(world.size());
  auto const best = predicted_classes(grid, logits);
  auto const ids = runtime::together(world, [&] {
    return store.read_original_ids(order_of(logits.layout().row_order), logits.block().rows);
  });

  // Of equal copies one sends: (id, class) pairs go to the rank that writes that range of ids.
  auto const& layout = logits.layout();
  auto const sends = grid.coordinate(layout.columns) == 0 && logits.is_first_replica();
  std::vector<std::vector<std::int64_t>> pairs(static_cast<std::size_t>(size));
  for (std::size_t i = 0; sends && i < ids.size(); ++i) {
    auto owner = std::min(ids[i] * size / num_vertices, size - 1);
    while (!runtime::balanced_range(num_vertices, size, owner).contains(ids[i]))
      owner += ids[i] < runtime::balanced_range(num_vertices, size, owner).begin ? -1 : 1;
    auto& to = pairs[static_cast<std::size_t>(owner)];
    to.insert(to.end(), {ids[i], best[i].index});
  }
  std::vector<std::int64_t> sent, send_counts, receive_counts(static_cast<std::size_t>(size));
  for (auto const& to : pairs) {
    sent.insert(sent.end(), to.begin(), to.end());
    send_counts.push_back(static_cast<std::int64_t>(to.size()));
  }
  runtime::all_to_all(runtime::host, world, send_counts, receive_counts);
  auto num_received = std::int64_t{0};
  for (auto const count : receive_counts)
    num_received += count;
  std::vector<std::int64_t> received(static_cast<std::size_t>(num_received));
  runtime::all_to_allv(runtime::host, world, sent, send_counts, received, receive_counts);

  auto const mine = runtime::balanced_range(num_vertices, size, world.rank());
  std::vector<std::int32_t> classes(static_cast<std::size_t>(mine.size()), -1);
  for (std::size_t i = 0; i + 1 < received.size(); i += 2)
    classes[static_cast<std::size_t>(received[i] - mine.begin)] = static_cast<std::int32_t>(received[i + 1]);
  runtime::Hdf5Output file(world, path, "predictions");
  file.create_array("/predictions", runtime::Hdf5Type::int32, {num_vertices});
  file.reserve_space();
  runtime::together(world, [&] {
    if (mine.size() > 0)
      file.write("/predictions", {mine.begin}, {mine.size()}, std::span<std::int32_t const>(classes));
  });
  file.publish();
}

template void write_predictions(pmm::ProcessGrid const&, graph::GraphStore const&,
                                pmm::DistMatrix<float> const&, std::filesystem::path const&);
template void write_predictions(pmm::ProcessGrid const&, graph::GraphStore const&,
                                pmm::DistMatrix<double> const&, std::filesystem::path const&);

} // namespace orthant::models
