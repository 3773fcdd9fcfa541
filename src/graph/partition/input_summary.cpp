// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/input_summary.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>
#include <numeric>
#include <string_view>
#include <sys/statvfs.h>

namespace orthant::graph {
namespace {

std::vector<double> numbers_of(std::vector<std::int64_t> const& bits) {
  std::vector<double> numbers(bits.size());
  std::ranges::transform(bits, numbers.begin(), [](std::int64_t b) { return std::bit_cast<double>(b); });
  return numbers;
}

} // namespace

WeightSums::WeightSums(runtime::Communicator const& comm, Placement const& placement, Range rows)
    : placement_(placement),
      rows_(rows),
      selves_(other_positions_of_rows(comm, placement, rows)),
      weights_(selves_.size()) {}

std::vector<std::int64_t> WeightSums::in_order_p1(runtime::Communicator const& comm,
                                                  double RowWeights::*number) const {
  std::vector<std::int64_t> positions(weights_.size());
  std::iota(positions.begin(), positions.end(), rows_.begin);
  std::vector<std::int64_t> bits(weights_.size()); // to_positions can move any 64 bits
  std::ranges::transform(weights_, bits.begin(), [&](RowWeights const& weights) {
    return std::bit_cast<std::int64_t>(weights.*number);
  });
  return to_positions(comm, placement_.num_vertices, positions, bits);
}

OperatorCheck WeightSums::write(StoreWriter& writer, StoreFacts& facts) const {
  auto const& comm = writer.comm();
  auto const n = placement_.num_vertices;
  auto const& positions = placement_.of(Order::p1);
  auto const mine = PositionOwners{n, comm.size()}.range(comm.rank());
  auto const write_order = [&](Order order, std::vector<std::int64_t> const& bits) {
    auto const name = folder("/vertices", order) + "/weight_sums";
    writer.create_array(name, runtime::Hdf5Type::float64, {n});
    runtime::together(comm,
                      [&] { writer.write(name, 0, mine.begin, std::span<double const>(numbers_of(bits))); });
  };
  auto const sums = in_order_p1(comm, &RowWeights::sum);
  write_order(Order::p1, sums);
  if (placement_.has_two_orders) {
    auto const p2_of_p1 = to_positions(comm, n, positions, placement_.of(Order::p2));
    write_order(Order::p2, to_positions(comm, n, p2_of_p1, sums));
  }

  facts.num_negative_weights = runtime::all_reduced(comm, num_negative_);
  std::vector<std::int64_t> ids(positions.size());
  std::iota(ids.begin(), ids.end(), placement_.vertices.begin);
  ids = to_positions(comm, n, positions, ids);
  auto const negative = numbers_of(in_order_p1(comm, &RowWeights::negative));
  OperatorCheck check(SelfLoops::added);
  for (std::size_t i = 0; i < ids.size(); ++i)
    check.add(ids[i], {.sum = std::bit_cast<double>(sums[i]), .negative = negative[i]});
  check.finish(comm);
  return check;
}

void require_operator(OperatorCheck const& check, StoreFacts const& facts) {
  auto const wrong = check.describe(facts.normalization, Precision::fp64, facts.num_vertices);
  if (!wrong.empty())
    runtime::throw_user("{}; {}", wrong, check.what_fits(facts.normalization, Precision::fp64, true));
}

std::string format_refusals(OperatorCheck const& check, StoreFacts const& facts) {
  std::string text;
  for (auto const normalization : {Normalization::symmetric, Normalization::row})
    for (auto const precision : {Precision::fp64, Precision::fp32}) {
      auto const wrong = check.describe(normalization, precision, facts.num_vertices);
      if (wrong.empty()) continue;
      fmt::format_to(std::back_inserter(text), "warning      cannot be used for training on this graph: {}\n",
                     wrong);
      break; // fp32 cannot represent what fp64 cannot
    }
  return text;
}

namespace {

constexpr std::size_t most_named = 8;

std::string plural(std::int64_t count, char const* one, char const* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string describe_labels(InputSummary const& summary, StoreFacts const& facts) {
  if (facts.label_kind == LabelKind::none) return "none\n";
  if (facts.label_kind == LabelKind::real)
    return fmt::format("{} per vertex, for regression; {} of {} vertices have one\n",
                       plural(facts.num_classes, "target", "targets"), facts.num_labelled,
                       facts.num_vertices);
  auto text = fmt::format("{} classes{}, {} of {} vertices labelled", facts.num_classes,
                          facts.label_kind == LabelKind::multi ? ", several per vertex" : "",
                          facts.num_labelled, facts.num_vertices);
  if (!facts.class_names.empty()) text += "; named " + some_of(facts.class_names);
  if (summary.num_empty_classes > 0) {
    auto const rest = summary.num_empty_classes - static_cast<std::int64_t>(summary.empty_classes.size());
    text += fmt::format("; no vertex has {} {}{}", summary.num_empty_classes == 1 ? "class" : "the classes",
                        fmt::join(summary.empty_classes, ", "),
                        rest > 0 ? fmt::format(" and {} more", rest) : "");
  }
  return text + '\n';
}

std::string describe_split(StoreFacts const& facts) {
  if (!facts.has_split) return "none\n";
  auto const& [train, valid, test] = facts.split_sizes;
  return fmt::format("{}: train {}, valid {}, test {}; {} vertices in none\n", facts.split_name, train, valid,
                     test, facts.num_vertices - train - valid - test) +
         (facts.num_splits() > 1
              ? fmt::format("splits       {}; the sizes are those of split 0\n", facts.num_splits())
              : std::string());
}

} // namespace

std::string some_of(std::vector<std::string> const& names) {
  auto const shown = std::min(names.size(), most_named);
  auto const first = std::span(names).first(shown);
  return fmt::format("{}{}", fmt::join(first, ", "),
                     shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
}

void summarize_degrees(runtime::Communicator const& comm, std::span<std::int64_t const> degrees,
                       InputSummary& summary) {
  auto const first =
      runtime::all_reduced(comm, std::int64_t{comm.rank() == 0 && !degrees.empty() && degrees.front() == 0},
                           runtime::Reduction::max);
  // The last vertex belongs to the last rank that has any vertices.
  auto const last_owner =
      runtime::all_reduced(comm, degrees.empty() ? -1 : std::int64_t{comm.rank()}, runtime::Reduction::max);
  auto const last = runtime::all_reduced(comm, std::int64_t{comm.rank() == last_owner && degrees.back() > 0},
                                         runtime::Reduction::max);
  summary.num_isolated =
      runtime::all_reduced(comm, static_cast<std::int64_t>(std::ranges::count(degrees, 0)));
  auto const num_vertices = runtime::all_reduced(comm, static_cast<std::int64_t>(degrees.size()));
  constexpr std::int64_t few = 10; // a tenth
  summary.seems_to_begin_at_1 =
      first == 1 && last == 1 && summary.num_isolated <= std::max<std::int64_t>(1, num_vertices / few);
}

void summarize_labels(runtime::Communicator const& comm, GraphSource const& source, InputSummary& summary) {
  auto const& facts = source.facts();
  constexpr auto most_classes = std::int64_t{1} << 24;
  if (facts.label_kind == LabelKind::none || facts.label_kind == LabelKind::real ||
      facts.num_classes > most_classes)
    return;
  auto const num_classes = static_cast<std::size_t>(facts.num_classes);
  std::vector<std::int64_t> counts(num_classes);
  runtime::together(comm, [&] {
    auto const rows_at_once = std::max<std::int64_t>(1, (std::int64_t{1} << 20) / facts.num_classes);
    auto const stream =
        source.labels(facts.label_kind == LabelKind::single ? std::int64_t{1} << 16 : rows_at_once);
    for (LabelBatch batch; stream->next(batch);) {
      for (auto const label : batch.classes)
        if (label >= 0) ++counts[static_cast<std::size_t>(label)];
      for (std::size_t i = 0; i < batch.indicator.size(); ++i)
        counts[i % num_classes] += batch.indicator[i] == 1 ? 1 : 0;
    }
  });
  runtime::all_reduce(runtime::host, comm, counts);
  for (std::size_t c = 0; c < num_classes; ++c) {
    if (counts[c] > 0) continue;
    ++summary.num_empty_classes;
    if (summary.empty_classes.size() < most_named)
      summary.empty_classes.push_back(static_cast<std::int64_t>(c));
  }
}

std::string format_summary(InputSummary const& summary, StoreFacts const& facts) {
  std::string text;
  auto const out = std::back_inserter(text);
  fmt::format_to(out, "edges        {} read, {} merged{}, {}{}\n", summary.num_edges_read,
                 plural(summary.num_merged, "repeat", "repeats"),
                 facts.is_symmetric ? " (an edge and its reverse are one)" : "",
                 plural(facts.num_self_loops, "self loop", "self loops"),
                 summary.num_dropped_loops > 0 ? fmt::format(" ({} dropped)", summary.num_dropped_loops)
                                               : "");
  if (facts.is_weighted && facts.is_symmetric && summary.num_merged > 0)
    text += "warning      weights of repeated edges are added, so an edge that is listed in both directions "
            "has twice its weight: list it once, or give --directed\n";
  fmt::format_to(out, "vertices     {}, {} isolated\n", facts.num_vertices, summary.num_isolated);
  if (summary.seems_to_begin_at_1)
    text += "warning      vertex 0 has no edge: if ids of edges begin at 1, subtract 1 from them; features, "
            "labels "
            "and splits count vertices from 0\n";
  if (summary.operators) text += format_refusals(*summary.operators, facts);
  text += "features     ";
  text += facts.feature_kind == FeatureKind::none
              ? std::string("none\n")
              : fmt::format("{}{} per vertex\n", facts.feature_kind == FeatureKind::sparse ? "sparse, " : "",
                            facts.num_features);
  text += "labels       " + describe_labels(summary, facts);
  text += "split        " + describe_split(facts);
  return text;
}

using runtime::checked_product;
using runtime::checked_sum;

Estimate estimate_partition(runtime::Communicator const& comm, GraphSource const& source,
                            PermutationKind permutation) {
  auto const& facts = source.facts();
  Estimate estimate;
  estimate.num_edges = facts.num_edges;
  if (estimate.num_edges < 0) {
    auto const mine = source.num_local_edges();
    auto const is_known = runtime::all_reduced(comm, mine, runtime::Reduction::min) >= 0;
    if (is_known) estimate.num_edges = runtime::all_reduced(comm, mine);
  }
  auto const num_edges = std::max<std::int64_t>(0, estimate.num_edges);
  bool const has_two_orders =
      permutation == PermutationKind::twofold || permutation == PermutationKind::cluster;
  auto const num_entries = facts.is_directed ? num_edges * (has_two_orders ? 2 : 1) : 2 * num_edges;
  bool const has_values = facts.is_weighted || facts.has_relations() || facts.num_edge_features > 0;
  std::int64_t const entry_bytes = has_values ? 8 : 4; // in memory
  auto const row_bytes = checked_product(num_edges, 4 * facts.num_edge_features, "features of edges");
  auto const entry_feature_bytes =
      checked_product(num_entries, 4 * facts.num_edge_features, "features of edges");
  std::int64_t const vertex_bytes = has_two_orders ? 24 : 8;
  std::int64_t const label_bytes = facts.label_kind == LabelKind::none     ? 0
                                   : facts.label_kind == LabelKind::single ? 8
                                   : facts.label_kind == LabelKind::real   ? 16 * facts.num_classes
                                                                           : 2 * facts.num_classes;
  constexpr std::string_view features = "the bytes of the features";
  auto const feature_bytes = // a part of a product that fits, so that sums also fit
      facts.feature_kind == FeatureKind::dense
          ? checked_product(checked_product(facts.num_vertices, facts.num_features, features), 16, features) /
                (facts.features_have_remainders ? 2 : 4)
          : 0;
  auto const rows =
      checked_product(facts.num_vertices, vertex_bytes + label_bytes, "the bytes of the labels");
  estimate.disk_bytes =
      checked_sum(num_entries * entry_bytes + entry_feature_bytes,
                  checked_sum(rows, feature_bytes, "the bytes of the store"), "the bytes of the store");

  // Edges take 8 bytes (12 with a weight) until they are converted to entries in the same memory. Degree and positions of a vertex take 48
  // bytes; program, libraries and buffers of a rank about 64 MiB.
  // Features of edges are held as they were read, and at their entries with a number.
  auto const of_features =
      facts.num_edge_features > 0 ? row_bytes + entry_feature_bytes + 4 * num_entries : 0;
  auto const edge_memory =
      std::max(num_edges * (has_values ? 12 : 8), num_entries * entry_bytes) + of_features;
  auto const base = std::int64_t{comm.size()} * (std::int64_t{64} << 20);
  // Edges between names are kept as they were read, as are features of vertices from those of edges. Rank 0 keeps the names.
  auto const* const names = source.vertex_names();
  auto const named = runtime::all_reduced(
      comm, names == nullptr ? std::int64_t{0} : std::ssize(names->text) + 8 * names->size());
  auto const kept = named + runtime::all_reduced(comm, source.memory().held_bytes);
  auto const opening = runtime::all_reduced(comm, source.memory().opening_bytes);
  estimate.memory_bytes =
      std::max(std::max(edge_memory, feature_bytes) + facts.num_vertices * 48 + kept, opening) + base;

  constexpr double edges_per_second = 5e6; // per core, from files to store
  constexpr double bytes_per_second = 2e8;
  estimate.seconds = (static_cast<double>(num_edges) / edges_per_second +
                      static_cast<double>(feature_bytes) / bytes_per_second) /
                     comm.size();
  return estimate;
}

void require_disk_space(runtime::Communicator const& comm, std::filesystem::path const& output,
                        std::int64_t needed) {
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    auto const folder = output.has_parent_path() ? output.parent_path() : std::filesystem::path(".");
    struct statvfs found {};
    if (::statvfs(folder.c_str(), &found) != 0)
      runtime::throw_user("cannot write to {}: {}", folder.string(), std::strerror(errno));
    auto const free_bytes =
        static_cast<std::int64_t>(found.f_bavail) * static_cast<std::int64_t>(found.f_frsize);
    if (free_bytes < needed)
      runtime::throw_user(
          "{} needs about {} and its disk has {} left; free some space or choose another disk",
          output.string(), bytes_text(needed), bytes_text(free_bytes));
  });
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<char const*, 6> units{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes)
                   : fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, units[unit]);
}

} // namespace orthant::graph
