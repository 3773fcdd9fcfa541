// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_reader.hpp"

#include "graph/store/store_arrays.hpp"
#include "graph/store/store_file.hpp"
#include "graph/store/store_verify.hpp"
#include "graph/store/tiled_matrix.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace orthant::graph {

using runtime::index;

struct GraphStore::State {
  explicit State(StoreFile opened) : file(std::move(opened)), facts_in_use(file.facts()) {}

  StoreFile file;
  StoreFacts facts_in_use; // facts of the file, with the chosen operator and split
  std::int64_t split = 0;

  [[nodiscard]] StoreFacts const& facts() const { return facts_in_use; }

  /// Name of an array in a group with one folder per order. A single order's folder is p1.
  [[nodiscard]] std::string array(char const* group, Order order, char const* leaf) const {
    bool const is_p2 = order == Order::p2 && facts().has_two_orders();
    return std::string(group) + (is_p2 ? "/p2" : "/p1") + leaf;
  }

  [[nodiscard]] TiledMatrix matrix(std::string const& name) const {
    auto const groups = tiled_groups(file.facts());
    auto group = *std::ranges::find(groups, name, &TiledGroup::group);
    if (facts().num_edge_features == 0) group.num_edge_features = 0;
    return {file, std::move(group)};
  }

  /// The rows in `order` of the columns of sparse features, which are stored only in order p2.
  [[nodiscard]] std::vector<float> dense_from_sparse(GraphStore const& store, Order order, Range rows,
                                                     Range columns) const {
    bool const is_contiguous = order == Order::p2 || !facts().has_two_orders();
    auto const wanted = is_contiguous ? rows : Range{0, facts().num_vertices};
    auto const block = matrix("/features/sparse").read(wanted, columns);
    auto const places = is_contiguous ? std::vector<std::int64_t>() : store.read_other_positions(order, rows);
    std::vector<float> result(index(rows.size() * columns.size()));
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      auto const row = index(is_contiguous ? i : places[index(i)]);
      for (auto k = block.row_offsets[row]; k < block.row_offsets[row + 1]; ++k)
        result[index(i * columns.size() + block.columns[index(k)])] =
            block.values.empty() ? 1.0F : block.values[index(k)];
    }
    return result;
  }

  /// The rows in `order` of a row of the dense features, which are stored only in order p2: read contiguously, or gathered.
  template<class Number>
  [[nodiscard]] std::vector<Number> gather_features(GraphStore const& store, char const* name,
                                                    std::int64_t column, Order order, Range rows) const {
    bool const is_contiguous = order == Order::p2 || !facts().has_two_orders();
    auto const wanted = is_contiguous ? rows : Range{0, facts().num_vertices};
    auto stored = read_checked<Number>(file, name, column, wanted);
    require_finite(file, name, std::span<Number const>(stored), wanted.begin);
    if (is_contiguous) return stored;
    auto const places = store.read_other_positions(order, rows);
    std::vector<Number> result(places.size());
    std::transform(places.begin(), places.end(), result.begin(),
                   [&](std::int64_t place) { return stored[static_cast<std::size_t>(place)]; });
    return result;
  }

  /// A rectangle of this array, row-major.
  template<class Number>
  [[nodiscard]] std::vector<Number> gather_columns(GraphStore const& store, char const* name, Order order,
                                                   Range rows, Range columns) const {
    auto const width = columns.size();
    std::vector<Number> result(index(rows.size() * width));
    for (auto column = columns.begin; column < columns.end; ++column) {
      auto* to = result.data() + (column - columns.begin);
      for (auto const value : gather_features<Number>(store, name, column, order, rows)) {
        *to = value;
        to += width;
      }
    }
    return result;
  }
};

GraphStore::GraphStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
GraphStore::GraphStore(GraphStore&&) noexcept = default;
GraphStore& GraphStore::operator=(GraphStore&&) noexcept = default;
GraphStore::~GraphStore() = default;

GraphStore GraphStore::open(runtime::Communicator const& comm, std::filesystem::path const& path) {
  return GraphStore(std::make_unique<State>(StoreFile::open(comm, path)));
}

