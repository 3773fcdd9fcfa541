// SPDX-License-Identifier: Apache-2.0
#include "graph/read/typed_graph.hpp"

#include "graph/arrays/npy_streams.hpp"
#include "graph/generate/computed_streams.hpp"
#include "graph/read/graph_files.hpp"
#include "graph/read/typed_files.hpp"
#include "graph/read/typed_streams.hpp"
#include "graph/text/text_blocks.hpp"
#include "graph/text/text_edges.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace orthant::graph {

using runtime::throw_user;

namespace {

/// Number of edges or vertices per batch while files are scanned.
constexpr std::int64_t edges_per_scan = std::int64_t{1} << 16;

/// Reads the parts of a graph from its files, as far as this does not need communication.
struct TypedOpener {
  Input input;
  TypedFiles files;
  Share share;
  std::vector<std::int64_t> offsets{}; // [types + 1]
  std::vector<std::int64_t>
      inverses{}; // [relations] number of the inverse, which may be the relation itself; -1: none
  std::vector<std::string> names{};                   // of the relations, including inverses
  std::vector<RelationEnds> ends{};                   // as many
  std::optional<std::size_t> labelled = std::nullopt; // type with labels

  [[nodiscard]] std::size_t type_of(std::string const& name) const {
    for (std::size_t t = 0; t < files.types.size(); ++t)
      if (files.types[t].name == name) return t;
    throw_user("there is no type of vertices \"{}\"", name);
  }
  [[nodiscard]] std::int64_t count_of(std::size_t type) const { return files.types[type].count.count; }

