// SPDX-License-Identifier: Apache-2.0
#include "graph/read/csv_data_set.hpp"

#include "graph/generate/computed_streams.hpp"
#include "graph/text/text_fields.hpp"
#include "graph/text/text_names.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

namespace orthant::graph {

namespace {

using Fields = std::span<std::string_view const>;
constexpr std::array<char const*, 3> mask_names{"train_mask", "val_mask", "test_mask"};

/// Appends a note that lists the columns that are not among `used`, if there are any.
void note_unused(std::filesystem::path const& path, CsvRows const& rows, std::vector<std::string> const& used,
                 std::vector<std::string>& notes) {
  auto unused = rows.columns();
  std::erase_if(unused, [&](auto const& name) { return std::ranges::find(used, name) != used.end(); });
  if (!unused.empty())
    notes.push_back(fmt::format("columns of {} that are not used: {}", path.filename().string(),
                                fmt::join(unused, ", ")));
}

/// Calls take(number) for the parts of a list of numbers, "0.5, 1, 2". Returns false if one of them is not a finite number.
template<class Take>
bool for_each_number(std::string_view list, Take&& take) {
  constexpr std::string_view marks = ", \t[]";
  for (auto begin = list.find_first_not_of(marks); begin != std::string_view::npos;) {
    auto const end = std::min(list.find_first_of(marks, begin), list.size());
    float value = 0;
    if (!read_number(list.substr(begin, end - begin), value) || !std::isfinite(value)) return false;
    take(value);
    begin = list.find_first_not_of(marks, end);
  }
  return true;
}

std::int64_t label_of(CsvRows const& rows, std::string_view field, std::int64_t num_classes) {
  if (field.empty()) return -1;
  double value = 0;
  if (!read_number(field, value))
    rows.fail(
        fmt::format("the label \"{}\" is not a class: whole numbers from 0 are wanted, or nothing", field));
  auto const label = class_of(value, num_classes);
  if (!label)
    rows.fail(fmt::format("the label {} is out of range: 0 to {}, or nothing, nan, -1 or -100 for none",
                          field, num_classes - 1));
  return *label;
}

/// Checks whether ids ascend: as numbers if all of them are numbers, otherwise as texts.
class Ascent {
 public:
  void add(std::string_view id) {
    double number = 0;
    are_numbers_ = are_numbers_ && read_number(id, number);
    numbers_ascend_ = numbers_ascend_ && number >= number_;
    texts_ascend_ = texts_ascend_ && id >= text_;
    number_ = number;
    text_ = id;
  }
  [[nodiscard]] bool is_ascending() const { return are_numbers_ ? numbers_ascend_ : texts_ascend_; }

