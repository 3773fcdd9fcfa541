#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Moments of an optimizer in fewer bits. A step reads them as numbers of T, computes with these, and rounds the new ones:
//
//   bf16   the upper 16 bits of an fp32 number
//   int8   blocks of 256 moments of a parameter on this rank, with one fp32 scale s, the largest absolute value of the block:
//          m = s sign(k) (k / 127)^2, k in -127 .. 127      first moments
//          v = s (k / 255)^4, k in 0 .. 255                 second moments; a positive v has k > 0, so that no step divides by epsilon
//
// The powers make codes dense near 0, as those of a dynamic code are: the smallest first moment is 6e-5 of the largest, and the smallest
// second one 2e-10. Rounding is stochastic: of the two neighbors of a number, each is taken with the probability that makes the mean exact.
// With rounding to nearest a second moment would not decay, as 1 - beta2 = 0.001 is less than half of the distance to its neighbor. The
// random bits follow from step, parameter and place in its piece, so they are the same for all copies of a piece, and a run can be
// repeated. On another grid other numbers are rounded up.
//
// A widened moment is stored again with the same bits, if blocks are the same. Source of blocks with a scale: Dettmers et al. (arXiv
// 2110.02861).

#include "pmm/cost/step_plan.hpp"
#include "runtime/arrays/views.hpp"
#include "runtime/numbers/formats.hpp"

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::models {

/// native: numbers of the type of the computation.
enum class MomentFormat : std::uint8_t { native, bf16, int8 };

/// Accepts "fp32" (native), "bf16" or "int8". Throws UserError for other words.
[[nodiscard]] MomentFormat parse_moments(std::string_view word);

/// Bytes of `length` moments of a parameter, which are not native.
[[nodiscard]] std::int64_t bytes_of_moments(MomentFormat format, std::int64_t length);
/// Lists the arrays of a PackedMoment.
void plan_packed_moment(pmm::StepPlan& step, MomentFormat format, std::int64_t length,
                        std::string const& label);

namespace detail {

inline constexpr std::int64_t moments_per_block = 256;

/// Memory of a moment for kernels. Elements and blocks are those of a parameter on this rank.
struct PackedPointers {
  MomentFormat format = MomentFormat::native;
  bool is_positive = false;
  std::uint16_t* halves = nullptr;
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
};

/// Value of a code without its scale: in -1 .. 1, or 0 .. 1 if positive.
KOKKOS_INLINE_FUNCTION float value_of_code(bool is_positive, std::uint8_t code) {
  if (is_positive) {
    auto const root = static_cast<float>(code) / 255.0F;
    return root * root * root * root;
  }
  auto const root = static_cast<float>(static_cast<std::int8_t>(code)) / 127.0F;
  return root < 0 ? -root * root : root * root;
}

/// Code of `number`, whose absolute value is at most `scale`. `draw` in [0, 1): 0.5 rounds to nearest, a random number stochastically.
KOKKOS_INLINE_FUNCTION std::uint8_t code_of(bool is_positive, float number, float scale, float draw) {
  auto const magnitude = number < 0 ? -number : number;
  if (!(scale > 0) || magnitude == 0) return 0;
  auto const ratio = magnitude / scale;
  auto const share = ratio < 1 ? ratio : 1.0F; // also of nan, which remains visible in the parameter
  auto const last = is_positive ? 255.0F : 127.0F;
  auto const root =
      is_positive ? runtime::compat::sqrt(runtime::compat::sqrt(share)) : runtime::compat::sqrt(share);
  auto const largest_below = static_cast<int>(last) - 1;
  auto const found = static_cast<int>(root * last);
  auto const below = found < largest_below ? found : largest_below;
  auto const power = [&](int code) {
    auto const square = static_cast<float>(code) / last * (static_cast<float>(code) / last);
    return is_positive ? square * square : square;
  };
  auto const takes_upper = share - power(below) > draw * (power(below + 1) - power(below));
  auto const code = below + (takes_upper ? 1 : 0);
  if (is_positive) return static_cast<std::uint8_t>(code > 0 ? code : 1);
  return static_cast<std::uint8_t>(number < 0 ? -code : code);
}

/// bf16 of `number`. `draw`: 16 bits; 0x8000 rounds to nearest, random ones stochastically.
KOKKOS_INLINE_FUNCTION std::uint16_t half_of(float number, std::uint32_t draw) {
  auto const bits = std::bit_cast<std::uint32_t>(number);
  if ((bits & 0x7f800000U) == 0x7f800000U) return runtime::encode_bf16(number); // infinite or nan
  return static_cast<std::uint16_t>((bits + draw) >> 16);
}

/// 64 random bits of an element in a step (the last rounds of SplitMix64, Steele et al. 2014).
KOKKOS_INLINE_FUNCTION std::uint64_t random_bits(std::uint64_t step, std::uint64_t element) {
  auto bits = (step << 40U) ^ (element + 1) * 0x9e3779b97f4a7c15ULL;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebULL;
  return bits ^ (bits >> 31U);
}

} // namespace detail

/// One moment of all elements of a parameter on this rank. Copies share memory.
class PackedMoment {
 public:
  PackedMoment() = default;
  /// Filled with zeros. `format` must not be native.
  PackedMoment(MomentFormat format, bool is_positive, std::int64_t length, std::string const& label);

  [[nodiscard]] std::int64_t length() const { return length_; }
  /// Copy to the host, widened. Fences all kernels.
  template<class T>
  void read(std::vector<T>& numbers) const;
  /// Rounds to nearest. Fences all kernels. Throws Error if there is another number of elements.
  template<class T>
  void write(std::vector<T> const& numbers) const;
  [[nodiscard]] detail::PackedPointers pointers() const;

 private:
  MomentFormat format_ = MomentFormat::native;
  bool is_positive_ = false;
  std::int64_t length_ = 0;
  runtime::Vector<std::uint16_t> halves_; // bf16
  runtime::Vector<std::uint8_t> codes_;   // int8
  runtime::Vector<float> scales_;         // int8, one per block
};

} // namespace orthant::models
