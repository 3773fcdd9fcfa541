// SPDX-License-Identifier: Apache-2.0
#include "graph/read/graph_files.hpp"

#include "graph/exchange.hpp"
#include "graph/generate/computed_streams.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

namespace orthant::graph {
namespace {

using runtime::index;
using runtime::throw_user;

constexpr std::int64_t edges_at_once = std::int64_t{1} << 12;

/// The edges of this rank's share and their features, row by row.
struct FeaturedEdges {
  std::unique_ptr<EdgeStream> edges;
  std::unique_ptr<FeatureStream> features;
};

/// Adds its features to each batch of edges.
class JoinedStream final : public EdgeStream {
 public:
  JoinedStream(FeaturedEdges rows, std::int64_t num_columns)
      : rows_(std::move(rows)),
        num_columns_(num_columns) {}

  bool next(EdgeBatch& batch) override {
    if (!rows_.edges->next(batch)) return false;
    batch.features.clear();
    auto const wanted = batch.edges.size() * index(num_columns_);
    while (batch.features.size() < wanted) {
      if (next_ == features_.dense.size()) {
        next_ = 0;
        if (!rows_.features->next(features_)) throw_user("there are fewer features of edges than edges");
      }
      auto const count = std::min(wanted - batch.features.size(), features_.dense.size() - next_);
      auto const from = features_.dense.begin() + static_cast<std::ptrdiff_t>(next_);
      batch.features.insert(batch.features.end(), from, from + static_cast<std::ptrdiff_t>(count));
      next_ += count;
    }
    return true;
  }
  [[nodiscard]] Progress progress() const override { return rows_.edges->progress(); }

 private:
  FeaturedEdges rows_;
  std::int64_t num_columns_;
  FeatureBatch features_;
  std::size_t next_ = 0; // number of features_
};

/// Rows of features, and a function that opens them from the start.
struct FeaturedRows {
  std::int64_t num_columns = 0;
  std::int64_t num_edges = 0; // in this share
  std::function<FeaturedEdges()> open;
};

/// Line i of one text belongs to line i of the other. Only a reader from the start counts lines, so rank 0 reads both.
FeaturedRows rows_of_texts(Opener const& opener) {
  auto const path = *opener.files.edge_features;
  FeaturedRows rows{count_text_columns(path), 0, nullptr};
  if (rows.num_columns == 0) throw_user("{} is empty; a line of features an edge is wanted", path.string());
  if (opener.share.index > 0) {
    rows.open = [] {
      return FeaturedEdges{std::make_unique<EmptyStream<EdgeBatch>>(),
                           std::make_unique<EmptyStream<FeatureBatch>>()};
    };
    return rows;
  }
  auto const open_edges = [edges = opener.files.edges, format = opener.text_format] {
    return read_text_edges(edges, {0, 1}, format, edges_at_once);
  };
  auto& num_edges = rows.num_edges = opener.parts.edges.num_edges;
  if (num_edges < 0) {
    num_edges = 0;
    auto const stream = open_edges();
    for (EdgeBatch batch; stream->next(batch);)
      num_edges += std::ssize(batch.edges);
  }
  rows.open = [=, count = num_edges, num_columns = rows.num_columns] {
    return FeaturedEdges{open_edges(), read_text_features(path, count, num_columns, edges_at_once, "edges")};
  };
  return rows;
}

FeaturedRows rows_of_arrays(Opener const& opener) {
  auto const num_edges = opener.parts.edges.num_edges;
  auto const array = opener.attributes.edge_features;
  auto const head = array();
  if (head.shape().size() != 2 || head.shape()[0] != num_edges || head.shape()[1] < 1)
    head.fail_shape(fmt::format("[{}, features], a row an edge,", num_edges));
  auto const ends = opener.edge_ends();
  auto const of_ends = ends.sources();
  // A compressed array is read by one rank, and then so is the other one.
  auto const range = npy_share(of_ends.has_random_access() ? head : of_ends, num_edges, opener.share);
  return {head.shape()[1], range.size(), [=, num_vertices = opener.parts.num_vertices] {
            return FeaturedEdges{read_npy_edges(ends, OpenArray(), range, num_vertices, edges_at_once),
                                 read_npy_features(array, range, edges_at_once)};
          }};
}

FeaturedRows rows_of(Opener const& opener) {
  return opener.is_text_topology() ? rows_of_texts(opener) : rows_of_arrays(opener);
}

/// Up to eight numbers of one edge for one of its ends.
struct EdgeNumbers {
  static constexpr std::int64_t most = 8;
  std::int64_t vertex;
  std::int64_t first_column;
  std::array<float, most> numbers;
};

/// Sums of the features of edges, for this rank's vertices. Each is a pair of doubles, high + low (Knuth's two-sum), with about 106 bits: the
/// order of the terms, which depends on the number of ranks, changes a rounded sum only if terms of 10^30 times its size cancel.
class SumsOfEdges {
 public:
  SumsOfEdges(Range vertices, std::int64_t num_columns)
      : vertices_(vertices),
        num_columns_(num_columns),
        sums_(index(vertices.size() * num_columns)),
        counts_(index(vertices.size())) {}

