#pragma once
// SPDX-License-Identifier: Apache-2.0
//
// Kernels of an optimizer: its rules for one element, over all elements, and over blocks of packed moments (packed_moments.hpp).

#include "models/training/optimizer.hpp"
#include "runtime/device/kokkos_compat.hpp"

#include <cstdint>

namespace orthant::models::detail {

// Only optimizer.cpp includes this header. Without names outside of it the rules become a part of all kernels, whose loops are vectorized.
namespace {

template<class T>
struct AdamUpdate {
  T beta1;
  T beta2;
  T epsilon;
  runtime::Number<double> learning_rate;

  KOKKOS_FUNCTION void operator()(ShardPointers<T> const& shard, StepFactors<T> const& factors,
                                  std::int64_t i, T& value) const {
    auto const w = value * static_cast<T>(1 - learning_rate() * shard.decoupled_decay);
    auto const g = shard.gradient[i] * factors.gradient_scale + shard.coupled_decay * w;
    auto const m = beta1 * shard.first[i] + (T{1} - beta1) * g;
    auto const v = beta2 * shard.second[i] + (T{1} - beta2) * g * g;
    shard.first[i] = m;
    shard.second[i] = v;
    value = w - factors.step_size * m / (runtime::compat::sqrt(v * factors.inverse_correction2) + epsilon);
  }
};

template<class T>
struct LionUpdate {
  T beta1;
  T beta2;

  KOKKOS_FUNCTION void operator()(ShardPointers<T> const& shard, StepFactors<T> const& factors,
                                  std::int64_t i, T& value) const {
    auto const g = shard.gradient[i] * factors.gradient_scale;
    auto const m = shard.first[i];
    auto const direction = beta1 * m + (T{1} - beta1) * g;
    auto const sign = direction > 0   ? T{1}
                      : direction < 0 ? T{-1}
                                      : direction; // nan remains visible in the value
    // The step size is the learning rate.
    value -= factors.step_size * (sign + static_cast<T>(shard.decoupled_decay) * value);
    shard.first[i] = beta2 * m + (T{1} - beta2) * g;
  }
};

template<class T>
struct SgdUpdate {
  T momentum;

  KOKKOS_FUNCTION void operator()(ShardPointers<T> const& shard, StepFactors<T> const& factors,
                                  std::int64_t i, T& value) const {
    auto update = shard.gradient[i] * factors.gradient_scale + shard.coupled_decay * value;
    if (shard.first != nullptr) {
      update += momentum * shard.first[i];
      shard.first[i] = update;
    }
    value -= factors.step_size * update;
  }
};

template<class T>
struct JorgeUpdate {
  T momentum;

  KOKKOS_FUNCTION void operator()(ShardPointers<T> const& shard, StepFactors<T> const& factors,
                                  std::int64_t i, T& value) const {
    auto update = shard.gradient[i];
    if (shard.first != nullptr) { // not preconditioned
      update = momentum * shard.first[i] + update * factors.gradient_scale;
      shard.first[i] = update;
    }
    value -= factors.step_size * (update + static_cast<T>(shard.decoupled_decay) * value);
  }
};

} // namespace

/// Updates elements of one parameter, on the host. The arguments are copies that no store through a pointer can change; otherwise
/// the compiler does not vectorize the loop.
template<class T, class Update>
void update_part(ShardPointers<T> shard, StepFactors<T> factors, Update update, std::int64_t begin,
                 std::int64_t end) {
  if (shard.kept == nullptr)
    for (auto i = begin; i < end; ++i)
      update(shard, factors, i, shard.value[i]);
  else
    for (auto i = begin; i < end; ++i)
      update(shard, factors, i, shard.value[shard.kept[i]]);
}

/// Updates the elements of all parameters, one after the other. Neighboring work items mostly belong to the same parameter, so the
/// data of the search is in the first-level cache.
template<class T, class Update>
struct UpdateAll {
  runtime::Vector<ShardPointers<T>> shards;
  runtime::Vector<StepFactors<T>> factors;
  Update update;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    std::size_t p = 0;
    std::int64_t begin = 0;
    while (i >= shards(p).end)
      begin = shards(p++).end;
    auto const& shard = shards(p);
    auto const element = i - begin;
    update(shard, factors(0), element, shard.value[shard.kept == nullptr ? element : shard.kept[element]]);
  }
};

