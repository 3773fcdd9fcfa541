// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_names.hpp"

#include "graph/text/text_fields.hpp"
#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <span>
#include <string>
#include <utility>

namespace orthant::graph {

namespace {

using Weights = EdgeTextFormat::Weights;
using Fields = std::span<std::string_view const>;

constexpr std::size_t longest_name = 4096;

bool is_skipped(char const* line, bool has_comments) {
  auto const first = *text::skip_blanks(line);
  return first == '\n' || (has_comments && (first == '#' || first == '%'));
}

/// Reads the lines of one share.
class NamedReader {
 public:
  NamedReader(std::filesystem::path const& path, Share share, EdgeTextProbe const& probe, Weights weights,
              NameTable vertices)
      : blocks_(path, share, probe.start),
        fields_(probe.separator, probe.has_dicts),
        probe_(probe),
        reads_weights_(probe.weight && weights == Weights::read),
        refuses_weights_(probe.has_dicts && !probe.weight && weights == Weights::read) {
    edges_.vertices = std::move(vertices);
  }

  NamedEdges read() {
    for (auto block = blocks_.next(); !block.empty(); block = blocks_.next()) {
      auto const* const end = block.data() + block.size();
      for (auto const* line = block.data(); line != end; line = text::line_end(line) + 1)
        if (!is_skipped(line, probe_.has_comments))
          take(line);
        else if (may_be_edge(line))
          ++edges_.num_comments_like_edges;
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

  /// True if a comment has the columns of an edge. A comment in words has a blank after its mark.
  [[nodiscard]] bool may_be_edge(char const* line) {
    auto const* const p = text::skip_blanks(line);
    return *p != '\n' && !text::is_blank(p[1]) && std::ssize(fields_.cut(p)) == probe_.num_columns;
  }
  void take(char const* line) {
    auto const fields = fields_.cut(line);
    auto const count = std::ssize(fields);
    bool const has_columns =
        count == probe_.num_columns || (probe_.has_dicts && !probe_.weight && count == 3);
    if (fields_.has_bad_quote())
      fail(line,
           "a quote is not closed, or text follows the closing one (a line break inside quotes is not read)");
    if (!has_columns) fail_columns(line, count);
    auto const [source, target] = probe_.ends;
    bool const is_triple = probe_.relation.has_value();
    require_field(line, fields[source], is_triple ? "head" : "source");
    if (is_triple) require_field(line, fields[*probe_.relation], "relation");
    require_field(line, fields[target], is_triple ? "tail" : "target");
    Pending next{line, {scoped(fields[source], 0), scoped(fields[target], 1)}, {}};
    for (std::size_t i = 0; i < 2; ++i) {
      next.hashes[i] = NameTable::hash_of(next.ends[i]);
      edges_.vertices.prefetch_slot(next.hashes[i]);
    }
    pending_.push_back(next);
    if (reads_weights_) edges_.weights.push_back(weight_of(line, fields[*probe_.weight]));
    if (refuses_weights_ && count == 3) refuse_weight(line, fields[2]);
    if (is_triple) edges_.edge_relations.push_back(relation_of(line, fields[*probe_.relation]));
    constexpr std::size_t batch = 64; // names whose slots are prefetched together
    if (pending_.size() == batch) add_pending();
  }

  void add_pending() {
    for (auto const& next : pending_)
      for (auto const hash : next.hashes)
        edges_.vertices.prefetch_text(hash);
    for (auto const& [line, ends, hashes] : pending_) {
      auto& edge = edges_.edges.emplace_back();
      for (std::size_t i = 0; i < 2; ++i) {
        auto const count = edges_.vertices.size();
        auto const number = edges_.vertices.find_or_add(ends[i], hashes[i]);
        if (number == count) require_name(line, ends[i].substr(probe_.scopes[i].size()));
        edge[i] = static_cast<std::uint32_t>(number);
      }
    }
    constexpr auto most = std::int64_t{std::numeric_limits<std::uint32_t>::max()};
    if (edges_.vertices.size() > most)
      runtime::throw_user("{}: one rank reads more than {} names: use more ranks", blocks_.path().string(),
                          most);
    pending_.clear();
    scoped_.clear();
    fields_.forget();
  }

  /// The name of end `i` with its scope, valid until add_pending() has been called.
  std::string_view scoped(std::string_view name, std::size_t i) {
    auto const& scope = probe_.scopes[i];
    return scope.empty() ? name : scoped_.emplace_back(scope).append(name);
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
    if (probe_.has_dicts) {
      if (auto const mistake = read_dict_weight(field, true, weight); !mistake.empty())
        fail(line, std::string(mistake));
    } else if (!read_number(field, weight) || !std::isfinite(weight)) {
      fail(line, "the weight is not a finite number");
    }
    return weight;
  }
  void refuse_weight(char const* line, std::string_view field) const {
    float weight = 0;
    if (auto const mistake = read_dict_weight(field, false, weight); !mistake.empty())
      fail(line, std::string(mistake));
    if (!field.starts_with('{')) fail(line, "a dictionary is wanted after the first edge has one");
  }

  void require_field(char const* line, std::string_view field, char const* name) const {
    if (field.empty()) fail(line, fmt::format("the {} is empty", name));
  }
  void require_name(char const* line, std::string_view name) const {
    if (name.size() > longest_name)
      blocks_.fail(line, fmt::format("a name of {} bytes; at most {} are wanted", name.size(), longest_name));
    if (!is_vertex_name(name)) fail(line, "a name holds a control character");
  }
  [[noreturn]] void fail(char const* line, std::string const& reason) const {
    blocks_.fail(line, fmt::format("{} in \"{}\"; {}", reason, text::excerpt(line), probe_.wanted));
  }
  [[noreturn]] void fail_columns(char const* line, std::int64_t count) const {
    blocks_.fail(line, fmt::format("\"{}\" has {} column{} separated by {}; {}", text::excerpt(line), count,
                                   count == 1 ? "" : "s", fields_.separator_text(), probe_.wanted));
  }

  TextBlocks blocks_;
  TextFields fields_;
  EdgeTextProbe const& probe_;
  bool reads_weights_;
  bool refuses_weights_; // of dicts: true if the first dict has no weight
  std::vector<Pending> pending_;
  std::deque<std::string> scoped_;
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
      auto const& ids = *edges_->vertex_ids;
      Edge const edge{ids[source], ids[target]};
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
  std::int64_t copies_; // edges per line: 2 with the inverse, else 1
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
                            Weights weights, NameTable vertices) {
  return NamedReader(path, share, probe, weights, std::move(vertices)).read();
}

bool is_vertex_name(std::string_view name) {
  return !name.empty() && name.size() <= longest_name &&
         std::ranges::none_of(name, [](unsigned char c) { return c < ' ' || c == 127; });
}

EdgeTextProbe probe_triples(std::filesystem::path const& path) {
  TextLines lines(path);
  EdgeTextProbe probe;
  probe.has_names = true;
  probe.num_columns = 3;
  probe.ends = {0, 2};
  probe.relation = 1;
  probe.wanted = "a triple is \"head relation tail\"";
  while (auto const* const line = lines.next()) {
    if (is_skipped(line, true)) {
      probe.start = lines.end_of_line();
      continue;
    }
    probe.separator = TextFields::separator_of(line, 3, 3);
    TextFields fields(probe.separator);
    auto const cut = fields.cut(line);
    probe.has_header = cut.size() == 3 && is_triple_header(cut);
    if (probe.has_header) probe.start = lines.end_of_line();
    break;
  }
  return probe;
}

std::unique_ptr<EdgeStream> stream_of(std::shared_ptr<NamedEdges const> edges, bool adds_inverse,
                                      std::int64_t num_relations, std::int64_t batch_size) {
  return std::make_unique<NamedEdgeStream>(std::move(edges), adds_inverse, num_relations, batch_size);
}

} // namespace orthant::graph
