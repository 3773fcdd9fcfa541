// SPDX-License-Identifier: Apache-2.0
#include "graph/read/typed_graph.hpp"

#include "graph/arrays/npy_streams.hpp"
#include "graph/generate/computed_streams.hpp"
#include "graph/read/typed_streams.hpp"
#include "graph/text/text_edges.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace orthant::graph {

using runtime::throw_user;

void TypedOpener::read_heads() {
  for (auto& relation : files.relations) {
    if (relation.is_text || files.are_tables()) continue;
    auto const array = relation.edges.open();
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
      auto const array = type.feature_npy->open();
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
      auto const array = type.label_npy->open(true);
      if (array.shape().empty()) array.fail_shape("[vertices]");
      if (array.shape().size() > 2) array.fail_shape("[vertices], or [vertices, classes or targets]");
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
    if (type.names) {
      NpyArray const array(*type.names, true);
      if (!array.is_list()) array.fail_shape("[vertices]");
      if (!array.is_text())
        throw_user("{}: type '{}'; names of vertices are texts: a.astype(str)", array.name(), array.type());
      type.count.add(array.shape()[0], array.name());
    }
    if (!type.has_labels()) continue;
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
  if (relation.named) return stream_of(relation.named, false, 0, batch_size);
  auto const limit_of = [&](std::string const& type) {
    return count_of(type_of(type)) < 0 ? most_vertices : count_of(type_of(type));
  };
  auto const most = std::max(limit_of(relation.source), limit_of(relation.target));
  if (relation.is_text) {
    EdgeTextFormat format;
    format.num_vertices = most;
    format.id_limit = "the larger of its two types has as many vertices";
    auto const& path = relation.edges.path;
    if (has_names_line(path)) format.start = probe_text_edges(path).start;
    return read_text_edges(path, share, format, batch_size);
  }
  auto const array = relation.edges.opener();
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
      if (!self.files.relations[r].named) self.add_offsets(batch.edges, r);
      auto const count = batch.edges.size();
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

void TypedOpener::add_offsets(std::vector<Edge>& edges, std::size_t relation) const {
  std::array const types{static_cast<std::size_t>(ends[relation].source),
                         static_cast<std::size_t>(ends[relation].target)};
  for (auto& edge : edges) {
    for (auto const& [id, type] : {std::pair(edge.source, types[0]), {edge.target, types[1]}})
      if (id < 0 || id >= count_of(type))
        throw_user("{}: an edge from {} {} to {} {}, but there are {} vertices of the type {}",
                   files.relations[relation].edges.path.string(), files.types[types[0]].name, edge.source,
                   files.types[types[1]].name, edge.target, count_of(type), files.types[type].name);
    edge.source += offsets[types[0]];
    edge.target += offsets[types[1]];
  }
}

FeaturePart TypedOpener::feature_part() const {
  FeaturePart part;
  for (auto const& type : files.types) {
    part.num_features = std::max(part.num_features, type.num_features);
    if (type.feature_npy && type.feature_npy->open().is_fp64()) part.have_remainders = true;
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
          auto const array = type.feature_npy->opener();
          return read_npy_features(array, npy_share(array(), count, share), batch_rows);
        }
        if (type.table && type.num_features > 0) return csv_features(*type.table, share).open(batch_rows);
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
    auto const array = type.label_npy->opener();
    return read_npy_labels(array, npy_share(array(), type.count.count, share), num_classes, batch_rows);
  }
  if (type.table) return csv_labels(*type.table, num_classes, share).open(batch_rows);
  if (share.index > 0) return std::make_unique<EmptyStream<LabelBatch>>();
  return read_text_classes(*type.label_text, type.count.count, num_classes, batch_rows);
}

namespace {

/// Rows without labels of a kind, in a batch whose rows are set.
void fill_without_labels(LabelPart const& part, LabelBatch& batch) {
  auto const num_rows = static_cast<std::size_t>(batch.rows.size());
  auto const num_numbers = num_rows * static_cast<std::size_t>(part.num_classes);
  batch.classes.assign(part.kind == LabelKind::single ? num_rows : 0, -1);
  batch.indicator.assign(part.kind == LabelKind::multi ? num_numbers : 0, -1);
  batch.targets.assign(part.kind == LabelKind::real ? num_numbers : 0,
                       std::numeric_limits<double>::quiet_NaN());
}

} // namespace

LabelPart TypedOpener::label_part(LabelPart of_type) const {
  auto part = of_type;
  part.open = [self = *this,
               of_type = std::move(of_type)](std::int64_t batch_rows) -> std::unique_ptr<LabelStream> {
    std::vector<Opened<LabelBatch>> streams;
    for (std::size_t t = 0; t < self.files.types.size(); ++t)
      streams.push_back([=]() -> std::unique_ptr<LabelStream> {
        if (t == self.labelled) return of_type.open(batch_rows);
        auto const rows = runtime::balanced_range(self.count_of(t), self.share.count, self.share.index);
        return std::make_unique<ComputedRows<LabelBatch>>(
            rows, batch_rows, [of_type](LabelBatch& batch) { fill_without_labels(of_type, batch); });
      });
    return std::make_unique<Joined<LabelBatch>>(std::move(streams), [self](LabelBatch& batch, std::size_t t) {
      batch.rows = {batch.rows.begin + self.offsets[t], batch.rows.end + self.offsets[t]};
    });
  };
  return part;
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
  if (type.split.kind == SplitFiles::Kind::table) {
    part = csv_split(*type.table, share);
    part.read = [read = part.read, shift](std::int64_t number) { return shift(read(number)); };
    return part;
  }
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

} // namespace orthant::graph
