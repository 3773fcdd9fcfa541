// SPDX-License-Identifier: Apache-2.0
#include "graph/store/store_reader.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/numbers/counts.hpp"

#include <bit>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace orthant::graph {
namespace {

using runtime::mixed;

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0;
  for (auto const c : text)
    hash = mixed(hash * 31 + static_cast<unsigned char>(c) + 1);
  return hash;
}

/// Hash of the facts that do not depend on the order of the vertices.
std::uint64_t hash_of_facts(StoreFacts const& facts) {
  auto json = nlohmann::json::parse(facts.to_json());
  for (auto const* key :
       {"permutation", "seed", "num_clusters", "name", "format", "features_have_remainders"})
    json.erase(key);
  auto hash = hash_of(json.dump());
  for (auto const& name : facts.class_names)
    hash = mixed(hash + hash_of(name));
  for (std::size_t i = 0; i < facts.relations.size(); ++i)
    hash = mixed(hash + hash_of(facts.relations[i]) + static_cast<std::uint64_t>(facts.relation_entries[i]));
  return hash;
}

/// Sum of hashes of the data of the vertices at some positions, keyed by their original ids.
std::uint64_t sum_of_vertices(GraphStore const& store, Range rows) {
  auto const& facts = store.facts();
  auto const order = Order::p2; // in which features are contiguous
  auto hashes = std::vector<std::uint64_t>(static_cast<std::size_t>(rows.size()));
  auto const add = [&](auto const& values, std::size_t stride) {
    for (std::size_t i = 0; i < values.size(); ++i)
      hashes[i / stride] = mixed(hashes[i / stride] + static_cast<std::uint64_t>(values[i]) + 1);
  };
  add(store.read_original_ids(order, rows), 1);
  add(store.read_degrees(order, rows), 1);
  if (facts.label_kind == LabelKind::single) add(store.read_labels(order, rows), 1);
  if (facts.label_kind == LabelKind::multi)
    add(store.read_label_indicator(order, rows, {0, facts.num_classes}),
        static_cast<std::size_t>(facts.num_classes));
  if (facts.label_kind == LabelKind::real) {
    std::vector<std::uint64_t> bits;
    for (auto const target : store.read_targets(order, rows, {0, facts.num_classes}))
      bits.push_back(std::bit_cast<std::uint64_t>(target));
    add(bits, static_cast<std::size_t>(facts.num_classes));
  }
  if (facts.has_split)
    for (auto const split : {Split::train, Split::valid, Split::test})
      add(store.read_mask(split, order, rows), 1);
  if (facts.feature_kind == FeatureKind::dense)
    for (auto const column : {std::int64_t{0}, facts.num_features - 1}) {
      std::vector<std::uint32_t> bits;
      for (auto const value : store.read_features(order, rows, {column, column + 1}))
        bits.push_back(std::bit_cast<std::uint32_t>(value));
      add(bits, 1);
    }
  std::uint64_t sum = 0;
  for (auto const hash : hashes)
    sum += hash;
  return sum;
}

/// The sum over all vertices, of which each rank computes a share, plus `more`.
template<class SumOf>
std::string sum_over_shares(runtime::Communicator const& comm, GraphStore const& store, SumOf const& sum_of,
                            std::uint64_t more) {
  auto const rows = runtime::balanced_range(store.facts().num_vertices, comm.size(), comm.rank());
  std::vector<std::uint64_t> sums{runtime::together(comm, [&] { return sum_of(store, rows); })};
  runtime::add_up(comm, sums);
  return fmt::format("{:016x}", mixed(sums[0] + more));
}

} // namespace

std::string fingerprint_of(runtime::Communicator const& comm, GraphStore const& store) {
  return sum_over_shares(comm, store, sum_of_vertices, hash_of_facts(store.facts()));
}

std::string fingerprint_of_clusters(runtime::Communicator const& comm, GraphStore const& store) {
  auto const sum_of_clusters = [](GraphStore const& from, Range rows) {
    auto const ids = from.read_original_ids(Order::p1, rows);
    auto const clusters = from.read_clusters(Order::p1, rows);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < ids.size(); ++i)
      sum += mixed(mixed(static_cast<std::uint64_t>(ids[i]) + 1) + static_cast<std::uint64_t>(clusters[i]));
    return sum;
  };
  return sum_over_shares(comm, store, sum_of_clusters, 0);
}

} // namespace orthant::graph
