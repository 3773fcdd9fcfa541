// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/attributes.hpp"

#include "graph/partition/tile_builder.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace orthant::graph {

using runtime::Communicator;
using runtime::Hdf5Type;
using runtime::host;
using runtime::index;
using runtime::throw_user;
using runtime::together;

namespace {

/// Reads batches of rows, at the same time on every rank, and calls take(batch, positions) with the positions of their vertices. `take` is
/// collective. Batch must have `rows`.
template<class Batch, class Stream, class Take>
void for_each_batch(Communicator const& comm, Stream& stream, std::int64_t num_vertices,
                    std::span<std::int64_t const> positions, Take&& take) {
  Batch batch;
  bool has_mine = true;
  for (bool has_any = true; has_any;) {
    has_mine = together(comm, [&] { return has_mine && stream.next(batch); });
    if (!has_mine) batch = {};
    auto const places = fetch_block(comm, num_vertices, positions, batch.rows);
    take(batch, places);
    has_any = runtime::all_reduced(comm, std::int64_t{has_mine}, runtime::Reduction::max) != 0;
  }
}

/// Collects the rows of a dense matrix at the owners of their positions, in the order of the positions.
template<class T>
class RowSlab {
 public:
  RowSlab(Communicator const& comm, std::int64_t num_vertices, std::int64_t width)
      : comm_(comm),
        owners_{num_vertices, comm.size()},
        width_(width),
        mine_(owners_.range(comm.rank())),
        rows_(index(mine_.size() * width)) {}

  /// `rows` is [places.size() x width]. Collective.
  void add(std::span<std::int64_t const> places, std::span<T const> rows) {
    auto const num_ranks = index(comm_.size());
    std::vector<std::int64_t> counts(num_ranks);
    for (auto const place : places)
      ++counts[index(owners_.owner(place))];
    std::vector<std::size_t> starts(num_ranks + 1, 0);
    for (std::size_t rank = 0; rank < num_ranks; ++rank)
      starts[rank + 1] = starts[rank] + index(counts[rank]);
    std::vector<std::int64_t> sent_places(places.size());
    std::vector<T> sent_rows(rows.size());
    auto const width = index(width_);
    for (std::size_t i = 0; i < places.size(); ++i) {
      auto const at = starts[index(owners_.owner(places[i]))]++;
      sent_places[at] = places[i];
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                  sent_rows.begin() + static_cast<std::ptrdiff_t>(at * width));
    }

    std::vector<std::int64_t> arriving(num_ranks);
    runtime::all_to_all(host, comm_, counts, arriving);
    std::int64_t total = 0;
    for (auto const count : arriving)
      total += count;
    std::vector<std::int64_t> arrived_places(index(total));
    runtime::all_to_allv(host, comm_, sent_places, counts, arrived_places, arriving);

    auto const arrived_rows = exchange_rows(sent_rows, counts, arriving, total);
    for (std::size_t i = 0; i < arrived_places.size(); ++i)
      std::copy_n(arrived_rows.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                  rows_.begin() + (arrived_places[i] - mine_.begin) * width_);
  }

  /// Creates the array and writes the matrix transposed, with every column contiguous. Collective.
  void write(StoreWriter& writer, std::string const& name, Hdf5Type type) {
    writer.create_array(name, type, {width_, owners_.num_vertices});
    writer.reserve_space();
    together(comm_, [&] {
      constexpr std::int64_t elements_at_once = std::int64_t{1} << 23;
      auto const rows_at_once = std::max<std::int64_t>(1, elements_at_once / width_ / elements_per_checksum) *
                                elements_per_checksum;
      constexpr std::int64_t columns_at_once = 16; // a cache line of floats
      std::vector<T> columns(index(columns_at_once * std::min(rows_at_once, mine_.size())));
      for (std::int64_t row = 0; row < mine_.size(); row += rows_at_once) {
        auto const count = std::min(rows_at_once, mine_.size() - row);
        for (std::int64_t c = 0; c < width_; c += columns_at_once) {
          auto const num_columns = std::min(columns_at_once, width_ - c);
          for (std::int64_t r = 0; r < count; ++r)
            for (std::int64_t i = 0; i < num_columns; ++i)
              columns[index(i * count + r)] = rows_[index((row + r) * width_ + c + i)];
          for (std::int64_t i = 0; i < num_columns; ++i)
            writer.write(name, c + i, mine_.begin + row,
                         std::span<T const>(columns).subspan(index(i * count), index(count)));
        }
      }
    });
  }