  void read_heads();
  void name_relations();
  /// Requires ids below the larger of the known vertex counts of the two types.
  [[nodiscard]] std::unique_ptr<EdgeStream> open_edges(RelationFiles const& relation,
                                                       std::int64_t batch_size) const;
  [[nodiscard]] EdgePart edge_part() const;
  [[nodiscard]] FeaturePart feature_part() const;
  [[nodiscard]] LabelPart label_part(std::int64_t num_classes) const;
  [[nodiscard]] std::unique_ptr<LabelStream> open_labels(std::int64_t num_classes,
                                                         std::int64_t batch_rows) const;
  [[nodiscard]] SplitPart split_part() const;
};

/// Finds the types, their counts, and the numbers of edges, from small files and the headers of arrays.
void TypedOpener::read_heads() {
  for (auto& relation : files.relations) {
    if (relation.is_text) continue;
    NpyArray const array(relation.edges);
    auto const& shape = array.shape();
    if (shape.size() != 2 || (shape[0] != 2 && shape[1] != 2)) array.fail_shape("[2, edges] or [edges, 2]");
    if (!array.is_integer())
      throw_user("{}: type '{}'; vertex ids are integers: a.astype('int64')", array.name(), array.type());
    relation.has_rows = shape[0] != 2;
    relation.num_edges = shape[0] != 2 ? shape[0] : shape[1];
  }
  for (std::size_t t = 0; t < files.types.size(); ++t) {
    auto& type = files.types[t];
    if (type.feature_npy) {
      NpyArray const array(*type.feature_npy);
      if (array.shape().size() != 2 || array.shape()[1] < 1 || array.shape()[1] > most_columns)
        array.fail_shape("[vertices, features], 1 to 2^31 - 1 features,");
      type.count.add(array.shape()[0], array.name());
      type.num_features = array.shape()[1];
    } else if (type.feature_text) {
      type.num_features = count_text_columns(*type.feature_text);
      if (type.num_features == 0)
        throw_user("{} is empty; a line of features a vertex is wanted", type.feature_text->string());
    }
    if (type.label_npy) {
      NpyArray const array(*type.label_npy);
      if (array.shape().empty()) array.fail_shape("[vertices]");
      if (array.shape().size() > 2 || (array.shape().size() == 2 && array.shape()[1] != 1))
        array.fail_shape("[vertices], one class each,");
      type.count.add(array.shape()[0], array.name());
    }
    for (auto const& path : type.split.paths) {
      if (type.split.kind != SplitFiles::Kind::masks || path.empty()) continue;
      NpyArray const mask(path);
      auto const& shape = mask.shape();
      if (shape.empty() || shape.size() > 2 ||
          (shape.size() == 2 && (shape[1] < 1 || shape[1] > most_splits)))
        mask.fail_shape(fmt::format("[vertices], or [vertices, splits] of 1 to {} splits,", most_splits));
      type.count.add(shape[0], mask.name());
      auto const count = shape.size() == 2 ? shape[1] : 1;
      if (path != type.split.paths.front() && count != type.split.count)
        throw_user("{} has masks of {} splits, and train_mask.npy of {}: as many are wanted", mask.name(),
                   count, type.split.count);
      type.split.count = count;
    }
    if (!type.label_npy && !type.label_text) continue;
    if (labelled)
      throw_user("{}: vertices of the types {} and {} have labels, and a network predicts those of one type: "
                 "move the other file away",
                 input.path.string(), files.types[*labelled].name, type.name);
    labelled = t;
  }
}

void TypedOpener::name_relations() {
  auto const count = files.relations.size();
  for (auto const& relation : files.relations) {
    names.push_back(relation.full_name());
    ends.push_back({static_cast<std::int64_t>(type_of(relation.source)),
                    static_cast<std::int64_t>(type_of(relation.target))});
  }
  inverses.assign(count, -1);
  if (!input.adds_inverse) return;
  for (std::size_t r = 0; r < count; ++r) {
    auto const& relation = files.relations[r];
    inverses[r] = static_cast<std::int64_t>(r);
    if (relation.source == relation.target) continue;
    inverses[r] = std::ssize(names);
    auto name = RelationFiles{relation.target, "rev_" + relation.name, relation.source}.full_name();
    if (std::ranges::count(names, name) > 0)
      throw_user("--add-inverse: there is a relation {} already: leave --add-inverse out", name);
    names.push_back(std::move(name));
    ends.push_back({ends[r].target, ends[r].source});
  }
}

std::unique_ptr<EdgeStream> TypedOpener::open_edges(RelationFiles const& relation,
                                                    std::int64_t batch_size) const {
  auto const limit_of = [&](std::string const& type) {
    return count_of(type_of(type)) < 0 ? most_vertices : count_of(type_of(type));
  };
  auto const most = std::max(limit_of(relation.source), limit_of(relation.target));
  if (relation.is_text) {
    EdgeTextFormat format;
    format.num_vertices = most;
    format.id_limit = "the larger of its two types has as many vertices";
    if (has_names_line(relation.edges)) format.start = probe_text_edges(relation.edges).start;
    return read_text_edges(relation.edges, share, format, batch_size);
  }
  auto const array = array_file(relation.edges);
  auto const range = npy_share(array(), relation.num_edges, share);
  if (relation.has_rows) return std::make_unique<EdgeRows>(array, range, most, batch_size);
  return read_npy_edges({array, {}}, {}, range, most, batch_size);
}

EdgePart TypedOpener::edge_part() const {
  EdgePart part;
  // Batches have room for reverse edges.
  part.open = [shared = std::make_shared<TypedOpener const>(*this)](
                  std::int64_t batch_size) -> std::unique_ptr<EdgeStream> {
    std::vector<Opened<EdgeBatch>> streams;
    for (std::size_t r = 0; r < shared->files.relations.size(); ++r)
      streams.push_back([shared, r, batch_size] {
        return shared->open_edges(shared->files.relations[r], std::max<std::int64_t>(1, batch_size / 2));
      });
    return std::make_unique<Joined<EdgeBatch>>(std::move(streams), [shared](EdgeBatch& batch, std::size_t r) {
      auto const& self = *shared;
      auto const [source, target] = self.ends[r];
      std::array const types{static_cast<std::size_t>(source), static_cast<std::size_t>(target)};
      auto const count = batch.edges.size();
      for (auto& edge : batch.edges) {
        for (auto const& [id, type] : {std::pair(edge.source, types[0]), {edge.target, types[1]}})
          if (id < 0 || id >= self.count_of(type))
            throw_user("{}: an edge from {} {} to {} {}, but there are {} vertices of the type {}",
                       self.files.relations[r].edges.string(), self.files.types[types[0]].name, edge.source,
                       self.files.types[types[1]].name, edge.target, self.count_of(type),
                       self.files.types[type].name);
        edge.source += self.offsets[types[0]];
        edge.target += self.offsets[types[1]];
      }
      batch.weights.clear();
      batch.relations.assign(count, static_cast<std::uint16_t>(r));
      auto const inverse = self.inverses[r];
      if (inverse < 0) return;
      for (std::size_t i = 0; i < count; ++i)
        batch.edges.push_back({batch.edges[i].target, batch.edges[i].source});
      batch.relations.resize(2 * count, static_cast<std::uint16_t>(inverse));
    });
  };
  return part;
}

FeaturePart TypedOpener::feature_part() const {
  FeaturePart part;
  for (auto const& type : files.types) {
    part.num_features = std::max(part.num_features, type.num_features);
    if (type.feature_npy && NpyArray(*type.feature_npy).is_fp64()) part.have_remainders = true;
  }
  if (part.num_features == 0) return {};
  part.kind = FeatureKind::dense;
  auto const width = static_cast<std::size_t>(part.num_features);
  part.open = [self = *this, width, have_remainders = part.have_remainders](
                  std::int64_t batch_rows) -> std::unique_ptr<FeatureStream> {
    std::vector<Opened<FeatureBatch>> streams;
    for (auto const& type : self.files.types)
      streams.push_back([=, share = self.share]() -> std::unique_ptr<FeatureStream> {
        auto const count = type.count.count;
        if (type.feature_npy) {
          auto const array = array_file(*type.feature_npy);
          return read_npy_features(array, npy_share(array(), count, share), batch_rows);
        }
        if (!type.feature_text)
          return std::make_unique<ComputedRows<FeatureBatch>>(
              runtime::balanced_range(count, share.count, share.index), batch_rows, [](FeatureBatch& batch) {
                batch.dense.clear();
                batch.remainders.clear();
              });
        if (share.index > 0) return std::make_unique<EmptyStream<FeatureBatch>>();
        return read_text_features(*type.feature_text, count, type.num_features, batch_rows);
      });
    return std::make_unique<Joined<FeatureBatch>>(
        std::move(streams), [self, width, have_remainders](FeatureBatch& batch, std::size_t t) {
          auto const own = static_cast<std::size_t>(self.files.types[t].num_features);
          widen(batch.dense, batch.rows.size(), own, width);
          if (have_remainders) widen(batch.remainders, batch.rows.size(), own, width);
          batch.rows = {batch.rows.begin + self.offsets[t], batch.rows.end + self.offsets[t]};
        });
  };
  return part;
}

std::unique_ptr<LabelStream> TypedOpener::open_labels(std::int64_t num_classes,
                                                      std::int64_t batch_rows) const {
  auto const& type = files.types[labelled.value()];
  if (type.label_npy) {
    auto const array = array_file(*type.label_npy);
    return read_npy_labels(array, npy_share(array(), type.count.count, share), num_classes, batch_rows);
  }
  if (share.index > 0) return std::make_unique<EmptyStream<LabelBatch>>();
  return read_text_classes(*type.label_text, type.count.count, num_classes, batch_rows);
}

LabelPart TypedOpener::label_part(std::int64_t num_classes) const {
  if (!labelled) return {};
  return {LabelKind::single, num_classes,
          [self = *this, num_classes](std::int64_t batch_rows) -> std::unique_ptr<LabelStream> {
            std::vector<Opened<LabelBatch>> streams;
            for (std::size_t t = 0; t < self.files.types.size(); ++t)
              streams.push_back([=]() -> std::unique_ptr<LabelStream> {
                if (t == self.labelled) return self.open_labels(num_classes, batch_rows);
                auto const rows =
                    runtime::balanced_range(self.count_of(t), self.share.count, self.share.index);
                return std::make_unique<ComputedRows<LabelBatch>>(rows, batch_rows, [](LabelBatch& batch) {
                  batch.classes.assign(static_cast<std::size_t>(batch.rows.size()), -1);
                });
              });
            return std::make_unique<Joined<LabelBatch>>(
                std::move(streams), [self](LabelBatch& batch, std::size_t t) {
                  batch.rows = {batch.rows.begin + self.offsets[t], batch.rows.end + self.offsets[t]};
                });
          }};
}

SplitPart TypedOpener::split_part() const {
  if (!labelled) return {};
  auto const& type = files.types[*labelled];
  SplitPart part;
  auto const shift = [offset = offsets[*labelled]](SplitShare split) {
    for (auto* const list : {&split.train, &split.valid, &split.test})
      for (auto& vertex : *list)
        vertex += offset;
    return split;
  };
  if (input.random_split) {
    part = random_split(type.count.count, *input.random_split, input.seed, share);
    part.read = [read = part.read, shift](std::int64_t number) { return shift(read(number)); };
    return part;
  }
  if (!type.split.kind) return part;
  part.name = type.split.name;
  part.count = type.split.count;
  part.read = [type, share = share, shift, masks = std::array<NpyMask, 3>()](std::int64_t number) mutable {
    SplitShare result;
    std::array const lists{&result.train, &result.valid, &result.test};
    for (std::size_t i = 0; i < lists.size(); ++i) {
      auto const& path = type.split.paths[i];
      if (path.empty()) continue;
      result.names[i] = path.string();
      if (type.split.kind == SplitFiles::Kind::masks)
        *lists[i] = masks[i].vertices(NpyArray(path), share, number);
      else if (type.split.kind == SplitFiles::Kind::arrays)
        *lists[i] = read_npy_vertices(NpyArray(path), share, type.count.count);
      else if (static_cast<std::int64_t>(i) % share.count == share.index)
        *lists[i] = read_text_vertices(path, type.count.count);
    }
    return shift(std::move(result));
  };
  return part;
}

/// For types whose number of vertices no file gives, sets it to one above the largest id. Collective.
void scan_counts(runtime::Communicator const& comm, TypedOpener& opener) {
  auto& types = opener.files.types;
  std::vector<std::int64_t> largest(types.size(), -1);
  runtime::together(comm, [&] {
    for (auto const& relation : opener.files.relations) {
      std::array const ends{opener.type_of(relation.source), opener.type_of(relation.target)};
      if (types[ends[0]].count.count >= 0 && types[ends[1]].count.count >= 0) continue;
      auto const stream = opener.open_edges(relation, edges_per_scan);
      for (EdgeBatch batch; stream->next(batch);)
        for (auto const& edge : batch.edges) {
          largest[ends[0]] = std::max(largest[ends[0]], edge.source);
          largest[ends[1]] = std::max(largest[ends[1]], edge.target);
        }
    }
  });
  for (std::size_t t = 0; t < types.size(); ++t) {
    auto const found = runtime::all_reduced(comm, largest[t], runtime::Reduction::max);
    if (types[t].count.count < 0) types[t].count = {found + 1, "the largest id of its edges"};
    if (types[t].count.count == 0)
      throw_user("{}: there are no vertices of the type {}", opener.input.path.string(), types[t].name);
  }
}

/// Number of classes: one above the largest label. Collective.
std::int64_t scan_labels(runtime::Communicator const& comm, TypedOpener const& opener) {
  std::int64_t largest = -1;
  runtime::together(comm, [&] {
    auto const limit = std::min(opener.count_of(*opener.labelled), most_columns);
    auto const stream = opener.open_labels(limit, edges_per_scan);
    for (LabelBatch batch; stream->next(batch);)
      largest = std::max(largest, std::ranges::max(batch.classes));
  });
  auto const num_classes = runtime::all_reduced(comm, largest, runtime::Reduction::max) + 1;
  if (num_classes < 1) throw_user("{}: no vertex has a label", opener.input.path.string());
  return num_classes;
}

} // namespace

