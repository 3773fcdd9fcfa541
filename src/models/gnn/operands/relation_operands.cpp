// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/operands/relation_operands.hpp"

#include "graph/store/listed_block.hpp"
#include "models/gnn/operands/owned_adjacency.hpp"
#include "pmm/aggregate/row_lists.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace orthant::models {
namespace {

/// For each row of a block, the column of the same vertex.
struct OwnPlaces {
  std::vector<std::int64_t> columns; // [rows] -1: the vertex is not among the columns
  std::vector<std::int64_t> ids;     // [rows] original ids
};

pmm::TypedEntries entries_of(graph::CsrBlock block, std::int64_t num_relations) {
  pmm::TypedEntries entries;
  entries.num_rows = std::ssize(block.row_offsets) - 1;
  entries.num_columns = block.columns_range.size();
  entries.num_relations = num_relations;
  entries.row_offsets = std::move(block.row_offsets);
  entries.columns = std::move(block.columns);
  entries.relations = std::move(block.relations);
  ORTHANT_REQUIRE(entries.relations.size() == entries.columns.size(), entries.relations.size(),
                  " relations of ", entries.columns.size(), " entries");
  return entries;
}

/// Adds a self relation with the number R + t to each vertex of a type t that has roots.
pmm::TypedEntries with_selves(pmm::TypedEntries const& given, graph::StoreFacts const& facts,
                              std::vector<std::int64_t> const& root_types, OwnPlaces const& places) {
  std::set<std::int64_t> const with_roots(root_types.begin(), root_types.end());
  pmm::TypedEntries all;
  all.num_rows = given.num_rows;
  all.num_columns = given.num_columns;
  all.num_selves = std::max<std::int64_t>(1, facts.num_types());
  all.roots = root_types;
  all.num_relations = given.num_relations + all.num_selves;
  all.row_offsets.reserve(given.row_offsets.size());
  all.row_offsets.push_back(0);
  auto const put = [&](std::int64_t column, std::uint16_t relation) {
    all.columns.push_back(static_cast<std::int32_t>(column));
    all.relations.push_back(relation);
  };
  for (std::size_t row = 0; row < places.columns.size(); ++row) {
    auto const own = places.columns[row];
    auto const type = facts.type_of(places.ids[row]);
    bool is_due = own >= 0 && with_roots.contains(type);
    auto const add_self = [&] {
      if (is_due) put(own, static_cast<std::uint16_t>(given.num_relations + type));
      is_due = false;
    };
    for (auto e = given.row_offsets[row]; e < given.row_offsets[row + 1]; ++e) {
      auto const column = given.columns[static_cast<std::size_t>(e)];
      if (column > own) add_self();
      put(column, given.relations[static_cast<std::size_t>(e)]);
    }
    add_self();
    all.row_offsets.push_back(std::ssize(all.columns));
  }
  return all;
}

template<class T>
std::shared_ptr<pmm::RelationBlock<T> const> made(pmm::ProcessGrid const& grid, pmm::AxisSet columns,
                                                  pmm::TypedEntries const& entries) {
  return std::make_shared<pmm::RelationBlock<T> const>(pmm::make_relation_block<T>(grid, columns, entries));
}

} // namespace

template<class T>
RelationOperand<T> RelationOperands<T>::get(pmm::Placement const& placement,
                                            std::vector<std::int64_t> const& root_types, bool is_even) {
  auto const& layout = placement.layout;
  AdjacencyKey const key{layout.rows, layout.columns, is_even};
  if (auto const known = blocks_.find(key); known != blocks_.end()) return known->second;
  auto const parity = is_even ? graph::Parity::even : graph::Parity::odd;
  auto const range = pmm::block_of(grid_, placement);
  auto const& facts = store_.facts();
  auto const entries = runtime::together(grid_.group(), [&] {
    auto read = entries_of(store_.read_block(parity, range.rows, range.columns), facts.num_relations());
    if (root_types.empty()) return read;
    OwnPlaces places{store_.read_other_positions(row_order(parity), range.rows),
                     store_.read_original_ids(row_order(parity), range.rows)};
    for (auto& place : places.columns)
      place = range.columns.contains(place) ? place - range.columns.begin : -1;
    return with_selves(read, facts, root_types, places);
  });
  RelationOperand<T> const operand{made<T>(grid_, layout.columns, entries), {}};
  return blocks_.emplace(key, operand).first->second;
}

template<class T>
RelationOperand<T> RelationOperands<T>::get(pmm::Roles const& roles,
                                            std::vector<std::int64_t> const& root_types) {
  AdjacencyKey const key{roles.c, roles.a, true};
  if (auto const known = blocks_.find(key); known != blocks_.end()) return known->second;
  auto owned = read_owned_block(grid_, store_, roles);
  auto const& facts = store_.facts();
  auto entries = entries_of(std::move(owned.csr), facts.num_relations());
  if (!root_types.empty())
    entries = runtime::together(grid_.group(), [&] {
      auto const rows = block_rows(grid_.shape(), grid_.coordinates(), roles, facts.num_vertices);
      graph::ListPlaces const columns(
          block_columns(grid_.shape(), grid_.coordinates(), roles, facts.num_vertices));
      OwnPlaces places{{}, read_owned_ids(store_, rows)};
      for (auto const& range : rows)
        for (auto position = range.begin; position < range.end; ++position)
          places.columns.push_back(columns(position));
      return with_selves(entries, facts, root_types, places);
    });
  RelationOperand<T> const operand{made<T>(grid_, roles.a, entries), owned.sizes};
  return blocks_.emplace(key, operand).first->second;
}

template<class T>
RelationOperand<T> RelationOperands<T>::get_edges(pmm::Roles const& roles, bool needs_ids) {
  if (edges_) return *edges_;
  auto owned = read_owned_block(grid_, store_, roles);
  auto const& facts = store_.facts();
  auto const entries = entries_of(std::move(owned.csr), facts.num_relations());
  auto const& shape = grid_.shape();
  auto const& coordinates = grid_.coordinates();
  auto const n = facts.num_vertices;
  std::vector<std::int64_t> row_ids, column_ids;
  auto const num_types = std::max<std::int64_t>(1, facts.num_types());
  auto const own_rows = pmm::block_of(grid_, {{pmm::group_axes, {}}, {n, num_types}}).rows;
  std::vector<T> types(static_cast<std::size_t>(own_rows.size() * num_types));
  runtime::together(grid_.group(), [&] {
    if (needs_ids) {
      row_ids = read_owned_ids(store_, block_rows(shape, coordinates, roles, n));
      column_ids = read_owned_ids(store_, block_columns(shape, coordinates, roles, n));
    }
    auto const ids = store_.read_original_ids(graph::Order::p1, own_rows);
    for (std::size_t i = 0; i < ids.size(); ++i)
      types[i * static_cast<std::size_t>(num_types) +
            static_cast<std::size_t>(facts.num_types() > 0 ? facts.type_of(ids[i]) : 0)] = T{1};
  });
  auto edges = pmm::make_relation_edges(grid_, roles.a, entries, row_ids, column_ids);
  edges_ = RelationOperand<T>{{},
                              owned.sizes,
                              std::make_shared<pmm::RelationEdges const>(std::move(edges)),
                              pmm::to_device("orthant::models::types_of_rows", types)};
  return *edges_;
}

template class RelationOperands<float>;
template class RelationOperands<double>;

} // namespace orthant::models
