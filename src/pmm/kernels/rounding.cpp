// SPDX-License-Identifier: Apache-2.0
#include "pmm/kernels/rounding.hpp"

#include "pmm/kernels/host_parts.hpp"
#include "pmm/kernels/row_kernels_host.hpp"
#include "runtime/error.hpp"

#include <atomic>
#include <type_traits>

namespace orthant::pmm {
namespace {

template<class Number>
void round_on_host(runtime::DefaultExec const& exec, float const* from, Number* to, std::int64_t count) {
  auto const kernel = [] {
    auto const& kernels = host_rows::best_row_kernels<float>();
    if constexpr (std::is_same_v<Number, runtime::Bf16Number>)
      return kernels.round_to_bf16;
    else
      return kernels.round_to_fp16;
  }();
  std::atomic<bool> has_overflowed = false;
  auto* const overflow = &has_overflowed;
  for_each_part(exec, "orthant::pmm::round_numbers", count, [=](std::int64_t begin, std::int64_t end) {
    if (kernel(from, to, begin, end)) *overflow = true;
  });
  runtime::compat::fence(exec, "orthant::pmm::round_numbers/whether all numbers fit");
  ORTHANT_REQUIRE(!has_overflowed, "an operand does not fit fp16 (largest 65504); use bf16 or fp32");
}

} // namespace

template<class Number>
void round_numbers(runtime::DefaultExec const& exec, runtime::Vector<float> const& from,
                   runtime::Vector<Number> const& to) {
  auto const count = static_cast<std::int64_t>(to.extent(0));
  ORTHANT_REQUIRE(from.extent(0) >= to.extent(0), from.extent(0), " numbers for ", count);
  if constexpr (runs_on_host) {
    round_on_host(exec, from.data(), to.data(), count);
  } else {
    Kokkos::parallel_for(
        "orthant::pmm::round_numbers",
        Kokkos::RangePolicy<runtime::DefaultExec, std::int64_t>(exec, 0, count),
        KOKKOS_LAMBDA(std::int64_t i) {
          to(static_cast<std::size_t>(i)) = Number(from(static_cast<std::size_t>(i)));
        });
  }
}

template<class Number>
void widen_numbers(runtime::DefaultExec const& exec, runtime::Vector<Number> const& from,
                   runtime::Vector<float> const& to) {
  auto const count = static_cast<std::int64_t>(to.extent(0));
  ORTHANT_REQUIRE(from.extent(0) == to.extent(0) && runs_on_host, from.extent(0), " numbers for ", count,
                  ", on host processors");
  auto const* const source = from.data();
  auto* const target = to.data();
  for_each_part(exec, "orthant::pmm::widen_numbers", count, [=](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i)
      target[i] = source[i];
  });
}

template void widen_numbers(runtime::DefaultExec const&, runtime::Vector<runtime::Bf16Number> const&,
                            runtime::Vector<float> const&);
template void widen_numbers(runtime::DefaultExec const&, runtime::Vector<runtime::Fp16Number> const&,
                            runtime::Vector<float> const&);
template void round_numbers(runtime::DefaultExec const&, runtime::Vector<float> const&,
                            runtime::Vector<runtime::Bf16Number> const&);
template void round_numbers(runtime::DefaultExec const&, runtime::Vector<float> const&,
                            runtime::Vector<runtime::Fp16Number> const&);

} // namespace orthant::pmm
