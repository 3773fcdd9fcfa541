// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/operands/relation_operands.hpp"

#include "graph/store/listed_block.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace orthant::models {

pmm::TypedEntries entries_of(graph::CsrBlock block, graph::StoreFacts const& facts,
                             std::vector<std::int64_t> const& root_types) {
  pmm::TypedEntries entries;
  entries.num_rows = std::ssize(block.row_offsets) - 1;
  entries.num_columns = block.columns_range.size();
  entries.num_selves = root_types.empty() ? 0 : std::max<std::int64_t>(1, facts.num_types());
  entries.roots = root_types;
  entries.num_relations = facts.num_relations() + entries.num_selves;
  entries.row_offsets = std::move(block.row_offsets);
  entries.columns = std::move(block.columns);
  entries.relations = std::move(block.relations);
  ORTHANT_REQUIRE(entries.relations.size() == entries.columns.size(), entries.relations.size(),
                  " relations of ", entries.columns.size(), " entries");
  return entries;
}

pmm::TypedEntries with_selves(pmm::TypedEntries const& given, graph::StoreFacts const& facts,
                              OwnPlaces const& places) {
  if (given.roots.empty()) return given;
  std::set<std::int64_t> const with_roots(given.roots.begin(), given.roots.end());
  pmm::TypedEntries all{given.num_rows,   given.num_columns, given.num_relations,
                        given.num_selves, given.roots,       {0}};
  auto const most = given.columns.size() + places.columns.size();
  all.row_offsets.reserve(given.row_offsets.size());
  all.columns.reserve(most);
  all.relations.reserve(most);
  all.counts.reserve(most);
  auto const put = [&](std::int64_t column, std::int64_t relation, std::int32_t count) {
    all.columns.push_back(static_cast<std::int32_t>(column));
    all.relations.push_back(static_cast<std::uint16_t>(relation));
    all.counts.push_back(count);
  };
  for (std::size_t row = 0; row < places.columns.size(); ++row) {
    auto const own = places.columns[row];
    auto const type = facts.type_of(places.ids[row]);
    bool is_due = own >= 0 && with_roots.contains(type);
    auto const add_self = [&] {
      if (is_due) put(own, facts.num_relations() + type, 1);
      is_due = false;
    };
    for (auto e = static_cast<std::size_t>(given.row_offsets[row]);
         e < static_cast<std::size_t>(given.row_offsets[row + 1]); ++e) {
      if (given.columns[e] > own) add_self();
      put(given.columns[e], given.relations[e], given.counts.empty() ? 0 : given.counts[e]);
    }
    add_self();
    all.row_offsets.push_back(std::ssize(all.columns));
  }
  return all;
}

OwnedBlock read_relation_block(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                               pmm::Roles const& roles, std::vector<std::int64_t> const& root_types) {
  auto owned = read_owned_block(grid, store, roles);
  if (root_types.empty()) return owned;
  auto const& facts = store.facts();
  auto& csr = owned.csr;
  runtime::together(grid.group(), [&] {
    auto const rows = block_rows(grid.shape(), grid.coordinates(), roles, facts.num_vertices);
    graph::ListPlaces const columns(
        block_columns(grid.shape(), grid.coordinates(), roles, facts.num_vertices));
    OwnPlaces places{{}, read_owned_ids(store, rows)};
    for (auto const& range : rows)
      for (auto position = range.begin; position < range.end; ++position)
        places.columns.push_back(columns(position));
    auto all = with_selves(entries_of(std::move(csr), facts, root_types), facts, places);
    csr.row_offsets = std::move(all.row_offsets);
    csr.columns = std::move(all.columns);
    csr.relations = std::move(all.relations);
  });
  return owned;
}

template<class T>
OwnedAdjacency<T> make_relations(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                 pmm::Roles const& roles, std::vector<std::int64_t> const& root_types,
                                 OwnedBlock block) {
  OwnedAdjacency<T> made;
  made.sizes = block.sizes;
  made.relations = {std::make_shared<pmm::RelationBlock<T> const>(pmm::make_relation_block<T>(
                        grid, roles.a, entries_of(std::move(block.csr), facts, root_types))),
                    made.sizes};
  return made;
}