GraphStore GraphStore::from_file(runtime::Hdf5File file) {
  return GraphStore(std::make_unique<State>(StoreFile::take(std::move(file))));
}

StoreFacts const& GraphStore::facts() const {
  return state_->facts();
}
void GraphStore::set_operator(GraphOperator const& graph_operator) {
  auto const& [normalization, self_loops] = graph_operator;
  if (normalization != Normalization::none && self_loops == SelfLoops::as_given)
    runtime::throw_user(
        "--self-loops keep needs --normalize none: rows are normalized by degrees without self loops, or "
        "with one that is added; give --self-loops add or drop");
  state_->facts_in_use.normalization = normalization;
  state_->facts_in_use.other_self_loops = self_loops;
}
void GraphStore::ignore_weights() {
  state_->facts_in_use.is_weighted = false;
}
void GraphStore::ignore_edge_features() {
  state_->facts_in_use.num_edge_features = 0;
}
bool GraphStore::ignores_edge_features() const {
  return state_->file.facts().num_edge_features != facts().num_edge_features;
}
bool GraphStore::ignores_weights() const {
  return state_->file.facts().is_weighted && !facts().is_weighted;
}
void GraphStore::make_features_dense() {
  if (facts().feature_kind == FeatureKind::sparse) state_->facts_in_use.feature_kind = FeatureKind::dense;
}
std::string const& GraphStore::name() const {
  return state_->file.name();
}
std::int64_t GraphStore::bytes_read() const {
  return state_->file.bytes_read();
}

CsrBlock GraphStore::read_block(Parity parity, Range rows, Range columns, SelfLoops self_loops) const {
  ORTHANT_REQUIRE(columns.size() <= std::int64_t{1} << 31, "a block of ", columns.size(), " columns");
  auto const n = facts().num_vertices;
  ORTHANT_REQUIRE(0 <= rows.begin && rows.end <= n && 0 <= columns.begin && columns.end <= n);
  auto block = [&] {
    if (parity == Parity::odd && facts().has_odd_topology())
      return state_->matrix("/topology/odd").read(rows, columns);
    auto const even = state_->matrix("/topology/even");
    if (parity == Parity::even || !facts().has_two_orders()) return even.read(rows, columns);
    return transposed(even.read(columns, rows)); // A[p2, p1] = A[p1, p2]^T
  }();
  if (!facts().is_weighted) block.values.clear();
  bool const changes =
      self_loops == SelfLoops::added || (self_loops == SelfLoops::dropped && facts().num_self_loops > 0);
  if (!changes) return block;
  auto const means = self_loops == SelfLoops::added && facts().num_edge_features > 0
                         ? read_edge_feature_means(row_order(parity), rows)
                         : std::vector<double>();
  return with_self_loops(block, read_other_positions(row_order(parity), rows), self_loops, means);
}

CsrBlock GraphStore::read_block(Parity parity, Range rows, Range columns) const {
  return read_block(parity, rows, columns, facts().graph_operator().self_loops);
}

Scales GraphStore::read_scales(Parity parity, Range rows, Range columns) const {
  if (facts().normalization == Normalization::none) return {};
  auto const sums = [&](Order order, Range range) {
    std::vector<double> result;
    if (facts().is_weighted) {
      result = read_weight_sums(order, range);
    } else {
      auto const degrees = read_degrees(order, range);
      result.assign(degrees.begin(), degrees.end());
    }
    for (auto& sum : result)
      sum += facts().adds_self_loops() ? 1 : 0;
    return result;
  };
  // An isolated vertex gets scale 0. All others have sums that can be inverted (checks/operator_check.hpp).
  auto const power = [](std::vector<double> values, bool is_root) {
    for (auto& value : values)
      value = (is_root ? value > 0 : value != 0) ? 1 / (is_root ? std::sqrt(value) : value) : 0;
    return values;
  };
  if (facts().normalization == Normalization::row) return {power(sums(row_order(parity), rows), false), {}};
  return {power(sums(row_order(parity), rows), true), power(sums(column_order(parity), columns), true)};
}

