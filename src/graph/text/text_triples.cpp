// SPDX-License-Identifier: Apache-2.0
#include "graph/text/text_triples.hpp"

#include "graph/text/text_blocks.hpp"
#include "graph/text/text_scanner.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace orthant::graph {

std::size_t NameTable::slot_of(std::string_view name) const {
  auto const mask = slots_.size() - 1;
  auto slot = std::hash<std::string_view>()(name) & mask;
  while (slots_[slot] >= 0 && names_[slots_[slot]] != name)
    slot = (slot + 1) & mask;
  return slot;
}

std::int64_t NameTable::find(std::string_view name) const {
  return slots_.empty() ? -1 : slots_[slot_of(name)];
}

std::int64_t NameTable::find_or_add(std::string_view name) {
  if (2 * static_cast<std::size_t>(size() + 1) > slots_.size()) grow();
  auto& number = slots_[slot_of(name)];
  if (number < 0) {
    number = size();
    names_.add(name);
  }
  return number;
}

void NameTable::grow() {
  constexpr std::size_t fewest = 1024;
  slots_.assign(std::max(fewest, 2 * slots_.size()), -1);
  for (std::int64_t i = 0; i < size(); ++i)
    slots_[slot_of(names_[i])] = i;
}

namespace {

constexpr std::array<char const*, 3> triple_columns{"head", "relation", "tail"};
constexpr char const* wanted_triple = "a triple is \"head relation tail\"";
constexpr char blanks = ' '; // any number of blanks and tabs

/// Head, relation and tail of a line.
using Triple = std::array<std::string_view, 3>;

/// The line at `p` without its end.
std::string_view line_at(char const* p) {
  std::string_view line(p, static_cast<std::size_t>(text::line_end(p) - p));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string_view trimmed(std::string_view field) {
  while (!field.empty() && text::is_blank(field.front()))
    field.remove_prefix(1);
  while (!field.empty() && text::is_blank(field.back()))
    field.remove_suffix(1);
  return field;
}

/// Sets the first three fields of a line, and returns the number of all of them.
std::int64_t cut(std::string_view line, char separator, Triple& fields) {
  std::int64_t count = 0;
  for (bool has_more = true; has_more;) {
    if (separator == blanks) line = trimmed(line);
    auto const end = separator == blanks ? line.find_first_of(" \t") : line.find(separator);
    if (count < std::ssize(fields)) fields[static_cast<std::size_t>(count)] = trimmed(line.substr(0, end));
    ++count;
    has_more = end != std::string_view::npos;
    if (has_more) line.remove_prefix(end + 1);
  }
  return count;
}

/// True for names of columns.
bool is_header(Triple const& fields) {
  using Words = std::array<std::string_view, 4>;
  constexpr std::array<Words, 3> names{Words{"head", "source", "subject", "from"},
                                       Words{"relation", "predicate", "type", "rel"},
                                       Words{"tail", "target", "object", "to"}};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::string word(fields[i]);
    std::ranges::transform(word, word.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (std::ranges::find(names[i], word) == names[i].end()) return false;
  }
  return true;
}

/// The triples of a file.
class TripleLines {
 public:
  explicit TripleLines(std::filesystem::path const& path) : blocks_(path, {}) {}

  /// Sets the next triple, whose names are valid until the next call. Returns false at the end.
  bool next(Triple& triple) {
    for (;;) {
      if (place_ == end_) {
        auto const block = blocks_.next();
        if (block.empty()) return false;
        place_ = block.data();
        end_ = block.data() + block.size();
      }
      line_ = place_;
      auto const line = line_at(line_);
      place_ = text::line_end(line_) + 1;
      auto const* const first = text::skip_blanks(line_);
      if (*first == '\n' || *first == '#' || *first == '%') continue;
      bool const is_first = separator_ == 0;
      if (is_first) separator_ = separator_of(line);
      auto const count = cut(line, separator_, triple);
      if (count != std::ssize(triple)) fail_columns(count);
      for (std::size_t i = 0; i < triple.size(); ++i)
        if (triple[i].empty()) fail(fmt::format("the {} is empty", triple_columns[i]));
      if (!is_first || !is_header(triple)) return true;
      has_header_ = true;
    }
  }

  /// Throws UserError unless the name can be part of a line of text.
  void require_name(std::string_view name) const {
    constexpr std::size_t longest = 4096;
    if (name.size() > longest)
      blocks_.fail(line_, fmt::format("a name of {} bytes; at most {} are wanted", name.size(), longest));
    if (std::ranges::any_of(name, [](unsigned char c) { return c < ' ' || c == 127; }))
      fail("a name holds a control character");
  }
  [[noreturn]] void fail(std::string const& reason) const {
    blocks_.fail(line_, fmt::format("{} in \"{}\"; {}", reason, text::excerpt(line_), wanted_triple));
  }
  [[nodiscard]] Progress progress() const { return blocks_.progress(); }
  [[nodiscard]] bool has_header() const { return has_header_; }

 private:
  /// The first separator that cuts the line into three fields, or blanks.
  [[nodiscard]] static char separator_of(std::string_view line) {
    Triple fields;
    for (auto const candidate : {'\t', '|', ';', ','})
      if (cut(line, candidate, fields) == std::ssize(fields)) return candidate;
    return blanks;
  }
  [[noreturn]] void fail_columns(std::int64_t count) const {
    auto const what = separator_ == '\t'     ? std::string("tabs")
                      : separator_ == blanks ? std::string("blanks")
                                             : fmt::format("'{}'", separator_);
    blocks_.fail(line_, fmt::format("\"{}\" has {} column{} separated by {}; {}", text::excerpt(line_), count,
                                    count == 1 ? "" : "s", what, wanted_triple));
  }

  TextBlocks blocks_;
  char separator_ = 0; // 0 until the first triple
  bool has_header_ = false;
  char const* line_ = nullptr;
  char const* place_ = nullptr; // in the block
  char const* end_ = nullptr;
};

class TripleEdges final : public EdgeStream {
 public:
  TripleEdges(std::filesystem::path const& path, std::shared_ptr<TripleNames const> names, bool adds_inverse,
              std::int64_t batch_size)
      : lines_(path),
        names_(std::move(names)),
        adds_inverse_(adds_inverse),
        batch_size_(static_cast<std::size_t>(batch_size)) {}

  Progress progress() const override { return lines_.progress(); }

  bool next(EdgeBatch& batch) override {
    batch.edges.clear();
    batch.weights.clear();
    batch.relations.clear();
    auto const add = [&](Edge edge, std::int64_t relation) {
      batch.edges.push_back(edge);
      batch.relations.push_back(static_cast<std::uint16_t>(relation));
    };
    while (batch.edges.size() < batch_size_) {
      if (inverse_) {
        add(inverse_->first, inverse_->second);
        inverse_.reset();
        continue;
      }
      Triple triple;
      if (!lines_.next(triple)) break;
      Edge const edge{number_of(names_->vertices, triple[0]), number_of(names_->vertices, triple[2])};
      auto const relation = number_of(names_->relations, triple[1]);
      add(edge, relation);
      if (adds_inverse_)
        inverse_ = std::pair(Edge{edge.target, edge.source}, relation + names_->relations.size());
    }
    return !batch.edges.empty();
  }

 private:
  [[nodiscard]] std::int64_t number_of(NameTable const& table, std::string_view name) const {
    auto const number = table.find(name);
    if (number < 0) lines_.fail("the file has changed while it is read: a new name");
    return number;
  }

  TripleLines lines_;
  std::shared_ptr<TripleNames const> names_;
  bool adds_inverse_;
  std::optional<std::pair<Edge, std::int64_t>> inverse_; // of the last triple, if it is due
  std::size_t batch_size_;
};

} // namespace

TripleNames scan_triples(std::filesystem::path const& path) {
  TripleLines lines(path);
  TripleNames found;
  auto const add = [&](NameTable& table, std::string_view name) {
    auto const count = table.size();
    if (table.find_or_add(name) == count) lines.require_name(name);
  };
  for (Triple triple; lines.next(triple); ++found.num_triples) {
    add(found.vertices, triple[0]);
    add(found.relations, triple[1]);
    add(found.vertices, triple[2]);
    if (found.relations.size() > most_relations)
      lines.fail(fmt::format("more than {} relations", most_relations));
  }
  found.has_header = lines.has_header();
  if (found.num_triples == 0) runtime::throw_user("{} has no triples", path.string());
  return found;
}

std::unique_ptr<EdgeStream> read_triples(std::filesystem::path const& path,
                                         std::shared_ptr<TripleNames const> names, bool adds_inverse,
                                         std::int64_t batch_size) {
  return std::make_unique<TripleEdges>(path, std::move(names), adds_inverse, batch_size);
}

} // namespace orthant::graph
