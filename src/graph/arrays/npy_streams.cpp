// SPDX-License-Identifier: Apache-2.0
#include "graph/arrays/npy_streams.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

namespace orthant::graph {

using runtime::throw_user;

namespace {

/// Throws UserError for the first id outside [0, n), with one unsigned comparison per id.
void check_ids(NpyArray const& array, std::span<std::int64_t const> ids, std::int64_t first_element,
               std::int64_t num_vertices) {
  auto const bad = std::ranges::find_if(ids, [limit = static_cast<std::uint64_t>(num_vertices)](auto id) {
    return static_cast<std::uint64_t>(id) >= limit;
  });
  if (bad == ids.end()) return;
  auto const element = first_element + (bad - ids.begin());
  throw_user("{}: id {} at element {} (byte {}) is {}: the graph has {} vertices", array.name(), *bad,
             element, array.byte_of(element), *bad < 0 ? "negative" : "too large", num_vertices);
}

void check_finite(NpyArray const& array, std::span<float const> values, std::int64_t first_element,
                  char const* what) {
  auto const bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return;
  auto const element = first_element + (bad - values.begin());
  throw_user("{}: {} {} at element {} (byte {}) is not a finite number", array.name(), what, *bad, element,
             array.byte_of(element));
}

class NpyEdgeStream final : public EdgeStream {
 public:
  NpyEdgeStream(EndArrays const& ends, OpenArray const& weights, Range edges, std::int64_t num_vertices,
                std::int64_t batch_size)
      : sources_(ends.sources()),
        targets_(ends.targets ? ends.targets() : ends.sources()),
        edges_(edges),
        position_(edges.begin),
        num_vertices_(num_vertices),
        batch_size_(batch_size) {
    if (!ends.targets) first_target_ = sources_.shape()[1];
    if (weights) weights_.emplace(weights());
  }

  /// Progress in bytes. One reader inflates a compressed edge_index one and a half times: its first half twice, because the targets come
  /// after all sources and neither half is kept in memory.
  Progress progress() const override {
    auto const sources = edges_.size() * sources_.element_bytes();
    auto const targets = edges_.size() * targets_.element_bytes();
    auto const passed_over = first_target_ == 0 || sources_.has_random_access() ? 0 : sources;
    return {sources_.bytes_read() + targets_.bytes_read(), sources + targets + passed_over};
  }

  bool next(EdgeBatch& batch) override {
    auto const count = std::min(batch_size_, edges_.end - position_);
    batch.edges.resize(static_cast<std::size_t>(count));
    batch.weights.resize(weights_ ? batch.edges.size() : 0);
    ids_.resize(std::min(batch.edges.size(), piece_size));
    for (std::size_t done = 0; done < batch.edges.size(); done += ids_.size()) {
      auto const piece =
          std::span(batch.edges).subspan(done).first(std::min(ids_.size(), batch.edges.size() - done));
      auto const ids = std::span(ids_).first(piece.size());
      auto const first = position_ + static_cast<std::int64_t>(done);
      sources_.read(first, ids);
      check_ids(sources_, ids, first, num_vertices_);
      for (std::size_t i = 0; i < ids.size(); ++i)
        piece[i].source = ids[i];
      targets_.read(first_target_ + first, ids);
      check_ids(targets_, ids, first_target_ + first, num_vertices_);
      for (std::size_t i = 0; i < ids.size(); ++i)
        piece[i].target = ids[i];
    }
    if (weights_) {
      weights_->read(position_, std::span(batch.weights));
      check_finite(*weights_, batch.weights, position_, "weight");
    }
    position_ += count;
    return count > 0;
  }

 private:
  static constexpr std::size_t piece_size = std::size_t{1} << 15; // these ids fit in L2