std::vector<float> GraphStore::read_features(Order order, Range rows, Range columns) const {
  ORTHANT_REQUIRE(facts().feature_kind == FeatureKind::dense, name(), " has no dense features");
  if (state_->file.facts().feature_kind == FeatureKind::sparse)
    return state_->dense_from_sparse(*this, order, rows, columns);
  return state_->gather_columns<float>(*this, "/features/dense", order, rows, columns);
}

std::vector<float> GraphStore::read_feature_remainders(Order order, Range rows, Range columns) const {
  ORTHANT_REQUIRE(facts().features_have_remainders, name(), " has no remainders of features");
  return state_->gather_columns<float>(*this, "/features/remainders", order, rows, columns);
}

CsrBlock GraphStore::read_sparse_features(Range rows, Range columns) const {
  ORTHANT_REQUIRE(facts().feature_kind == FeatureKind::sparse, name(), " has no sparse features");
  return state_->matrix("/features/sparse").read(rows, columns);
}

std::vector<std::int32_t> GraphStore::read_labels(Order order, Range rows) const {
  ORTHANT_REQUIRE(facts().label_kind == LabelKind::single, name(), " has no labels of one class a vertex");
  auto const name = state_->array("/labels", order, "");
  auto labels = read_checked<std::int32_t>(state_->file, name, 0, rows);
  require_between(state_->file, name, std::span<std::int32_t const>(labels), rows.begin, std::int32_t{-1},
                  static_cast<std::int32_t>(facts().num_classes - 1));
  return labels;
}

std::vector<std::int8_t> GraphStore::read_label_indicator(Order order, Range rows, Range classes) const {
  ORTHANT_REQUIRE(facts().label_kind == LabelKind::multi, name(),
                  " has no labels of several classes a vertex");
  std::vector<std::int8_t> result(index(rows.size() * classes.size()));
  auto const name = state_->array("/labels", order, "");
  for (auto column = classes.begin; column < classes.end; ++column) {
    auto const values = read_checked<std::int8_t>(state_->file, name, column, rows);
    require_between(state_->file, name, std::span<std::int8_t const>(values), rows.begin, std::int8_t{-1},
                    std::int8_t{1});
    for (std::size_t row = 0; row < values.size(); ++row)
      result[row * index(classes.size()) + index(column - classes.begin)] = values[row];
  }
  return result;
}

std::vector<double> GraphStore::read_targets(Order order, Range rows, Range columns) const {
  ORTHANT_REQUIRE(facts().label_kind == LabelKind::real, name(), " has no targets of regression");
  std::vector<double> result(index(rows.size() * columns.size()));
  auto const name = state_->array("/labels", order, "");
  for (auto column = columns.begin; column < columns.end; ++column) {
    auto const values = read_checked<double>(state_->file, name, column, rows);
    for (std::size_t row = 0; row < values.size(); ++row) {
      if (std::isinf(values[row]))
        runtime::throw_user("{} is damaged: {} has an infinite number", this->name(), name);
      result[row * index(columns.size()) + index(column - columns.begin)] = values[row];
    }
  }
  return result;
}

void GraphStore::use_split(std::int64_t number) {
  auto& facts = state_->facts_in_use;
  auto const count = facts.num_splits();
  if (number > 0 && number >= count)
    runtime::throw_user("--split {}: {} has {}{}", number, name(),
                        count == 0   ? std::string("no split")
                        : count == 1 ? fmt::format("one split, '{}', which is number 0", facts.split_name)
                                     : fmt::format("{} splits, numbers 0 to {}", count, count - 1),
                        count == 1 ? "; partition stores several from masks [vertices, splits]" : "");
  state_->split = number;
  if (count > 1) facts.split_sizes = facts.sizes_of_splits[index(number)];
}

std::vector<std::uint8_t> GraphStore::read_split(std::int64_t number, Order order, Range rows) const {
  auto const name = state_->array("/split", order, "");
  auto bits = read_checked<std::uint8_t>(state_->file, name, number, rows);
  constexpr std::uint8_t most_bits = 1U << static_cast<unsigned>(Split::test);
  require_between(state_->file, name, std::span<std::uint8_t const>(bits), rows.begin, std::uint8_t{0},
                  most_bits);
  if (std::ranges::any_of(bits, [](std::uint8_t bit) { return std::popcount(bit) > 1; }))
    runtime::throw_user("{} is damaged: {} puts a vertex in two parts of the split", this->name(), name);
  return bits;
}

