// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/roofline.hpp"

#include "cli/bench/bench.hpp"
#include "cli/machine/arithmetic_peak.hpp"

namespace orthant::cli {
namespace {

using runtime::Communicator;
using runtime::DefaultExec;
using runtime::Vector;

constexpr std::int64_t stream_repeats = 10; // as in STREAM
constexpr std::int64_t fma_repeats = 20;    // short runs, so that the best one is undisturbed
constexpr std::int64_t gemm_repeats = 3;

void run_triad(DefaultExec const& exec, Vector<double> const& a, Vector<double> const& b,
               Vector<double> const& c) {
  Kokkos::parallel_for(
      "orthant::cli::triad",
      Kokkos::RangePolicy<DefaultExec, std::int64_t>(exec, 0, static_cast<std::int64_t>(a.extent(0))),
      KOKKOS_LAMBDA(std::int64_t i) {
        auto const at = static_cast<std::size_t>(i);
        a(at) = b(at) + 3.0 * c(at);
      });
}

/// GB/s of all ranks together for `work`, which moves `num_bytes` bytes on each rank.
double measure_bytes(Communicator const& world, double num_bytes, std::function<void()> const& work) {
  auto const seconds =
      time_in_turn(world, DefaultExec(), std::span(&work, 1), stream_repeats).front().minimum;
  return giga_per_second(num_bytes * world.size(), seconds);
}

double measure_triad(Communicator const& world, std::size_t length) {
  DefaultExec const exec;
  Vector<double> const a("orthant::cli::stream", length);
  Vector<double> const b("orthant::cli::stream", length);
  Vector<double> const c("orthant::cli::stream", length);
  Kokkos::deep_copy(exec, b, 1.0);
  Kokkos::deep_copy(exec, c, 2.0);
  return measure_bytes(world, 3.0 * sizeof(double) * static_cast<double>(length),
                       [&] { run_triad(exec, a, b, c); });
}

double measure_copy(Communicator const& world, std::size_t length) {
  DefaultExec const exec;
  Vector<double> const from("orthant::cli::stream", length);
  Vector<double> const to("orthant::cli::stream", length);
  Kokkos::deep_copy(exec, from, 1.0);
  return measure_bytes(world, 2.0 * sizeof(double) * static_cast<double>(length),
                       [&] { Kokkos::deep_copy(exec, to, from); });
}

double measure_stream(Communicator const& world, std::int64_t array_mib) {
  auto const length = (static_cast<std::size_t>(array_mib) << 20) / sizeof(double);
  return pmm::runs_on_host ? measure_triad(world, length) : measure_copy(world, length);
}

template<class T>
double measure_fma(Communicator const& world) {
  DefaultExec const exec;
  auto flops = std::int64_t{0};
  std::function<void()> const work = [&] { flops = run_fma_work<T>(exec); };
  auto const seconds = time_in_turn(world, exec, std::span(&work, 1), fma_repeats).front().minimum;
  auto const all_flops = runtime::all_reduced(world, static_cast<double>(flops), runtime::Reduction::sum);
  return giga_per_second(all_flops, seconds);
}

} // namespace

void add_options(Command& command, RooflineOptions& options) {
  command.begin_group("Roofline");
  command.option(
      "--stream-mib", options.stream_mib,
      "MiB of each array a rank that measures memory (three on a host, two on a device); larger than "
      "the caches",
      whole_number(1, 1 << 20));
  command.option("--gemm-size", options.gemm_size, "Rows of the square product that measures arithmetic",
                 whole_number(1, 1 << 15));
}

double Roofline::seconds(double bytes, double flops) const {
  return std::max(bytes / (stream_gb_per_s * 1e9), flops / (arithmetic_gflop_per_s() * 1e9));
}

void Roofline::describe(nlohmann::ordered_json& line) const {
  line["stream"] = pmm::runs_on_host ? "triad" : "copy";
  line["stream_gb_per_s"] = stream_gb_per_s;
  line["fma_gflop_per_s"] = fma_gflop_per_s;
  line["gemm_gflop_per_s"] = gemm_gflop_per_s;
  line["library_share"] = gemm_gflop_per_s / arithmetic_gflop_per_s();
}

template<class T>
Roofline measure_roofline(Communicator const& world, RooflineOptions const& options) {
  return {measure_stream(world, options.stream_mib), measure_fma<T>(world),
          measure_gemm_peak<T>(world, options.gemm_size, gemm_repeats) / 1e9};
}

template Roofline measure_roofline<float>(Communicator const&, RooflineOptions const&);
template Roofline measure_roofline<double>(Communicator const&, RooflineOptions const&);

} // namespace orthant::cli