 private:
  /// All-to-all of rows. Bytes are sent as 32-bit words; each row is padded to whole words.
  std::vector<T> exchange_rows(std::vector<T> const& sent, std::vector<std::int64_t> const& counts,
                               std::vector<std::int64_t> const& arriving, std::int64_t total) const {
    auto const row_bytes = index(width_) * sizeof(T);
    auto const words = (row_bytes + sizeof(std::int32_t) - 1) / sizeof(std::int32_t);
    auto const num_sent = index(width_) == 0 ? 0 : sent.size() / index(width_);
    std::vector<std::int32_t> out(num_sent * words);
    for (std::size_t i = 0; i < num_sent; ++i)
      std::memcpy(out.data() + i * words, sent.data() + i * index(width_), row_bytes);
    std::vector<std::int32_t> in(index(total) * words);
    std::vector<std::int64_t> send_words(counts);
    std::vector<std::int64_t> receive_words(arriving);
    for (auto& count : send_words)
      count *= static_cast<std::int64_t>(words);
    for (auto& count : receive_words)
      count *= static_cast<std::int64_t>(words);
    runtime::all_to_allv(host, comm_, out, send_words, in, receive_words);
    std::vector<T> rows(index(total) * index(width_));
    for (std::size_t i = 0; i < index(total); ++i)
      std::memcpy(rows.data() + i * index(width_), in.data() + i * words, row_bytes);
    return rows;
  }

  Communicator const& comm_;
  PositionOwners owners_;
  std::int64_t width_;
  Range mine_;
  std::vector<T> rows_; // [mine x width] row-major
};

/// About four MiB of rows.
std::int64_t rows_per_batch(std::int64_t row_bytes) {
  return std::max<std::int64_t>(1, (std::int64_t{4} << 20) / std::max<std::int64_t>(1, row_bytes));
}

void write_dense_features(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                          StoreFacts& facts, std::function<void(double)> const& progress) {
  auto const& comm = writer.comm();
  auto const in_fp64 = source.facts().features_have_remainders;
  RowSlab<float> slab(comm, facts.num_vertices, facts.num_features);
  RowSlab<float> remainders(comm, in_fp64 ? facts.num_vertices : 0, facts.num_features);
  auto has_remainders = std::int64_t{0};
  auto const stream = source.features(rows_per_batch(facts.num_features * 4));
  for_each_batch<FeatureBatch>(comm, *stream, facts.num_vertices, placement.of(Order::p2),
                               [&](FeatureBatch const& batch, std::vector<std::int64_t> const& places) {
                                 slab.add(places, batch.dense);
                                 if (in_fp64) remainders.add(places, batch.remainders);
                                 if (std::ranges::any_of(batch.remainders, [](float x) { return x != 0; }))
                                   has_remainders = 1;
                                 if (auto const done = stream->progress(); done.total > 0)
                                   progress(static_cast<double>(done.done) / static_cast<double>(done.total));
                               });
  slab.write(writer, "/features/dense", Hdf5Type::float32);
  facts.features_have_remainders = runtime::all_reduced(comm, has_remainders, runtime::Reduction::max) > 0;
  if (facts.features_have_remainders) remainders.write(writer, "/features/remainders", Hdf5Type::float32);
}

void write_sparse_features(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                           StoreFacts& facts, std::function<void(double)> const& progress) {
  auto const& comm = writer.comm();
  using Builder = TileBuilder<true>;
  ChunkPool pool;
  Builder builder(comm, tile_grid_of_features(facts.num_vertices, facts.num_features), pool);
  Outbox<Builder::Sent> outbox(comm.size(), records_per_round(comm));
  std::int64_t num_entries = 0;
  constexpr std::int64_t batch_rows = 2048;
  auto const stream = source.features(batch_rows);
  for_each_batch<FeatureBatch>(comm, *stream, facts.num_vertices, placement.of(Order::p2),
                               [&](FeatureBatch const& batch, std::vector<std::int64_t> const& places) {
                                 for (std::size_t row = 0; row < places.size(); ++row)
                                   for (auto k = index(batch.offsets[row]); k < index(batch.offsets[row + 1]);
                                        ++k)
                                     builder.push(outbox, places[row], batch.columns[k], batch.values[k]);
                                 num_entries += static_cast<std::int64_t>(batch.columns.size());
                                 bool ignored = false;
                                 builder.add(outbox.deliver(comm, ignored));
                                 if (auto const done = stream->progress(); done.total > 0)
                                   progress(static_cast<double>(done.done) / static_cast<double>(done.total));
                               });
  facts.num_feature_entries = runtime::all_reduced(comm, num_entries);
  facts.features_have_values =
      builder.write(writer, "/features/sparse", Values::where_needed, nullptr, [](double) {});
}

/// Writes labels of several columns; returns the number of this rank's vertices with one that is_label() accepts.
template<class T, class IsLabel>
std::int64_t write_label_columns(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                                 StoreFacts const& facts, std::vector<T> LabelBatch::*rows,
                                 IsLabel const& is_label) {
  std::int64_t num_labelled = 0;
  auto const width = facts.num_classes;
  for (auto const order : orders_of(placement)) {
    num_labelled = 0;
    RowSlab<T> slab(writer.comm(), facts.num_vertices, width);
    auto const stream = source.labels(rows_per_batch(width * static_cast<std::int64_t>(sizeof(T))));
    for_each_batch<LabelBatch>(writer.comm(), *stream, facts.num_vertices, placement.of(order),
                               [&](LabelBatch const& batch, std::vector<std::int64_t> const& places) {
                                 auto const& labels = batch.*rows;
                                 slab.add(places, labels);
                                 for (auto row = labels.begin(); row != labels.end(); row += width)
                                   num_labelled += std::any_of(row, row + width, is_label);
                               });
    slab.write(writer, folder("/labels", order), sizeof(T) == 1 ? Hdf5Type::int8 : Hdf5Type::float64);
  }
  return num_labelled;
}

} // namespace

