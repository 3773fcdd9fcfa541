// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_tables.hpp"

#include "graph/text/text_blocks.hpp"
#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <utility>

namespace orthant::graph {

namespace {

/// Reads the lines of a file, except empty ones.
class Lines {
 public:
  enum class Names : std::uint8_t { passed_over, refused };
  explicit Lines(std::filesystem::path const& path, Names names = Names::passed_over)
      : lines_(path),
        may_be_names_(names == Names::passed_over) {}

  /// Beginning of the next line that is not empty, or nullptr at the end.
  char const* next() {
    auto const* const line = next_of_any();
    if (std::exchange(may_be_names_, false) && line != nullptr && text::is_line_of_names(line)) {
      has_names_ = true;
      return next_of_any();
    }
    return line;
  }
  /// True if a line of names was skipped.
  [[nodiscard]] bool has_names() const { return has_names_; }
  /// Requires that the line ends at `p`, otherwise calls fail().
  void take_end(char const* p, char const* line, std::string_view wanted) {
    p = text::skip_blanks(p);
    if (*p != '\n') fail(line, fmt::format("more than {} in \"{}\"", wanted, text::excerpt(line)));
    lines_.skip_to(p);
  }
  [[noreturn]] void fail(char const* line, std::string const& reason) const { blocks().fail(line, reason); }
  [[nodiscard]] TextBlocks const& blocks() const { return lines_.blocks(); }

 private:
  char const* next_of_any() {
    while (auto const* const line = lines_.next())
      if (auto const* const p = text::skip_blanks(line); *p != '\n') return p;
    return nullptr;
  }

  TextLines lines_;
  bool may_be_names_; // whether the next line may be one of names
  bool has_names_ = false;
};

/// Rows of a table in batches. `Row` parses one line into the batch.
template<class Batch, class Row>
class TableStream final : public BatchStream<Batch> {
 public:
  TableStream(std::filesystem::path const& path, std::int64_t num_rows, std::int64_t batch_rows, Row row,
              char const* what = "vertices")
      : lines_(path),
        num_rows_(num_rows),
        batch_rows_(batch_rows),
        row_(std::move(row)),
        what_(what) {}

  Progress progress() const override { return lines_.blocks().progress(); }

  bool next(Batch& batch) override {
    batch.rows = {done_, std::min(done_ + batch_rows_, num_rows_)};
    row_.prepare(batch);
    for (; done_ < batch.rows.end; ++done_) {
      auto const* const line = lines_.next();
      if (line == nullptr)
        lines_.blocks().fail_at_end(fmt::format("the graph has {} {}, a line each", num_rows_, what_));
      row_.parse(lines_, line, batch, static_cast<std::size_t>(done_ - batch.rows.begin));
    }
    if (done_ == num_rows_ && !is_end_checked_) {
      is_end_checked_ = true;
      if (auto const* const line = lines_.next())
        lines_.fail(line, fmt::format("more lines than the graph's {} {}", num_rows_, what_));
    }
    return batch.rows.size() > 0;
  }

 private:
  Lines lines_;
  std::int64_t num_rows_;
  std::int64_t batch_rows_;
  std::int64_t done_ = 0;
  bool is_end_checked_ = false;
  Row row_;
  char const* what_; // has a line each
};

char const* parse_number(char const* p, float& value) {
  return text::parse_float(p, value);
}
char const* parse_number(char const* p, double& value) {
  return text::parse_double(p, value);
}

/// Parses a field that must be a number. Labels are read as doubles, because a float would round 0.99999999999 to a class.
template<class T>
char const* parse_field(Lines const& lines, char const* line, char const* p, std::int64_t column, T& value) {
  auto const* const after = *p == '\n' ? nullptr : parse_number(p, value);
  bool const is_whole = after != nullptr && text::is_end(after);
  if (!is_whole)
    lines.fail(line, *p == '\n' ? fmt::format("only {} columns", column)
                                : fmt::format("column {} is not a number: \"{}\"", column + 1,
                                              text::excerpt(p, 24)));
  return after;
}

struct FeatureRow {
  std::int64_t num_columns;

  void prepare(FeatureBatch& batch) const {
    batch.dense.resize(static_cast<std::size_t>(batch.rows.size() * num_columns));
  }
  void parse(Lines& lines, char const* line, FeatureBatch& batch, std::size_t row) const {
    auto* const out = batch.dense.data() + row * static_cast<std::size_t>(num_columns);
    auto const* p = line;
    for (std::int64_t column = 0; column < num_columns; ++column) {
      if (column > 0) p = text::skip_separator(p);
      if (*p == '\n')
        lines.fail(line, fmt::format("{} features; the first line has {}", column, num_columns));
      p = parse_field(lines, line, p, column, out[column]);
      if (!std::isfinite(out[column]))
        lines.fail(line,
                   fmt::format("feature {} is {}; features must be finite numbers", column + 1, out[column]));
    }
    lines.take_end(p, line, fmt::format("the first line's {} features", num_columns));
  }
};

struct ClassRow {
  std::int64_t num_classes;

  static void prepare(LabelBatch& batch) {
    batch.classes.resize(static_cast<std::size_t>(batch.rows.size()));
  }
  void parse(Lines& lines, char const* line, LabelBatch& batch, std::size_t row) const {
    double value = 0;
    auto const* const after = parse_field(lines, line, line, 0, value);
    auto const label = class_of(value, num_classes);
    if (!label)
      lines.fail(line, fmt::format("label {} is out of range: 0 to {}, or nan, -1 or -100 for none",
                                   text::excerpt(line, 24), num_classes - 1));
    batch.classes[row] = *label;
    lines.take_end(after, line, "one label");
  }
};

struct IndicatorRow {
  std::int64_t num_classes;

