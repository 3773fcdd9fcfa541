// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_edges.hpp"

#include "graph/text/text_scanner.hpp"
#include "graph/text/text_tables.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <utility>

namespace orthant::graph {

namespace {

using Weights = EdgeTextFormat::Weights;

bool is_comment(char c) {
  return c == '#' || c == '%';
}

/// The character after the '\n' of this line.
char const* next_line(char const* p) {
  return text::line_end(p) + 1;
}

class TextEdgeStream final : public EdgeStream {
 public:
  TextEdgeStream(std::filesystem::path const& path, Share share, EdgeTextFormat format,
                 std::int64_t batch_size)
      : blocks_(path, share, format.start),
        format_(std::move(format)),
        batch_size_(static_cast<std::size_t>(batch_size)) {}

  Progress progress() const override { return blocks_.progress(); }

  bool next(EdgeBatch& batch) override {
    batch.edges.resize(batch_size_);
    bool const has_weights = format_.weights == Weights::read;
    batch.weights.resize(has_weights ? batch_size_ : 0);
    std::size_t count = 0;
    while (count < batch_size_) {
      if (place_ == end_) {
        auto const block = blocks_.next();
        if (block.empty()) break;
        place_ = block.data();
        end_ = block.data() + block.size();
      }
      auto* const weights = has_weights ? batch.weights.data() + count : nullptr;
      count += parse(batch.edges.data() + count, weights, batch_size_ - count);
    }
    batch.edges.resize(count);
    if (has_weights) batch.weights.resize(count);
    return count > 0;
  }

 private:
  /// Parses whole lines until the block ends or `capacity` edges are read. Returns the number of edges.
  std::size_t parse(Edge* edges, float* weights, std::size_t capacity) {
    auto const* p = place_;
    std::size_t count = 0;
    auto const first = format_.first_id;
    auto const num_vertices = static_cast<std::uint64_t>(format_.num_vertices);
    while (p != end_ && count < capacity) {
      auto const* const line = p;
      p = text::skip_blanks(p);
      Edge edge;
      auto const* after = text::parse_id(p, edge.source);
      if (after == nullptr) [[unlikely]] {
        if (*p == '\n' || (format_.has_comments && is_comment(*p))) {
          p = next_line(p);
          continue;
        }
        explain(line);
      }
      p = text::skip_separator(after);
      if (p == after) explain(line);
      after = text::parse_id(p, edge.target);
      if (after == nullptr) explain(line);
      edge.source -= first;
      edge.target -= first;
      if (static_cast<std::uint64_t>(edge.source) >= num_vertices ||
          static_cast<std::uint64_t>(edge.target) >= num_vertices)
        explain(line);
      p = after;
      if (format_.has_dicts)
        p = parse_dict(line, p, weights, count);
      else if (format_.weights != Weights::absent)
        p = parse_weight(line, p, weights, count);
      p = text::skip_blanks(p);
      if (*p != '\n') explain(line);
      edges[count++] = edge;
      ++p;
    }
    place_ = p;
    return count;
  }

  char const* parse_weight(char const* line, char const* p, float* weights, std::size_t index) {
    auto const* const start = text::skip_separator(p);
    if (start == p) explain(line);
    if (*start == '\n') explain(line);
    if (format_.weights == Weights::passed_over) return text::field_end(start);
    float weight = 0;
    bool const is_quoted = *start == '"';
    auto const* after = text::parse_float(start + (is_quoted ? 1 : 0), weight);
    if (after != nullptr && (*after == 'D' || *after == 'd')) after = parse_fortran(start, weight);
    if (is_quoted && after != nullptr) after = *after == '"' ? after + 1 : nullptr;
    if (after == nullptr || !std::isfinite(weight)) explain(line);
    if (format_.has_whole_weights && weight != std::trunc(weight))
      blocks_.fail(line, fmt::format("the weight in \"{}\" is no integer, as the first line says",
                                     text::excerpt(line)));
    weights[index] = weight;
    return after;
  }

