// SPDX-License-Identifier: Apache-2.0
//
// A job in which something goes wrong, for faults.py: `fault_program CASE [RANK]`. The start may fail, too:
// fault_hooks.cpp.

#include "runtime/comm/algorithm_choice.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/job/job_end.hpp"

#include <Kokkos_Core.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace orthant::runtime;

constexpr double timeout_seconds = 3;

struct Job {
  Environment& environment;
  Communicator const& world;
  int culprit; // the rank that does not do as the others

  [[nodiscard]] bool is_culprit() const { return world.rank() == culprit; }
};

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void compute_for(double seconds) {
  auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end)
    ;
}

void sum_together(Job const& job) {
  std::vector<float> values(1000, 1.0F);
  all_reduce(host, job.world, values);
}

/// Sums in a loop; the culprit dies in it, after 0.3 s. It prints the time, so that the seconds until the job has ended can be counted.
template<class Sum>
void die_in(Job const& job, Sum const& sum) {
  auto const start = std::chrono::steady_clock::now();
  for (;;) {
    sum();
    if (!job.is_culprit() || std::chrono::steady_clock::now() - start < std::chrono::milliseconds(300))
      continue;
    auto const now = std::chrono::system_clock::now().time_since_epoch();
    std::printf("dies at %.3f\n", std::chrono::duration<double>(now).count());
    std::fflush(stdout);
    static_cast<void>(std::raise(SIGKILL));
  }
}

[[noreturn]] void fail() {
  throw std::runtime_error("thrown where nothing may be thrown");
}
void fail_without_leave() noexcept {
  fail();
}

