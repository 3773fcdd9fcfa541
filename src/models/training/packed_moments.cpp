// SPDX-License-Identifier: Apache-2.0
#include "models/training/packed_moments.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <cmath>

namespace orthant::models {
namespace {

std::int64_t num_blocks_of(std::int64_t length) {
  return (length + detail::moments_per_block - 1) / detail::moments_per_block;
}

} // namespace

MomentFormat parse_moments(std::string_view word) {
  if (word == "fp32") return MomentFormat::native;
  if (word == "bf16") return MomentFormat::bf16;
  if (word == "int8") return MomentFormat::int8;
  runtime::throw_user("--moments is fp32, bf16 or int8, not '{}'", word);
}

std::int64_t bytes_of_moments(MomentFormat format, std::int64_t length) {
  if (format == MomentFormat::bf16) return length * std::int64_t{sizeof(std::uint16_t)};
  return length + num_blocks_of(length) * std::int64_t{sizeof(float)};
}

void plan_packed_moment(pmm::StepPlan& step, MomentFormat format, std::int64_t length,
                        std::string const& label) {
  if (length == 0) return;
  if (format == MomentFormat::bf16) {
    step.add_array(label, bytes_of_moments(format, length));
    return;
  }
  step.add_array(label, length);
  step.add_array(label + "/scales", num_blocks_of(length) * std::int64_t{sizeof(float)});
}

PackedMoment::PackedMoment(MomentFormat format, bool is_positive, std::int64_t length,
                           std::string const& label)
    : format_(format),
      is_positive_(is_positive),
      length_(length) {
  ORTHANT_REQUIRE(format != MomentFormat::native, "native moments are not packed");
  auto const count = static_cast<std::size_t>(length);
  if (format == MomentFormat::bf16) {
    halves_ = runtime::Vector<std::uint16_t>(label, count);
    return;
  }
  codes_ = runtime::Vector<std::uint8_t>(label, count);
  scales_ = runtime::Vector<float>(label + "/scales", static_cast<std::size_t>(num_blocks_of(length)));
}

detail::PackedPointers PackedMoment::pointers() const {
  return {format_, is_positive_, halves_.data(), codes_.data(), scales_.data()};
}

template<class T>
void PackedMoment::read(std::vector<T>& numbers) const {
  numbers.resize(static_cast<std::size_t>(length_));
  auto const halves = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), halves_);
  auto const codes = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), codes_);
  auto const scales = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), scales_);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] =
        static_cast<T>(format_ == MomentFormat::bf16 ? runtime::decode_bf16(halves(i))
                                                     : scales(i / detail::moments_per_block) *
                                                           detail::value_of_code(is_positive_, codes(i)));
}

template<class T>
void PackedMoment::write(std::vector<T> const& numbers) const {
  ORTHANT_REQUIRE(std::ssize(numbers) == length_, numbers.size(), " numbers for ", length_, " moments");
  auto const halves = Kokkos::create_mirror_view(Kokkos::HostSpace(), halves_);
  auto const codes = Kokkos::create_mirror_view(Kokkos::HostSpace(), codes_);
  auto const scales = Kokkos::create_mirror_view(Kokkos::HostSpace(), scales_);
  constexpr float half = 0.5F;
  constexpr auto block = static_cast<std::size_t>(detail::moments_per_block);
  for (std::size_t begin = 0; begin < numbers.size(); begin += block) {
    auto const end = std::min(begin + block, numbers.size());
    auto scale = 0.0F;
    for (auto i = begin; i < end; ++i)
      scale = std::max(scale, std::abs(static_cast<float>(numbers[i])));
    for (auto i = begin; i < end; ++i)
      if (format_ == MomentFormat::bf16)
        halves(i) = runtime::encode_bf16(static_cast<float>(numbers[i]));
      else
        codes(i) = detail::code_of(is_positive_, static_cast<float>(numbers[i]), scale, half);
    if (format_ == MomentFormat::int8) scales(begin / block) = scale;
  }
  Kokkos::deep_copy(halves_, halves);
  Kokkos::deep_copy(codes_, codes);
  Kokkos::deep_copy(scales_, scales);
}

#define ORTHANT_INSTANTIATE(T)                                                                               \
  template void PackedMoment::read(std::vector<T>&) const;                                                   \
  template void PackedMoment::write(std::vector<T> const&) const;
ORTHANT_INSTANTIATE(float)
ORTHANT_INSTANTIATE(double)
#undef ORTHANT_INSTANTIATE

} // namespace orthant::models
