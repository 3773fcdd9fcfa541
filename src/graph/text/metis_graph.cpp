// SPDX-License-Identifier: Apache-2.0
#include "graph/text/metis_graph.hpp"

#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

namespace orthant::graph {

namespace {

bool is_remark(char const* line) {
  return *text::skip_blanks(line) == '%';
}

MetisHead parse_head(TextLines const& lines, char const* line) {
  constexpr auto wanted =
      "\"vertices edges [fmt [ncon]]\" in whole numbers is wanted in the first line of a METIS graph";
  std::array<std::int64_t, 4> numbers{0, 0, 0, -1};
  std::size_t count = 0;
  auto const* p = text::skip_blanks(line);
  for (; *p != '\n' && count < numbers.size(); p = text::skip_blanks(p)) {
    p = text::parse_natural(p, numbers[count++]);
    if (p == nullptr || !(text::is_blank(*p) || *p == '\n')) break;
  }
  if (p == nullptr || *p != '\n' || count < 2)
    lines.fail(fmt::format("\"{}\" is no head; {}", text::excerpt(line), wanted));
  auto const [num_vertices, num_edges, format, ncon] = numbers;
  std::array<std::int64_t, 3> const digits{format / 100, format / 10 % 10, format % 10};
  for (auto const digit : digits)
    if (digit > 1)
      lines.fail(fmt::format("the format {} in \"{}\" is unknown; it has up to three digits 0 or 1", format,
                             text::excerpt(line)));
  if (ncon > 0 && digits[1] == 0)
    lines.fail(fmt::format("\"{}\" says {} weights per vertex, but the format {} has none",
                           text::excerpt(line), ncon, format));
  constexpr std::int64_t most_weights = 1'000'000;
  if (num_vertices > most_vertices || num_edges > most_edges || ncon > most_weights)
    lines.fail(fmt::format("\"{}\" has a number that is too large", text::excerpt(line)));
  MetisHead head;
  head.num_vertices = num_vertices;
  head.num_edges = num_edges;
  head.num_passed_over = digits[0] + (digits[1] == 0 ? 0 : std::max<std::int64_t>(ncon, 1));
  head.has_weights = digits[2] == 1;
  head.start = lines.end_of_line();
  return head;
}

/// Beginning of the next line that is not a comment, or nullptr at the end.
char const* next_line_of(TextLines& lines) {
  auto const* line = lines.next();
  while (line != nullptr && is_remark(line))
    line = lines.next();
  return line;
}

class MetisEdges final : public EdgeStream {
 public:
  MetisEdges(std::filesystem::path const& path, Share share, MetisHead const& head, MetisLines how,
             std::int64_t batch_size)
      : lines_(path, share, head.start),
        head_(head),
        how_(how),
        vertex_(how.first_vertex - 1),
        batch_size_(static_cast<std::size_t>(batch_size)) {}

  Progress progress() const override { return lines_.blocks().progress(); }

  bool next(EdgeBatch& batch) override {
    batch.edges.clear();
    batch.weights.clear();
    while (batch.edges.size() < batch_size_) {
      if (place_ != nullptr) place_ = text::skip_blanks(place_);
      if (place_ == nullptr || *place_ == '\n') {
        if (!begin_line()) break;
        continue;
      }
      take_neighbor(batch);
    }
    return !batch.edges.empty();
  }

 private:
  /// Moves to the neighbors of the next vertex. Returns false at the end.
  bool begin_line() {
    line_ = next_line_of(lines_);
    place_ = line_;
    if (line_ == nullptr) return false;
    ++vertex_;
    auto const* p = text::skip_blanks(line_);
    if (vertex_ >= head_.num_vertices) {
      if (*p != '\n')
        fail(fmt::format("the head says {} vertices, a line each; more follow", head_.num_vertices));
      return true;
    }
    for (std::int64_t i = 0; i < head_.num_passed_over; ++i) {
      float ignored = 0;
      auto const* const after = *p == '\n' ? nullptr : text::parse_float(p, ignored);
      if (after == nullptr || !(text::is_blank(*after) || *after == '\n'))
        fail(fmt::format("{} numbers before the neighbors of a vertex are wanted, as the head says",
                         head_.num_passed_over));
      p = text::skip_blanks(after);
    }
    place_ = p;
    return true;
  }

  void take_neighbor(EdgeBatch& batch) {
    std::int64_t number = 0;
    auto const* after = text::parse_natural(place_, number);
    if (after == nullptr || !(text::is_blank(*after) || *after == '\n'))
      fail(fmt::format("\"{}\" is not the number of a vertex", field(place_)));
    if (number < 1 || number > head_.num_vertices)
      fail(fmt::format("the neighbor {} does not exist: vertices are 1 to {}", number, head_.num_vertices));
    if (number - 1 == vertex_)
      fail(fmt::format("vertex {} is its own neighbor, which these files do not have", number));
    float weight = 1;
    if (head_.has_weights) {
      auto const* const start = text::skip_blanks(after);
      after = *start == '\n' ? nullptr : text::parse_float(start, weight);
      if (after == nullptr || !(text::is_blank(*after) || *after == '\n') || !std::isfinite(weight))
        fail(fmt::format("no weight follows the neighbor {}, although the head says so", number));
    }
    place_ = after;
    if (!how_.lists_both && number - 1 < vertex_) return;
    batch.edges.push_back({vertex_, number - 1});
    if (how_.reads_weights) batch.weights.push_back(weight);
  }

  static std::string field(char const* p) {
    std::string text = text::excerpt(p);
    return text.substr(0, text.find_first_of(" \t"));
  }
  [[noreturn]] void fail(std::string const& reason) const {
    lines_.fail(fmt::format("{} (vertex {}: \"{}\")", reason, vertex_ + 1, text::excerpt(line_)));
  }

  TextLines lines_;
  MetisHead head_;
  MetisLines how_;
  std::int64_t vertex_;
  std::size_t batch_size_;
  char const* line_ = nullptr;
  char const* place_ = nullptr; // before the next neighbor in the line
};

} // namespace

MetisHead read_metis_head(std::filesystem::path const& path) {
  TextLines lines(path);
  auto const* const line = next_line_of(lines);
  if (line == nullptr) lines.blocks().fail_at_end("the line \"vertices edges [fmt [ncon]]\" is missing");
  return parse_head(lines, line);
}

std::int64_t count_metis_lines(std::filesystem::path const& path, Share share, MetisHead const& head) {
  TextLines lines(path, share, head.start);
  std::int64_t count = 0;
  while (next_line_of(lines) != nullptr)
    ++count;
  return count;
}

std::unique_ptr<EdgeStream> read_metis_edges(std::filesystem::path const& path, Share share,
                                             MetisHead const& head, MetisLines lines,
                                             std::int64_t batch_size) {
  return std::make_unique<MetisEdges>(path, share, head, lines, batch_size);
}

} // namespace orthant::graph