  void prepare(LabelBatch& batch) const {
    batch.indicator.resize(static_cast<std::size_t>(batch.rows.size() * num_classes));
  }
  void parse(Lines& lines, char const* line, LabelBatch& batch, std::size_t row) const {
    auto* const out = batch.indicator.data() + row * static_cast<std::size_t>(num_classes);
    auto const* p = line;
    for (std::int64_t column = 0; column < num_classes; ++column) {
      double value = 0;
      if (column > 0) p = text::skip_separator(p);
      p = parse_field(lines, line, p, column, value);
      auto const is_none = std::isnan(value) || is_no_label(value);
      if (!(value == 0 || value == 1 || is_none))
        lines.fail(
            line, fmt::format("column {} is {}; labels of several columns are 0 or 1, or nan, -1 or -100 for "
                              "none",
                              column + 1, value));
      out[column] = is_none ? std::int8_t{-1} : static_cast<std::int8_t>(value);
    }
    lines.take_end(p, line, fmt::format("the first line's {} columns", num_classes));
  }
};

} // namespace

std::optional<std::int64_t> class_of(double value, std::int64_t num_classes) {
  if (std::isnan(value) || is_no_label(value)) return -1;
  bool const is_class =
      value == std::floor(value) && value >= 0 && value < 0x1p53 && value < static_cast<double>(num_classes);
  return is_class ? std::optional(static_cast<std::int64_t>(value)) : std::nullopt;
}

bool has_names_line(std::filesystem::path const& path) {
  Lines lines(path);
  static_cast<void>(lines.next());
  return lines.has_names();
}

std::int64_t count_text_columns(std::filesystem::path const& path) {
  Lines lines(path);
  auto const* p = lines.next();
  if (p == nullptr) return 0;
  std::int64_t count = 0;
  while (*p != '\n') {
    ++count;
    p = text::skip_separator(text::field_end(p));
  }
  return count;
}

std::unique_ptr<FeatureStream> read_text_features(std::filesystem::path const& path, std::int64_t num_rows,
                                                  std::int64_t num_columns, std::int64_t batch_rows,
                                                  char const* rows) {
  return std::make_unique<TableStream<FeatureBatch, FeatureRow>>(path, num_rows, batch_rows,
                                                                 FeatureRow{num_columns}, rows);
}

std::unique_ptr<LabelStream> read_text_classes(std::filesystem::path const& path, std::int64_t num_rows,
                                               std::int64_t num_classes, std::int64_t batch_rows) {
  return std::make_unique<TableStream<LabelBatch, ClassRow>>(path, num_rows, batch_rows,
                                                             ClassRow{num_classes});
}

std::unique_ptr<LabelStream> read_text_indicator(std::filesystem::path const& path, std::int64_t num_rows,
                                                 std::int64_t num_classes, std::int64_t batch_rows) {
  return std::make_unique<TableStream<LabelBatch, IndicatorRow>>(path, num_rows, batch_rows,
                                                                 IndicatorRow{num_classes});
}

std::vector<std::int64_t> read_text_vertices(std::filesystem::path const& path, std::int64_t num_vertices) {
  Lines lines(path);
  std::vector<std::int64_t> vertices;
  while (auto const* const line = lines.next()) {
    std::int64_t vertex = 0;
    auto const* const after = text::parse_natural(line, vertex);
    if (after == nullptr) lines.fail(line, fmt::format("\"{}\" is not a vertex id", text::excerpt(line)));
    if (vertex >= num_vertices)
      lines.fail(line,
                 fmt::format("vertex {} is too large: the graph has {} vertices", vertex, num_vertices));
    lines.take_end(after, line, "one vertex");
    vertices.push_back(vertex);
  }
  return vertices;
}

std::int64_t read_text_count(std::filesystem::path const& path) {
  Lines lines(path, Lines::Names::refused);
  auto const* const line = lines.next();
  if (line == nullptr) lines.blocks().fail_at_end("a number is wanted");
  std::int64_t count = 0;
  auto const* const after = text::parse_natural(line, count);
  if (after == nullptr) lines.fail(line, fmt::format("\"{}\" is not a count", text::excerpt(line)));
  lines.take_end(after, line, "one number");
  if (auto const* const another = lines.next())
    lines.fail(another, "more than one line: a data set of many graphs; a single graph is wanted");
  return count;
}

struct TextColumn::State {
  explicit State(std::filesystem::path const& path) : lines(path) {}
  Lines lines;
};

TextColumn::TextColumn(std::filesystem::path const& path) : state_(std::make_unique<State>(path)) {}
TextColumn::~TextColumn() = default;

void TextColumn::read(std::span<float> out) {
  auto& lines = state_->lines;
  for (auto& value : out) {
    auto const* const line = lines.next();
    if (line == nullptr) lines.blocks().fail_at_end("there are more edges than weights");
    auto const* const after = parse_field(lines, line, line, 0, value);
    if (!std::isfinite(value)) lines.fail(line, fmt::format("weight {} is not a finite number", value));
    lines.take_end(after, line, "one weight");
  }
}

void TextColumn::expect_end() {
  if (auto const* const line = state_->lines.next())
    state_->lines.fail(line, "there are more weights than edges");
}

} // namespace orthant::graph
