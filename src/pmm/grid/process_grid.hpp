#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The process grid, data x X x Y x Z and, for language models, context, expert and pipe. The ranks along each set of axes share a
// communicator.
//
//   rank = y + Y (x + X (z + Z (e + E (c + C (d + D p)))))          Y fastest, then X, Z, expert, context, data, pipe
//
// Neighbors along Y therefore have consecutive ranks, which are on one node if possible (Plexus, arXiv 2505.04083, section 3.1).
// Any factorization works.

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

// Axes of the process grid, and sets of them. A set acts like one axis: a group over it consists of the ranks whose coordinates differ
// only on these axes, in the order of their ranks in the grid (Y fastest, then X, Z, expert, context, data, pipe). The empty set acts like an
// axis of one rank: a matrix whose columns are split over it has whole rows.

/// x, y and z split matrices. Ranks along data hold the same parameters, and ranks along expert hold different experts. Ranks along
/// both have different sequences, and ranks along context have different tokens of the same sequences. All parameters but those of experts
/// are therefore replicated over {context, expert, data}. Ranks along pipe hold different layers.
enum class Axis : std::uint8_t { x, y, z, data, expert, pipe, context };
inline constexpr std::array spatial_axes{Axis::x, Axis::y, Axis::z};
/// All axes in the order in which ranks are numbered, the fastest first.
inline constexpr std::array nested_axes{Axis::y,       Axis::x,    Axis::z,   Axis::expert,
                                        Axis::context, Axis::data, Axis::pipe};

[[nodiscard]] std::string_view name_of(Axis axis);

class AxisSet {
 public:
  constexpr AxisSet() = default;
  /// Implicit, so that functions that take a set also take a single axis.
  constexpr AxisSet(Axis axis) : bits_(bit_of(axis)) {} // NOLINT(google-explicit-constructor)
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (auto const axis : axes)
      bits_ = static_cast<std::uint8_t>(bits_ | bit_of(axis));
  }
  [[nodiscard]] constexpr bool contains(Axis axis) const { return (bits_ & bit_of(axis)) != 0; }
  [[nodiscard]] constexpr bool contains(AxisSet axes) const { return (axes.bits_ & ~bits_) == 0; }
  [[nodiscard]] constexpr bool intersects(AxisSet axes) const { return (axes.bits_ & bits_) != 0; }
  /// Union of both sets.
  [[nodiscard]] constexpr AxisSet with(AxisSet axes) const {
    return from_bits(static_cast<std::uint8_t>(bits_ | axes.bits_));
  }
  /// The axes of this set that are not in `axes`.
  [[nodiscard]] constexpr AxisSet without(AxisSet axes) const {
    return from_bits(static_cast<std::uint8_t>(bits_ & ~axes.bits_));
  }
  friend constexpr auto operator<=>(AxisSet const&, AxisSet const&) = default;
  // Implied by the line above, but nvcc does not emit it unless it is declared.
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

/// Axes of a group: the ranks that share the same tokens and the same layers.
inline constexpr AxisSet group_axes{Axis::x, Axis::y, Axis::z};

/// Returns "group" for group_axes, "none" for no axis, and otherwise the names in nested order: "x", "z+data".
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
  int context = 1;

  [[nodiscard]] int num_ranks() const { return data * x * y * z * expert * pipe * context; }
  [[nodiscard]] int size(Axis axis) const;
  /// Number of ranks of a group over these axes: the product of their sizes.
  [[nodiscard]] int size(AxisSet axes) const;
  /// Returns data, X, Y and Z as "1x2x3x1"; with more than one rank along expert, context or pipe, "1x2x3x1, expert 4, context 2, pipe 2".
  [[nodiscard]] std::string to_string() const;
  friend bool operator==(GridShape const&, GridShape const&) = default;
};

/// Axes along which sequences differ: data, and also expert if it has more than one rank.
[[nodiscard]] AxisSet sequence_axes(GridShape const& shape);
/// Axes along which tokens differ, over which gradients and losses are summed: those of sequences, and also context if it has more than
/// one rank.
[[nodiscard]] AxisSet batch_axes(GridShape const& shape);
/// Axes over which parameters are split: those of the group, and also expert if it has more than one rank.
[[nodiscard]] AxisSet parameter_axes(GridShape const& shape);

/// Parses "DxXxYxZ" for any number of ranks up to 2^30. Returns nothing for "auto" and other texts.
[[nodiscard]] std::optional<GridShape> read_grid(std::string_view text);