  void add(EdgeNumbers const& part) {
    auto const row = part.vertex - vertices_.begin;
    if (part.first_column == 0) ++counts_[index(row)];
    auto const count = std::min(EdgeNumbers::most, num_columns_ - part.first_column);
    for (std::int64_t k = 0; k < count; ++k) {
      auto& [high, low] = sums_[index(row * num_columns_ + part.first_column + k)];
      auto const term = static_cast<double>(part.numbers[index(k)]);
      auto const sum = high + term;
      auto const of_term = sum - high;
      low += (high - (sum - of_term)) + (term - of_term);
      high = sum;
    }
  }

  /// The sums, or the means, rounded; 0 for vertices without edges. Throws UserError if one is not finite.
  [[nodiscard]] std::vector<float> rounded(EdgeFeatures how) const {
    std::vector<float> values;
    values.reserve(sums_.size());
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      auto const row = i / index(num_columns_);
      auto const divisor = how == EdgeFeatures::mean ? std::max<std::int64_t>(1, counts_[row]) : 1;
      values.push_back(static_cast<float>((sums_[i].first + sums_[i].second) / static_cast<double>(divisor)));
      if (!std::isfinite(values.back()))
        throw_user("the features of the edges at vertex {} add up to more than a float holds",
                   vertices_.begin + static_cast<std::int64_t>(row));
    }
    return values;
  }

 private:
  Range vertices_;
  std::int64_t num_columns_;
  std::vector<std::pair<double, double>> sums_;
  std::vector<std::int64_t> counts_; // edges of each vertex
};

/// Produces the features of each edge, for the owners of its ends.
class EdgeSender {
 public:
  EdgeSender(FeaturedRows const& rows, std::int64_t num_vertices, int num_ranks, bool is_directed)
      : num_columns_(rows.num_columns),
        rows_(rows.open(), rows.num_columns),
        num_vertices_(num_vertices),
        num_ranks_(num_ranks),
        is_directed_(is_directed) {}

  /// Fills the outbox. Returns false at the end.
  bool operator()(Outbox<EdgeNumbers>& outbox) {
    for (; !outbox.is_full(); ++edge_) {
      if (edge_ == edges_.edges.size()) {
        edge_ = 0;
        if (!rows_.next(edges_)) return false;
      }
      auto const [source, target] = edges_.edges[edge_];
      send(outbox, target);
      if (!is_directed_ && source != target) send(outbox, source);
    }
    return true;
  }

 private:
  void send(Outbox<EdgeNumbers>& outbox, std::int64_t vertex) const {
    auto const owner = static_cast<int>(runtime::balanced_part(num_vertices_, num_ranks_, vertex));
    auto const numbers = std::span(edges_.features).subspan(edge_ * index(num_columns_));
    for (std::int64_t first = 0; first < num_columns_; first += EdgeNumbers::most) {
      EdgeNumbers part{vertex, first, {}};
      std::copy_n(numbers.begin() + first, std::min(EdgeNumbers::most, num_columns_ - first),
                  part.numbers.begin());
      outbox.push(owner, part);
    }
  }

