// SPDX-License-Identifier: Apache-2.0
#include "models/files/rows_by_id.hpp"

#include "models/core/vertex_order.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>

namespace orthant::models {

using runtime::Range;

namespace {

/// Rank `part`'s share of the ids.
Range share_of(Range ids, int num_parts, int part) {
  auto const share = runtime::balanced_range(ids.size(), num_parts, part);
  return {ids.begin + share.begin, ids.begin + share.end};
}

} // namespace

template<class T>
RowsById<T>::RowsById(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                      pmm::DistMatrix<T> const& matrix)
    : grid_(grid),
      placement_(matrix.placement()),
      width_(matrix.extents().columns),
      numbers_(Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), matrix.local())) {
  runtime::together(grid.world(), [&] {
    if (!matrix.is_first_replica() || grid.coordinate(pmm::Axis::data) != 0) return;
    auto const ids =
        store.read_original_ids(order_of(placement_.layout.row_order), matrix.block().stored_rows);
    places_.reserve(ids.size());
    for (std::size_t row = 0; row < ids.size(); ++row)
      places_.push_back({ids[row], static_cast<std::int64_t>(row)});
    std::ranges::sort(places_, {}, &Place::id);
  });
}

template<class T>
Range RowsById<T>::columns_of(int rank) const {
  auto const& layout = placement_.layout;
  return pmm::part_of(grid_.shape(), pmm::coordinates_of(grid_.shape(), rank), layout.columns, width_,
                      layout.column_granule);
}

template<class T>
std::vector<T> RowsById<T>::bring(Range ids) const {
  auto const& world = grid_.world();
  auto const num_ranks = static_cast<std::size_t>(world.size());
  std::vector<std::int64_t> sent_ids, send_counts(num_ranks), receive_counts(num_ranks);
  std::vector<T> sent;
  auto at = std::ranges::lower_bound(places_, ids.begin, {}, &Place::id);
  auto const num_own =
      static_cast<std::size_t>(std::ranges::lower_bound(places_, ids.end, {}, &Place::id) - at);
  sent_ids.reserve(num_own);
  sent.reserve(num_own * numbers_.extent(1));
  for (auto rank = 0; rank < world.size(); ++rank) {
    auto const end = share_of(ids, world.size(), rank).end;
    for (; at != places_.end() && at->id < end; ++at) {
      ++send_counts[static_cast<std::size_t>(rank)];
      sent_ids.push_back(at->id);
      for (std::size_t j = 0; j < numbers_.extent(1); ++j)
        sent.push_back(numbers_(static_cast<std::size_t>(at->row), j));
    }
  }
  runtime::all_to_all(runtime::host, world, send_counts, receive_counts);

  std::vector<std::int64_t> number_send_counts, number_receive_counts;
  auto num_ids = std::int64_t{0};
  auto num_numbers = std::int64_t{0};
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    number_send_counts.push_back(send_counts[rank] * static_cast<std::int64_t>(numbers_.extent(1)));
    number_receive_counts.push_back(receive_counts[rank] * columns_of(static_cast<int>(rank)).size());
    num_ids += receive_counts[rank];
    num_numbers += number_receive_counts.back();
  }
  std::vector<std::int64_t> received_ids(static_cast<std::size_t>(num_ids));
  std::vector<T> received(static_cast<std::size_t>(num_numbers));
  runtime::all_to_allv(runtime::host, world, sent_ids, send_counts, received_ids, receive_counts);
  runtime::all_to_allv(runtime::host, world, sent, number_send_counts, received, number_receive_counts);

  auto const mine = share_of(ids, world.size(), world.rank());
  std::vector<T> rows(static_cast<std::size_t>(mine.size() * width_));
  auto id = received_ids.begin();
  auto number = received.begin();
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    auto const columns = columns_of(static_cast<int>(rank));
    for (std::int64_t i = 0; i < receive_counts[rank]; ++i, ++id, number += columns.size())
      std::copy_n(number, columns.size(), rows.begin() + (*id - mine.begin) * width_ + columns.begin);
  }
  return rows;
}

template class RowsById<float>;
template class RowsById<double>;

} // namespace orthant::models
