// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/npy.hpp"
#include "graph/arrays/npy_streams.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace orthant::graph {

using runtime::throw_user;

namespace {

constexpr std::int64_t numbers_at_once = std::int64_t{1} << 18;

/// Reads the rows of an array in batches. fill(array, batch) reads batch.rows.
template<class Fill>
class FilledRows final : public LabelStream {
 public:
  FilledRows(NpyArray array, Range rows, std::int64_t batch_rows, Fill fill)
      : array_(std::move(array)),
        rows_(rows),
        next_(rows.begin),
        batch_rows_(batch_rows),
        fill_(std::move(fill)) {}

  bool next(LabelBatch& batch) override {
    batch = {};
    batch.rows = {next_, std::min(rows_.end, next_ + batch_rows_)};
    next_ = batch.rows.end;
    if (batch.rows.size() > 0) fill_(array_, batch);
    return batch.rows.size() > 0;
  }
  [[nodiscard]] Progress progress() const override { return {next_ - rows_.begin, rows_.size()}; }

 private:
  NpyArray array_;
  Range rows_;
  std::int64_t next_;
  std::int64_t batch_rows_;
  Fill fill_;
};

template<class Fill>
std::unique_ptr<LabelStream> filled_rows(NpyArray array, Range rows, std::int64_t batch_rows, Fill fill) {
  return std::make_unique<FilledRows<Fill>>(std::move(array), rows, batch_rows, std::move(fill));
}

class Renumbered final : public LabelStream {
 public:
  Renumbered(std::unique_ptr<LabelStream> labels, std::shared_ptr<std::vector<std::int64_t> const> numbers)
      : labels_(std::move(labels)),
        numbers_(std::move(numbers)) {}

  bool next(LabelBatch& batch) override {
    bool const has_rows = labels_->next(batch);
    for (auto& label : batch.classes)
      if (label >= 0) label = std::ranges::lower_bound(*numbers_, label) - numbers_->begin();
    return has_rows;
  }
  [[nodiscard]] Progress progress() const override { return labels_->progress(); }

 private:
  std::unique_ptr<LabelStream> labels_;
  std::shared_ptr<std::vector<std::int64_t> const> numbers_;
};

} // namespace

bool has_fractions(NpyArray array, Range rows) {
  auto const num_columns = array.num_columns();
  auto const end = rows.end * num_columns;
  std::vector<double> numbers;
  for (auto first = rows.begin * num_columns; first < end; first += numbers_at_once) {
    numbers.resize(static_cast<std::size_t>(std::min(numbers_at_once, end - first)));
    array.read(first, std::span(numbers));
    if (std::ranges::any_of(numbers, [](double x) { return std::isfinite(x) && x != std::floor(x); }))
      return true;
  }
  return false;
}

std::unique_ptr<LabelStream> read_npy_targets(OpenArray const& labels, Range rows, std::int64_t batch_rows) {
  return filled_rows(labels(), rows, batch_rows, [](NpyArray& array, LabelBatch& batch) {
    auto const num_columns = array.num_columns();
    auto const first = batch.rows.begin * num_columns;
    batch.targets.resize(static_cast<std::size_t>(batch.rows.size() * num_columns));
    array.read(first, std::span(batch.targets));
    auto const bad = std::ranges::find_if(batch.targets, [](double x) { return std::isinf(x); });
    if (bad == batch.targets.end()) return;
    auto const element = first + (bad - batch.targets.begin());
    throw_user("{}: target {} at element {} (byte {}); targets are finite numbers, or nan for none",
               array.name(), *bad, element, array.byte_of(element));
  });
}

std::set<std::string> read_npy_names(NpyArray array, Range rows) {
  std::set<std::string> names;
  constexpr std::int64_t texts_at_once = 1024;
  std::vector<std::string> texts;
  for (auto row = rows.begin; row < rows.end; row += texts_at_once) {
    texts.resize(static_cast<std::size_t>(std::min(texts_at_once, rows.end - row)));
    array.read(row, std::span(texts));
    for (auto const& text : texts)
      if (!text.empty()) names.insert(text);
    if (std::ssize(names) > most_class_names)
      throw_user("{} has more than {} different texts, too many for names of classes", array.name(),
                 most_class_names);
  }
  return names;
}

std::unique_ptr<LabelStream> read_npy_named_classes(OpenArray const& labels, Range rows,
                                                    std::shared_ptr<std::vector<std::string> const> names,
                                                    std::int64_t batch_rows) {
  return filled_rows(labels(), rows, batch_rows,
                     [names = std::move(names)](NpyArray& array, LabelBatch& batch) {
                       std::vector<std::string> texts(static_cast<std::size_t>(batch.rows.size()));
                       array.read(batch.rows.begin, std::span(texts));
                       for (auto const& text : texts)
                         batch.classes.push_back(
                             text.empty() ? -1 : std::ranges::lower_bound(*names, text) - names->begin());
                     });
}

std::unique_ptr<LabelStream> renumbered(std::unique_ptr<LabelStream> labels,
                                        std::shared_ptr<std::vector<std::int64_t> const> numbers) {
  return std::make_unique<Renumbered>(std::move(labels), std::move(numbers));
}

// Texts of .npy arrays.