  NpyArray sources_;
  NpyArray targets_; // may be the same array; each stream reads its own row
  std::optional<NpyArray> weights_;
  Range edges_;
  std::int64_t position_;
  std::int64_t num_vertices_;
  std::int64_t batch_size_;
  std::int64_t first_target_ = 0; // element of targets_
  std::vector<std::int64_t> ids_;
};

/// Batches of rows, a common part of the streams below.
class RowCursor {
 public:
  RowCursor(Range rows, std::int64_t batch_rows)
      : rows_(rows),
        batch_rows_(batch_rows),
        position_(rows.begin) {}
  Range advance() {
    Range const batch{position_, std::min(position_ + batch_rows_, rows_.end)};
    position_ = batch.end;
    return batch;
  }
  [[nodiscard]] Progress progress() const { return {position_ - rows_.begin, rows_.size()}; }
  /// Progress in bytes for an array with these rows.
  [[nodiscard]] Progress progress_of(NpyArray const& array) const {
    auto const row_elements = array.num_elements() / array.shape()[0];
    return {array.bytes_read(), rows_.size() * row_elements * array.element_bytes()};
  }

 private:
  Range rows_;
  std::int64_t batch_rows_;
  std::int64_t position_;
};

class NpyFeatureStream final : public FeatureStream {
 public:
  NpyFeatureStream(OpenArray const& features, Range rows, std::int64_t batch_rows)
      : array_(features()),
        cursor_(rows, batch_rows),
        is_double_(array_.is_fp64()) {}

  Progress progress() const override { return cursor_.progress_of(array_); }

  bool next(FeatureBatch& batch) override {
    auto const num_columns = array_.shape()[1];
    batch.rows = cursor_.advance();
    batch.dense.resize(static_cast<std::size_t>(batch.rows.size() * num_columns));
    auto const first = batch.rows.begin * num_columns;
    batch.remainders.clear(); // the batch may come from features in fp64
    if (!is_double_) array_.read(first, std::span(batch.dense));
    if (is_double_) read_with_remainders(first, batch);
    check_finite(array_, batch.dense, first, "feature");
    return batch.rows.size() > 0;
  }

 private:
  void read_with_remainders(std::int64_t first, FeatureBatch& batch) {
    exact_.resize(batch.dense.size());
    array_.read(first, std::span(exact_));
    batch.remainders.resize(exact_.size());
    for (std::size_t i = 0; i < exact_.size(); ++i) {
      batch.dense[i] = static_cast<float>(exact_[i]);
      batch.remainders[i] = static_cast<float>(exact_[i] - static_cast<double>(batch.dense[i]));
    }
  }

  NpyArray array_;
  RowCursor cursor_;
  bool is_double_;
  std::vector<double> exact_;
};

class NpySparseFeatureStream final : public FeatureStream {
 public:
  NpySparseFeatureStream(SparseArrays const& arrays, Range rows, std::int64_t num_columns,
                         std::int64_t batch_rows)
      : indptr_(arrays.indptr()),
        indices_(arrays.indices()),
        data_(arrays.data()),
        num_columns_(num_columns),
        cursor_(rows, batch_rows) {}

  Progress progress() const override { return cursor_.progress(); }

  bool next(FeatureBatch& batch) override {
    batch.rows = cursor_.advance();
    auto const num_rows = static_cast<std::size_t>(batch.rows.size());
    batch.offsets.resize(num_rows + 1);
    indptr_.read(batch.rows.begin, std::span(batch.offsets));
    check_offsets(batch);
    auto const first = batch.offsets.front();
    auto const count = static_cast<std::size_t>(batch.offsets.back() - first);
    ids_.resize(count);
    indices_.read(first, std::span(ids_));
    batch.values.resize(count);
    data_.read(first, std::span(batch.values));
    check_finite(data_, batch.values, first, "feature");
    check_columns(first);
    batch.columns.assign(ids_.begin(), ids_.end());
    for (auto& offset : batch.offsets)
      offset -= first;
    for (std::size_t row = 0; row < num_rows; ++row)
      sort_row(batch, row, first);
    return num_rows > 0;
  }

