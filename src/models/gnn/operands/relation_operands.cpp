// SPDX-License-Identifier: Apache-2.0
#include "models/gnn/operands/relation_operands.hpp"

#include "models/gnn/operands/owned_adjacency.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"

#include <utility>

namespace orthant::models {
namespace {

template<class T>
std::shared_ptr<pmm::RelationBlock<T> const> made(pmm::ProcessGrid const& grid,
                                                  graph::GraphStore const& store, pmm::AxisSet columns,
                                                  graph::CsrBlock block) {
  pmm::TypedEntries entries;
  entries.num_rows = std::ssize(block.row_offsets) - 1;
  entries.num_columns = block.columns_range.size();
  entries.num_relations = store.facts().num_relations();
  entries.row_offsets = std::move(block.row_offsets);
  entries.columns = std::move(block.columns);
  entries.relations = std::move(block.relations);
  ORTHANT_REQUIRE(entries.relations.size() == entries.columns.size(), entries.relations.size(),
                  " relations of ", entries.columns.size(), " entries");
  return std::make_shared<pmm::RelationBlock<T> const>(pmm::make_relation_block<T>(grid, columns, entries));
}

} // namespace

template<class T>
RelationOperand<T> RelationOperands<T>::get(pmm::Placement const& placement, bool is_even) {
  auto const& layout = placement.layout;
  AdjacencyKey const key{layout.rows, layout.columns, is_even};
  if (auto const known = blocks_.find(key); known != blocks_.end()) return known->second;
  auto const parity = is_even ? graph::Parity::even : graph::Parity::odd;
  auto const range = pmm::block_of(grid_, placement);
  auto block =
      runtime::together(grid_.group(), [&] { return store_.read_block(parity, range.rows, range.columns); });
  RelationOperand<T> const operand{made<T>(grid_, store_, layout.columns, std::move(block)), {}};
  return blocks_.emplace(key, operand).first->second;
}

template<class T>
RelationOperand<T> RelationOperands<T>::get(pmm::Roles const& roles) {
  AdjacencyKey const key{roles.c, roles.a, true};
  if (auto const known = blocks_.find(key); known != blocks_.end()) return known->second;
  auto owned = read_owned_block(grid_, store_, roles);
  RelationOperand<T> const operand{made<T>(grid_, store_, roles.a, std::move(owned.csr)), owned.sizes};
  return blocks_.emplace(key, operand).first->second;
}

template class RelationOperands<float>;
template class RelationOperands<double>;

} // namespace orthant::models
