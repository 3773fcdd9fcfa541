// SPDX-License-Identifier: Apache-2.0
#include "graph/store/export.hpp"

#include "graph/exchange.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace orthant::graph {

namespace {

struct Question {
  std::int64_t position;
  std::int32_t asker;
  std::int32_t place; // in the request
};
struct Answer {
  std::int64_t value;
  std::int64_t place;
};

} // namespace

std::vector<std::int64_t> look_up(runtime::Communicator const& comm, PositionOwners const& owners,
                                  std::span<std::int64_t const> mine, std::span<std::int64_t const> wanted) {
  ORTHANT_REQUIRE(wanted.size() <= std::size_t{std::numeric_limits<std::int32_t>::max()}, wanted.size());
  auto const first = owners.range(comm.rank()).begin;
  std::vector<std::int64_t> result(wanted.size());
  Outbox<Question> questions(comm.size(), records_per_round(comm));
  Outbox<Answer> answers(comm.size(), records_per_round(comm));
  std::size_t next = 0;
  for (bool has_more = true; has_more;) {
    for (; next < wanted.size() && !questions.is_full(); ++next)
      questions.push(owners.owner(wanted[next]),
                     {wanted[next], comm.rank(), static_cast<std::int32_t>(next)});
    has_more = next < wanted.size();
    for (auto const& [position, asker, place] : questions.deliver(comm, has_more))
      answers.push(asker, {mine[static_cast<std::size_t>(position - first)], place});
    bool ignored = false;
    for (auto const& [value, place] : answers.deliver(comm, ignored))
      result[static_cast<std::size_t>(place)] = value;
  }
  return result;
}

namespace {

using runtime::Communicator;
using runtime::index;
using runtime::together;

/// Rows of A[p1, p2], some at a time, as edges from a position of order p2 to an original id. If A is symmetric, an entry and its mirror
/// image are one edge: only the entry is used whose column is not after the vertex of its row in p2.
class StoredEdges final : public EdgeStream {
 public:
  StoredEdges(GraphStore const& store, Range rows, std::int64_t batch_size)
      : store_(store),
        rows_(rows),
        next_row_(rows.begin),
        batch_size_(batch_size) {}

  bool next(EdgeBatch& batch) override {
    batch.edges.clear();
    batch.weights.clear();
    while (static_cast<std::int64_t>(batch.edges.size()) < batch_size_) {
      if (at_ == edges_.size() && !load()) break;
      auto const room = index(batch_size_) - batch.edges.size();
      auto const count = std::min(room, edges_.size() - at_);
      auto const from = static_cast<std::ptrdiff_t>(at_);
      auto const to = from + static_cast<std::ptrdiff_t>(count);
      batch.edges.insert(batch.edges.end(), edges_.begin() + from, edges_.begin() + to);
      if (!weights_.empty())
        batch.weights.insert(batch.weights.end(), weights_.begin() + from, weights_.begin() + to);
      at_ += count;
    }
    return !batch.edges.empty();
  }
  [[nodiscard]] Progress progress() const override { return {next_row_ - rows_.begin, rows_.size()}; }

 private:
  /// Loads the next rows that have edges; returns false at the end.
  bool load() {
    edges_.clear();
    weights_.clear();
    at_ = 0;
    auto const n = store_.facts().num_vertices;
    while (edges_.empty() && next_row_ < rows_.end) {
      Range const rows{next_row_, std::min(rows_.end, next_row_ + rows_at_once())};
      next_row_ = rows.end;
      auto const block = store_.read_block(Parity::even, rows, {0, n}, SelfLoops::as_given);
      auto const row_ids = store_.read_original_ids(Order::p1, rows);
      auto const selves = store_.read_other_positions(Order::p1, rows);
      for (std::size_t r = 0; r < row_ids.size(); ++r)
        for (auto k = block.row_offsets[r]; k < block.row_offsets[r + 1]; ++k) {
          auto const column = block.columns[index(k)];
          if (store_.facts().is_symmetric && column > selves[r]) continue;
          edges_.push_back({column, row_ids[r]});
          if (!block.values.empty()) weights_.push_back(block.values[index(k)]);
        }
    }
    return !edges_.empty();
  }
  /// One tile row is the smallest unit that can be read.
  [[nodiscard]] std::int64_t rows_at_once() const {
    auto const grid = tile_grid_of_topology(store_.facts().num_vertices, store_.facts().num_entries);
    return std::max<std::int64_t>(1, grid.rows.size(0));
  }