std::map<std::string, std::function<void(Job const&)>> const cases{
    {"fine",
     [](Job const& job) {
       job.environment.start_kokkos();
       sum_together(job);
     }},
    {"late",
     [](Job const& job) {
       if (job.is_culprit()) sleep_for(1.5);
       sum_together(job);
     }},
    {"sleep",
     [](Job const& job) {
       barrier(host, job.world);
       if (job.is_culprit()) sleep_for(100);
       sum_together(job);
     }},
    {"stop",
     [](Job const& job) {
       sum_together(job);
       if (job.is_culprit()) static_cast<void>(std::raise(SIGSTOP));
       barrier(host, job.world);
     }},
    {"mismatch",
     [](Job const& job) {
       auto const other = job.world.split(0, job.world.rank(), "Y");
       if (job.is_culprit())
         barrier(host, other);
       else
         sum_together(job);
     }},
    {"arrivals", // the last rank comes 2 s after the first one, and the culprit never
     [](Job const& job) {
       barrier(host, job.world);
       if (job.world.rank() == job.world.size() - 1) sleep_for(2);
       if (job.is_culprit()) sleep_for(100);
       sum_together(job);
     }},
    {"die-shared", // in short and long sums through the memory of a node
     [](Job const& job) {
       std::vector<float> values(1 << 18, 1.0F);
       die_in(job, [&] {
         all_reduce(host, job.world, std::span(values).first(100));
         all_reduce(host, job.world, values);
       });
     }},
    {"die-rounds", // in sums by messages between nodes of one rank each
     [](Job const& job) {
       std::vector<int> nodes;
       for (int rank = 0; rank < job.world.size(); ++rank)
         nodes.push_back(rank);
       AlgorithmChoice choice;
       choice.everywhere = Algorithm::ring;
       job.world.use_algorithms(choice, nodes);
       std::vector<float> values(1 << 18, 1.0F);
       die_in(job, [&] { all_reduce(host, job.world, values); });
     }},
    {"die-mpi", // in MPI's own
     [](Job const& job) {
       std::vector<float> values(1 << 18, 1.0F);
       die_in(job, [&] { start_all_reduce(host, job.world, values).wait(); });
     }},
    {"die-encoded", // between the exchange of addends and the gather of sums
     [](Job const& job) {
       std::vector<float> values(1 << 18, 1.0F);
       die_in(job, [&] { start_all_reduce(host, job.world, values, Reduction::sum, Wire::bf16).wait(); });
     }},
    {"receive", // what is never sent; the sender is done already
     [](Job const& job) {
       std::vector<double> values(10);
       if (!job.is_culprit()) receive(host, job.world, values, job.culprit, 7);
     }},
    {"wait", // for an asynchronous operation
     [](Job const& job) {
       std::vector<float> values(10);
       if (job.is_culprit()) sleep_for(100);
       start_all_reduce(host, job.world, values).wait();
     }},
    {"scope",
     [](Job const& job) {
       if (job.is_culprit()) sleep_for(100);
       WaitingScope const waiting(job.environment.instruments()->position, "bare barrier");
       MPI_Barrier(job.world.mpi());
     }},
    {"work", // by itself, longer than the timeout
     [](Job const& job) {
       together(job.world, [&] {
         if (job.is_culprit()) compute_for(5);
       });
       sum_together(job);
     }},
    {"work-scope", // the same while the others are in no collective of ours
     [](Job const& job) {
       auto& position = job.environment.instruments()->position;
       if (job.is_culprit()) {
         WorkingScope const working(position);
         compute_for(5);
       }
       WaitingScope const waiting(position, "bare barrier");
       MPI_Barrier(job.world.mpi());
     }},
    {"work-two", // one after the other: the second waits for the first and starts only then
     [](Job const& job) {
       for (int turn = 0; turn < 2; ++turn)
         together(job.world, [&] {
           if (job.is_culprit() == (turn == 0)) compute_for(4);
         });
     }},
    {"work-sleep",
     [](Job const& job) {
       together(job.world, [&] {
         if (job.is_culprit()) sleep_for(100);
       });
     }},
    {"work-stop",
     [](Job const& job) {
       together(job.world, [&] {
         if (job.is_culprit()) static_cast<void>(std::raise(SIGSTOP));
       });
     }},
    {"work-mismatch", // of the others, found when the culprit is done
     [](Job const& job) {
       auto const other = job.world.split(0, job.world.rank(), "Y");
       if (job.is_culprit()) {
         WorkingScope const working(job.environment.instruments()->position);
         compute_for(4);
       }
       if (job.world.rank() == job.world.size() - 1)
         barrier(host, other);
       else
         sum_together(job);
     }},
    {"arrive", // a little after the timeout, while the leader waits for an answer
     [](Job const& job) {
       barrier(host, job.world);
       if (job.is_culprit()) sleep_for(timeout_seconds + 0.8);
       sum_together(job);
       sleep_for(1);
     }},
    {"throw",
     [](Job const& job) {
       if (job.is_culprit()) throw std::runtime_error("the dog ate my gradients");
       sum_together(job);
     }},
    {"require",
     [](Job const& job) {
       if (job.is_culprit()) ORTHANT_REQUIRE(job.culprit < 0, "culprit is ", job.culprit);
       sum_together(job);
     }},
    {"user",
     [](Job const& job) {
       if (job.is_culprit()) throw_user("no such graph; try karate");
       sum_together(job);
     }},
    {"user-all", [](Job const&) { throw_user("no such graph; try karate"); }},
    {"require-all", [](Job const& job) { ORTHANT_REQUIRE(job.world.size() < 0); }},
    {"differ", [](Job const& job) { throw_user("part {} is bad", job.world.rank() / 2); }},
    {"some", // the others end well
     [](Job const& job) {
       if (job.is_culprit()) throw_user("only mine");
     }},
    {"out-of-memory", // in Kokkos, whose text has several lines
     [](Job const& job) {
       job.environment.start_kokkos();
       if (job.is_culprit())
         Kokkos::View<double*, Kokkos::HostSpace> const huge("huge", std::size_t{1} << 57);
       sum_together(job);
     }},
    {"abort", // of Kokkos, as it starts
     [](Job const& job) {
       if (job.is_culprit()) setenv("KOKKOS_NUM_THREADS", "many", 1);
       job.environment.start_kokkos();
     }},
    {"abort-tool", // likewise, by SIGABRT
     [](Job const& job) {
       if (job.is_culprit())
         for (auto const* const variable :
              {"KOKKOS_PROFILE_LIBRARY", "KOKKOS_TOOLS_LIBS"}) // before and since 3.7
           setenv(variable, std::getenv("ORTHANT_TEST_TOOL"), 1);
       job.environment.start_kokkos();
     }},
    {"end", // the end fails, while the others are still about to leave
     [](Job const& job) {
       job.environment.start_kokkos();
       Kokkos::push_finalize_hook([is_culprit = job.is_culprit()] {
         if (is_culprit) fail();
         sleep_for(2);
       });
     }},
    {"terminate",
     [](Job const& job) {
       if (job.is_culprit()) fail_without_leave();
       sum_together(job);
     }},
};

int run(Environment& environment) {
  auto const& arguments = environment.arguments();
  ORTHANT_REQUIRE(!arguments.empty(), "name a case");
  if (arguments[0] == "status") return 75;
  auto const found = cases.find(arguments[0]);
  ORTHANT_REQUIRE(found != cases.end(), "no case ", arguments[0]);
  found->second({environment, environment.world(), arguments.size() > 1 ? std::stoi(arguments[1]) : 0});
  return exit_done;
}

} // namespace

int main(int argc, char** argv) {
  // "funneled" as last argument: an MPI that gives no thread of its own the right to communicate.
  auto const is_funneled = std::string(argv[argc - 1]) == "funneled";
  return run_main(argc, argv,
                  {is_funneled ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, timeout_seconds, false}, run);
}
