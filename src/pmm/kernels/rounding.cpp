// SPDX-License-Identifier: Apache-2.0
#include "pmm/kernels/rounding.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/packs.hpp"
#include "runtime/error.hpp"

#include <atomic>

namespace orthant::pmm {
namespace {

/// to := from for one pack, on a device.
template<class From, class To>
struct CopyPack {
  PackedArray<From> from;
  PackedArray<To> to;
  KOKKOS_FUNCTION void operator()(std::int64_t first, std::int64_t count) const {
    to.store(first, count, from.load(first, count));
  }
};

/// overflow := true if a finite number becomes infinite; may be null.
template<class Number>
void round_array(runtime::DefaultExec const& exec, char const* label, runtime::Vector<float> const& from,
                 runtime::Vector<Number> const& to, std::atomic<bool>* overflow) {
  auto const count = static_cast<std::int64_t>(to.extent(0));
  ORTHANT_REQUIRE(from.extent(0) >= to.extent(0), from.extent(0), " numbers for ", count);
  if constexpr (runs_on_host) {
    auto const narrow = runtime::best_number16_arrays<Number>().narrow;
    auto const* const source = from.data();
    auto* const target = to.data();
    for_each_part(exec, label, count, [=](std::int64_t begin, std::int64_t end) {
      auto const fits = narrow(source + begin, target + begin, static_cast<std::size_t>(end - begin));
      if (!fits && overflow != nullptr) *overflow = true;
    });
  } else {
    for_each_pack<Number>(
        exec, label, count,
        CopyPack<float const, Number>{PackedArray<float const>(from.data()), PackedArray(to.data())});
  }
}

} // namespace

template<class Number>
void round_numbers(runtime::DefaultExec const& exec, runtime::Vector<float> const& from,
                   runtime::Vector<Number> const& to) {
  std::atomic<bool> has_overflowed = false;
  round_array(exec, "orthant::pmm::round_numbers", from, to, &has_overflowed);
  if constexpr (runs_on_host) {
    runtime::compat::fence(exec, "orthant::pmm::round_numbers/whether all numbers fit");
    ORTHANT_REQUIRE(!has_overflowed, "an operand does not fit fp16 (largest 65504); use bf16 or fp32");
  }
}

template<class Number>
void round_or_overflow(runtime::DefaultExec const& exec, char const* label,
                       runtime::Vector<float> const& from, runtime::Vector<Number> const& to) {
  round_array(exec, label, from, to, nullptr);
}

template<class Number>
void widen_numbers(runtime::DefaultExec const& exec, runtime::Vector<Number> const& from,
                   runtime::Vector<float> const& to) {
  auto const count = static_cast<std::int64_t>(to.extent(0));
  ORTHANT_REQUIRE(from.extent(0) == to.extent(0), from.extent(0), " numbers for ", count);
  constexpr auto label = "orthant::pmm::widen_numbers";
  auto const* const source = from.data();
  auto* const target = to.data();
  if constexpr (runs_on_host)
    for_each_part(exec, label, count, [=](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i)
        target[i] = source[i];
    });
  else
    for_each_pack<Number>(exec, label, count,
                          CopyPack<Number const, float>{PackedArray(source), PackedArray(target)});
}

template void round_or_overflow(runtime::DefaultExec const&, char const*, runtime::Vector<float> const&,
                                runtime::Vector<runtime::Bf16Number> const&);
template void round_or_overflow(runtime::DefaultExec const&, char const*, runtime::Vector<float> const&,
                                runtime::Vector<runtime::Fp16Number> const&);
template void widen_numbers(runtime::DefaultExec const&, runtime::Vector<runtime::Bf16Number> const&,
                            runtime::Vector<float> const&);
template void widen_numbers(runtime::DefaultExec const&, runtime::Vector<runtime::Fp16Number> const&,
                            runtime::Vector<float> const&);
template void round_numbers(runtime::DefaultExec const&, runtime::Vector<float> const&,
                            runtime::Vector<runtime::Bf16Number> const&);
template void round_numbers(runtime::DefaultExec const&, runtime::Vector<float> const&,
                            runtime::Vector<runtime::Fp16Number> const&);

} // namespace orthant::pmm
