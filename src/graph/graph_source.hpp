#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// A graph before it is partitioned: files in any format, a generator, or a store that is read back. A source has `facts` about the graph
// and provides its data as streams. Every rank reads its own disjoint share of a stream in batches of bounded size; the shares of all ranks
// together contain everything exactly once. A share may be empty: a .gz file cannot be cut, so that one rank reads all of it. Vertices have
// their original ids, from 0.
//
// A source does not add reverse edges, does not drop repeats or self loops (the pipeline does so according to GraphFacts and EdgeRules),
// and does not move data between ranks.
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
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::graph {

using runtime::Range;

/// An edge from `source` to `target` is the entry A[target, source]. In a MatrixMarket file, "row column" is "source target".
struct Edge {
  std::int64_t source = 0;
  std::int64_t target = 0;
  friend auto operator<=>(Edge const&, Edge const&) = default;
  // Implied by operator<=>, but nvcc would then omit it from the object file.
  friend bool operator==(Edge const&, Edge const&) = default;
};

enum class FeatureKind : std::uint8_t { none, dense, sparse };

/// single: one class per vertex. multi: a 0/1 matrix, where a vertex may have several classes. real: targets of regression.
enum class LabelKind : std::uint8_t { none, single, multi, real };

/// A type of vertices. Their original ids are contiguous: those of the first type, of the second, ..
struct VertexType {
  std::string name;
  std::int64_t count = 0;
  std::int64_t num_features = 0; // columns in use, the others are 0; 0: this type has no features

  friend bool operator==(VertexType const&, VertexType const&) = default;
};
/// Types of the sources and of the targets of a relation.
struct RelationEnds {
  std::int64_t source = 0, target = 0;
};

/// Properties of a graph. Equal on all ranks.
struct GraphFacts {
  std::int64_t num_vertices = 0; // at least 1, never unknown
  std::int64_t num_edges = -1;   // total number of edges in all streams; -1 until they have been read
  bool is_directed = false;      // if false, the pipeline adds the reverse of every edge
  bool is_weighted = false;
  std::int64_t num_edge_features = 0; // columns of EdgeBatch::features
  FeatureKind feature_kind = FeatureKind::none;
  std::int64_t num_features = 0;
  bool features_have_remainders = false; // dense features in fp64
  LabelKind label_kind = LabelKind::none;
  std::int64_t num_classes = 0;         // LabelKind::real: number of targets of a vertex
  std::vector<std::string> class_names; // in the order of their numbers; empty if classes are only numbers
  bool has_split = false;
  std::int64_t num_splits = 0;
  std::string split_name;             // "public", "time", "random", ..; empty without a split
  std::string name;                   // of the data set, from meta.json or the file
  std::string format;                 // "ogb", "edgelist", "mtx", "npy", "rmat", "karate", ..
  std::vector<std::string> relations; // names in the order of their numbers; empty if edges have no relation
  bool has_names = false;             // of vertices
  std::vector<VertexType> vertex_types;    // empty: all vertices are alike
  std::vector<RelationEnds> relation_ends; // [relations] if vertices have types

  [[nodiscard]] bool has_relations() const { return !relations.empty(); }
};

/// Names in one text: name i is its part from offsets[i] to offsets[i + 1].
struct NameList {
  std::vector<std::int64_t> offsets{0}; // [names + 1]
  std::string text;

  [[nodiscard]] std::int64_t size() const { return std::ssize(offsets) - 1; }
  [[nodiscard]] std::string_view operator[](std::int64_t i) const {
    auto const* const at = &offsets[static_cast<std::size_t>(i)];
    return std::string_view(text).substr(static_cast<std::size_t>(at[0]),
                                         static_cast<std::size_t>(at[1] - at[0]));
  }
  void add(std::string_view name) {
    text += name;
    offsets.push_back(std::ssize(text));
  }
};

/// How the pipeline treats repeats and self loops. The defaults are those of OGB and PyG: to_undirected coalesces edges, and GCN replaces
/// self loops by its own.
struct EdgeRules {
  /// drop: an edge counts once, no matter how often it and (if undirected) its reverse are listed; weights of repeats are added up, as in
  /// PyG's coalesce. keep: every listed edge is an entry of A. A self loop is its own reverse, which is therefore never added.
  enum class Repeats : std::uint8_t { drop, keep } repeats = Repeats::drop;
  /// keep: self loops of the input stay in A, separate from the I that is added (docs/design.md 2.2). drop: they are removed.
  enum class SelfLoops : std::uint8_t { keep, drop } self_loops = SelfLoops::keep;
};

struct EdgeBatch {
  std::vector<Edge> edges;
  std::vector<float> weights; // one per edge if the graph is weighted, otherwise empty
  std::vector<std::uint16_t>
      relations; // number of the relation of each edge if the graph has relations, otherwise empty
  std::vector<float> features; // [edges x num_edge_features] row-major, or empty
};

/// Rows [rows.begin, rows.end) of the feature matrix.
struct FeatureBatch {
  Range rows;
  std::vector<float> dense;      // [rows.size() x D] row-major, or empty
  std::vector<float> remainders; // [rows.size() x D] of features in fp64: what `dense` rounds off; else empty
  std::vector<std::int64_t> offsets; // [rows.size() + 1] from 0, sparse only
  std::vector<std::int32_t> columns; // [nnz] ascending within a row, sparse only
  std::vector<float> values;         // [nnz] sparse only
};

struct LabelBatch {
  Range rows;
  std::vector<std::int64_t> classes;  // [rows.size()], -1 = none; LabelKind::single
  std::vector<std::int8_t> indicator; // [rows.size() x C], 1, 0 or -1 = unknown; LabelKind::multi
  std::vector<double> targets;        // [rows.size() x C], nan = none; LabelKind::real
};

/// This rank's share of the three lists of vertices, in any order. A vertex may be in at most one list, and only once; code that builds
/// masks from all shares must check this.
struct SplitShare {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> valid;
  std::vector<std::int64_t> test;
  std::array<std::string, 3> names{"train", "valid", "test"}; // for messages; equal on all ranks
};

/// Progress of reading this rank's share, in bytes of the file or any other unit.
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

  /// Fills `batch`, reusing its storage, with the next rows or edges of this rank's share. Returns false and an empty batch at the end. Not
  /// collective. Throws UserError if the input is wrong, on this rank only: call it inside together().
  virtual bool next(Batch& batch) = 0;
  [[nodiscard]] virtual Progress progress() const = 0;
};