  GraphStore const& store_;
  Range rows_;
  std::int64_t next_row_;
  std::int64_t batch_size_;
  std::vector<Edge> edges_;
  std::vector<float> weights_;
  std::size_t at_ = 0;
};

/// Rows in memory in the order of ids, one batch at a time, filled by fill(first, last, batch).
template<class Batch>
class HeldRows final : public BatchStream<Batch> {
 public:
  using Fill = std::function<void(Range rows, Batch& batch)>;
  HeldRows(Range rows, std::int64_t batch_rows, Fill fill)
      : rows_(rows),
        next_(rows.begin),
        batch_rows_(batch_rows),
        fill_(std::move(fill)) {}
  bool next(Batch& batch) override {
    batch = {};
    if (next_ == rows_.end) return false;
    batch.rows = {next_, std::min(rows_.end, next_ + batch_rows_)};
    fill_(batch.rows, batch);
    next_ = batch.rows.end;
    return true;
  }
  [[nodiscard]] Progress progress() const override { return {next_ - rows_.begin, rows_.size()}; }

 private:
  Range rows_;
  std::int64_t next_;
  std::int64_t batch_rows_;
  Fill fill_;
};

/// Converts the edges of StoredEdges to original ids. An undirected edge goes from the smaller id to the larger.
void resolve_edges(Communicator const& comm, PositionOwners const& owners, std::span<std::int64_t const> ids,
                   bool is_symmetric, EdgeBatch& batch) {
  std::vector<std::int64_t> positions(batch.edges.size());
  std::ranges::transform(batch.edges, positions.begin(), &Edge::source);
  auto const sources = look_up(comm, owners, ids, positions);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    auto& edge = batch.edges[i];
    edge.source = sources[i];
    if (is_symmetric && edge.source > edge.target) std::swap(edge.source, edge.target);
  }
}

/// Data of the vertices balanced_range(N, size, rank) on this rank, by id.
struct Held {
  std::int64_t num_vertices = 0; // of all ranks
  Range vertices;
  std::vector<std::int64_t> ids;     // at this rank's positions of order p2 (PositionOwners)
  std::vector<float> dense;          // [vertices x D]
  std::vector<std::int64_t> offsets; // sparse: [vertices + 1]
  std::vector<std::int32_t> columns;
  std::vector<float> values;
  std::vector<std::int64_t> classes;
  std::vector<std::int8_t> indicator; // [vertices x C]
  std::vector<double> targets;        // [vertices x C]
  SplitShare split;
};

/// One number of a vertex that is sent to the vertex's owner: entry `place` of its row.
template<class Value>
struct Sent {
  std::int64_t vertex;
  std::int32_t place;
  Value value;
};

/// Sends numbers to the owners of vertices. produce(row, emit) is called for this rank's positions of order p2 in turn and calls
/// emit(place, value). take(vertex, place, value) is called on the owner.
template<class Value = float, class Produce, class Take>
void send_by_row(Communicator const& comm, Held const& held, Range positions, Produce&& produce,
                 Take&& take) {
  auto next = positions.begin;
  exchange<Sent<Value>>(
      comm,
      [&](Outbox<Sent<Value>>& outbox) {
        for (; next < positions.end && !outbox.is_full(); ++next) {
          auto const vertex = held.ids[index(next - positions.begin)];
          auto const owner = block_owner(held.num_vertices, comm.size(), vertex);
          produce(next, [&](std::int32_t place, Value value) { outbox.push(owner, {vertex, place, value}); });
        }
        return next < positions.end;
      },
      [&](std::span<Sent<Value> const> arrived) {
        for (auto const& [vertex, place, value] : arrived)
          take(index(vertex - held.vertices.begin), place, value);
      });
}

