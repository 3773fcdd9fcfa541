// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_names.hpp"

#include "graph/text/text_fields.hpp"
#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <system_error>
#include <utility>

namespace orthant::graph {

namespace {

using Weights = EdgeTextFormat::Weights;
using Fields = std::span<std::string_view const>;

bool is_skipped(char const* line) {
  auto const first = *text::skip_blanks(line);
  return first == '\n' || first == '#' || first == '%';
}

/// Reads the lines of one share.
class NamedReader {
 public:
  NamedReader(std::filesystem::path const& path, Share share, EdgeTextProbe const& probe, NamedLines lines,
              Weights weights)
      : blocks_(path, share, is_gzip(path) ? 0 : probe.first_byte),
        fields_(probe.separator, probe.has_dicts),
        lines_(lines),
        has_dicts_(probe.has_dicts),
        weights_(weights),
        lines_to_skip_(is_gzip(path) ? probe.lines_to_skip : 0) {}

  NamedEdges read() {
    for (auto block = blocks_.next(); !block.empty(); block = blocks_.next()) {
      auto const* const end = block.data() + block.size();
      for (auto const* line = block.data(); line != end; line = text::line_end(line) + 1)
        if (lines_to_skip_ > 0)
          --lines_to_skip_;
        else if (!is_skipped(line))
          take(line);
      add_pending();
    }
    return std::move(edges_);
  }

 private:
  struct Pending {
    char const* line;
    std::array<std::string_view, 2> ends;
    std::array<std::uint64_t, 2> hashes;
  };

  [[nodiscard]] std::size_t num_columns() const { return lines_ == NamedLines::edges ? 2 : 3; }
  [[nodiscard]] bool is_triples() const { return lines_ == NamedLines::triples; }

  void take(char const* line) {
    auto const fields = fields_.cut(line);
    bool const has_columns =
        fields.size() == num_columns() || (has_dicts_ && lines_ == NamedLines::edges && fields.size() == 3);
    if (fields_.has_bad_quote())
      fail(line,
           "a quote is not closed, or text follows the closing one (a line break inside quotes is not read)");
    if (!has_columns) fail_columns(line, std::ssize(fields));
    auto const target = is_triples() ? std::size_t{2} : std::size_t{1};
    for (std::size_t i = 0; i < num_columns(); ++i)
      if (fields[i].empty()) fail(line, fmt::format("the {} is empty", column_name(i)));
    Pending next{line, {fields[0], fields[target]}, {}};
    for (std::size_t i = 0; i < 2; ++i) {
      next.hashes[i] = NameTable::hash_of(next.ends[i]);
      edges_.vertices.prefetch_slot(next.hashes[i]);
    }
    pending_.push_back(next);
    if (lines_ == NamedLines::weighted_edges && weights_ == Weights::read)
      edges_.weights.push_back(weight_of(line, fields[2]));
    if (is_triples()) edges_.edge_relations.push_back(relation_of(line, fields[1]));
    constexpr std::size_t batch = 64; // slots that are requested from memory at once
    if (pending_.size() == batch) add_pending();
  }

  void add_pending() {
    for (auto const& next : pending_)
      for (auto const hash : next.hashes)
        edges_.vertices.prefetch_place(hash);
    for (auto const& next : pending_)
      for (auto const hash : next.hashes)
        edges_.vertices.prefetch_text(hash);
    for (auto const& [line, ends, hashes] : pending_) {
      auto& edge = edges_.edges.emplace_back();
      for (std::size_t i = 0; i < 2; ++i) {
        auto const count = edges_.vertices.size();
        auto const number = edges_.vertices.find_or_add(ends[i], hashes[i]);
        if (number == count) require_name(line, ends[i]);
        edge[i] = static_cast<std::uint32_t>(number);
      }
    }
    constexpr auto most = std::int64_t{std::numeric_limits<std::uint32_t>::max()};
    if (edges_.vertices.size() > most)
      runtime::throw_user("{}: one rank reads more than {} names: use more ranks", blocks_.path().string(),
                          most);
    pending_.clear();
    fields_.forget();
  }

  std::uint16_t relation_of(char const* line, std::string_view name) {
    auto const count = edges_.relations.size();
    auto const number = edges_.relations.find_or_add(name);
    if (number == count) require_name(line, name);
    if (number >= most_relations) fail(line, fmt::format("more than {} relations", most_relations));
    return static_cast<std::uint16_t>(number);
  }

  [[nodiscard]] float weight_of(char const* line, std::string_view field) const {
    float weight = 0;
    if (has_dicts_) {
      if (!find_dict_weight(field, weight)) fail(line, "no finite number follows 'weight'");
      return weight;
    }
    double wide = 0;
    if (field.starts_with('+')) field.remove_prefix(1);
    auto const* const end = field.data() + field.size();
    auto const [after, error] = std::from_chars(field.data(), end, weight);
    bool is_whole = after == end && error == std::errc{};
    if (error == std::errc::result_out_of_range) { // of float
      auto const [wide_after, wide_error] = std::from_chars(field.data(), end, wide);
      is_whole = wide_after == end && wide_error == std::errc{};
      weight = static_cast<float>(wide);
    }
    if (!is_whole || !std::isfinite(weight)) fail(line, "the weight is not a finite number");
    return weight;
  }

