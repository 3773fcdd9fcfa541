#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The grid of ranks, data x X x Y x Z and, for language models, expert and pipe; and a communicator per set of
// axes.
//
//   rank = y + Y (x + X (z + Z (e + E (d + D p))))          Y fastest, then X, Z, expert, data, pipe
//
// so neighbours on Y are the nearest ranks of a node (Plexus, arXiv 2505.04083, section 3.1). Any
// factorisation works.

#include "runtime/comm/communicator.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::pmm {

// The axes of the process grid, and sets of them. A set is fused to one axis: its group holds the ranks that
// differ on these axes only, in the order of the grid's ranks (Y fastest, then X, Z, expert, data, pipe). The empty set is
// an axis of one rank: a matrix whose columns are split over it has whole rows.

/// x, y and z split matrices. Ranks along expert hold different experts and ranks along data the same
/// parameters; both have batches of their own, so replicas of what is no expert's are those of {expert, data}.
/// Ranks along pipe hold different layers.
enum class Axis : std::uint8_t { x, y, z, data, expert, pipe };
inline constexpr std::array spatial_axes{Axis::x, Axis::y, Axis::z};
/// In the order in which they count ranks, the fastest first.
inline constexpr std::array nested_axes{Axis::y, Axis::x, Axis::z, Axis::expert, Axis::data, Axis::pipe};

[[nodiscard]] std::string_view name_of(Axis axis);

class AxisSet {
 public:
  constexpr AxisSet() = default;
  /// A single axis is a set: whatever takes sets takes axes.
  constexpr AxisSet(Axis axis) : bits_(bit_of(axis)) {} // NOLINT(google-explicit-constructor)
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (auto const axis : axes)
      bits_ = static_cast<std::uint8_t>(bits_ | bit_of(axis));
  }
  [[nodiscard]] constexpr bool contains(Axis axis) const { return (bits_ & bit_of(axis)) != 0; }
  [[nodiscard]] constexpr bool contains(AxisSet axes) const { return (axes.bits_ & ~bits_) == 0; }
  [[nodiscard]] constexpr bool intersects(AxisSet axes) const { return (axes.bits_ & bits_) != 0; }
  /// These axes and those.
  [[nodiscard]] constexpr AxisSet with(AxisSet axes) const {
    return from_bits(static_cast<std::uint8_t>(bits_ | axes.bits_));
  }
  /// These axes except those.
  [[nodiscard]] constexpr AxisSet without(AxisSet axes) const {
    return from_bits(static_cast<std::uint8_t>(bits_ & ~axes.bits_));
  }
  friend constexpr auto operator<=>(AxisSet const&, AxisSet const&) = default;
  // Implied by the line above, but nvcc then leaves it out of the object.
  friend constexpr bool operator==(AxisSet const&, AxisSet const&) = default;

 private:
  [[nodiscard]] static constexpr std::uint8_t bit_of(Axis axis) {
    return static_cast<std::uint8_t>(1U << static_cast<unsigned>(axis));
  }
  [[nodiscard]] static constexpr AxisSet from_bits(std::uint8_t bits) {
    AxisSet axes;
    axes.bits_ = bits;
    return axes;
  }
  std::uint8_t bits_ = 0;
};

/// All ranks that share one batch and the same layers.
inline constexpr AxisSet group_axes{Axis::x, Axis::y, Axis::z};

/// "x", "group" for group_axes, "none" for no axis, and otherwise the names in nested order: "z+data".
[[nodiscard]] std::string name_of(AxisSet axes);

using runtime::Communicator;

/// Sizes of the axes.
struct GridShape {
  int data = 1;
  int x = 1;
  int y = 1;
  int z = 1;
  int expert = 1;
  int pipe = 1;

  [[nodiscard]] int num_ranks() const { return data * x * y * z * expert * pipe; }
  [[nodiscard]] int size(Axis axis) const;
  /// Ranks of a group over these axes: their product.
  [[nodiscard]] int size(AxisSet axes) const;
  /// "1x2x3x1": data, X, Y, Z; with experts or stages "1x2x3x1, expert 4, pipe 2".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(GridShape const&, GridShape const&) = default;
};

/// The axes along which batches differ: data, and expert if it has ranks.
[[nodiscard]] AxisSet batch_axes(GridShape const& shape);
/// The axes over which parameters are spread: those of the group, and expert if it has ranks.
[[nodiscard]] AxisSet parameter_axes(GridShape const& shape);