 private:
  bool are_numbers_ = true;
  bool numbers_ascend_ = true;
  bool texts_ascend_ = true;
  double number_ = -std::numeric_limits<double>::infinity();
  std::string text_;
};

bool is_in(CsvRows const& rows, std::string_view field) {
  if (field == "True" || field == "true" || field == "TRUE" || field == "1" || field == "1.0") return true;
  if (field == "False" || field == "false" || field == "FALSE" || field == "0" || field == "0.0")
    return false;
  rows.fail(fmt::format("\"{}\" in a mask; True, False, 1 or 0 is wanted", field));
}

/// Returns a function that opens a stream of the table. `take(rows, fields, batch)` appends one line to the batch. Only rank 0 reads.
template<class Batch, class Take>
auto table_streams(CsvVertices const& table, Share share, Take take) {
  return [=](std::int64_t batch_rows) -> std::unique_ptr<BatchStream<Batch>> {
    if (share.index > 0) return std::make_unique<EmptyStream<Batch>>();
    auto const rows = std::make_shared<CsvRows>(table.path, table.separator);
    auto const fill = [=](Batch& batch) {
      auto const range = batch.rows;
      batch = {};
      batch.rows = range;
      for (auto row = range.begin; row < range.end; ++row) {
        auto const fields = rows->next();
        if (fields.empty()) runtime::throw_user("{} has changed while it is read", table.path.string());
        take(*rows, fields, batch);
      }
    };
    return std::make_unique<ComputedRows<Batch>>(Range{0, table.num_vertices}, batch_rows, fill);
  };
}

} // namespace

CsvVertices read_csv_columns(CsvVertexTable const& vertices, char separator,
                             std::vector<std::string>& notes) {
  CsvRows const rows(vertices.path, separator);
  CsvVertices table;
  table.path = vertices.path;
  table.separator = separator;
  table.id = rows.require(vertices.id);
  table.features = rows.column("feat");
  table.label = rows.column("label");
  table.graph = rows.column(vertices.graph);
  std::vector<std::string> used{vertices.id, vertices.graph, "feat", "label"};
  for (std::size_t part = 0; part < mask_names.size(); ++part)
    table.masks[part] = rows.column(used.emplace_back(mask_names[part]));
  note_unused(table.path, rows, used, notes);
  return table;
}

EdgeTextProbe probe_csv_edges(CsvEdgeTable const& edges, char separator, bool has_weights,
                              std::vector<std::string>& notes) {
  CsvRows const rows(edges.path, separator);
  EdgeTextProbe probe;
  probe.has_names = true;
  probe.separator = separator;
  probe.has_comments = false;
  probe.wanted = fmt::format("the first line names {} columns", rows.columns().size());
  probe.num_columns = std::ssize(rows.columns());
  probe.ends = {rows.require(edges.source), rows.require(edges.target)};
  std::vector<std::string> used{edges.source, edges.target};
  if (has_weights) probe.weight = rows.column(used.emplace_back("weight"));
  probe.start = rows.end_of_line();
  note_unused(edges.path, rows, used, notes);
  return probe;
}

void scan_csv_vertices(CsvVertices& table, std::vector<std::string>& notes) {
  CsvRows rows(table.path, table.separator);
  Ascent ids;
  std::string graph;
  for (auto fields = rows.next(); !fields.empty(); fields = rows.next(), ++table.num_vertices) {
    auto const name = fields[table.id];
    if (table.graph && table.num_vertices == 0) graph = fields[*table.graph];
    if (table.graph && fields[*table.graph] != graph)
      rows.fail(fmt::format("a vertex of the graph {} after one of {}: a data set of many graphs; a single "
                            "graph is wanted",
                            fields[*table.graph], graph));
    if (!is_vertex_name(name))
      rows.fail("the id of a vertex is empty, longer than 4096 bytes, or has a control character");
    if (table.ids.find_or_add(name) != table.num_vertices)
      rows.fail(fmt::format("the id {} occurs twice", name));
    ids.add(name);
    if (!table.features) continue;
    std::int64_t count = 0;
    if (!for_each_number(fields[*table.features], [&](float) { ++count; }))
      rows.fail(
          fmt::format("feat of the vertex {} is not a list of finite numbers, such as \"0.5, 1\"", name));
    if (table.num_vertices == 0) table.num_features = count;
    if (count != table.num_features || count == 0)
      rows.fail(fmt::format("the vertex {} has {} features; the first one has {}", name, count,
                            table.num_features));
  }
  if (table.num_vertices == 0) runtime::throw_user("{} has no vertices", table.path.string());
  if (!ids.is_ascending())
    notes.push_back(fmt::format("vertices are in the order of the lines of {}; DGL numbers them in ascending "
                                "order of their ids: match rows by name",
                                table.path.filename().string()));
}

FeaturePart csv_features(CsvVertices const& table, Share share) {
  return {FeatureKind::dense, table.num_features,
          table_streams<FeatureBatch>(
              table, share, [column = *table.features](CsvRows const&, Fields fields, FeatureBatch& batch) {
                for_each_number(fields[column], [&](float value) { batch.dense.push_back(value); });
              })};
}

LabelPart csv_labels(CsvVertices const& table, std::int64_t num_classes, Share share) {
  return {LabelKind::single, num_classes,
          table_streams<LabelBatch>(
              table, share,
              [column = *table.label, num_classes](CsvRows const& rows, Fields fields, LabelBatch& batch) {
                batch.classes.push_back(label_of(rows, fields[column], num_classes));
              })};
}

SplitPart csv_split(CsvVertices const& table, Share share) {
  SplitPart result;
  result.name = "masks";
  result.read = [=](std::int64_t) {
    SplitShare split;
    split.names = {mask_names[0], mask_names[1], mask_names[2]};
    if (share.index > 0) return split;
    std::array const lists{&split.train, &split.valid, &split.test};
    CsvRows rows(table.path, table.separator);
    std::int64_t vertex = 0;
    for (auto fields = rows.next(); !fields.empty(); fields = rows.next(), ++vertex)
      for (std::size_t part = 0; part < lists.size(); ++part)
        if (table.masks[part] && is_in(rows, fields[*table.masks[part]])) lists[part]->push_back(vertex);
    return split;
  };
  return result;
}

} // namespace orthant::graph