 private:
  void check_offsets(FeatureBatch const& batch) const {
    auto const& offsets = batch.offsets;
    bool const fits = offsets.front() >= 0 && offsets.back() <= indices_.num_elements();
    auto const falls = std::ranges::adjacent_find(offsets, std::greater<>());
    if (fits && falls == offsets.end()) return;
    auto const place =
        falls == offsets.end() ? batch.rows.end : batch.rows.begin + (falls - offsets.begin()) + 1;
    throw_user("{}: offset at element {} (byte {}) is wrong: offsets ascend from 0 to {}", indptr_.name(),
               place, indptr_.byte_of(place), indices_.num_elements());
  }
  void check_columns(std::int64_t first) const {
    auto const bad = std::ranges::find_if(ids_, [&](auto id) { return id < 0 || id >= num_columns_; });
    if (bad == ids_.end()) return;
    auto const element = first + (bad - ids_.begin());
    throw_user("{}: column {} at element {} (byte {}) is out of range: there are {} features",
               indices_.name(), *bad, element, indices_.byte_of(element), num_columns_);
  }
  /// Sorts the columns of a row. Throws UserError if a column occurs twice.
  void sort_row(FeatureBatch& batch, std::size_t row, std::int64_t first) {
    auto const begin = static_cast<std::size_t>(batch.offsets[row]);
    auto const length = static_cast<std::size_t>(batch.offsets[row + 1]) - begin;
    auto const columns = std::span(batch.columns).subspan(begin, length);
    auto const values = std::span(batch.values).subspan(begin, length);
    if (!std::ranges::is_sorted(columns)) {
      std::vector<std::size_t> order(length);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::ranges::sort(order, {}, [&](auto i) { return columns[i]; });
      std::vector<std::int32_t> const old_columns(columns.begin(), columns.end());
      std::vector<float> const old_values(values.begin(), values.end());
      for (std::size_t i = 0; i < length; ++i) {
        columns[i] = old_columns[order[i]];
        values[i] = old_values[order[i]];
      }
    }
    auto const twice = std::ranges::adjacent_find(columns);
    if (twice != columns.end())
      throw_user("{}: row {} (elements from {} on) has column {} twice", indices_.name(),
                 batch.rows.begin + static_cast<std::int64_t>(row), first + batch.offsets[row], *twice);
  }

  NpyArray indptr_;
  NpyArray indices_;
  NpyArray data_;
  std::int64_t num_columns_;
  RowCursor cursor_;
  std::vector<std::int64_t> ids_;
};

class NpyLabelStream final : public LabelStream {
 public:
  NpyLabelStream(OpenArray const& labels, Range rows, std::int64_t num_classes, std::int64_t batch_rows)
      : array_(labels()),
        num_columns_(array_.shape().size() == 2 ? array_.shape()[1] : 1),
        num_classes_(num_classes),
        cursor_(rows, batch_rows) {}

  Progress progress() const override { return cursor_.progress_of(array_); }

  bool next(LabelBatch& batch) override {
    batch.rows = cursor_.advance();
    auto const count = static_cast<std::size_t>(batch.rows.size() * num_columns_);
    auto const first = batch.rows.begin * num_columns_;
    numbers_.resize(count);
    if (array_.is_integer()) {
      array_.read(first, std::span(numbers_));
    } else {
      reals_.resize(count);
      array_.read(first, std::span(reals_));
      for (std::size_t i = 0; i < count; ++i)
        numbers_[i] = to_label(reals_[i], first + static_cast<std::int64_t>(i));
    }
    std::ranges::replace_if(
        numbers_, [](auto label) { return is_no_label(label); }, -1);
    auto const limit = num_columns_ == 1 ? num_classes_ : 2;
    auto const bad = std::ranges::find_if(numbers_, [&](auto label) { return label < -1 || label >= limit; });
    if (bad != numbers_.end()) fail(fmt::to_string(*bad), first + (bad - numbers_.begin()));
    if (num_columns_ == 1)
      batch.classes = numbers_;
    else
      batch.indicator.assign(numbers_.begin(), numbers_.end());
    return batch.rows.size() > 0;
  }

 private:
  std::int64_t to_label(double value, std::int64_t element) const {
    if (std::isnan(value)) return -1;
    if (value != std::floor(value) || std::abs(value) > 0x1p53) fail(fmt::to_string(value), element);
    return static_cast<std::int64_t>(value);
  }
  [[noreturn]] void fail(std::string const& label, std::int64_t element) const {
    throw_user("{}: label {} at element {} (byte {}) is out of range: 0 to {}, or nan, -1 or -100 for none",
               array_.name(), label, element, array_.byte_of(element),
               (num_columns_ == 1 ? num_classes_ : 2) - 1);
  }

