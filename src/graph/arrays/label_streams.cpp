// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/label_streams.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

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

} // namespace orthant::graph
