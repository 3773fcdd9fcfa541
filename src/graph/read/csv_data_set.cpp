// SPDX-License-Identifier: Apache-2.0
#include "graph/read/csv_data_set.hpp"

#include "graph/text/text_blocks.hpp"
#include "graph/text/text_fields.hpp"
#include "graph/text/text_names.hpp"
#include "graph/text/text_scanner.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace orthant::graph {

namespace {

using Fields = std::span<std::string_view const>;

/// The lines of a table, split into fields. Empty lines are skipped. The first line has the names of the columns.
class CsvRows {
 public:
  CsvRows(std::filesystem::path const& path, char separator) : blocks_(path, {}), fields_(separator) {
    auto const names = next_of_any();
    columns_.assign(names.begin(), names.end());
    end_of_header_ = line_ == nullptr ? 0 : blocks_.byte_of(place_);
    if (columns_.empty())
      runtime::throw_user("{} is empty; a line with the names of its columns is wanted", path.string());
  }

  /// The fields of the next line, valid until the next call; empty at the end.
  Fields next() {
    auto const fields = next_of_any();
    if (!fields.empty() && fields.size() != columns_.size())
      fail(fmt::format("\"{}\" has {} columns; the first line names {}", text::excerpt(line_), fields.size(),
                       columns_.size()));
    return fields;
  }
  [[noreturn]] void fail(std::string const& reason) const { blocks_.fail(line_, reason); }
  [[nodiscard]] std::optional<std::size_t> column(std::string const& name) const {
    auto const found = std::ranges::find(columns_, name);
    if (found == columns_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - columns_.begin());
  }
  /// Throws UserError if there is no such column.
  [[nodiscard]] std::size_t require(std::string const& name) const {
    auto const found = column(name);
    if (!found)
      runtime::throw_user("{} has no column {}, which meta.yaml or the format asks for",
                          blocks_.path().string(), name);
    return *found;
  }
  [[nodiscard]] std::vector<std::string> const& columns() const { return columns_; }
  [[nodiscard]] Progress progress() const { return blocks_.progress(); }
  [[nodiscard]] std::int64_t end_of_header() const { return end_of_header_; }
  [[nodiscard]] std::int64_t num_lines() const { return num_lines_; }

 private:
  Fields next_of_any() {
    fields_.forget();
    for (;;) {
      if (place_ == end_) {
        auto const block = blocks_.next();
        if (block.empty()) return {};
        place_ = block.data();
        end_ = block.data() + block.size();
      }
      line_ = place_;
      place_ = text::line_end(line_) + 1;
      ++num_lines_;
      if (*text::skip_blanks(line_) == '\n') continue;
      auto const fields = fields_.cut(line_);
      if (fields_.has_bad_quote())
        fail(fmt::format("a quote is not closed, or text follows the closing one, in \"{}\"",
                         text::excerpt(line_)));
      return fields;
    }
  }

  TextBlocks blocks_;
  TextFields fields_;
  std::vector<std::string> columns_;
  std::int64_t end_of_header_ = 0;
  std::int64_t num_lines_ = 0;
  char const* line_ = nullptr;
  char const* place_ = nullptr;
  char const* end_ = nullptr;
};

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

/// Reads rows in batches. `row` converts the fields of one line.
template<class Batch, class Row>
class CsvStream final : public BatchStream<Batch> {
 public:
  CsvStream(CsvVertices const& table, std::int64_t batch_rows, Row row)
      : rows_(table.path, table.separator),
        num_vertices_(table.num_vertices),
        batch_rows_(batch_rows),
        row_(std::move(row)) {}

  Progress progress() const override { return rows_.progress(); }

  bool next(Batch& batch) override {
    batch = {};
    batch.rows = {done_, std::min(done_ + batch_rows_, num_vertices_)};
    for (; done_ < batch.rows.end; ++done_) {
      auto const fields = rows_.next();
      if (fields.empty()) runtime::throw_user("a table of vertices has changed while it is read");
      row_(rows_, fields, batch);
    }
    return batch.rows.size() > 0;
  }

 private:
  CsvRows rows_;
  std::int64_t num_vertices_;
  std::int64_t batch_rows_;
  std::int64_t done_ = 0;
  Row row_;
};

template<class Batch, class Row>
std::unique_ptr<BatchStream<Batch>> stream_of_rows(CsvVertices const& table, std::int64_t batch_rows,
                                                   Row row) {
  return std::make_unique<CsvStream<Batch, Row>>(table, batch_rows, std::move(row));
}

} // namespace

CsvVertices read_csv_columns(CsvMeta const& meta) {
  CsvRows const rows(meta.vertices, meta.separator);
  CsvVertices table;
  table.path = meta.vertices;
  table.separator = meta.separator;
  table.num_columns = rows.columns().size();
  table.id = rows.require(meta.id);
  table.features = rows.column("feat");
  table.label = rows.column("label");
  table.graph = rows.column(meta.graph);
  table.masks = {rows.column("train_mask"), rows.column("val_mask"), rows.column("test_mask")};
  for (auto const& name : rows.columns())
    if (name != meta.id && name != meta.graph && name != "feat" && name != "label" && name != "train_mask" &&
        name != "val_mask" && name != "test_mask")
      table.unused.push_back(name);
  return table;
}

void scan_csv_vertices(CsvVertices& table) {
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
  table.has_ascending_ids = ids.is_ascending();
}

EdgeTextProbe probe_csv_edges(CsvMeta const& meta) {
  CsvRows const rows(meta.edges, meta.separator);
  EdgeTextProbe probe;
  probe.has_names = true;
  probe.separator = meta.separator;
  probe.has_comments = false;
  probe.wanted = fmt::format("the first line names {} columns", rows.columns().size());
  probe.num_columns = std::ssize(rows.columns());
  probe.ends = {rows.require(meta.source), rows.require(meta.target)};
  probe.weight = rows.column("weight");
  probe.first_byte = rows.end_of_header();
  probe.lines_to_skip = rows.num_lines();
  return probe;
}

std::unique_ptr<FeatureStream> read_csv_features(CsvVertices const& table, std::int64_t batch_rows) {
  return stream_of_rows<FeatureBatch>(
      table, batch_rows, [column = *table.features](CsvRows const&, Fields fields, FeatureBatch& batch) {
        for_each_number(fields[column], [&](float value) { batch.dense.push_back(value); });
      });
}

std::unique_ptr<LabelStream> read_csv_labels(CsvVertices const& table, std::int64_t num_classes,
                                             std::int64_t batch_rows) {
  return stream_of_rows<LabelBatch>(
      table, batch_rows,
      [column = *table.label, num_classes](CsvRows const& rows, Fields fields, LabelBatch& batch) {
        batch.classes.push_back(label_of(rows, fields[column], num_classes));
      });
}

SplitShare read_csv_split(CsvVertices const& table) {
  SplitShare split;
  split.names = {"train_mask", "val_mask", "test_mask"};
  std::array const lists{&split.train, &split.valid, &split.test};
  CsvRows rows(table.path, table.separator);
  std::int64_t vertex = 0;
  for (auto fields = rows.next(); !fields.empty(); fields = rows.next(), ++vertex)
    for (std::size_t part = 0; part < lists.size(); ++part)
      if (table.masks[part] && is_in(rows, fields[*table.masks[part]])) lists[part]->push_back(vertex);
  return split;
}

} // namespace orthant::graph