bool is_typed_graph(Input const& input) {
  return input.format == InputFormat::typed ||
         (input.format == InputFormat::automatic && has_typed_files(input.path));
}

std::unique_ptr<GraphSource> open_typed_graph(runtime::Communicator const& comm, Input const& input,
                                              InputFiles* files) {
  runtime::WorkingScope const working(comm.instruments().position);
  auto opener = runtime::together(comm, [&] {
    if (input.random_features > 0 || input.random_labels > 0 || input.num_vertices > 0)
      throw_user(
          "{} is a graph of several types: leave out --random-features, --random-labels and --vertices",
          input.path.string());
    if (input.edge_features != EdgeFeatures::ignored)
      throw_user(
          "{} is a graph of several types, whose edges have no features: leave out --features-from-edges",
          input.path.string());
    if (input.names_only)
      throw_user("{} is a graph of several types, whose vertices have numbers: leave out --names",
                 input.path.string());
    TypedOpener made{input, find_typed_files(input), {comm.rank(), comm.size()}};
    made.read_heads();
    made.name_relations();
    return made;
  });
  scan_counts(comm, opener);
  SourceParts parts;
  parts.name = opener.files.name;
  parts.format = "typed";
  parts.is_directed = true;
  opener.offsets.push_back(0);
  for (auto const& type : opener.files.types) {
    opener.offsets.push_back(opener.offsets.back() + type.count.count);
    parts.names.types.push_back({type.name, type.count.count, type.num_features});
  }
  parts.num_vertices = opener.offsets.back();
  if (parts.num_vertices > most_vertices)
    throw_user("{} has {} vertices; a graph has at most 2^40", input.path.string(), parts.num_vertices);
  parts.names.relations = opener.names;
  parts.names.ends = opener.ends;
  auto const num_classes = opener.labelled ? scan_labels(comm, opener) : 0;
  runtime::together(comm, [&] {
    parts.edges = opener.edge_part();
    parts.features = opener.feature_part();
    parts.labels = opener.label_part(num_classes);
    parts.split = opener.split_part();
    static_cast<void>(runtime::checked_product(8 * parts.features.num_features, parts.num_vertices,
                                               input.path.string() + ": bytes of the features"));
  });
  if (files != nullptr && comm.is_root()) *files = list_files(input.path, opener.files.all());
  return assemble_source(std::move(parts));
}

} // namespace orthant::graph