void write_vertices(StoreWriter& writer, Placement const& placement, std::span<std::int64_t const> degrees,
                    StoreFacts& facts) {
  auto const& comm = writer.comm();
  auto const n = placement.num_vertices;
  std::int64_t max_degree = 0;
  for (auto const degree : degrees)
    max_degree = std::max(max_degree, degree);
  facts.max_degree = runtime::all_reduced(comm, max_degree, runtime::Reduction::max);

  std::vector<std::int64_t> ids(degrees.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = placement.vertices.begin + static_cast<std::int64_t>(i);
  for (auto const order : orders_of(placement)) {
    auto const group = folder("/vertices", order);
    auto const& positions = placement.of(order);
    write_integers(writer, group + "/original_ids", placement, to_positions(comm, n, positions, ids), n);
    write_integers(writer, group + "/degrees", placement, to_positions(comm, n, positions, degrees),
                   facts.max_degree + 1);
    if (placement.has_two_orders)
      write_integers(writer, group + "/positions_in_other_order", placement,
                     to_positions(comm, n, positions, placement.of(other(order))), n);
  }
}

void write_clusters(StoreWriter& writer, Placement const& placement, std::span<std::int32_t const> clusters,
                    std::int64_t num_clusters, StoreFacts& facts) {
  facts.num_clusters = num_clusters;
  std::vector<std::int64_t> const values(clusters.begin(), clusters.end());
  for (auto const order : orders_of(placement))
    write_column<std::int32_t>(
        writer, folder("/vertices", order) + "/clusters", Hdf5Type::int32, placement,
        to_positions(writer.comm(), placement.num_vertices, placement.of(order), values));
}

void write_rows(StoreWriter& writer, std::string const& name, std::int64_t num_vertices,
                std::span<std::int64_t const> places, std::int64_t width, std::span<double const> rows) {
  RowSlab<double> slab(writer.comm(), num_vertices, width);
  slab.add(places, rows);
  slab.write(writer, name, Hdf5Type::float64);
}

void write_features(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                    StoreFacts& facts, std::function<void(double)> const& progress) {
  facts.feature_kind = source.facts().feature_kind;
  facts.num_features = facts.feature_kind == FeatureKind::none ? 0 : source.facts().num_features;
  if (facts.feature_kind == FeatureKind::dense)
    write_dense_features(writer, source, placement, facts, progress);
  else if (facts.feature_kind == FeatureKind::sparse)
    write_sparse_features(writer, source, placement, facts, progress);
}

void write_labels(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                  StoreFacts& facts) {
  auto const& comm = writer.comm();
  facts.label_kind = source.facts().label_kind;
  facts.num_classes = facts.label_kind == LabelKind::none ? 0 : source.facts().num_classes;
  if (facts.label_kind == LabelKind::none) return;
  auto const n = facts.num_vertices;
  std::int64_t num_labelled = 0;

  if (facts.label_kind == LabelKind::multi) {
    num_labelled = write_label_columns<std::int8_t>(writer, source, placement, facts, &LabelBatch::indicator,
                                                    [](std::int8_t label) { return label >= 0; });
  } else if (facts.label_kind == LabelKind::real) {
    num_labelled = write_label_columns<double>(writer, source, placement, facts, &LabelBatch::targets,
                                               [](double target) { return !std::isnan(target); });
  } else {
    std::vector<std::int64_t> classes(placement.positions[0].size(), -1);
    struct Label {
      std::int64_t vertex;
      std::int64_t label;
    };
    auto const stream = source.labels(1 << 16);
    LabelBatch batch;
    exchange<Label>(
        comm,
        [&](Outbox<Label>& outbox) {
          while (!outbox.is_full()) {
            if (!stream->next(batch)) return false;
            for (std::size_t i = 0; i < batch.classes.size(); ++i) {
              auto const vertex = batch.rows.begin + static_cast<std::int64_t>(i);
              outbox.push(block_owner(n, comm.size(), vertex), {vertex, batch.classes[i]});
            }
          }
          return true;
        },
        [&](std::span<Label const> arrived) {
          for (auto const& [vertex, label] : arrived)
            classes[index(vertex - placement.vertices.begin)] = label;
        });
    num_labelled = std::count_if(classes.begin(), classes.end(), [](std::int64_t c) { return c >= 0; });
    for (auto const order : orders_of(placement))
      write_column<std::int32_t>(writer, folder("/labels", order), Hdf5Type::int32, placement,
                                 to_positions(comm, n, placement.of(order), classes));
  }
  facts.num_labelled = runtime::all_reduced(comm, num_labelled);
}

} // namespace orthant::graph