namespace {

/// Appends a character in UTF-8. Returns false if there is no such character.
bool append_utf8(std::string& text, std::uint32_t c) {
  auto const tail = [&](int shift) { text.push_back(static_cast<char>(0x80 | (c >> shift & 0x3f))); };
  if (c >= 0x110000 || (c >= 0xd800 && c < 0xe000)) return false;
  if (c < 0x80) {
    text.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    text.push_back(static_cast<char>(0xc0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    text.push_back(static_cast<char>(0xe0 | c >> 12));
    tail(6);
    tail(0);
  } else {
    text.push_back(static_cast<char>(0xf0 | c >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
  return true;
}

/// True if the text is valid UTF-8: decodes each character, and compares its encoding with the bytes.
bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    auto const first = static_cast<unsigned char>(text[0]);
    std::size_t const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    std::uint32_t c = length == 1 ? first : first & (0x7fU >> length);
    for (auto const byte : text.substr(1, length - 1))
      c = c << 6 | (static_cast<unsigned char>(byte) & 0x3fU);
    std::string again;
    if (!append_utf8(again, c) || !text.starts_with(again)) return false;
    text.remove_prefix(again.size());
  }
  return true;
}

/// Appends the characters of an element of type "<U5", for example. Returns false if one of them is not a Unicode character.
bool append_characters(std::string& text, std::span<std::byte const> element) {
  for (; !element.empty(); element = element.subspan(sizeof(std::uint32_t))) {
    std::uint32_t c = 0;
    std::memcpy(&c, element.data(), sizeof(c));
    if (c == 0) return true;
    if (!append_utf8(text, c)) return false;
  }
  return true;
}

} // namespace

void NpyArray::read(std::int64_t first, std::span<std::string> out) {
  ORTHANT_REQUIRE(is_text());
  constexpr std::size_t most_bytes = std::size_t{1} << 20;
  auto const width = static_cast<std::size_t>(element_bytes_);
  auto const most = most_bytes / width; // an element has at most a quarter of them
  while (!out.empty()) {
    auto const part = out.first(std::min(out.size(), most));
    buffer_.resize(part.size() * width);
    bytes_->read(byte_of(first), std::span(buffer_));
    for (std::size_t i = 0; i < part.size(); ++i, ++first) {
      auto const element = std::span<std::byte const>(buffer_).subspan(i * width, width);
      part[i].clear();
      auto is_valid = true;
      if (type_[1] == 'U') {
        is_valid = append_characters(part[i], element);
      } else {
        auto const end = std::ranges::find(element, std::byte{0});
        part[i].assign(reinterpret_cast<char const*>(element.data()),
                       static_cast<std::size_t>(end - element.begin()));
        is_valid = is_utf8(part[i]);
      }
      if (!is_valid)
        runtime::throw_user("{}: element {} (byte {}) is not valid Unicode", name(), first, byte_of(first));
    }
    out = out.subspan(part.size());
  }
}

std::vector<std::int64_t> NpyMask::vertices(NpyArray array, Share share, std::int64_t split) {
  auto const num_columns = array.num_columns();
  auto const column = num_columns > 1 ? split : 0;
  auto const rows = runtime::balanced_range(array.shape()[0], share.count, share.index);
  if (column < columns_.begin || column >= columns_.end) {
    auto const begin = column / most_columns_at_once * most_columns_at_once;
    columns_ = {begin, std::min(begin + most_columns_at_once, num_columns)};
    read(std::move(array), rows);
  }
  std::vector<std::int64_t> selected;
  for (std::size_t i = 0; i < bits_.size(); ++i)
    if ((bits_[i] >> (column - columns_.begin) & 1) != 0)
      selected.push_back(rows.begin + static_cast<std::int64_t>(i));
  if (column + 1 == columns_.end) *this = {};
  return selected;
}

void NpyMask::read(NpyArray array, Range rows) {
  if (array.type() != "|b1" && !array.is_integer())
    throw_user("{}: type '{}'; a mask is of bool: a.astype(bool)", array.name(), array.type());
  auto const num_columns = array.num_columns();
  auto const most_rows = std::max<std::int64_t>(1, (std::int64_t{1} << 20) / num_columns);
  std::vector<double> members;
  bits_.clear();
  for (auto begin = rows.begin; begin < rows.end; begin += most_rows) {
    auto const end = std::min(begin + most_rows, rows.end);
    members.resize(static_cast<std::size_t>((end - begin) * num_columns));
    array.read(begin * num_columns, std::span(members));
    for (auto row = begin; row < end; ++row) {
      auto& bits = bits_.emplace_back();
      for (auto column = columns_.begin; column < columns_.end; ++column) {
        auto const element = row * num_columns + column;
        auto const member = members[static_cast<std::size_t>(element - begin * num_columns)];
        if (member != 0 && member != 1)
          throw_user("{}: {} at element {} (byte {}) is neither 0 nor 1; a list of vertices is called {}",
                     array.name(), member, element, array.byte_of(element),
                     "train_idx.npy, valid_idx.npy, test_idx.npy");
        if (member == 1) bits |= std::uint64_t{1} << (column - columns_.begin);
      }
    }
  }
}

} // namespace orthant::graph
