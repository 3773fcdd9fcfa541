// SPDX-License-Identifier: Apache-2.0

#include "runtime/job/time_limit.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace orthant::runtime {
namespace {

/// How a child process ends that runs `body`: as waitpid tells it.
template<class Body>
int end_of_child(Body const& body) {
  auto const child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(StopSignals, NoteTheFirstAndLetTheProcessGoOn) {
  for (auto const signal : {SIGUSR1, SIGTERM, SIGINT}) {
    StopSignals const signals;
    EXPECT_EQ(signals.received(), 0);
    std::raise(signal);
    EXPECT_EQ(signals.received(), signal) << name_of_signal(signal);
  }
}

TEST(StopSignals, AreHandledOnAStackOfTheirOwn) {
  StopSignals const signals;
  for (auto const signal : {SIGUSR1, SIGTERM, SIGINT}) {
    struct sigaction now {};
    ASSERT_EQ(sigaction(signal, nullptr, &now), 0);
    EXPECT_TRUE(now.sa_flags & SA_ONSTACK) << name_of_signal(signal);
  }
  stack_t stack{};
  ASSERT_EQ(sigaltstack(nullptr, &stack), 0);
  EXPECT_FALSE(stack.ss_flags & SS_DISABLE);
  EXPECT_GE(stack.ss_size, std::size_t{1} << 16);
}

TEST(StopSignals, ASecondSigtermOrSigintEndsTheProcessAtOnce) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer holds back what is raised in the child of a process with threads";
#endif
  for (auto const first : {SIGTERM, SIGINT})
    for (auto const second : {SIGTERM, SIGINT}) {
      auto const status = end_of_child([&] {
        StopSignals const signals;
        std::raise(first);
        std::raise(second);
      });
      ASSERT_TRUE(WIFSIGNALED(status));
      EXPECT_EQ(WTERMSIG(status), second);
    }
}

TEST(StopSignals, ASchedulersWarningMayBeRepeatedAndFollowedByOneSigterm) {
  auto const status = end_of_child([] {
    StopSignals const signals;
    std::raise(SIGUSR1);
    std::raise(SIGUSR1);
    std::raise(SIGTERM);
  });
  EXPECT_TRUE(WIFEXITED(status));
}

TEST(StopSignals, DoWhatTheyDidBeforeOnceTheObjectIsGone) {
  auto const status = end_of_child([] {
    { StopSignals const signals; }
    std::raise(SIGUSR1);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGUSR1);
}

} // namespace
} // namespace orthant::runtime