  /// Parses a number with an exponent in the notation of Fortran, such as 1.5D+03. Returns nullptr if it is not such a number.
  static char const* parse_fortran(char const* start, float& weight) {
    std::string field(start, text::field_end(start));
    for (auto& c : field)
      if (c == 'D' || c == 'd') c = 'e';
    auto const size = static_cast<std::ptrdiff_t>(field.size());
    field += '\n';
    return text::parse_float(field.c_str(), weight) == field.c_str() + size ? start + size : nullptr;
  }

  /// The attributes of an edge as NetworkX writes them. Returns the end of the line.
  char const* parse_dict(char const* line, char const* p, float* weights, std::size_t index) {
    p = text::skip_separator(p);
    auto const* end = text::line_end(p);
    std::string_view dict(p, static_cast<std::size_t>(end - p));
    while (dict.ends_with('\r') || dict.ends_with(' '))
      dict.remove_suffix(1);
    if (dict.empty() ? format_.weights == Weights::read : !dict.starts_with('{') || !dict.ends_with('}'))
      explain(line);
    if (format_.weights == Weights::passed_over) return end;
    float weight = 0;
    bool const has_weight = format_.weights == Weights::read;
    if (auto const mistake = read_dict_weight(dict, has_weight, weight); !mistake.empty())
      blocks_.fail(line, fmt::format("{} in \"{}\"", mistake, text::excerpt(line)));
    if (has_weight) weights[index] = weight;
    return end;
  }

  /// Finds the mistake in the line and throws a UserError.
  [[noreturn]] void explain(char const* line) const {
    auto const* p = text::skip_blanks(line);
    for (auto const* const which : {"source", "target"}) {
      bool const is_quoted = *p == '"';
      p += is_quoted ? 1 : 0;
      bool const is_negative = *p == '-' && text::is_digit(p[1]);
      if (is_negative)
        blocks_.fail(line, fmt::format("negative {} id in \"{}\"", which, text::excerpt(line)));
      if (!text::is_digit(*p))
        blocks_.fail(line, fmt::format("the {} is not a vertex id in \"{}\"; {} is wanted", which,
                                       text::excerpt(line), wanted()));
      auto const* const digits = p;
      while (text::is_digit(*p))
        ++p;
      std::int64_t id = 0;
      bool const fits = text::parse_natural(digits, id) != nullptr;
      if (!fits || id - format_.first_id >= format_.num_vertices)
        blocks_.fail(line, fmt::format("{} id {} is too large: {}, so ids are {} to {}", which,
                                       std::string_view(digits, static_cast<std::size_t>(p - digits)),
                                       format_.id_limit, format_.first_id,
                                       format_.first_id + format_.num_vertices - 1));
      if (id < format_.first_id)
        blocks_.fail(line, fmt::format("{} id {} is too small: ids start at {} in this format", which, id,
                                       format_.first_id));
      bool const is_open = is_quoted && *p != '"';
      p += is_quoted && !is_open ? 1 : 0;
      auto const* const after = text::skip_separator(p);
      if (is_open || (after == p && *p != '\n'))
        blocks_.fail(line, fmt::format("the {} is not a vertex id in \"{}\"; {} is wanted", which,
                                       text::excerpt(line), wanted()));
      p = after;
    }
    blocks_.fail(line, fmt::format("\"{}\" is not an edge; {} is wanted", text::excerpt(line), wanted()));
  }

  std::string wanted() const {
    bool const has_two = format_.weights == Weights::absent;
    return fmt::format("\"source target{}\"{}", has_two ? "" : " weight",
                       format_.may_have_names ? " in whole numbers (or --names, if ends are names)" : "");
  }

  TextBlocks blocks_;
  EdgeTextFormat format_;
  std::size_t batch_size_;
  char const* place_ = nullptr; // in the block
  char const* end_ = nullptr;
};

class WeightedTextEdges final : public EdgeStream {
 public:
  WeightedTextEdges(std::filesystem::path const& path, std::filesystem::path const& weights,
                    EdgeTextFormat const& format, std::int64_t batch_size)
      : edges_(path, {}, format, batch_size),
        weights_(weights) {}

