// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/files/predictions.hpp"

#include "models/gnn/operands/graph_operands.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <optional>
#include <span>

namespace orthant::models {

using runtime::Range;

namespace {

/// The part of the ids that rank `part` of `num_parts` ranks has.
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

namespace {

/// Bytes of a slice per rank. Buffers for messages and the file take a few times as much.
constexpr std::int64_t slice_bytes = std::int64_t{1} << 24;

template<class T>
void softmax(std::span<T const> logits, std::span<T> probabilities) {
  auto const largest = static_cast<double>(*std::ranges::max_element(logits));
  auto sum = 0.0;
  for (auto const logit : logits)
    sum += std::exp(static_cast<double>(logit) - largest);
  for (std::size_t j = 0; j < logits.size(); ++j)
    probabilities[j] = static_cast<T>(std::exp(static_cast<double>(logits[j]) - largest) / sum);
}

template<class T>
T sigmoid(T logit) {
  auto const decay = std::exp(-std::abs(static_cast<double>(logit)));
  return static_cast<T>((logit > T{0} ? 1.0 : decay) / (1.0 + decay));
}

/// Classes and probabilities of these rows.
template<class T>
PredictionRows<T> rows_of(std::vector<T> const& logits, runtime::Range ids,
                          PredictionColumns const& columns) {
  PredictionRows<T> rows;
  rows.ids = ids;
  auto const width = static_cast<std::size_t>(columns.num_classes);
  if (columns.has_numbers) {
    rows.numbers = logits;
    return rows;
  }
  if (columns.has_probabilities) rows.probabilities.resize(logits.size());
  if (columns.has_several_classes) {
    for (auto const logit : logits)
      rows.indicators.push_back(logit > T{0} ? 1 : 0);
    std::ranges::transform(logits.begin(),
                           logits.begin() + static_cast<std::ptrdiff_t>(rows.probabilities.size()),
                           rows.probabilities.begin(), sigmoid<T>);
    return rows;
  }
  for (std::size_t row = 0; row < static_cast<std::size_t>(ids.size()); ++row) {
    auto const of_row = std::span(logits).subspan(row * width, width);
    rows.classes.push_back(static_cast<std::int32_t>(std::ranges::max_element(of_row) - of_row.begin()));
    if (columns.has_probabilities) softmax(of_row, std::span(rows.probabilities).subspan(row * width, width));
  }
  return rows;
}

/// Sets types and names of the vertices. Vertices of a type without names have their number within the type.
template<class T>
void name_rows(graph::GraphStore const& store, PredictionRows<T>& rows) {
  auto const& facts = store.facts();
  if (facts.has_vertex_names()) rows.names = store.read_vertex_names(rows.ids);
  std::int64_t begin = 0; // of the type
  for (auto const& type : facts.vertex_types) {
    auto const end = begin + type.count;
    for (auto id = std::max(begin, rows.ids.begin); id < std::min(end, rows.ids.end); ++id) {
      rows.types.push_back(type.name);
      if (!facts.has_vertex_names()) rows.names.push_back(fmt::format("{}", id - begin));
    }
    begin = end;
  }
}

} // namespace

template<class T>
void write_predictions(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                       pmm::DistMatrix<T> const& logits, bool has_probabilities,
                       pmm::DistMatrix<T> const* embeddings, std::filesystem::path const& path) {
  auto const& world = grid.world();
  auto const num_ranks = std::int64_t{world.size()};
  PredictionColumns columns;
  columns.num_vertices = store.facts().num_vertices;
  columns.num_classes = logits.extents().columns;
  columns.has_several_classes = store.facts().label_kind == graph::LabelKind::multi;
  columns.has_numbers = store.facts().label_kind == graph::LabelKind::real;
  columns.class_names = store.facts().class_names;
  columns.has_probabilities = has_probabilities;
  columns.has_types = store.facts().num_types() > 0 && path.extension() == ".csv";
  columns.has_names = (store.facts().has_vertex_names() || columns.has_types) && path.extension() == ".csv";
  if (embeddings != nullptr) columns.embedding_width = embeddings->extents().columns;

  RowsById<T> const logits_by_id(grid, store, logits);
  std::optional<RowsById<T>> embeddings_by_id;
  if (embeddings != nullptr) embeddings_by_id.emplace(grid, store, *embeddings);
  auto const row_bytes =
      (columns.num_classes + columns.embedding_width) * static_cast<std::int64_t>(sizeof(T));
  // A rank may have all rows of a slice, so slices do not grow beyond this number of ranks.
  auto const slice =
      std::min<std::int64_t>(num_ranks, 16) * std::max<std::int64_t>(slice_bytes / row_bytes, 1);

  auto const file = create_prediction_file<T>(world, path, columns);
  for (std::int64_t begin = 0; begin < columns.num_vertices; begin += slice) {
    runtime::Range const ids{begin, std::min(begin + slice, columns.num_vertices)};
    auto const share = runtime::balanced_range(ids.size(), num_ranks, world.rank());
    auto const brought = logits_by_id.bring(ids);
    auto rows = runtime::together(world, [&] {
      auto of_share = rows_of(brought, {begin + share.begin, begin + share.end}, columns);
      if (columns.has_names) name_rows(store, of_share);
      return of_share;
    });
    if (embeddings_by_id) rows.embeddings = embeddings_by_id->bring(ids);
    file->write(rows);
  }
  file->publish();
}

template void write_predictions(pmm::ProcessGrid const&, graph::GraphStore const&,
                                pmm::DistMatrix<float> const&, bool, pmm::DistMatrix<float> const*,
                                std::filesystem::path const&);
template void write_predictions(pmm::ProcessGrid const&, graph::GraphStore const&,
                                pmm::DistMatrix<double> const&, bool, pmm::DistMatrix<double> const*,
                                std::filesystem::path const&);

} // namespace orthant::models
