// SPDX-License-Identifier: Apache-2.0
#include "graph/text/metis_graph.hpp"

#include "graph/exchange.hpp"
#include "graph/text/text_scanner.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/random.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <vector>

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

// Checks a graph file of METIS as a whole, and finds which vertices the lines of each rank belong to (check_metis_graph).

namespace {

constexpr std::int64_t check_batch = std::int64_t{1} << 16;

/// One of the two places where the file lists an edge.
struct Listed {
  std::int64_t low = 0;
  std::int64_t high = 0;
  float weight = 0;
  std::int32_t is_at_low = 0; // 1: listed in the line of vertex `low`

  [[nodiscard]] auto edge() const { return std::tuple(low, high, weight); }
};

Listed listed(EdgeBatch const& batch, std::size_t i) {
  auto const [source, target] = batch.edges[i];
  auto const weight = (batch.weights.empty() ? 1.0F : batch.weights[i]) + 0.0F; // -0 equals 0
  return {std::min(source, target), std::max(source, target), weight, source < target ? 1 : 0};
}

/// Throws a UserError that names the first edge whose two listings do not match. Collective.
[[noreturn]] void fail_edge(runtime::Communicator const& comm, std::filesystem::path const& path,
                            MetisHead const& head, MetisLines lines) {
  auto const stream =
      read_metis_edges(path, {comm.rank(), comm.size()}, head, lines, records_per_round(comm));
  std::vector<Listed> all;
  exchange<Listed>(
      comm,
      [&](Outbox<Listed>& outbox) {
        EdgeBatch batch;
        if (!stream->next(batch)) return false;
        for (std::size_t i = 0; i < batch.edges.size(); ++i) {
          auto const record = listed(batch, i);
          outbox.push(static_cast<int>(record.low % comm.size()), record);
        }
        return true;
      },
      [&](std::span<Listed const> arrived) { all.insert(all.end(), arrived.begin(), arrived.end()); });
  std::ranges::sort(all, {}, [](Listed const& record) { return record.edge(); });
  constexpr auto none = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, 2> found{none, none};
  for (auto begin = all.begin(); begin != all.end() && found[0] == none;) {
    auto const end =
        std::find_if(begin, all.end(), [&](Listed const& other) { return other.edge() != begin->edge(); });
    if (2 * std::count_if(begin, end, [](Listed const& record) { return record.is_at_low == 1; }) !=
        end - begin)
      found = {begin->low, begin->high};
    begin = end;
  }
  auto const low = runtime::all_reduced(comm, found[0], runtime::Reduction::min);
  auto const high = runtime::all_reduced(comm, found[0] == low ? found[1] : none, runtime::Reduction::min);
  runtime::throw_user(
      "{}: the edge between vertices {} and {} is not listed in the lines of both, with equal weights: "
      "each edge of a METIS graph is listed twice",
      path.string(), low + 1, high + 1);
}

} // namespace

std::int64_t check_metis_graph(runtime::Communicator const& comm, std::filesystem::path const& path,
                               MetisHead const& head) {
  Share const share{comm.rank(), comm.size()};
  auto const mine = runtime::together(comm, [&] { return count_metis_lines(path, share, head); });
  std::vector<std::int64_t> of_ranks(static_cast<std::size_t>(comm.size()));
  runtime::all_gather(runtime::host, comm, std::vector{mine}, of_ranks);
  auto const num_lines = std::reduce(of_ranks.begin(), of_ranks.end());
  if (num_lines < head.num_vertices)
    runtime::throw_user(
        "{} has {} lines of vertices, but its head says {} vertices: a vertex without neighbors has an "
        "empty line",
        path.string(), num_lines, head.num_vertices);
  auto const first = std::reduce(of_ranks.begin(), of_ranks.begin() + comm.rank());

  MetisLines const lines{first, true, head.has_weights};
  std::int64_t num_listed = 0;
  std::uint64_t difference = 0; // between hash sums of the listings at either end; 0 if all match
  runtime::together(comm, [&] {
    auto const stream = read_metis_edges(path, share, head, lines, check_batch);
    for (EdgeBatch batch; stream->next(batch); num_listed += std::ssize(batch.edges))
      for (std::size_t i = 0; i < batch.edges.size(); ++i) {
        auto const record = listed(batch, i);
        auto const word = runtime::philox2x64(
            {{static_cast<std::uint64_t>(record.low), static_cast<std::uint64_t>(record.high)}},
            std::bit_cast<std::uint32_t>(record.weight))[0];
        difference += record.is_at_low == 1 ? word : -word;
      }
  });
  std::vector<std::int64_t> words(of_ranks.size());
  runtime::all_gather(runtime::host, comm, std::vector{static_cast<std::int64_t>(difference)}, words);
  std::uint64_t total = 0;
  for (auto const word : words)
    total += static_cast<std::uint64_t>(word);
  if (total != 0) fail_edge(comm, path, head, lines);
  auto const num_edges = runtime::all_reduced(comm, num_listed);
  if (num_edges != 2 * head.num_edges)
    runtime::throw_user("{} lists {} edges, each twice, but its head says {}", path.string(), num_edges / 2,
                        head.num_edges);
  return first;
}

} // namespace orthant::graph
