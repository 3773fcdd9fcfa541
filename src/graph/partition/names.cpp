// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/names.hpp"

#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/array_sum.hpp"

#include <span>
#include <string>

namespace orthant::graph {

using runtime::Hdf5Type;

void require_rules(GraphFacts const& facts, EdgeRules const& rules, std::optional<EdgeSplit> const& split) {
  if (facts.num_edge_features > 0 && (split || rules.repeats == EdgeRules::Repeats::keep))
    runtime::throw_user(
        "--edge-features keep goes without --edge-split and --duplicates keep: leave them out");
  if (!facts.has_relations()) return;
  if (facts.is_weighted) runtime::throw_user("{}: a graph with relations cannot have weights", facts.name);
  if (split)
    runtime::throw_user("--edge-split holds out edges of undirected graphs without relations: leave it out");
  if (rules.repeats == EdgeRules::Repeats::keep)
    runtime::throw_user(
        "--duplicates keep: equal edges of one relation are always merged; leave it out for a "
        "graph with relations");
}

std::vector<std::int64_t> RelationCounts::total(runtime::Communicator const& comm) const {
  auto sums = counts_;
  runtime::add_up(comm, sums);
  return {sums.begin(), sums.end()};
}

namespace {

/// Writes a list of names as two arrays of `group`. Rank 0 has the list; the other ranks may have an empty one. Returns the size of the
/// text. Collective.
std::int64_t write_list(StoreWriter& writer, std::string const& group, NameList const& names) {
  auto const& comm = writer.comm();
  std::vector<std::int64_t> sizes{names.size(), static_cast<std::int64_t>(names.text.size())};
  runtime::broadcast(runtime::host, comm, std::span(sizes), 0);
  writer.create_array(group + "/offsets", Hdf5Type::int64, {sizes[0] + 1});
  writer.create_array(group + "/text", Hdf5Type::uint8, {sizes[1]});
  writer.reserve_space();
  runtime::together(comm, [&] {
    if (!comm.is_root()) return;
    writer.write(group + "/offsets", 0, 0, std::span<std::int64_t const>(names.offsets));
    auto const* const bytes = reinterpret_cast<std::uint8_t const*>(names.text.data());
    writer.write(group + "/text", 0, 0, std::span<std::uint8_t const>(bytes, names.text.size()));
  });
  return sizes[1];
}

/// Writes the types of the ends of relations, two arrays. Collective.
void write_ends(StoreWriter& writer, StoreFacts const& facts) {
  for (auto const* const array : relation_ends_arrays) {
    writer.create_array(array, Hdf5Type::int64, {facts.num_relations()});
    runtime::together(writer.comm(), [&] {
      if (!writer.comm().is_root()) return;
      std::vector<std::int64_t> types;
      for (auto const& [source, target] : facts.relation_ends)
        types.push_back(array == relation_ends_arrays[0] ? source : target);
      writer.write(array, 0, 0, std::span<std::int64_t const>(types));
    });
  }
}

} // namespace

void write_names(StoreWriter& writer, GraphSource const& source, StoreFacts& facts) {
  auto const& comm = writer.comm();
  if (facts.num_relations() > 0) {
    NameList names;
    for (auto const& name : facts.relations)
      names.add(name);
    facts.relation_name_bytes = write_list(writer, "/relations/names", names);
    std::string const array = "/relations/num_entries";
    writer.create_array(array, Hdf5Type::int64, {facts.num_relations()});
    runtime::together(comm, [&] {
      if (comm.is_root()) writer.write(array, 0, 0, std::span<std::int64_t const>(facts.relation_entries));
    });
    if (facts.num_types() > 0) write_ends(writer, facts);
  }
  if (auto const& classes = source.facts().class_names; !classes.empty()) {
    NameList names;
    for (auto const& name : classes)
      names.add(name);
    facts.class_names = classes;
    facts.class_name_bytes = write_list(writer, "/labels/names", names);
  }
  if (!source.facts().has_names) return;
  auto const* const names = source.vertex_names();
  facts.vertex_name_bytes = write_list(writer, "/vertices/names", names != nullptr ? *names : NameList());
}

} // namespace orthant::graph