  std::int64_t num_columns_;
  JoinedStream rows_;
  std::int64_t num_vertices_;
  int num_ranks_;
  bool is_directed_;
  EdgeBatch edges_;
  std::size_t edge_ = 0; // next of edges_
};

} // namespace

EdgeFeatures edge_features_of(std::string_view edge_features, std::string_view from_edges) {
  using enum EdgeFeatures;
  auto const keeps = edge_features == "keep";
  if (keeps && from_edges != "none")
    throw_user("--edge-features keep and --features-from-edges both use the features of edges: leave one of "
               "them out");
  return keeps ? kept : from_edges == "none" ? ignored : from_edges == "mean" ? mean : sum;
}

void keep_edge_features(Opener& opener) {
  auto& edges = opener.parts.edges;
  if (edges.is_weighted)
    throw_user("{}: edges have weights and features: give --weights ignore to keep the features",
               opener.input.path.string());
  auto const rows = rows_of(opener);
  if (rows.num_columns > most_columns)
    throw_user("{}: {} features of an edge; there are at most 2^31 - 1", opener.files.edge_features->string(),
               rows.num_columns);
  edges.num_features = rows.num_columns;
  edges.num_local_edges = rows.num_edges;
  // The batches are small, because a row may have many numbers.
  edges.open = [rows](std::int64_t) { return std::make_unique<JoinedStream>(rows.open(), rows.num_columns); };
}

SourceMemory memory_of_edge_features(std::int64_t num_vertices, std::int64_t num_columns) {
  auto const num_numbers = num_vertices * num_columns;
  constexpr std::int64_t sum_bytes = sizeof(std::pair<double, double>);
  return {num_numbers * std::int64_t{sizeof(float)}, num_numbers * (sum_bytes + std::int64_t{sizeof(float)}) +
                                                         num_vertices * std::int64_t{sizeof(std::int64_t)}};
}

FeaturePart features_from_edges(runtime::Communicator const& comm, Opener const& opener) {
  auto const num_vertices = opener.parts.num_vertices;
  auto rows = runtime::together(comm, [&] {
    auto opened = rows_of(opener);
    constexpr std::int64_t number_bytes = sizeof(std::pair<double, double>) + sizeof(float);
    auto const what = fmt::format("{}: bytes of {} features a vertex", opener.files.edge_features->string(),
                                  opened.num_columns);
    if (opened.num_columns > most_columns) throw_user("{}; there are at most 2^31 - 1 features", what);
    static_cast<void>(runtime::checked_product(number_bytes * opened.num_columns, num_vertices, what));
    return opened;
  });
  auto const num_columns = rows.num_columns;
  auto const own = runtime::balanced_range(num_vertices, comm.size(), comm.rank());
  auto sums = runtime::together(comm, [&] { return SumsOfEdges(own, num_columns); });
  Outbox<EdgeNumbers> outbox(comm.size(), records_per_round(comm) / 4); // these records are large
  auto const sender = runtime::together(comm, [&] {
    return std::make_unique<EdgeSender>(rows, num_vertices, comm.size(), opener.parts.is_directed);
  });
  exchange(comm, outbox, *sender, [&](std::span<EdgeNumbers const> arrived) {
    for (auto const& part : arrived)
      sums.add(part);
  });
  auto const values = runtime::together(comm, [&] {
    return std::make_shared<std::vector<float> const>(sums.rounded(opener.input.edge_features));
  });
  return {FeatureKind::dense, num_columns, [=](std::int64_t batch_rows) {
            return std::make_unique<ComputedRows<FeatureBatch>>(own, batch_rows, [=](FeatureBatch& batch) {
              auto const* const first = values->data() + (batch.rows.begin - own.begin) * num_columns;
              batch.dense.assign(first, first + batch.rows.size() * num_columns);
            });
          }};
}

} // namespace orthant::graph
