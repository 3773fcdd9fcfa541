// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_verify.hpp"

#include "graph/store/distribution.hpp"
#include "graph/store/store_arrays.hpp"
#include "graph/store/tiled_matrix.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <fmt/format.h>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

using runtime::all_reduced;
using runtime::Communicator;
using runtime::index;
using runtime::throw_user;
using runtime::together;

namespace {

/// The last step of SplitMix64: every bit of the argument changes half of the bits of the result.
std::uint64_t hash(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
/// Hash of an ordered list of numbers.
template<class... Numbers>
std::uint64_t hash_of(Numbers... numbers) {
  std::uint64_t state = 0;
  ((state = hash(state ^ static_cast<std::uint64_t>(numbers))), ...);
  return state;
}

/// Two sums that must be equal once all ranks have added their parts.
struct Claim {
  std::string denial; // error text if they differ
  std::uint64_t left = 0;
  std::uint64_t right = 0;
};

class Verifier {
 public:
  Verifier(Communicator const& comm, StoreFile const& file, GraphStore const& store)
      : comm_(comm),
        file_(file),
        store_(store),
        facts_(store.facts()) {}

  void run() {
    together(comm_, [&] {
      check_checksums();
      check_links();
      if (facts_.has_vertex_names())
        for_each_piece([&](Range ids) { static_cast<void>(store_.read_vertex_names(ids)); });
      compare_positions();
      compare_attributes();
      for (auto const& group : tiled_groups(facts_))
        check_matrix(group);
      compare_matrices();
      compare_edge_feature_means();
    });
    conclude();
  }

 private:
  /// Sums of one matrix's entries.
  struct MatrixSums {
    std::uint64_t entries = 0;    // hash of (row's id, column's id, value or relation)
    std::uint64_t transposed = 0; // hash of (column's id, row's id, value or relation)
    std::uint64_t relations = 0;  // hash of the relation
    std::uint64_t rows = 0;       // hash of the row's position, without self loops
    std::int64_t num_self_loops = 0;
  };
  /// Sums over the entries of a matrix without self loops, of a pseudo-random factor of the row times a number, less those of stored sums.
  struct RowSums {
    double difference = 0;
    double size = 0;

    /// Adds numbers of the row of this vertex, times `factor`.
    template<class Number>
    void add(std::int64_t id, double factor, std::span<Number const> numbers) {
      for (auto const number : numbers) {
        auto const term = factor_of(id++) * factor * static_cast<double>(number);
        difference += term;
        size += std::abs(term);
      }
    }
  };

  [[nodiscard]] std::vector<Order> orders() const {
    return facts_.has_two_orders() ? std::vector{Order::p1, Order::p2} : std::vector{Order::p1};
  }
  [[nodiscard]] static std::string name_of(Order order) { return order == Order::p1 ? "p1" : "p2"; }
  /// The factor of a row in RowSums, in [1/2, 1).
  [[nodiscard]] static double factor_of(std::int64_t row) {
    return 0.5 + static_cast<double>(hash(static_cast<std::uint64_t>(row)) >> 11) * 0x1p-54;
  }

  /// Calls visit(rows) for this rank's positions, in pieces.
  template<class Visit>
  void for_each_piece(Visit&& visit) const {
    auto const mine = PositionOwners{facts_.num_vertices, comm_.size()}.range(comm_.rank());
    constexpr std::int64_t at_once = std::int64_t{1} << 18;
    for (auto begin = mine.begin; begin < mine.end; begin += at_once)
      visit(Range{begin, std::min(mine.end, begin + at_once)});
  }
  void claim(std::string denial, std::uint64_t left, std::uint64_t right) {
    claims_.push_back({std::move(denial), left, right});
  }
  /// Adds the claim that the counts of all ranks add up to a number of the facts. Only rank 0 contributes this number.
  void claim_fact(std::string const& fact, std::uint64_t counted, std::int64_t said) {
    claim(fmt::format("the facts say that {} is {}, but the arrays hold another number", fact, said), counted,
          comm_.is_root() ? static_cast<std::uint64_t>(said) : 0);
  }

  void check_checksums() const {
    for (auto const& name : plain_array_names(facts_))
      check_array_part(file_, name, comm_.rank(), comm_.size());
    for (auto const& group : tiled_groups(facts_))
      TiledMatrix(file_, group).check_tables(comm_.rank(), comm_.size());
  }

  /// Checks that the ends of links are vertices, and that no link has two equal ends.
  void check_links() const {
    for (auto const part : {Split::valid, Split::test}) {
      auto const count = facts_.num_held_out[static_cast<std::size_t>(part)];
      if (count == 0) continue;
      auto const places = PositionOwners{count, comm_.size()}.range(comm_.rank());
      for (auto const kind : {LinkKind::positive, LinkKind::negative})
        static_cast<void>(store_.read_links(part, kind, places));
    }
  }

  void compare_positions() {
    for (auto const order : orders()) {
      std::uint64_t ids_sum = 0;
      std::uint64_t all_sum = 0;
      std::uint64_t led_sum = 0;
      std::uint64_t there_sum = 0;
      for_each_piece([&](Range rows) {
        auto const ids = store_.read_original_ids(order, rows);
        auto const others = store_.read_other_positions(order, rows);
        auto const ids_there = store_.read_original_ids(other(order), rows);
        for (std::size_t i = 0; i < ids.size(); ++i) {
          auto const position = rows.begin + static_cast<std::int64_t>(i);
          ids_sum += hash_of(ids[i]);
          all_sum += hash_of(position);
          led_sum += hash_of(others[i], ids[i]);
          there_sum += hash_of(position, ids_there[i]);
        }
      });
      auto const vertices = "/vertices/" + name_of(order);
      claim(vertices + "/original_ids does not hold every vertex once", ids_sum, all_sum);
      claim(vertices + "/positions_in_other_order does not lead to the same vertices", led_sum, there_sum);
    }
  }

  /// Hash of the parts of a split at these positions, whose sizes are added to `sizes`.
  [[nodiscard]] std::uint64_t sum_of_split(std::int64_t number, Order order, Range rows,
                                           std::span<std::int64_t const> ids,
                                           std::array<std::int64_t, 3>& sizes) const {
    auto const bits = store_.read_split(number, order, rows);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      sum += hash_of(ids[i], number, bits[i]);
      for (std::size_t part = 0; part < sizes.size(); ++part)
        sizes[part] += bits[i] >> part & 1U;
    }
    return sum;
  }

  /// Compares the data that both orders have about a vertex: degree, sum of weights, labels, parts of the split.
  void compare_attributes() {
    auto const n_classes = facts_.label_kind == LabelKind::multi ? facts_.num_classes : 0;
    constexpr std::array<char const*, 5> what{"/degrees", "/weight_sums", "/labels", "/split", "/clusters"};
    std::array<std::array<std::uint64_t, 5>, 2> sums{};
    for (auto const order : orders()) {
      auto& sum = sums[static_cast<std::size_t>(order)];
      std::int64_t num_labelled = 0;
      std::vector<std::array<std::int64_t, 3>> sizes(static_cast<std::size_t>(facts_.num_splits()));
      auto& rows_sum = degrees_by_row_[static_cast<std::size_t>(order)];
      for_each_piece([&](Range rows) {
        auto const ids = store_.read_original_ids(order, rows);
        auto const degrees = store_.read_degrees(order, rows);
        for (std::size_t i = 0; i < ids.size(); ++i) {
          sum[0] += hash_of(ids[i], degrees[i]);
          rows_sum +=
              static_cast<std::uint64_t>(degrees[i]) * hash_of(rows.begin + static_cast<std::int64_t>(i));
          max_degree_ = std::max(max_degree_, degrees[i]);
        }
        if (facts_.is_weighted) {
          auto const name = "/vertices/" + name_of(order) + "/weight_sums";
          auto const weights = read_checked<double>(file_, name, 0, rows);
          for (std::size_t i = 0; i < ids.size(); ++i) {
            sum[1] += hash_of(ids[i], std::bit_cast<std::uint64_t>(weights[i]));
            if (order == Order::p1) weights_.add(ids[i], -1, std::span(&weights[i], 1));
          }
        }
        if (facts_.num_clusters > 0) {
          auto const clusters = store_.read_clusters(order, rows);
          for (std::size_t i = 0; i < ids.size(); ++i)
            sum[4] += hash_of(ids[i], clusters[i]);
        }
        std::vector<bool> is_labelled(ids.size());
        auto const take_labels = [&]<class Number>(std::int64_t column, std::vector<Number> const& labels) {
          for (std::size_t i = 0; i < ids.size(); ++i) {
            if constexpr (std::is_same_v<Number, double>)
              sum[2] += hash_of(ids[i], column, std::bit_cast<std::uint64_t>(labels[i]));
            else
              sum[2] += hash_of(ids[i], column, labels[i]);
            if (std::is_same_v<Number, double> ? !std::isnan(labels[i]) : labels[i] >= 0)
              is_labelled[i] = true;
          }
        };
        if (facts_.label_kind == LabelKind::single) take_labels(0, store_.read_labels(order, rows));
        for (std::int64_t c = 0; c < n_classes; ++c)
          take_labels(c, store_.read_label_indicator(order, rows, {c, c + 1}));
        for (std::int64_t c = 0; facts_.label_kind == LabelKind::real && c < facts_.num_classes; ++c)
          take_labels(c, store_.read_targets(order, rows, {c, c + 1}));
        num_labelled += std::ranges::count(is_labelled, true);
        for (std::size_t number = 0; number < sizes.size(); ++number)
          sum[3] += sum_of_split(static_cast<std::int64_t>(number), order, rows, ids, sizes[number]);
      });
      claim_fact("num_labelled", static_cast<std::uint64_t>(num_labelled), facts_.num_labelled);
      for (std::size_t number = 0; number < sizes.size(); ++number)
        for (std::size_t part = 0; part < 3; ++part)
          claim_fact(fmt::format("the size of split '{}'{}", graph::name_of(static_cast<Split>(part)),
                                 sizes.size() > 1 ? fmt::format(" number {}", number) : ""),
                     static_cast<std::uint64_t>(sizes[number][part]),
                     sizes.size() > 1 ? facts_.sizes_of_splits[number][part] : facts_.split_sizes[part]);
    }
    if (!facts_.has_two_orders()) return;
    for (std::size_t i = 0; i < what.size(); ++i)
      claim(fmt::format("orders p1 and p2 disagree on {}", what[i]), sums[0][i], sums[1][i]);
  }

  void check_matrix(TiledGroup const& group) {
    TiledMatrix const matrix(file_, group);
    if (group.group == "/topology/even")
      sum_entries(matrix, Order::p1, matrices_[0]);
    else if (group.group == "/topology/odd")
      sum_entries(matrix, Order::p2, matrices_[1]);
    else
      for_each_tile_run(matrix, [](auto&&...) {});
  }

  /// Calls visit(table, entries) over this rank's tile rows, for some tile columns at a time, so that the data of columns in memory stay
  /// small.
  template<class Visit>
  void for_each_tile_run(TiledMatrix const& matrix, Visit&& visit) const {
    auto const& grid = matrix.grid();
    auto const tile_rows = tile_rows_of_rank(grid.rows.num_parts, comm_.size(), comm_.rank());
    constexpr std::int64_t columns_at_once = std::int64_t{1} << 20;
    auto const side = std::max<std::int64_t>(1, grid.columns.size(0));
    auto const step = std::max<std::int64_t>(1, columns_at_once / side);
    TileEntries entries;
    for (std::int64_t j = 0; j < grid.columns.num_parts; j += step) {
      Range const tile_columns{j, std::min(grid.columns.num_parts, j + step)};
      for (auto i = tile_rows.begin; i < tile_rows.end; ++i) {
        auto const table = matrix.read_table(i, tile_columns);
        matrix.read_entries(table, entries);
        visit(table, entries);
      }
    }
  }

  void sum_entries(TiledMatrix const& matrix, Order row_order, MatrixSums& sums) {
    auto const& grid = matrix.grid();
    std::int64_t first_column = -1;
    std::vector<std::int64_t> column_ids;
    for_each_tile_run(matrix, [&](TileRow const& table, TileEntries const& entries) {
      auto const columns_begin = grid.columns.begin(table.tile_columns.begin);
      if (columns_begin != first_column) {
        first_column = columns_begin;
        column_ids = store_.read_original_ids(other(row_order),
                                              {columns_begin, grid.columns.begin(table.tile_columns.end)});
      }
      auto const rows = grid.rows.range(table.tile_row);
      auto const row_ids = store_.read_original_ids(row_order, rows);
      for (std::size_t j = 0; j < table.sums.size(); ++j) {
        auto const tile_column = table.tile_columns.begin + static_cast<std::int64_t>(j);
        auto const corner = grid.columns.begin(tile_column) - columns_begin;
        for (auto k = table.offsets[j]; k < table.offsets[j + 1]; ++k) {
          auto const at = k - table.offsets.front();
          auto const entry = unpack(entries.packed[at]);
          auto const row_id = row_ids[entry.row];
          auto const column_id = column_ids[index(corner) + entry.column];
          auto const value = matrix.has_values() ? entries.values[at] : 1.0F;
          std::uint64_t bits = matrix.has_relations() ? std::uint32_t{entries.relations[at]}
                                                      : std::bit_cast<std::uint32_t>(value);
          if (matrix.has_relations()) sums.relations += hash_of(bits);
          auto const width = index(matrix.num_features());
          auto const features = std::span(entries.features).subspan(at * width, width);
          for (auto const feature : features)
            bits = hash_of(bits, std::bit_cast<std::uint32_t>(feature));
          sums.entries += hash_of(row_id, column_id, bits);
          sums.transposed += hash_of(column_id, row_id, bits);
          sums.num_self_loops += row_id == column_id;
          if (row_id == column_id) continue;
          sums.rows += hash_of(rows.begin + entry.row);
          if (row_order != Order::p1) continue;
          weights_.add(row_id, 1, std::span(&value, 1));
          features_.add(row_id, 1, features);
        }
      }
    });
  }

  void compare_edge_feature_means() {
    auto const width = index(facts_.num_edge_features);
    if (width == 0) return;
    for_each_piece([&](Range rows) {
      auto const ids = store_.read_original_ids(Order::p2, rows);
      auto const degrees = store_.read_degrees(Order::p2, rows);
      auto const means = store_.read_edge_feature_means(Order::p2, rows);
      for (std::size_t i = 0; i < ids.size(); ++i)
        features_.add(ids[i], -static_cast<double>(degrees[i]), std::span(means).subspan(i * width, width));
    });
  }

  /// The sum of hashes of relations over all entries, computed from the stored counts. Only rank 0 adds it.
  [[nodiscard]] std::uint64_t sum_of_relations() const {
    std::uint64_t sum = 0;
    for (std::size_t r = 0; comm_.is_root() && r < facts_.relation_entries.size(); ++r)
      sum += static_cast<std::uint64_t>(facts_.relation_entries[r]) * hash_of(static_cast<std::uint32_t>(r));
    return sum;
  }

  void compare_matrices() {
    auto const& even = matrices_[0];
    auto const& odd = matrices_[1];
    claim_fact("num_self_loops", static_cast<std::uint64_t>(even.num_self_loops), facts_.num_self_loops);
    claim("/vertices/p1/degrees does not count the entries in the rows of /topology/even", even.rows,
          degrees_by_row_[0]);
    claim("/relations/num_entries does not count the entries of /topology/even by relation", even.relations,
          sum_of_relations());
    if (facts_.is_symmetric)
      claim("the facts say that the matrix is symmetric, but /topology/even is not", even.entries,
            even.transposed);
    if (!facts_.has_odd_topology()) return;
    claim("/topology/odd holds other entries than /topology/even", odd.entries, even.entries);
    claim("/vertices/p2/degrees does not count the entries in the rows of /topology/odd", odd.rows,
          degrees_by_row_[1]);
  }

  /// Adds the sums over the ranks, and throws for the first claim that does not hold. Collective.
  void conclude() {
    for (auto const& [denial, left, right] : claims_) {
      // The sums wrap, and so does their difference; MPI sums signed 64-bit integers.
      auto const difference = all_reduced(comm_, std::bit_cast<std::int64_t>(left - right));
      if (difference != 0) throw_user("{} is damaged: {}; partition the graph again", file_.name(), denial);
    }
    auto const max_degree = all_reduced(comm_, max_degree_, runtime::Reduction::max);
    if (max_degree != facts_.max_degree)
      throw_user(
          "{} is damaged: the facts say that max_degree is {}, but it is {}; partition the graph again",
          file_.name(), facts_.max_degree, max_degree);
    if (facts_.is_weighted) conclude(weights_, "/vertices/p1/weight_sums does not add up the values");
    conclude(features_, "/vertices/edge_feature_means does not hold the means of the features");
  }
  /// Sums of the same numbers in another order differ only by rounding.
  void conclude(RowSums const& sums, char const* denial) const {
    auto const difference = std::abs(all_reduced(comm_, sums.difference));
    auto const size = all_reduced(comm_, sums.size);
    constexpr double tolerance = 1e-9;
    if (!(difference <= tolerance * size))
      throw_user("{} is damaged: {} of /topology/even; partition the graph again", file_.name(), denial);
  }

  Communicator const& comm_;
  StoreFile const& file_;
  GraphStore const& store_;
  StoreFacts const& facts_;
  std::vector<Claim> claims_;
  std::array<MatrixSums, 2> matrices_{};          // even, odd
  std::array<std::uint64_t, 2> degrees_by_row_{}; // by order: degree times hash of the position
  RowSums weights_, features_; // over the even matrix, less weight_sums, and edge_feature_means times degrees
  std::int64_t max_degree_ = 0;
};

} // namespace

void verify_store(Communicator const& comm, StoreFile const& file, GraphStore const& store) {
  Verifier(comm, file, store).run();
}

} // namespace orthant::graph