void fetch_dense(Communicator const& comm, GraphStore const& store, Range positions, Held& held) {
  auto const width = store.facts().num_features;
  held.dense.resize(index(held.vertices.size() * width));
  // Reading a strip of columns at a time bounds the memory of the copy.
  constexpr std::int64_t columns_at_once = 64;
  for (std::int64_t c = 0; c < width; c += columns_at_once) {
    Range const columns{c, std::min(width, c + columns_at_once)};
    auto const strip = together(comm, [&] { return store.read_features(Order::p2, positions, columns); });
    send_by_row(
        comm, held, positions,
        [&](std::int64_t position, auto&& emit) {
          for (auto column = columns.begin; column < columns.end; ++column)
            emit(static_cast<std::int32_t>(column),
                 strip[index((position - positions.begin) * columns.size() + column - columns.begin)]);
        },
        [&](std::size_t row, std::int32_t column, float value) {
          held.dense[row * index(width) + index(column)] = value;
        });
  }
}

void fetch_sparse(Communicator const& comm, GraphStore const& store, Range positions, Held& held) {
  auto const block = together(comm, [&] {
    return store.read_sparse_features(positions, {0, store.facts().num_features});
  });
  std::vector<std::vector<std::pair<std::int32_t, float>>> rows(index(held.vertices.size()));
  send_by_row(
      comm, held, positions,
      [&](std::int64_t position, auto&& emit) {
        auto const r = index(position - positions.begin);
        for (auto k = block.row_offsets[r]; k < block.row_offsets[r + 1]; ++k)
          emit(block.columns[index(k)], block.values.empty() ? 1.0F : block.values[index(k)]);
      },
      [&](std::size_t row, std::int32_t column, float value) { rows[row].emplace_back(column, value); });
  held.offsets.push_back(0);
  for (auto& row : rows) {
    std::sort(row.begin(), row.end());
    for (auto const& [column, value] : row) {
      held.columns.push_back(column);
      held.values.push_back(value);
    }
    held.offsets.push_back(static_cast<std::int64_t>(held.columns.size()));
  }
}

void fetch_labels(Communicator const& comm, GraphStore const& store, Range positions, Held& held) {
  auto const& facts = store.facts();
  if (facts.label_kind == LabelKind::single) {
    held.classes.assign(index(held.vertices.size()), -1);
    auto const labels = together(comm, [&] { return store.read_labels(Order::p2, positions); });
    send_by_row(
        comm, held, positions,
        [&](std::int64_t position, auto&& emit) { emit(labels[index(position - positions.begin)], 0.0F); },
        [&](std::size_t row, std::int32_t label, float) { held.classes[row] = label; });
  } else if (facts.label_kind == LabelKind::multi) {
    auto const width = facts.num_classes;
    held.indicator.assign(index(held.vertices.size() * width), -1);
    auto const labels = together(comm, [&] {
      return store.read_label_indicator(Order::p2, positions, {0, width});
    });
    send_by_row(
        comm, held, positions,
        [&](std::int64_t position, auto&& emit) {
          for (std::int64_t c = 0; c < width; ++c)
            emit(static_cast<std::int32_t>(c),
                 static_cast<float>(labels[index((position - positions.begin) * width + c)]));
        },
        [&](std::size_t row, std::int32_t c, float value) {
          held.indicator[row * index(width) + index(c)] = static_cast<std::int8_t>(value);
        });
  } else if (facts.label_kind == LabelKind::real) {
    auto const width = facts.num_classes;
    held.targets.resize(index(held.vertices.size() * width));
    auto const targets = together(comm, [&] { return store.read_targets(Order::p2, positions, {0, width}); });
    send_by_row<double>(
        comm, held, positions,
        [&](std::int64_t position, auto&& emit) {
          for (std::int64_t c = 0; c < width; ++c)
            emit(static_cast<std::int32_t>(c), targets[index((position - positions.begin) * width + c)]);
        },
        [&](std::size_t row, std::int32_t c, double value) {
          held.targets[row * index(width) + index(c)] = value;
        });
  }
}

void fetch_split(Communicator const& comm, GraphStore const& store, Range positions, Held& held) {
  for (auto const part : {Split::train, Split::valid, Split::test}) {
    auto& list = part == Split::train   ? held.split.train
                 : part == Split::valid ? held.split.valid
                                        : held.split.test;
    auto const mask = together(comm, [&] { return store.read_mask(part, Order::p2, positions); });
    send_by_row(
        comm, held, positions,
        [&](std::int64_t position, auto&& emit) {
          if (mask[index(position - positions.begin)] != 0) emit(0, 0.0F);
        },
        [&](std::size_t row, std::int32_t, float) {
          list.push_back(held.vertices.begin + static_cast<std::int64_t>(row));
        });
    std::sort(list.begin(), list.end());
  }
}

} // namespace