/// Updates blocks of parameters whose moments are packed: a team widens the moments of a block in its scratch memory, updates the elements
/// with them, and packs the new ones.
template<class T, class Update>
struct UpdateBlocks {
  using Team = typename Kokkos::TeamPolicy<runtime::DefaultExec>::member_type;
  using Scratch =
      Kokkos::View<T*, typename runtime::DefaultExec::scratch_memory_space, Kokkos::MemoryUnmanaged>;
  static constexpr auto block = moments_per_block;

  runtime::Vector<PackedShard<T>> shards;
  runtime::Vector<StepFactors<T>> factors;
  runtime::Vector<double> num_steps;
  Update update;

  KOKKOS_FUNCTION static void widen(Team const& team, PackedPointers const& from, std::int64_t begin,
                                    std::int64_t count, Scratch const& to) {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](std::int64_t i) {
      auto const k = begin + i;
      to(i) = static_cast<T>(from.format == MomentFormat::bf16
                                 ? runtime::decode_bf16(from.halves[k])
                                 : from.scales[k / block] * value_of_code(from.is_positive, from.codes[k]));
    });
  }
  /// `shift`: of the random bits of an element, so that both moments get their own.
  KOKKOS_FUNCTION void pack(Team const& team, Scratch const& from, std::int64_t begin, std::int64_t count,
                            PackedPointers const& to, std::uint64_t first_element, unsigned shift) const {
    auto const step = static_cast<std::uint64_t>(num_steps(0));
    auto scale = 0.0F;
    if (to.format == MomentFormat::int8)
      Kokkos::parallel_reduce(
          Kokkos::TeamThreadRange(team, count),
          [&](std::int64_t i, float& most) {
            auto const number = static_cast<float>(from(i));
            auto const magnitude = number < 0 ? -number : number;
            if (magnitude > most) most = magnitude;
          },
          Kokkos::Max<float>(scale));
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](std::int64_t i) {
      auto const bits = random_bits(step, first_element + static_cast<std::uint64_t>(i)) >> shift;
      auto const number = static_cast<float>(from(i));
      if (to.format == MomentFormat::bf16)
        to.halves[begin + i] = half_of(number, static_cast<std::uint32_t>(bits & 0xffffU));
      else
        to.codes[begin + i] =
            code_of(to.is_positive, number, scale, static_cast<float>(bits & 0xffffffU) * 0x1p-24F);
    });
    if (to.format == MomentFormat::int8)
      Kokkos::single(Kokkos::PerTeam(team), [&] { to.scales[begin / block] = scale; });
  }

  KOKKOS_FUNCTION void operator()(Team const& team) const {
    std::int64_t const b = team.league_rank();
    std::size_t p = 0;
    std::int64_t first_block = 0;
    while (b >= shards(p).end_block)
      first_block = shards(p++).end_block;
    auto const& packed = shards(p);
    auto const begin = (b - first_block) * block;
    auto const count = packed.length - begin < block ? packed.length - begin : block;
    Scratch const first(team.team_scratch(0), block), second(team.team_scratch(0), block);
    auto const has_second = packed.second.format != MomentFormat::native;
    widen(team, packed.first, begin, count, first);
    if (has_second) widen(team, packed.second, begin, count, second);
    team.team_barrier();
    auto shard = packed.shard;
    shard.value += begin;
    shard.gradient += begin;
    shard.first = first.data();
    shard.second = second.data();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count),
                         [&](std::int64_t i) { update(shard, factors(0), i, shard.value[i]); });
    team.team_barrier();
    // Copies of a parameter on other ranks get the same bits, whatever lies before it on each rank.
    auto const first_element = (static_cast<std::uint64_t>(p) << 40U) + static_cast<std::uint64_t>(begin);
    constexpr unsigned bits_of_first = 32;
    pack(team, first, begin, count, packed.first, first_element, 0);
    if (has_second) pack(team, second, begin, count, packed.second, first_element, bits_of_first);
  }
};

} // namespace orthant::models::detail