/// Parses "DxXxYxZ", or returns near_cubic() for "auto". Throws UserError if the text is not a grid of `num_ranks` ranks.
[[nodiscard]] GridShape parse_grid(std::string_view text, int num_ranks);

/// Returns data = 1 and X, Y, Z as equal as the factors of `num_ranks` allow: the smallest X + Y + Z, with X >= Y >= Z.
[[nodiscard]] GridShape near_cubic(int num_ranks);

/// Returns all shapes with `num_ranks` ranks and `data` groups, in lexicographic order of (X, Y, Z).
[[nodiscard]] std::vector<GridShape> all_shapes(int num_ranks, int data = 1);

/// Coordinates of a rank in the grid.
struct Coordinates {
  int data = 0;
  int x = 0;
  int y = 0;
  int z = 0;
  int expert = 0;
  int pipe = 0;
  int context = 0;
  [[nodiscard]] int along(Axis axis) const;
  [[nodiscard]] int& along(Axis axis);
  friend bool operator==(Coordinates const&, Coordinates const&) = default;
};

[[nodiscard]] Coordinates coordinates_of(GridShape const& shape, int rank);
[[nodiscard]] int rank_of(GridShape const& shape, Coordinates const& coordinates);
/// Rank within the group over these axes, in nested order.
[[nodiscard]] int rank_within(GridShape const& shape, Coordinates const& coordinates, AxisSet axes);
/// Coordinates of member `rank` of the group over these axes that contains the rank at `coordinates`.
[[nodiscard]] Coordinates member_of(GridShape const& shape, Coordinates coordinates, AxisSet axes, int rank);

/// Key of a communicator of a grid.
struct RankGroup {
  AxisSet axes;
  int run_length = 0; // ranks of a run along one axis (ProcessGrid::over_run); 0 for whole axes
  friend constexpr auto operator<=>(RankGroup const&, RankGroup const&) = default;
  // Implied by the line above, but nvcc does not emit it unless it is declared.
  friend constexpr bool operator==(RankGroup const&, RankGroup const&) = default;
};
/// Returns for example "x/2" for runs of two ranks along x, and the name of the axis if a run is the whole axis.
[[nodiscard]] std::string name_of_run(GridShape const& shape, Axis axis, int length);

/// Owns the communicators of the grid. Each is created when it is first requested. A grid cannot be copied, because communicators are
/// costly to create.
class ProcessGrid {
 public:
  /// `world` must have shape.num_ranks() ranks, otherwise throws Error, and must outlive the grid. Not collective.
  ProcessGrid(Communicator const& world, GridShape const& shape);
  /// Collective over all communicators that were created.
  ~ProcessGrid();
  ProcessGrid(ProcessGrid const&) = delete;
  ProcessGrid& operator=(ProcessGrid const&) = delete;

  [[nodiscard]] GridShape const& shape() const { return shape_; }
  [[nodiscard]] int size(AxisSet axes) const { return shape_.size(axes); }
  [[nodiscard]] Coordinates const& coordinates() const { return coordinates_; }
  /// This rank's number within the group over these axes.
  [[nodiscard]] int coordinate(AxisSet axes) const { return rank_within(shape_, coordinates_, axes); }

  /// Communicator of the ranks whose coordinates differ from this rank's only on these axes, in nested order. The first call for a set
  /// creates it and is collective over these ranks, which must request their sets in the same order. Call from one thread only.
  [[nodiscard]] Communicator const& over(AxisSet axes) const;
  /// Communicator of the run along this axis that contains this rank: coordinates 0 to length - 1 form the first run, and so on.
  /// `length` must divide the size of the axis; otherwise throws Error. The first call creates the communicator and is collective over
  /// its ranks, as in over().
  [[nodiscard]] Communicator const& over_run(Axis axis, int length) const;
  /// The X x Y x Z ranks that share this rank's tokens and layers.
  [[nodiscard]] Communicator const& group() const { return over(group_axes); }
  [[nodiscard]] Communicator const& world() const { return world_; }
  /// Ledger of passes over arrays.
  [[nodiscard]] runtime::PassLedger& passes() const { return world_.instruments().passes; }
  /// Communicators that have been created so far.
  [[nodiscard]] std::map<RankGroup, Communicator> const& communicators() const { return communicators_; }

 private:
  Communicator const& world_;
  GridShape shape_;
  Coordinates coordinates_;
  // Mutable because it is a cache.
  mutable std::map<RankGroup, Communicator> communicators_;
};

} // namespace orthant::pmm