/// The shape that "DxXxYxZ" is written for, whatever the number of ranks, at most 2^30; none for "auto" and other texts.
[[nodiscard]] std::optional<GridShape> read_grid(std::string_view text);

/// Parses "DxXxYxZ", or "auto" (near_cubic). Throws UserError if the text is not a grid of
/// `num_ranks` ranks.
[[nodiscard]] GridShape parse_grid(std::string_view text, int num_ranks);

/// data = 1 and X, Y, Z as equal as the factors of `num_ranks` allow: the least X + Y + Z, and of those X >=
/// Y >= Z.
[[nodiscard]] GridShape near_cubic(int num_ranks);

/// Every shape with that many ranks and `data` groups, in lexicographic order of (X, Y, Z).
[[nodiscard]] std::vector<GridShape> all_shapes(int num_ranks, int data = 1);

/// Where a rank stands.
struct Coordinates {
  int data = 0;
  int x = 0;
  int y = 0;
  int z = 0;
  int expert = 0;
  int pipe = 0;
  [[nodiscard]] int along(Axis axis) const;
  [[nodiscard]] int& along(Axis axis);
  friend bool operator==(Coordinates const&, Coordinates const&) = default;
};

[[nodiscard]] Coordinates coordinates_of(GridShape const& shape, int rank);
[[nodiscard]] int rank_of(GridShape const& shape, Coordinates const& coordinates);
/// The place in the group over these axes, in nested order.
[[nodiscard]] int rank_within(GridShape const& shape, Coordinates const& coordinates, AxisSet axes);
/// The member at place `rank` of the group over these axes that contains the rank at `coordinates`.
[[nodiscard]] Coordinates member_of(GridShape const& shape, Coordinates coordinates, AxisSet axes, int rank);

/// What tells the communicators of a grid apart.
struct RankGroup {
  AxisSet axes;
  int run_length = 0; // of a part of one axis; 0: the whole axes
  friend constexpr auto operator<=>(RankGroup const&, RankGroup const&) = default;
  // Implied by the line above, but nvcc then leaves it out of the object.
  friend constexpr bool operator==(RankGroup const&, RankGroup const&) = default;
};
/// "x/2": runs of two ranks along x; a run of the whole axis has its name.
[[nodiscard]] std::string name_of_run(GridShape const& shape, Axis axis, int length);

/// Owns the communicators, each of which is made when it is first asked for. It cannot be copied, because
/// communicators are costly to make.
class ProcessGrid {
 public:
  /// `world` must have shape.num_ranks() ranks (Error) and outlive the grid. Not collective.
  ProcessGrid(Communicator const& world, GridShape const& shape);
  /// Collective over the communicators that were made.
  ~ProcessGrid();
  ProcessGrid(ProcessGrid const&) = delete;
  ProcessGrid& operator=(ProcessGrid const&) = delete;

  [[nodiscard]] GridShape const& shape() const { return shape_; }
  [[nodiscard]] int size(AxisSet axes) const { return shape_.size(axes); }
  [[nodiscard]] Coordinates const& coordinates() const { return coordinates_; }
  /// This rank's place in the group over these axes.
  [[nodiscard]] int coordinate(AxisSet axes) const { return rank_within(shape_, coordinates_, axes); }

  /// The ranks that differ from this one on these axes only, in nested order. The first call for a set makes
  /// its communicator: collective over these ranks, which must ask for their sets in the same order. From one
  /// thread only.
  [[nodiscard]] Communicator const& over(AxisSet axes) const;
  /// Those of them whose places along this axis lie in the same run of `length`, which divides the axis (Error): places
  /// 0 to length - 1, and so on. Made as above.
  [[nodiscard]] Communicator const& over_run(Axis axis, int length) const;
  /// The X x Y x Z ranks that share this rank's batch and layers.
  [[nodiscard]] Communicator const& group() const { return over(group_axes); }
  [[nodiscard]] Communicator const& world() const { return world_; }
  /// Where passes over arrays are counted.
  [[nodiscard]] runtime::PassLedger& passes() const { return world_.instruments().passes; }
  /// The communicators that have been made so far.
  [[nodiscard]] std::map<RankGroup, Communicator> const& communicators() const { return communicators_; }

 private:
  Communicator const& world_;
  GridShape shape_;
  Coordinates coordinates_;
  // Logically a cache, hence mutable.
  mutable std::map<RankGroup, Communicator> communicators_;
};

} // namespace orthant::pmm
