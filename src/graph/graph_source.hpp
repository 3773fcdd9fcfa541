#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A graph before it is partitioned: files in any format, a generator, or a store that is read back. A source
// says what it holds (`facts`) and then hands it out as streams. Every rank pulls its own disjoint share of a
// stream in batches of bounded size; the shares of all ranks together are the whole, once. A share may be
// empty: a .gz file cannot be cut, so one rank reads it all. Vertices have their original ids, from 0.
//
// What a source does not do: add reverse edges, drop repeats or self loops (GraphFacts and EdgeRules say what
// the pipeline has to do), or move data between ranks.
//
// Typical collective round, with `stream = source.edges(batch_size)`:
//   do {
//     more = together(comm, [&] { return stream->next(batch); });   // a bad line ends on all ranks
//     ... all_to_allv of batch.edges ...
//   } while (all_reduced(comm, int64{more}, Reduction::max));

#include "runtime/range.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace orthant::graph {

using runtime::Range;

/// From `source` to `target`; the entry A[target, source]. In a MatrixMarket file "row column" is "source
/// target".
struct Edge {
  std::int64_t source = 0;
  std::int64_t target = 0;
  friend auto operator<=>(Edge const&, Edge const&) = default;
  // Implied by the line above, but nvcc then leaves it out of the object.
  friend bool operator==(Edge const&, Edge const&) = default;
};

enum class FeatureKind : std::uint8_t { none, dense, sparse };

/// single: one class a vertex. multi: a 0/1 matrix of classes, several at once.
enum class LabelKind : std::uint8_t { none, single, multi };

/// What the graph is made of. Equal on all ranks.
struct GraphFacts {
  std::int64_t num_vertices = 0; // always known, at least 1
  std::int64_t num_edges = -1;   // edges that all streams together will give; -1 until they have been read
  bool is_directed = false;      // false: an edge stands for both directions, the pipeline adds the reverse
  bool is_weighted = false;
  FeatureKind feature_kind = FeatureKind::none;
  std::int64_t num_features = 0;
  LabelKind label_kind = LabelKind::none;
  std::int64_t num_classes = 0;
  bool has_split = false;
  std::string split_name; // "public", "time", "random", ..; empty without a split
  std::string name;       // of the data set: meta.json's, or the file's
  std::string format;     // "ogb", "edgelist", "mtx", "npy", "rmat", "karate", ..
};

/// What the pipeline makes of repeats and self loops. Defaults are OGB's and PyG's: to_undirected coalesces,
/// GCN replaces self loops by one of its own.
struct EdgeRules {
  /// drop: an edge counts once, however often it and (undirected) its reverse are listed; where there are
  /// weights they are added up, as PyG's coalesce does. keep: every listing is an entry of A. The reverse of
  /// a self loop is itself and is never added.
  enum class Repeats : std::uint8_t { drop, keep } repeats = Repeats::drop;
  /// keep: self loops of the input stay in A, apart from the I that is added (docs/design.md 2.2). drop:
  /// they go.
  enum class SelfLoops : std::uint8_t { keep, drop } self_loops = SelfLoops::keep;
};

struct EdgeBatch {
  std::vector<Edge> edges;
  std::vector<float> weights; // one an edge where the graph is weighted, else empty
};

/// Rows [rows.begin, rows.end) of the feature matrix.
struct FeatureBatch {
  Range rows;
  std::vector<float> dense;          // [rows.size() x D] row-major, or empty
  std::vector<std::int64_t> offsets; // [rows.size() + 1] from 0, sparse only
  std::vector<std::int32_t> columns; // [nnz] ascending within a row, sparse only
  std::vector<float> values;         // [nnz] sparse only
};

struct LabelBatch {
  Range rows;
  std::vector<std::int64_t> classes;  // [rows.size()], -1 = none; LabelKind::single
  std::vector<std::int8_t> indicator; // [rows.size() x C], 1, 0 or -1 = unknown; LabelKind::multi
};

/// This rank's share of the three lists of vertices, in no order. A vertex is in at most one list, and in one
/// only once: whoever builds masks from all shares can and must check that.
struct SplitShare {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> valid;
  std::vector<std::int64_t> test;
  std::array<std::string, 3> names{"train", "valid", "test"}; // for messages, the same on all ranks
};

/// How far this rank's share has been read, in bytes of the file or in any other unit.
struct Progress {
  std::int64_t done = 0;
  std::int64_t total = 0;
};

template<class Batch>
class BatchStream {
 public:
  BatchStream() = default;
  BatchStream(BatchStream const&) = delete;
  BatchStream& operator=(BatchStream const&) = delete;
  virtual ~BatchStream() = default;

  /// Fills `batch` (its storage is used again) with the next rows or edges of this rank's share; false, and
  /// an empty batch, at the end. Not collective. Throws UserError where the input is wrong (on this rank
  /// only: use together()).
  virtual bool next(Batch& batch) = 0;
  [[nodiscard]] virtual Progress progress() const = 0;
};