using EdgeStream = BatchStream<EdgeBatch>;
/// Each rank gets its feature and label batches in ascending order of rows.
using FeatureStream = BatchStream<FeatureBatch>;
using LabelStream = BatchStream<LabelBatch>;

/// Memory of a source on this rank besides the buffers of its streams.
struct SourceMemory {
  std::int64_t held_bytes = 0;    // as long as it exists
  std::int64_t opening_bytes = 0; // at most, while it was opened
};

/// Construction is collective (open_graph.hpp, generators.hpp). The member functions are not collective unless they say so, and may be
/// called any number of times in any order. Each call returns a new stream from the start.
class GraphSource {
 public:
  GraphSource() = default;
  GraphSource(GraphSource const&) = delete;
  GraphSource& operator=(GraphSource const&) = delete;
  virtual ~GraphSource() = default;

  [[nodiscard]] virtual GraphFacts const& facts() const = 0;

  /// Stream of this rank's edges with at most `batch_size` edges per batch.
  [[nodiscard]] virtual std::unique_ptr<EdgeStream> edges(std::int64_t batch_size) const = 0;
  /// True if the batches of edges() need resolve() to convert their vertices to original ids: a store contains positions, and no rank has
  /// the ids of all of them. Equal on all ranks.
  [[nodiscard]] virtual bool needs_resolving() const { return false; }
  /// Converts a batch of edges() to original ids. Collective: every rank must call it equally often, with an empty batch if it has no more
  /// edges (write_graph.hpp).
  virtual void resolve(EdgeBatch& batch) const { static_cast<void>(batch); }
  /// Number of edges in this rank's share, or -1 if it is unknown before they are read.
  [[nodiscard]] virtual std::int64_t num_local_edges() const { return -1; }
  /// Checks the number of edges that all ranks together have read. Throws UserError on all ranks if the input has promised another number.
  virtual void check_num_edges(std::int64_t num_read) const { static_cast<void>(num_read); }