template<class T>
RelationOperand<T> RelationOperands<T>::get(pmm::Placement const& placement,
                                            std::vector<std::int64_t> const& root_types, bool is_even) {
  auto const& layout = placement.layout;
  AdjacencyKey const key{layout.rows, layout.columns, is_even};
  if (auto const known = blocks_.find(key); known != blocks_.end()) return known->second;
  auto const parity = is_even ? graph::Parity::even : graph::Parity::odd;
  auto const range = pmm::block_of(grid_, placement);
  auto const& facts = store_.facts();
  auto entries = runtime::together(grid_.group(), [&] {
    auto read = entries_of(store_.read_block(parity, range.rows, range.columns), facts, root_types);
    if (root_types.empty()) return read;
    OwnPlaces places{store_.read_other_positions(row_order(parity), range.rows),
                     store_.read_original_ids(row_order(parity), range.rows)};
    for (auto& place : places.columns)
      place = range.columns.contains(place) ? place - range.columns.begin : -1;
    return with_selves(read, facts, places);
  });
  RelationOperand<T> const operand{std::make_shared<pmm::RelationBlock<T> const>(pmm::make_relation_block<T>(
                                       grid_, layout.columns, std::move(entries))),
                                   {}};
  return blocks_.emplace(key, operand).first->second;
}

template<class T>
RelationOperand<T> RelationOperands<T>::get(pmm::Roles const& roles,
                                            std::vector<std::int64_t> const& root_types) {
  AdjacencyKey const key{roles.c, roles.a, true};
  if (auto const known = blocks_.find(key); known != blocks_.end()) return known->second;
  auto const made = make_relations<T>(grid_, store_.facts(), roles, root_types,
                                      read_relation_block(grid_, store_, roles, root_types));
  return blocks_.emplace(key, made.relations).first->second;
}

template<class T>
RelationOperand<T> make_attention_operand(pmm::ProcessGrid const& grid, graph::StoreFacts const& facts,
                                          pmm::Roles const& roles, pmm::CellSizes sizes,
                                          pmm::TypedEntries const& entries, IdsOfBlock const& ids) {
  auto const num_types = std::max<std::int64_t>(1, facts.num_types());
  std::vector<T> types(ids.own_rows.size() * static_cast<std::size_t>(num_types));
  for (std::size_t i = 0; i < ids.own_rows.size(); ++i)
    types[i * static_cast<std::size_t>(num_types) +
          static_cast<std::size_t>(facts.num_types() > 0 ? facts.type_of(ids.own_rows[i]) : 0)] = T{1};
  auto edges = pmm::make_relation_edges(grid, roles.a, entries, ids.rows, ids.columns);
  return {{},
          std::move(sizes),
          std::make_shared<pmm::RelationEdges const>(std::move(edges)),
          pmm::to_device("orthant::models::types_of_rows", types)};
}

IdsOfBlock read_attention_ids(pmm::ProcessGrid const& grid, graph::GraphStore const& store,
                              pmm::Roles const& roles, bool drops_coefficients) {
  auto ids = drops_coefficients ? read_ids_of_block(grid, store, roles) : IdsOfBlock();
  ids.own_rows =
      store.read_original_ids(graph::Order::p1, pmm::part_of(grid.shape(), grid.coordinates(),
                                                             pmm::group_axes, store.facts().num_vertices));
  return ids;
}

template<class T>
RelationOperand<T> RelationOperands<T>::get_edges(pmm::Roles const& roles, bool drops_coefficients) {
  if (edges_) return *edges_;
  auto owned = read_owned_block(grid_, store_, roles);
  auto const ids = runtime::together(
      grid_.group(), [&] { return read_attention_ids(grid_, store_, roles, drops_coefficients); });
  edges_ = make_attention_operand<T>(grid_, store_.facts(), roles, owned.sizes,
                                     entries_of(std::move(owned.csr), store_.facts(), {}), ids);
  return *edges_;
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template OwnedAdjacency<T> make_relations(pmm::ProcessGrid const&, graph::StoreFacts const&,               \
                                            pmm::Roles const&, std::vector<std::int64_t> const&,             \
                                            OwnedBlock);                                                     \
  template RelationOperand<T> make_attention_operand(pmm::ProcessGrid const&, graph::StoreFacts const&,      \
                                                     pmm::Roles const&, pmm::CellSizes,                      \
                                                     pmm::TypedEntries const&, IdsOfBlock const&);           \
  template class RelationOperands<T>;
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