std::vector<std::uint8_t> GraphStore::read_mask(Split split, Order order, Range rows) const {
  if (!facts().has_split) return std::vector<std::uint8_t>(index(rows.size()));
  auto bits = read_split(state_->split, order, rows);
  for (auto& bit : bits)
    bit = bit >> static_cast<int>(split) & 1U;
  return bits;
}

std::vector<std::int64_t> GraphStore::read_original_ids(Order order, Range rows) const {
  return read_integers(state_->file, state_->array("/vertices", order, "/original_ids"), rows, 0,
                       facts().num_vertices - 1);
}

std::vector<std::int64_t> GraphStore::read_other_positions(Order order, Range rows) const {
  if (facts().has_two_orders())
    return read_integers(state_->file, state_->array("/vertices", order, "/positions_in_other_order"), rows,
                         0, facts().num_vertices - 1);
  std::vector<std::int64_t> same(index(rows.size()));
  for (std::size_t i = 0; i < same.size(); ++i)
    same[i] = rows.begin + static_cast<std::int64_t>(i);
  return same;
}

std::vector<double> GraphStore::read_weight_sums(Order order, Range rows) const {
  ORTHANT_REQUIRE(facts().is_weighted, name(), " has no weights");
  auto const name = state_->array("/vertices", order, "/weight_sums");
  auto sums = read_checked<double>(state_->file, name, 0, rows);
  require_finite(state_->file, name, std::span<double const>(sums), rows.begin);
  return sums;
}

std::vector<double> GraphStore::read_edge_feature_means(Order order, Range rows) const {
  ORTHANT_REQUIRE(facts().num_edge_features > 0, name(), " has no features of edges");
  return state_->gather_columns<double>(*this, "/vertices/edge_feature_means", order, rows,
                                        {0, facts().num_edge_features});
}

std::vector<std::int64_t> GraphStore::read_degrees(Order order, Range rows) const {
  return read_integers(state_->file, state_->array("/vertices", order, "/degrees"), rows, 0,
                       facts().max_degree);
}

std::vector<std::string> GraphStore::read_vertex_names(Range ids) const {
  ORTHANT_REQUIRE(facts().has_vertex_names(), name(), " has no names of vertices");
  return read_names(state_->file, "/vertices/names", ids);
}

std::vector<std::int32_t> GraphStore::read_clusters(Order order, Range rows) const {
  ORTHANT_REQUIRE(facts().num_clusters > 0, name(), " has no clusters");
  auto const name = state_->array("/vertices", order, "/clusters");
  auto clusters = read_checked<std::int32_t>(state_->file, name, 0, rows);
  require_between(state_->file, name, std::span<std::int32_t const>(clusters), rows.begin, std::int32_t{0},
                  static_cast<std::int32_t>(facts().num_clusters - 1));
  return clusters;
}

std::vector<Edge> GraphStore::read_links(Split part, LinkKind kind, Range places) const {
  auto const array = links_array(part, kind);
  auto const count = facts().num_held_out[static_cast<std::size_t>(part)];
  ORTHANT_REQUIRE(0 <= places.begin && places.end <= count, name(), " has ", count, " links in ", array);
  auto const ends = [&](std::int64_t row) {
    return read_integers(state_->file, array, places, 0, facts().num_vertices - 1, row);
  };
  auto const sources = ends(0);
  auto const targets = ends(1);
  std::vector<Edge> links(sources.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    links[i] = {sources[i], targets[i]};
    if (sources[i] == targets[i] || (i > 0 && !(links[i - 1] < links[i])))
      runtime::throw_user(
          "{} is damaged: {} has at place {} a link from a vertex to itself, or one out of order", name(),
          array, places.begin + static_cast<std::int64_t>(i));
  }
  return links;
}

void GraphStore::verify(runtime::Communicator const& comm) const {
  verify_store(comm, state_->file, *this);
}

} // namespace orthant::graph