  Progress progress() const override { return edges_.progress(); }

  bool next(EdgeBatch& batch) override {
    bool const has_more = edges_.next(batch);
    batch.weights.resize(batch.edges.size());
    weights_.read(std::span(batch.weights));
    if (!has_more) weights_.expect_end();
    return has_more;
  }

 private:
  TextEdgeStream edges_;
  TextColumn weights_;
};

} // namespace

std::unique_ptr<EdgeStream> read_text_edges(std::filesystem::path const& path, Share share,
                                            EdgeTextFormat const& format, std::int64_t batch_size) {
  return std::make_unique<TextEdgeStream>(path, share, format, batch_size);
}

std::unique_ptr<EdgeStream> read_text_edges_with_weights(std::filesystem::path const& path,
                                                         std::filesystem::path const& weights,
                                                         EdgeTextFormat const& format,
                                                         std::int64_t batch_size) {
  return std::make_unique<WeightedTextEdges>(path, weights, format, batch_size);
}

namespace {
constexpr std::string_view banner = "%%matrixmarket";

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

void read_banner(TextLines const& lines, char const* line, MatrixMarketHead& head) {
  std::istringstream words(lower_case(text::excerpt(line, 200)));
  std::string start;
  std::string object;
  std::string form;
  std::string field;
  std::string symmetry;
  words >> start >> object >> form >> field >> symmetry;
  std::string extra;
  if (words >> extra) lines.fail(fmt::format("\"{}\" after the five words of the first line", extra));
  if (start != banner) lines.fail("a MatrixMarket file begins with \"%%MatrixMarket matrix coordinate ..\"");
  auto const expect = [&](std::string const& word, std::initializer_list<char const*> known) {
    if (std::ranges::none_of(known, [&](auto const* candidate) { return word == candidate; })) {
      std::string list;
      for (auto const* const candidate : known)
        list += (list.empty() ? "" : ", ") + std::string(candidate);
      lines.fail(fmt::format("\"{}\" is not a graph that can be read; known here: {}", word, list));
    }
  };
  expect(object, {"matrix"});
  expect(form, {"coordinate"});
  expect(field, {"pattern", "real", "integer", "double"});
  expect(symmetry, {"general", "symmetric", "skew-symmetric"});
  head.has_values = field != "pattern";
  head.has_integers = field == "integer";
  head.is_skew = symmetry == "skew-symmetric";
  head.is_symmetric = symmetry == "symmetric" || head.is_skew;
}

void read_sizes(TextLines const& lines, char const* line, MatrixMarketHead& head) {
  std::array<std::int64_t, 3> sizes{};
  auto const* p = text::skip_blanks(line);
  for (auto& size : sizes) {
    p = text::parse_natural(p, size);
    if (p == nullptr) lines.fail(fmt::format("\"{}\" is not \"rows columns entries\"", text::excerpt(line)));
    p = text::skip_blanks(p);
  }
  if (*p != '\n') lines.fail(fmt::format("\"{}\" is not \"rows columns entries\"", text::excerpt(line)));
  if (sizes[0] != sizes[1])
    lines.fail(
        fmt::format("the matrix has {} rows and {} columns; that of a graph is square", sizes[0], sizes[1]));
  head.num_vertices = sizes[0];
  head.num_entries = sizes[2];
  head.start = lines.end_of_line();
}

} // namespace

bool is_matrix_market(std::filesystem::path const& path) {
  return lower_case(first_line(path)).starts_with(banner);
}

MatrixMarketHead read_matrix_market_head(std::filesystem::path const& path) {
  TextLines lines(path);
  MatrixMarketHead head;
  bool is_first = true;
  while (auto const* const line = lines.next()) {
    if (std::exchange(is_first, false)) {
      read_banner(lines, line, head);
    } else if (auto const first = *text::skip_blanks(line); first != '%' && first != '\n') {
      read_sizes(lines, line, head);
      return head;
    }
  }
  lines.blocks().fail_at_end("the line \"rows columns entries\" is missing");
}

} // namespace orthant::graph