std::unique_ptr<GraphSource> open_store_as_source(Communicator const& comm, GraphStore const& store) {
  auto const& facts = store.facts();
  auto const n = facts.num_vertices;
  auto const held = std::make_shared<Held>();
  held->vertices = runtime::balanced_range(n, comm.size(), comm.rank());
  held->num_vertices = n;
  PositionOwners const owners{n, comm.size()};
  auto const positions = owners.range(comm.rank());
  held->ids = together(comm, [&] { return store.read_original_ids(Order::p2, positions); });
  if (facts.feature_kind == FeatureKind::dense) fetch_dense(comm, store, positions, *held);
  if (facts.feature_kind == FeatureKind::sparse) fetch_sparse(comm, store, positions, *held);
  fetch_labels(comm, store, positions, *held);
  if (facts.has_split) fetch_split(comm, store, positions, *held);

  SourceParts parts;
  parts.name = facts.name;
  parts.format = "store";
  parts.num_vertices = n;
  parts.is_directed = !facts.is_symmetric;
  parts.edges.num_edges =
      facts.is_symmetric ? (facts.num_entries + facts.num_self_loops) / 2 : facts.num_entries;
  parts.edges.is_weighted = facts.is_weighted;
  parts.edges.promised_by = store.name();
  auto const grid = tile_grid_of_topology(n, facts.num_entries);
  auto const tile_rows = tile_rows_of_rank(grid.rows.num_parts, comm.size(), comm.rank());
  Range const rows{grid.rows.begin(tile_rows.begin), grid.rows.begin(tile_rows.end)};
  parts.edges.open = [&store, rows](std::int64_t batch_size) {
    return std::make_unique<StoredEdges>(store, rows, batch_size);
  };
  parts.edges.resolve = [&comm, &facts, owners, held](EdgeBatch& batch) {
    resolve_edges(comm, owners, held->ids, facts.is_symmetric, batch);
  };

  parts.features = {facts.feature_kind, facts.num_features, [held, &facts](std::int64_t batch_rows) {
                      return std::make_unique<HeldRows<FeatureBatch>>(
                          held->vertices, batch_rows, [held, &facts](Range wanted, FeatureBatch& batch) {
                            auto const first = wanted.begin - held->vertices.begin;
                            auto const last = wanted.end - held->vertices.begin;
                            if (facts.feature_kind == FeatureKind::dense) {
                              batch.dense.assign(held->dense.begin() + first * facts.num_features,
                                                 held->dense.begin() + last * facts.num_features);
                              return;
                            }
                            auto const begin = held->offsets[index(first)];
                            auto const end = held->offsets[index(last)];
                            for (auto row = first; row <= last; ++row)
                              batch.offsets.push_back(held->offsets[index(row)] - begin);
                            batch.columns.assign(held->columns.begin() + begin, held->columns.begin() + end);
                            batch.values.assign(held->values.begin() + begin, held->values.begin() + end);
                          });
                    }};
  parts.labels = {facts.label_kind, facts.num_classes, [held, &facts](std::int64_t batch_rows) {
                    return std::make_unique<HeldRows<LabelBatch>>(
                        held->vertices, batch_rows, [held, &facts](Range wanted, LabelBatch& batch) {
                          auto const first = wanted.begin - held->vertices.begin;
                          auto const last = wanted.end - held->vertices.begin;
                          if (facts.label_kind == LabelKind::single)
                            batch.classes.assign(held->classes.begin() + first, held->classes.begin() + last);
                          else if (facts.label_kind == LabelKind::real)
                            batch.targets.assign(held->targets.begin() + first * facts.num_classes,
                                                 held->targets.begin() + last * facts.num_classes);
                          else
                            batch.indicator.assign(held->indicator.begin() + first * facts.num_classes,
                                                   held->indicator.begin() + last * facts.num_classes);
                        });
                  }};
  parts.labels.names = facts.class_names;
  if (facts.has_split) parts.split = {facts.split_name, [held](std::int64_t) { return held->split; }};
  return assemble_source(std::move(parts));
}

} // namespace orthant::graph
