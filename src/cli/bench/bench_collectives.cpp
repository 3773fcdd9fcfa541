// SPDX-License-Identifier: Apache-2.0
//
// orthant bench collectives: compares each collective of Orthant with the MPI call on which it is based. The two alternate (A B B A ..), so
// that both have the same noise. Prints one JSON line per operation, axis and size. Seconds are medians over the repeats, then the maximum
// over ranks. Bandwidths are defined as in nccl-tests:
//
//   algorithm = bytes / seconds
//   bus = algorithm x the smallest share of the buffer that each rank must move

#include "cli/commands/build_info.hpp"
#include "cli/commands/subcommands.hpp"
#include "cli/machine/emulated_machine.hpp"
#include "cli/options/collectives_option.hpp"
#include "pmm/grid/process_grid.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/staged_file.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>

namespace orthant::cli {
namespace {

using runtime::Communicator;
using runtime::host;

struct CollectivesOptions {
  std::string grid;
  std::string sizes = "4:16M";
  std::int64_t repeat = 0;
  std::vector<std::string> operations;
  std::string output;
};

std::vector<std::string> const all_operations{"all_reduce", "all_gather",   "reduce_scatter", "broadcast",
                                              "all_to_all", "send_receive", "barrier"};

constexpr std::int64_t warm_up = 5;

/// Reads a size such as "16M" = 16 * 2^20; returns -1 if the text is not a size.
std::int64_t parse_bytes(std::string_view text) {
  std::int64_t bytes = -1;
  auto const* const end = text.data() + text.size();
  auto const parsed = std::from_chars(text.data(), end, bytes);
  auto const unit = std::string_view(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
  auto const shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  constexpr auto most = std::int64_t{1} << 33;
  if (parsed.ec != std::errc{} || shift < 0 || bytes < 1 || bytes > (most >> shift)) return -1;
  return bytes << shift;
}

struct Sizes {
  std::int64_t min_bytes = 0;
  std::int64_t max_bytes = 0;
};

Sizes parse_sizes(std::string const& text) {
  auto const colon = text.find(':');
  auto const first = parse_bytes(std::string_view(text).substr(0, colon));
  auto const last =
      colon == std::string::npos ? first : parse_bytes(std::string_view(text).substr(colon + 1));
  if (first < 4 || last < first)
    runtime::throw_user("--sizes '{}' is no range of sizes; write bytes as min:max from 4 on, such as 4:16M",
                        text);
  return {first, last};
}

/// Buffers for one axis, and the operations on their first `count` floats.
struct Exercise {
  Communicator const& comm;
  std::vector<float> in;
  std::vector<float> out;

  // Zeros, so that repeated sums stay finite.
  Exercise(Communicator const& along, std::int64_t max_count)
      : comm(along),
        in(static_cast<std::size_t>(max_count)),
        out(static_cast<std::size_t>(max_count)) {}

  void run_ours(std::string const& operation, std::int64_t count);
  void run_bare(std::string const& operation, std::int64_t count);

 private:
  [[nodiscard]] int next() const { return (comm.rank() + 1) % comm.size(); }
  [[nodiscard]] int previous() const { return (comm.rank() + comm.size() - 1) % comm.size(); }
};

void Exercise::run_ours(std::string const& operation, std::int64_t count) {
  auto const whole = static_cast<std::size_t>(count);
  auto const part = whole / static_cast<std::size_t>(comm.size());
  if (operation == "all_reduce") return all_reduce(host, comm, std::span(out).first(whole));
  if (operation == "all_gather")
    return all_gather(host, comm, std::span(in).first(part), std::span(out).first(whole));
  if (operation == "reduce_scatter")
    return reduce_scatter(host, comm, std::span(in).first(whole), std::span(out).first(part));
  if (operation == "broadcast") return broadcast(host, comm, std::span(out).first(whole), 0);
  if (operation == "all_to_all")
    return all_to_all(host, comm, std::span(in).first(whole), std::span(out).first(whole));
  if (operation == "barrier") return barrier(host, comm);
  auto received = start_receive(host, comm, std::span(out).first(whole), previous());
  send(host, comm, std::span(in).first(whole), next());
  received.wait();
}

void Exercise::run_bare(std::string const& operation, std::int64_t count) {
  auto const whole = static_cast<int>(count);
  auto const part = whole / comm.size();
  auto* const mpi = comm.mpi();
  if (operation == "all_reduce") {
    ORTHANT_MPI(MPI_Allreduce(MPI_IN_PLACE, out.data(), whole, MPI_FLOAT, MPI_SUM, mpi));
  } else if (operation == "all_gather") {
    ORTHANT_MPI(MPI_Allgather(in.data(), part, MPI_FLOAT, out.data(), part, MPI_FLOAT, mpi));
  } else if (operation == "reduce_scatter") {
    ORTHANT_MPI(MPI_Reduce_scatter_block(in.data(), out.data(), part, MPI_FLOAT, MPI_SUM, mpi));
  } else if (operation == "broadcast") {
    ORTHANT_MPI(MPI_Bcast(out.data(), whole, MPI_FLOAT, 0, mpi));
  } else if (operation == "all_to_all") {
    ORTHANT_MPI(MPI_Alltoall(in.data(), part, MPI_FLOAT, out.data(), part, MPI_FLOAT, mpi));
  } else if (operation == "barrier") {
    ORTHANT_MPI(MPI_Barrier(mpi));
  } else {
    MPI_Request request = MPI_REQUEST_NULL;
    ORTHANT_MPI(MPI_Irecv(out.data(), whole, MPI_FLOAT, previous(), 0, mpi, &request));
    ORTHANT_MPI(MPI_Send(in.data(), whole, MPI_FLOAT, next(), 0, mpi));
    ORTHANT_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  }
}

/// Seconds of `call` on this rank. All ranks of the axis begin together.
double time_together(Communicator const& comm, std::function<void()> const& call) {
  runtime::WaitingScope const waiting(comm.instruments().position, "bench collectives");
  ORTHANT_MPI(MPI_Barrier(comm.mpi()));
  auto const begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Summary {
  double median = 0;
  double minimum = 0;
};

/// Median and minimum over the repeats of this rank, then the maximum over all ranks of the job.
Summary summarise_calls(Communicator const& world, std::vector<double>& seconds) {
  std::ranges::sort(seconds);
  std::array values{seconds[seconds.size() / 2], seconds.front()};
  all_reduce(host, world, std::span(values), runtime::Reduction::max);
  return {values[0], values[1]};
}

/// Least share of the buffer that each rank must send; all_reduce sends this share twice.
double bus_factor(std::string const& operation, int num_ranks) {
  auto const others = static_cast<double>(num_ranks - 1) / num_ranks;
  if (operation == "all_reduce") return 2 * others;
  if (operation == "broadcast" || operation == "send_receive") return 1;
  return others;
}

std::int64_t choose_repeat(std::int64_t bytes) {
  return std::clamp((std::int64_t{256} << 20) / std::max<std::int64_t>(bytes, 1), std::int64_t{40},
                    std::int64_t{1000});
}

nlohmann::ordered_json measure(Communicator const& world, Exercise& exercise, std::string const& operation,
                               std::int64_t count, std::int64_t repeat) {
  auto const bytes = count * static_cast<std::int64_t>(sizeof(float));
  if (repeat == 0) repeat = choose_repeat(bytes);
  std::function<void()> const ours = [&] { exercise.run_ours(operation, count); };
  std::function<void()> const bare = [&] { exercise.run_bare(operation, count); };
  std::vector<double> our_seconds;
  std::vector<double> bare_seconds;
  our_seconds.reserve(static_cast<std::size_t>(repeat));
  bare_seconds.reserve(static_cast<std::size_t>(repeat));
  for (auto i = -warm_up; i < repeat; ++i) {
    auto const is_ours_first = i % 2 == 0;
    auto const first = time_together(exercise.comm, is_ours_first ? ours : bare);
    auto const second = time_together(exercise.comm, is_ours_first ? bare : ours);
    if (i < 0) continue;
    our_seconds.push_back(is_ours_first ? first : second);
    bare_seconds.push_back(is_ours_first ? second : first);
  }
  auto const our = summarise_calls(world, our_seconds);
  auto const plain = summarise_calls(world, bare_seconds);
  auto const gigabytes_per_second = static_cast<double>(bytes) / our.median / 1e9;
  return {{"operation", operation},
          {"axis", exercise.comm.axis()},
          {"ranks", exercise.comm.size()},
          {"bytes", bytes},
          {"repeats", repeat},
          {"seconds", our.median},
          {"bare_seconds", plain.median},
          {"min_seconds", our.minimum},
          {"bare_min_seconds", plain.minimum},
          {"overhead_us", (our.median - plain.median) * 1e6},
          {"overhead_percent", (our.median / plain.median - 1) * 100},
          {"algorithm_gb_per_s", gigabytes_per_second},
          {"bus_gb_per_s", gigabytes_per_second * bus_factor(operation, exercise.comm.size())}};
}

void bench_axis(Context& context, Communicator const& along, CollectivesOptions const& options,
                Sizes const& sizes, nlohmann::ordered_json const& common) {
  auto const ranks = static_cast<std::int64_t>(along.size());
  auto const count_of = [&](std::string const& operation, std::int64_t bytes) {
    auto const is_split =
        operation == "all_gather" || operation == "reduce_scatter" || operation == "all_to_all";
    auto const parts = is_split ? ranks : 1; // bytes are rounded up to equal parts of whole floats
    return (bytes / 4 + parts - 1) / parts * parts;
  };
  Exercise exercise(along, count_of("all_gather", sizes.max_bytes));
  auto const operations = options.operations.empty() ? all_operations : options.operations;
  std::string last;
  auto const report = [&](std::string const& operation, std::int64_t count) {
    if (operation != last) context.log().info("timing {} along {}", operation, along.axis());
    last = operation;
    auto line = common;
    line.update(measure(context.world(), exercise, operation, count, options.repeat));
    if (!context.world().is_root()) return;
    std::fputs((line.dump() + "\n").c_str(), stdout);
    std::fflush(stdout);
    if (context.metrics.is_on()) context.metrics.write("bench", line);
  };
  for (auto const& operation : operations) {
    if (operation == "send_receive" && ranks == 1) continue; // no other rank to send to
    if (operation == "barrier") {
      report(operation, 0);
      continue;
    }
    auto previous = std::int64_t{0};
    for (auto bytes = sizes.min_bytes;; bytes = std::min(bytes * 4, sizes.max_bytes)) {
      auto const count = count_of(operation, bytes);
      if (count != previous) report(operation, count);
      previous = count;
      if (bytes == sizes.max_bytes) break;
    }
  }
}

using runtime::Algorithm;
using runtime::Operation;

// --output: the fastest algorithm of each call. All algorithms take turns, so that they have the same noise.
struct TimedAlgorithm {
  Algorithm algorithm{};
  Communicator comm;
  Exercise exercise;
  std::vector<double> seconds{};

  TimedAlgorithm(Algorithm of, Communicator const& along, std::vector<int> const& nodes, std::int64_t count)
      : algorithm(of),
        comm(along.mpi(), along.axis()),
        exercise(comm, count) {
    if (of != Algorithm::library) comm.use_algorithms({of, {}, {}}, nodes);
  }
};

struct Tuning {
  std::vector<runtime::MeasuredChoice> choices{};
  std::vector<nlohmann::ordered_json> seconds{}; // of all algorithms, entry by entry
};

/// Times the algorithms that are possible in all groups of this axis.
void tune_call(Communicator const& world, std::vector<std::unique_ptr<TimedAlgorithm>>& algorithms,
               runtime::MeasuredChoice choice, std::int64_t count, std::int64_t repeat, Tuning& tuning) {
  if (repeat == 0) repeat = choose_repeat(choice.bytes);
  std::string const name(name_of(choice.operation));
  std::vector<TimedAlgorithm*> possible;
  for (auto const& each : algorithms) {
    auto const is_here =
        each->algorithm == Algorithm::library || is_possible(choice.operation, each->algorithm, choice.shape);
    if (all_reduced(world, is_here ? 1 : 0, runtime::Reduction::min) == 1) possible.push_back(each.get());
  }
  for (auto i = -warm_up; i < repeat; ++i)
    for (std::size_t k = 0; k < possible.size(); ++k) {
      auto& timed = *possible[(k + static_cast<std::size_t>(i + warm_up)) % possible.size()];
      auto const seconds = time_together(timed.comm, [&] { timed.exercise.run_ours(name, count); });
      if (i >= 0) timed.seconds.push_back(seconds);
    }
  auto fastest = std::numeric_limits<double>::infinity();
  nlohmann::ordered_json all;
  for (auto* const timed : possible) {
    auto const seconds = summarise_calls(world, timed->seconds).median;
    timed->seconds.clear();
    all[std::string(name_of(timed->algorithm))] = seconds;
    if (seconds < fastest) choice.algorithm = timed->algorithm;
    fastest = std::min(fastest, seconds);
  }
  tuning.choices.push_back(choice);
  tuning.seconds.push_back(all);
}

void tune_axis(Context& context, Communicator const& along, CollectivesOptions const& options,
               Sizes const& sizes, Tuning& tuning) {
  auto const size = std::int64_t{along.size()};
  if (size == 1) return;
  auto const nodes = nodes_of_ranks(context.world());
  auto const shape = runtime::shape_of(along.job_ranks(), nodes);
  auto const count_of = [&](std::int64_t bytes) { return (bytes / 4 + size - 1) / size * size; };
  std::vector<std::unique_ptr<TimedAlgorithm>> algorithms;
  for (std::size_t i = 0; i < runtime::num_algorithms; ++i)
    algorithms.push_back(
        std::make_unique<TimedAlgorithm>(static_cast<Algorithm>(i), along, nodes, count_of(sizes.max_bytes)));
  for (auto const operation :
       {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter, Operation::all_to_all}) {
    if (!options.operations.empty() &&
        std::ranges::find(options.operations, name_of(operation)) == options.operations.end())
      continue;
    context.log().info("timing the algorithms of {} along {}", name_of(operation), along.axis());
    auto previous = std::int64_t{0};
    for (auto bytes = sizes.min_bytes;; bytes = std::min(bytes * 4, sizes.max_bytes)) {
      auto const count = count_of(bytes);
      if (count != previous)
        tune_call(context.world(), algorithms, {operation, shape, 4 * count, {}}, count, options.repeat,
                  tuning);
      previous = count;
      if (bytes == sizes.max_bytes) break;
    }
  }
}

void report_tuning(Context& context, std::string const& output, Tuning const& tuning) {
  runtime::together(context.world(), [&] {
    if (!context.world().is_root()) return;
    fmt::print("{:<15}{:>8}{:>10}  {:<10}  seconds\n", "operation", "ranks", "bytes", "fastest");
    for (std::size_t i = 0; i < tuning.choices.size(); ++i) {
      auto const& [operation, shape, bytes, algorithm] = tuning.choices[i];
      fmt::print("{:<15}{:>8}{:>10}  {:<10}  {}\n", name_of(operation),
                 fmt::format("{}x{}", shape.num_nodes, shape.per_node), bytes, name_of(algorithm),
                 tuning.seconds[i].dump());
    }
    runtime::StagedFile file(output, "table");
    file.file().append(collectives_table(tuning.choices, tuning.seconds));
    file.publish();
  });
}

int run(CollectivesOptions const& options, Context& context) {
  auto const& world = context.world();
  auto const sizes = parse_sizes(options.sizes);
  if (world.instruments().clock.machine() != nullptr)
    runtime::throw_user("bench collectives times real calls beside MPI's own; unset {}", emulate_variable);
  nlohmann::ordered_json common{
      {"bench", "collectives"}, {"version", version()}, {"host", context.environment.binding().host.data()}};
  auto const tunes = !options.output.empty();
  Tuning tuning;
  auto const bench = [&](Communicator const& along) {
    if (tunes)
      tune_axis(context, along, options, sizes, tuning);
    else
      bench_axis(context, along, options, sizes, common);
  };
  if (options.grid.empty()) {
    if (context.metrics.is_on()) context.metrics.write("run", context.run_record);
    bench(world);
    if (tunes) report_tuning(context, options.output, tuning);
    return runtime::exit_done;
  }
  auto const shape = pmm::parse_grid(options.grid, world.size());
  common["grid"] = context.run_record["grid"] = shape.to_string();
  if (context.metrics.is_on()) context.metrics.write("run", context.run_record);
  pmm::ProcessGrid const grid(world, shape);
  for (auto const axis : {pmm::Axis::x, pmm::Axis::y, pmm::Axis::z, pmm::Axis::data})
    if (grid.size(axis) > 1 || (shape.num_ranks() == 1 && axis == pmm::Axis::x)) bench(grid.over(axis));
  if (tunes) report_tuning(context, options.output, tuning);
  return runtime::exit_done;
}

} // namespace

std::unique_ptr<Command> make_bench_collectives() {
  auto command = std::make_unique<Command>("bench collectives",
                                           "Time each collective, and the MPI call on which it is based");
  auto const options = std::make_shared<CollectivesOptions>();
  command->option("--grid", options->grid,
                  "Time every axis of this grid DxXxYxZ; otherwise all ranks together");
  command->option("--sizes", options->sizes,
                  "Bytes of the buffer, from min:max in steps of 4x; K, M, G are powers of 1024");
  command->option("--repeat", options->repeat, "Number of timed calls; 0: chosen by the size of the message",
                  whole_number(0, 1'000'000));
  command->option("--operations", options->operations,
                  "Operations to time: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, "
                  "send_receive, barrier; default: all",
                  one_of(all_operations));
  command->output(
      "-o,--output", options->output,
      "Time all algorithms instead, and write the fastest ones as a table for --collectives FILE.json of "
      "other commands");
  command->set_run([options](Context& context) { return run(*options, context); });
  return command;
}

} // namespace orthant::cli