  NpyArray array_;
  std::int64_t num_columns_;
  std::int64_t num_classes_;
  RowCursor cursor_;
  std::vector<std::int64_t> numbers_;
  std::vector<double> reals_;
};

} // namespace

std::unique_ptr<EdgeStream> read_npy_edges(EndArrays const& ends, OpenArray const& weights, Range edges,
                                           std::int64_t num_vertices, std::int64_t batch_size) {
  return std::make_unique<NpyEdgeStream>(ends, weights, edges, num_vertices, batch_size);
}

std::unique_ptr<FeatureStream> read_npy_features(OpenArray const& features, Range rows,
                                                 std::int64_t batch_rows) {
  return std::make_unique<NpyFeatureStream>(features, rows, batch_rows);
}

std::unique_ptr<FeatureStream> read_npy_sparse_features(SparseArrays const& arrays, Range rows,
                                                        std::int64_t num_columns, std::int64_t batch_rows) {
  return std::make_unique<NpySparseFeatureStream>(arrays, rows, num_columns, batch_rows);
}

std::unique_ptr<LabelStream> read_npy_labels(OpenArray const& labels, Range rows, std::int64_t num_classes,
                                             std::int64_t batch_rows) {
  return std::make_unique<NpyLabelStream>(labels, rows, num_classes, batch_rows);
}

Range npy_share(NpyArray const& array, std::int64_t count, Share share) {
  if (array.has_random_access()) return runtime::balanced_range(count, share.count, share.index);
  return share.index == 0 ? Range{0, count} : Range{0, 0};
}

void check_sparse_arrays(SparseArrays const& arrays, std::int64_t num_rows) {
  auto indptr = arrays.indptr();
  auto const indices = arrays.indices();
  auto const data = arrays.data();
  if (!indptr.is_list() || indptr.num_elements() != num_rows + 1)
    indptr.fail_shape(fmt::format("[{}]", num_rows + 1));
  if (!indices.is_list()) indices.fail_shape("[entries]");
  if (!data.is_list()) data.fail_shape("[entries]");
  if (indices.num_elements() != data.num_elements())
    indices.fail_shape(fmt::format("{}, as {} has,", to_string(data.shape()), data.name()));
  std::array<std::int64_t, 2> ends{};
  indptr.read(0, std::span(ends).first(1));
  indptr.read(num_rows, std::span(ends).last(1));
  if (ends[0] != 0 || ends[1] != indices.num_elements())
    throw_user("{}: the offsets go from {} to {}; they must go from 0 to {}, the number of entries",
               indptr.name(), ends[0], ends[1], indices.num_elements());
}

std::vector<std::int64_t> read_npy_vertices(NpyArray array, Share share, std::int64_t num_vertices) {
  if (!array.is_list()) array.fail_shape("[vertices]");
  auto const range = runtime::balanced_range(array.num_elements(), share.count, share.index);
  std::vector<std::int64_t> vertices(static_cast<std::size_t>(range.size()));
  array.read(range.begin, std::span(vertices));
  check_ids(array, vertices, range.begin, num_vertices);
  return vertices;
}

SplitShare read_npy_split(NpyArray array, Range rows) {
  std::vector<std::int64_t> types(static_cast<std::size_t>(rows.size()));
  array.read(rows.begin, std::span(types));
  SplitShare split;
  std::array const lists{&split.train, &split.valid, &split.test};
  for (auto vertex = rows.begin; vertex < rows.end; ++vertex) {
    auto const type = types[static_cast<std::size_t>(vertex - rows.begin)];
    if (type < 0 || type > 3)
      throw_user("{}: {} at element {} (byte {}) is out of range: 1 train, 2 valid, 3 test, 0 none",
                 array.name(), type, vertex, array.byte_of(vertex));
    if (type > 0) lists[static_cast<std::size_t>(type - 1)]->push_back(vertex);
  }
  return split;
}

} // namespace orthant::graph
