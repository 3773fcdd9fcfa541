#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Gradients of matrices to the owners of their tiles (matrix_tiles.hpp), and results back to where the gradients were. Each way is one
// all_to_all of the group. A rank's numbers in its own tiles are copied without a message.

#include "models/training/jorge/matrix_tiles.hpp"
#include "runtime/arrays/views.hpp"

#include <cstdint>
#include <vector>

namespace orthant::models {

namespace detail {
/// A rectangle that is copied.
template<class T>
struct CopiedPart {
  T const* from = nullptr;
  T* to = nullptr;
  std::int64_t from_stride = 0;
  std::int64_t to_stride = 0;
  std::int64_t num_rows = 0;
  std::int64_t num_columns = 0;
};

/// Rectangles that one pass copies.
template<class T>
struct CopiedParts {
  std::vector<CopiedPart<T>> on_host;
  runtime::Vector<CopiedPart<T>> on_device; // in device builds
  std::int64_t num_numbers = 0;

  void add(TilePart const& part, CopiedPart<T> copied) {
    copied.num_rows = part.rows.size();
    copied.num_columns = part.columns.size();
    on_host.push_back(copied);
    num_numbers += part.size();
  }
};

/// Numbers of a message from and to each rank of the group.
struct MessageCounts {
  std::vector<std::int64_t> sent, received;
};
} // namespace detail

/// List the arrays of a TileExchange, and the passes and the calls of its two ways.
void plan_tile_arrays(pmm::StepPlan& step, TileSizes const& sizes);
void plan_to_owners(pmm::StepPlan& step, TileSizes const& sizes);
void plan_from_owners(pmm::StepPlan& step, TileSizes const& sizes);

template<class T>
class TileExchange {
 public:
  /// For the gradients of these matrices, whose memory must not move. `grid` must outlive this object. Collective over the grid's group.
  TileExchange(pmm::ProcessGrid const& grid, std::vector<Parameter<T>> const& matrices, std::int64_t side);

  /// All tiles of the group.
  [[nodiscard]] std::vector<Tile> const& tiles() const { return tiles_; }
  /// Those of this rank.
  [[nodiscard]] std::vector<Tile> const& own_tiles() const { return own_tiles_; }
  [[nodiscard]] TileSizes const& sizes() const { return sizes_; }
  /// [num_owned] numbers of own tiles, each row-major, one after the other.
  [[nodiscard]] runtime::Vector<T> const& numbers() const { return numbers_; }

  /// numbers() := the gradients. Collective over the grid's group. Enqueues on exec; does not fence.
  void to_owners(runtime::DefaultExec const& exec) const;
  /// Gradients := numbers() of the owners. Collective over the grid's group. Enqueues on exec; does not fence.
  void from_owners(runtime::DefaultExec const& exec) const;

 private:
  using Pieces = std::vector<TiledMatrix>;
  void list_copies(std::vector<Parameter<T>> const& matrices, std::vector<Pieces> const& pieces);

  pmm::ProcessGrid const* grid_;
  std::vector<Tile> tiles_, own_tiles_;
  TileSizes sizes_;
  runtime::Vector<T> numbers_;   // [num_owned]
  runtime::Vector<T> at_pieces_; // [num_foreign] sent gradients, and received results
  runtime::Vector<T> at_owners_; // [num_returned] received gradients, and sent results
  detail::CopiedParts<T> packed_,
      unpacked_; // gradients to messages and own tiles, and from messages to tiles
  detail::CopiedParts<T> packed_back_, unpacked_back_; // the same for results
  detail::MessageCounts of_gradients_, of_results_;
};

extern template class TileExchange<float>;
extern template class TileExchange<double>;

} // namespace orthant::models
