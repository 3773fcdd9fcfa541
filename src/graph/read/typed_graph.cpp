// SPDX-License-Identifier: Apache-2.0
#include "graph/read/typed_graph.hpp"

#include "graph/arrays/zip_archive.hpp"
#include "graph/text/name_table.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace orthant::graph {

using runtime::throw_user;

namespace {

/// Number of edges or vertices per batch while files are scanned.
constexpr std::int64_t edges_per_scan = std::int64_t{1} << 16;

/// A text for each type, of the same length, that is put before names so that equal names of different types are apart.
std::string scope_of(std::size_t type) {
  constexpr std::size_t base = 128;
  return {static_cast<char>(1 + type / base), static_cast<char>(1 + type % base)};
}

/// Adds the ids of the tables of vertices to `names`, with the scopes of their types. For rank 0.
void scan_tables(TypedOpener& opener, NameTable& names) {
  for (std::size_t t = 0; t < opener.files.types.size(); ++t) {
    auto& table = *opener.files.types[t].table;
    scan_csv_vertices(table, opener.files.notes);
    auto const ids = std::exchange(table.ids, {}).names();
    for (std::int64_t i = 0; i < ids.size(); ++i)
      static_cast<void>(names.find_or_add(scope_of(t).append(ids[i])));
  }
}

/// Reads the tables of a CSVDataset: all edges, and the ids of vertices, which are the names of the graph's. Original ids count the lines
/// of all tables of vertices. Collective.
void read_tables(runtime::Communicator const& comm, TypedOpener& opener) {
  auto& types = opener.files.types;
  NameTable names;
  runtime::together(comm, [&] {
    if (comm.is_root()) scan_tables(opener, names);
  });
  std::int64_t total = 0;
  for (auto& type : types) {
    std::array<std::int64_t, 2> counts{type.table->num_vertices, type.table->num_features};
    runtime::broadcast(runtime::host, comm, std::span(counts), 0);
    type.table->num_vertices = counts[0];
    type.table->num_features = counts[1];
    type.num_features = counts[1];
    type.count.add(counts[0], type.table->path.string());
    total += counts[0];
  }
  std::vector<std::shared_ptr<NamedEdges>> of_relations;
  runtime::together(comm, [&] {
    for (auto& relation : opener.files.relations) {
      auto probe = relation.probe;
      probe.scopes = {scope_of(opener.type_of(relation.source)), scope_of(opener.type_of(relation.target))};
      auto edges = read_named_edges(relation.edges.path, opener.share, probe, EdgeTextFormat::Weights::absent,
                                    std::move(names));
      names = std::exchange(edges.vertices, {});
      of_relations.push_back(std::make_shared<NamedEdges>(std::move(edges)));
    }
  });
  auto own = names.names();
  names = {};
  auto numbered = number_names(comm, std::move(own));
  runtime::together(comm, [&] {
    if (!comm.is_root() || numbered.count <= total) return;
    auto const name = numbered.all[total];
    for (std::size_t t = 0; t < types.size(); ++t)
      if (name.starts_with(scope_of(t)))
        throw_user("{} does not list the vertex {} of an edge", types[t].table->path.string(),
                   name.substr(scope_of(t).size()));
  });
  auto const ids = std::make_shared<std::vector<std::int64_t> const>(std::move(numbered.ids));
  opener.held_bytes = 8 * std::ssize(*ids);
  for (std::size_t r = 0; r < of_relations.size(); ++r) {
    opener.held_bytes += of_relations[r]->num_bytes();
    of_relations[r]->vertex_ids = ids;
    opener.files.relations[r].named = of_relations[r];
  }
  if (!comm.is_root()) return;
  auto const list = std::make_shared<NameList>();
  for (std::int64_t i = 0; i < total; ++i)
    list->add(numbered.all[i].substr(scope_of(0).size()));
  opener.vertex_names = list;
}

/// Reads the names of vertices from names.npy. Vertices of types without this file have their numbers within the type. For rank 0.
std::shared_ptr<NameList const> read_type_names(TypedFiles const& files) {
  constexpr std::int64_t names_at_once = 1024;
  auto list = std::make_shared<NameList>();
  std::vector<std::string> texts;
  for (auto const& type : files.types) {
    std::optional<NpyArray> array;
    if (type.names) array.emplace(*type.names, true);
    for (std::int64_t first = 0; first < type.count.count; first += names_at_once) {
      texts.resize(static_cast<std::size_t>(std::min(names_at_once, type.count.count - first)));
      if (array)
        array->read(first, std::span(texts));
      else
        std::ranges::generate(texts, [next = first]() mutable { return fmt::format("{}", next++); });
      for (auto const& text : texts) {
        if (!is_vertex_name(text))
          throw_user("{}: the name of vertex {} is empty, longer than 4096 bytes, or has a control character",
                     type.names->string(), first + (&text - texts.data()));
        list->add(text);
      }
    }
  }
  return list;
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

/// Finds out what the labels are, as open_graph() does for graphs of one type. Collective.
LabelPart find_labels(runtime::Communicator const& comm, TypedOpener& opener) {
  auto const are_targets = opener.input.labels_are_targets;
  auto const* const type = opener.labelled ? &opener.files.types[*opener.labelled] : nullptr;
  if (are_targets && (type == nullptr || !type->label_npy))
    throw_user("--targets: {} has no labels in .npy, whose numbers could be targets of regression",
               opener.input.path.string());
  if (type == nullptr) return {};
  if (type->label_npy) {
    OpenArray const array = [place = *type->label_npy] { return place.open(true); };
    auto const head = runtime::together(comm, array);
    auto const rows = npy_share(head, type->count.count, opener.share);
    if (auto found = find_array_labels(comm, array, rows, are_targets, 0)) {
      opener.files.notes.push_back(found->note);
      return found->part;
    }
    if (auto const num_columns = head.num_columns(); num_columns > 1)
      return {LabelKind::multi, num_columns,
              [=](std::int64_t batch_rows) { return read_npy_labels(array, rows, num_columns, batch_rows); }};
  }
  auto const num_classes = scan_labels(comm, opener);
  return {LabelKind::single, num_classes, [self = opener, num_classes](std::int64_t batch_rows) {
            return self.open_labels(num_classes, batch_rows);
          }};
}

} // namespace

bool is_typed_graph(Input const& input) {
  if (input.format != InputFormat::automatic) return input.format == InputFormat::typed;
  if (has_typed_files(input.path)) return true;
  auto const files = find_graph_files(input);
  return files.topology == GraphFiles::Topology::csv_data_set && files.csv->has_types();
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
          "{} is a graph of several types, whose edges have no features: leave out --features-from-edges "
          "and --edge-features",
          input.path.string());
    if (input.names_only)
      throw_user("{} is a graph of several types, whose vertices have numbers: leave out --names",
                 input.path.string());
    TypedOpener made{input, find_typed_files(input), {comm.rank(), comm.size()}};
    made.read_heads();
    made.name_relations();
    return made;
  });
  check_stored_members(comm, opener.files.members);
  if (opener.files.are_tables()) read_tables(comm, opener);
  scan_counts(comm, opener);
  auto const has_names =
      opener.files.are_tables() ||
      std::ranges::any_of(opener.files.types, [](TypeFiles const& type) { return type.names.has_value(); });
  if (has_names && !opener.files.are_tables())
    runtime::together(comm, [&] {
      if (comm.is_root()) opener.vertex_names = read_type_names(opener.files);
    });
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
  parts.names.has_names = has_names;
  parts.memory.held_bytes = opener.held_bytes;
  parts.names.vertices = opener.vertex_names;
  auto const labels = find_labels(comm, opener);
  runtime::together(comm, [&] {
    parts.edges = opener.edge_part();
    parts.features = opener.feature_part();
    if (opener.labelled) parts.labels = opener.label_part(labels);
    parts.split = opener.split_part();
    static_cast<void>(runtime::checked_product(8 * parts.features.num_features, parts.num_vertices,
                                               input.path.string() + ": bytes of the features"));
  });
  if (files != nullptr && comm.is_root()) {
    *files = list_files(input.path, opener.files.all());
    files->notes = opener.files.notes;
  }
  return assemble_source(std::move(parts));
}

} // namespace orthant::graph