using EdgeStream = BatchStream<EdgeBatch>;
/// Feature and label batches of one rank come in ascending order of rows.
using FeatureStream = BatchStream<FeatureBatch>;
using LabelStream = BatchStream<LabelBatch>;

/// Made collectively (open_graph.hpp, generators.hpp); the member functions are not collective, may be called
/// any number of times and in any order, and each call gives a new stream from the start.
class GraphSource {
 public:
  GraphSource() = default;
  GraphSource(GraphSource const&) = delete;
  GraphSource& operator=(GraphSource const&) = delete;
  virtual ~GraphSource() = default;

  [[nodiscard]] virtual GraphFacts const& facts() const = 0;

  /// This rank's edges, at most `batch_size` a batch.
  [[nodiscard]] virtual std::unique_ptr<EdgeStream> edges(std::int64_t batch_size) const = 0;
  /// Whether the batches of edges() need resolve() before their vertices are original ids: a store holds
  /// positions, and no rank the ids of all of them. Equal on all ranks.
  [[nodiscard]] virtual bool needs_resolving() const { return false; }
  /// Turns a batch of edges() into original ids. Collective: every rank calls it equally often, with an empty
  /// batch if it has no more (write_edges.hpp).
  virtual void resolve(EdgeBatch& batch) const { static_cast<void>(batch); }
  /// Number of edges in this rank's share, or -1 where only reading them tells.
  [[nodiscard]] virtual std::int64_t num_local_edges() const { return -1; }
  /// To be called with the number of edges that all ranks together have read: throws UserError, the same on
  /// all ranks, where the input promised another number.
  virtual void check_num_edges(std::int64_t num_read) const { static_cast<void>(num_read); }

  /// This rank's rows, at most `batch_rows` a batch. Only where facts() says that there are some.
  [[nodiscard]] virtual std::unique_ptr<FeatureStream> features(std::int64_t batch_rows) const = 0;
  [[nodiscard]] virtual std::unique_ptr<LabelStream> labels(std::int64_t batch_rows) const = 0;
  [[nodiscard]] virtual SplitShare split() const = 0;
};

// A GraphSource put together from parts that know nothing of each other: edges from one file, features from
// another, labels drawn at random.

struct EdgePart {
  std::int64_t num_edges = -1;       // as in GraphFacts
  std::int64_t num_local_edges = -1; // as in GraphSource
  bool is_weighted = false;
  std::string promised_by; // the file that says num_edges, for the message where it was wrong
  std::function<std::unique_ptr<EdgeStream>(std::int64_t batch_size)> open;
  std::function<void(EdgeBatch&)> resolve; // as in GraphSource; empty: not needed
};

struct FeaturePart {
  FeatureKind kind = FeatureKind::none;
  std::int64_t num_features = 0;
  std::function<std::unique_ptr<FeatureStream>(std::int64_t batch_rows)> open;
};

struct LabelPart {
  LabelKind kind = LabelKind::none;
  std::int64_t num_classes = 0;
  std::function<std::unique_ptr<LabelStream>(std::int64_t batch_rows)> open;
};

struct SplitPart {
  std::string name;
  std::function<SplitShare()> read; // empty: no split
};

struct SourceParts {
  std::string name;
  std::string format;
  std::int64_t num_vertices = 0;
  bool is_directed = false;
  EdgePart edges;
  FeaturePart features;
  LabelPart labels;
  SplitPart split;
};

[[nodiscard]] std::unique_ptr<GraphSource> assemble_source(SourceParts parts);

/// A share with nothing in it.
template<class Batch>
class EmptyStream final : public BatchStream<Batch> {
 public:
  bool next(Batch& batch) override {
    batch = {};
    return false;
  }
  [[nodiscard]] Progress progress() const override { return {}; }
};

// What is taken from outside as the size of a graph. Larger numbers are slips: with these, every product of a
// count and a few bytes, and every id in the store, stays far below 64 bits.

inline constexpr std::int64_t most_vertices = std::int64_t{1} << 40; // 1.1e12
inline constexpr std::int64_t most_edges = std::int64_t{1} << 44;    // 1.8e13, as listed
/// Classes and columns of features: 32-bit numbers in the store.
inline constexpr std::int64_t most_columns = std::numeric_limits<std::int32_t>::max();
/// Those that a generator is asked to make up.
inline constexpr std::int64_t most_generated_columns = std::int64_t{1} << 24;

// Which numbers in a file of labels say that a vertex has none.

/// -1, or -100, the class that PyTorch's losses ignore. Elsewhere in Orthant it is -1.
template<class Number>
[[nodiscard]] constexpr bool is_no_label(Number number) {
  return number == Number{-1} || number == Number{-100};
}

} // namespace orthant::graph
