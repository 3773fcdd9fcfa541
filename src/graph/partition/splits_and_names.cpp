// SPDX-License-Identifier: Apache-2.0
#include "graph/partition/attributes.hpp"
#include "graph/partition/placement.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/hdf5_file.hpp"
#include "runtime/numbers/counts.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace orthant::graph {

using runtime::Communicator;
using runtime::Hdf5Type;
using runtime::index;
using runtime::throw_user;
using runtime::together;

namespace {

/// Throws a UserError with the first vertex if a vertex is in two parts of a split or twice in one. `bits` belong to the vertices from
/// `first` on: bit p is set if part p lists the vertex, bit p + 3 if it lists it again. Collective.
void require_parts_apart(Communicator const& comm, std::span<std::int64_t const> bits, std::int64_t first,
                         std::array<std::string, 3> const& names, std::string const& split) {
  constexpr std::int64_t parts_mask = 7;
  auto const is_wrong = [](std::int64_t b) { return b > parts_mask || (b & (b - 1)) != 0; };
  auto const found = std::ranges::find_if(bits, is_wrong);
  constexpr std::int64_t num_masks = 64;
  auto const mine = found == bits.end() ? std::numeric_limits<std::int64_t>::max()
                                        : (first + (found - bits.begin())) * num_masks + *found;
  auto const least = runtime::all_reduced(comm, mine, runtime::Reduction::min);
  if (least == std::numeric_limits<std::int64_t>::max()) return;
  std::vector<std::string> listing;
  std::string again;
  for (std::size_t part = 0; part < names.size(); ++part) {
    if ((least >> part & 1) != 0) listing.push_back(names[part]);
    if ((least >> (part + names.size()) & 1) != 0) again = names[part];
  }
  if (listing.size() > 1)
    throw_user("{}: vertex {} is in {}; a vertex may be in one part only", split, least / num_masks,
               fmt::join(listing, " and "));
  throw_user("{}: {} lists vertex {} twice", split, again, least / num_masks);
}

/// The parts of one split as bits of this rank's block of vertices, and their sizes over all ranks. Throws UserError if a vertex is in two
/// parts. Collective.
std::vector<std::int64_t> split_bits(Communicator const& comm, GraphSource const& source,
                                     Placement const& placement, std::int64_t split_number,
                                     std::array<std::int64_t, 3>& sizes) {
  auto const n = placement.num_vertices;
  auto const share = together(comm, [&] { return source.split(split_number); });
  std::array<std::vector<std::int64_t> const*, 3> const lists{&share.train, &share.valid, &share.test};
  for (std::size_t part = 0; part < lists.size(); ++part)
    sizes[part] = runtime::all_reduced(comm, static_cast<std::int64_t>(lists[part]->size()));

  struct Member {
    std::int64_t vertex;
    std::int64_t part;
  };
  constexpr auto num_parts = static_cast<std::int64_t>(lists.size());
  // Bits of each vertex: bit p is set if part p lists the vertex, bit p + 3 if part p lists it more than once.
  std::vector<std::int64_t> bits(placement.positions[0].size());
  std::size_t part = 0;
  std::size_t next = 0;
  exchange<Member>(
      comm,
      [&](Outbox<Member>& outbox) {
        for (; part < lists.size(); ++part, next = 0)
          for (; next < lists[part]->size(); ++next) {
            if (outbox.is_full()) return true;
            auto const vertex = (*lists[part])[next];
            if (vertex < 0 || vertex >= n)
              throw_user("{} lists vertex {} of a graph of {} vertices", name_of(static_cast<Split>(part)),
                         vertex, n);
            outbox.push(block_owner(n, comm.size(), vertex), {vertex, static_cast<std::int64_t>(part)});
          }
        return false;
      },
      [&](std::span<Member const> arrived) {
        for (auto const& [vertex, number] : arrived) {
          auto& mask = bits[index(vertex - placement.vertices.begin)];
          auto const bit = std::int64_t{1} << number;
          mask |= (mask & bit) == 0 ? bit : bit << num_parts;
        }
      });
  auto const& facts = source.facts();
  auto const name = facts.num_splits == 1
                        ? fmt::format("the split '{}'", facts.split_name)
                        : fmt::format("the split '{}', number {}", facts.split_name, split_number);
  require_parts_apart(comm, bits, placement.vertices.begin, share.names, name);
  return bits;
}

} // namespace

void write_split(StoreWriter& writer, GraphSource const& source, Placement const& placement,
                 StoreFacts& facts) {
  facts.has_split = source.facts().has_split;
  facts.split_name = source.facts().split_name;
  auto const num_splits = source.facts().num_splits;
  std::vector<std::array<std::int64_t, 3>> sizes;
  for (std::int64_t number = 0; number < num_splits; ++number) {
    auto const bits = split_bits(writer.comm(), source, placement, number, sizes.emplace_back());
    for (auto const order : orders_of(placement)) {
      auto const name = folder("/split", order);
      if (number == 0)
        writer.create_array(name, Hdf5Type::uint8,
                            num_splits > 1 ? runtime::Hdf5File::Extents{num_splits, facts.num_vertices}
                                           : runtime::Hdf5File::Extents{facts.num_vertices});
      write_row<std::uint8_t>(writer, name, number, placement,
                              to_positions(writer.comm(), facts.num_vertices, placement.of(order), bits));
    }
  }
  if (num_splits > 0) facts.split_sizes = sizes.front();
  if (num_splits > 1) facts.sizes_of_splits = std::move(sizes);
}

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