  /// Throws UserError unless the name can be part of a line of text.
  void require_name(char const* line, std::string_view name) const {
    constexpr std::size_t longest = 4096;
    if (name.size() > longest)
      blocks_.fail(line, fmt::format("a name of {} bytes; at most {} are wanted", name.size(), longest));
    if (std::ranges::any_of(name, [](unsigned char c) { return c < ' ' || c == 127; }))
      fail(line, "a name holds a control character");
  }

  [[nodiscard]] char const* column_name(std::size_t i) const {
    constexpr std::array<char const*, 3> of_triple{"head", "relation", "tail"};
    constexpr std::array<char const*, 3> of_edge{"source", "target", "weight"};
    return is_triples() ? of_triple[i] : of_edge[i];
  }
  [[nodiscard]] char const* wanted() const {
    return is_triples()                  ? "a triple is \"head relation tail\""
           : lines_ == NamedLines::edges ? "an edge is \"source target\""
                                         : "an edge is \"source target weight\"";
  }
  [[noreturn]] void fail(char const* line, std::string const& reason) const {
    blocks_.fail(line, fmt::format("{} in \"{}\"; {}", reason, text::excerpt(line), wanted()));
  }
  [[noreturn]] void fail_columns(char const* line, std::int64_t count) const {
    blocks_.fail(line, fmt::format("\"{}\" has {} column{} separated by {}; {}", text::excerpt(line), count,
                                   count == 1 ? "" : "s", fields_.separator_text(), wanted()));
  }

  TextBlocks blocks_;
  TextFields fields_;
  NamedLines lines_;
  bool has_dicts_;
  Weights weights_;
  std::int64_t lines_to_skip_;
  std::vector<Pending> pending_;
  NamedEdges edges_;
};

class NamedEdgeStream final : public EdgeStream {
 public:
  NamedEdgeStream(std::shared_ptr<NamedEdges const> edges, bool adds_inverse, std::int64_t num_relations,
                  std::int64_t batch_size)
      : edges_(std::move(edges)),
        copies_(adds_inverse ? 2 : 1),
        num_relations_(num_relations),
        batch_size_(batch_size) {}

  Progress progress() const override { return {done_, total()}; }

  bool next(EdgeBatch& batch) override {
    batch.edges.clear();
    batch.weights.clear();
    batch.relations.clear();
    auto const end = std::min(total(), done_ + batch_size_);
    for (; done_ < end; ++done_) {
      auto const i = static_cast<std::size_t>(done_ / copies_);
      bool const is_inverse = done_ % copies_ == 1;
      auto const [source, target] = edges_->edges[i];
      Edge const edge{edges_->vertex_ids[source], edges_->vertex_ids[target]};
      batch.edges.push_back(is_inverse ? Edge{edge.target, edge.source} : edge);
      if (!edges_->weights.empty()) batch.weights.push_back(edges_->weights[i]);
      if (edges_->edge_relations.empty()) continue;
      auto const relation = edges_->relation_ids[edges_->edge_relations[i]];
      batch.relations.push_back(static_cast<std::uint16_t>(relation + (is_inverse ? num_relations_ : 0)));
    }
    return !batch.edges.empty();
  }

 private:
  [[nodiscard]] std::int64_t total() const { return copies_ * std::ssize(edges_->edges); }

  std::shared_ptr<NamedEdges const> edges_;
  std::int64_t copies_; // of each edge: 2 with its inverse
  std::int64_t num_relations_;
  std::int64_t batch_size_;
  std::int64_t done_ = 0;
};

bool is_triple_header(Fields fields) {
  constexpr std::array<std::string_view, 4> relations{"relation", "predicate", "type", "rel"};
  std::string word(fields[1]);
  std::ranges::transform(word, word.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return is_header_pair(fields[0], fields[2]) && std::ranges::find(relations, word) != relations.end();
}

} // namespace

NamedEdges read_named_edges(std::filesystem::path const& path, Share share, EdgeTextProbe const& probe,
                            NamedLines lines, Weights weights) {
  return NamedReader(path, share, probe, lines, weights).read();
}

EdgeTextProbe probe_triples(std::filesystem::path const& path) {
  TextBlocks blocks(path, {});
  EdgeTextProbe probe;
  std::int64_t number = 0;
  for (auto block = blocks.next(); !block.empty(); block = blocks.next())
    for (auto const* line = block.data(); line != block.data() + block.size();
         line = text::line_end(line) + 1) {
      ++number;
      if (is_skipped(line)) continue;
      probe.has_names = true;
      probe.num_columns = 3;
      probe.separator = TextFields::separator_of(line, 3, 3);
      TextFields fields(probe.separator);
      auto const cut = fields.cut(line);
      if (cut.size() != 3 || !is_triple_header(cut)) return probe;
      probe.lines_to_skip = number;
      probe.first_byte = blocks.byte_of(text::line_end(line) + 1);
      return probe;
    }
  return probe;
}

std::unique_ptr<EdgeStream> stream_of(std::shared_ptr<NamedEdges const> edges, bool adds_inverse,
                                      std::int64_t num_relations, std::int64_t batch_size) {
  return std::make_unique<NamedEdgeStream>(std::move(edges), adds_inverse, num_relations, batch_size);
}

} // namespace orthant::graph
