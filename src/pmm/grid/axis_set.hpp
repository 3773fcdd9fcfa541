#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// The axes of the process grid, and sets of them. A set is fused to one axis: its group holds the ranks that
// differ on these axes only, in the order of the grid's ranks (Y fastest, then X, Z, expert, data, pipe). The empty set is
// an axis of one rank: a matrix whose columns are split over it has whole rows.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace orthant::pmm {

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

} // namespace orthant::pmm