  /// Streams of this rank's rows with at most `batch_rows` rows per batch. Call each function only if facts() says that there are such
  /// data.
  [[nodiscard]] virtual std::unique_ptr<FeatureStream> features(std::int64_t batch_rows) const = 0;
  [[nodiscard]] virtual std::unique_ptr<LabelStream> labels(std::int64_t batch_rows) const = 0;
  /// `number` is from 0 to facts().num_splits - 1.
  [[nodiscard]] virtual SplitShare split(std::int64_t number) const = 0;
  /// Names of all vertices by original id on rank 0 if facts().has_names, otherwise nullptr.
  [[nodiscard]] virtual NameList const* vertex_names() const { return nullptr; }
  /// Without the names of vertices.
  [[nodiscard]] virtual SourceMemory memory() const { return {}; }
};

// A GraphSource that is composed of independent parts: for example edges from one file, features from another, and random labels.

struct EdgePart {
  std::int64_t num_edges = -1;       // as in GraphFacts
  std::int64_t num_local_edges = -1; // as in GraphSource
  bool is_weighted = false;
  std::int64_t num_features = 0; // as GraphFacts::num_edge_features
  std::string promised_by;       // file that gives num_edges, for the message if the number is wrong
  std::function<std::unique_ptr<EdgeStream>(std::int64_t batch_size)> open;
  std::function<void(EdgeBatch&)> resolve; // as in GraphSource; empty if not needed
};

struct FeaturePart {
  FeatureKind kind = FeatureKind::none;
  std::int64_t num_features = 0;
  std::function<std::unique_ptr<FeatureStream>(std::int64_t batch_rows)> open;
  bool have_remainders = false; // as in GraphFacts
};

struct LabelPart {
  LabelKind kind = LabelKind::none;
  std::int64_t num_classes = 0;
  std::function<std::unique_ptr<LabelStream>(std::int64_t batch_rows)> open;
  std::vector<std::string> names{}; // as in GraphFacts
};

struct SplitPart {
  std::string name;
  std::function<SplitShare(std::int64_t number)> read; // empty if there is no split
  std::int64_t count = 1;
};

struct NamesPart {
  std::vector<std::string> relations;       // as in GraphFacts
  bool has_names = false;                   // as in GraphFacts
  std::shared_ptr<NameList const> vertices; // on rank 0
  std::vector<VertexType> types;            // as in GraphFacts
  std::vector<RelationEnds> ends;           // as in GraphFacts
};

struct SourceParts {
  std::string name;
  std::string format;
  std::int64_t num_vertices = 0;
  bool is_directed = false;
  NamesPart names;
  EdgePart edges;
  FeaturePart features;
  LabelPart labels;
  SplitPart split;
  SourceMemory memory; // as in GraphSource
};

[[nodiscard]] std::unique_ptr<GraphSource> assemble_source(SourceParts parts);

/// A stream of an empty share.
template<class Batch>
class EmptyStream final : public BatchStream<Batch> {
 public:
  bool next(Batch& batch) override {
    batch = {};
    return false;
  }
  [[nodiscard]] Progress progress() const override { return {}; }
};

// Largest accepted sizes of a graph that is read. Larger numbers are mistakes. Within these limits, every product of a count and a few
// bytes, and every id in the store, stays far below 64 bits.

inline constexpr std::int64_t most_vertices = std::int64_t{1} << 40; // 1.1e12
inline constexpr std::int64_t most_edges = std::int64_t{1} << 44;    // number of listed edges
inline constexpr std::int64_t most_relations = 65'535;               // 16-bit numbers
inline constexpr std::int64_t most_class_names = 65'536;             // which every rank holds
inline constexpr std::int64_t most_splits = 1'000; // whose sizes are among the facts of a store
inline constexpr std::int64_t most_vertex_types = 1000;
/// Number of classes and of feature columns, which are 32-bit numbers in the store.
inline constexpr std::int64_t most_columns = std::numeric_limits<std::int32_t>::max();
/// Largest number of classes and of feature columns that a generator creates.
inline constexpr std::int64_t most_generated_columns = std::int64_t{1} << 24;

// Numbers that mean "no label" in a file of labels.

/// True for -1, and for -100, which PyTorch's losses ignore. Everywhere else in Orthant the number is -1.
template<class Number>
[[nodiscard]] constexpr bool is_no_label(Number number) {
  return number == Number{-1} || number == Number{-100};
}

} // namespace orthant::graph
