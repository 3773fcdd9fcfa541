// SPDX-License-Identifier: Apache-2.0
//
// Commands that take the command lines of a training have its options from one definition: names, kinds, defaults, help and
// what they refuse are the same.

#include "cli/commands/subcommands.hpp"
#include "runtime/error.hpp"

#include <array>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace orthant::cli {
namespace {

using Make = std::unique_ptr<Command> (*)();

struct Pair {
  char const* name;
  Make training;
  Make other;
  std::set<std::string> own_defaults; // of options whose default or help is the other command's own
};

std::vector<Pair> const pairs{{"plan", make_train, make_plan, {}},
                              {"bench epoch", make_train, make_bench_epoch, {"epochs"}},
                              {"evaluate", make_train, make_evaluate, {"feature-norm"}},
                              {"plan-lm", make_train_lm, make_plan_lm, {}},
                              {"evaluate-lm", make_train_lm, make_evaluate_lm, {"sequence", "global-batch"}}};

std::map<std::string, runtime::ValueKind> kinds_of(Command const& command) {
  std::map<std::string, runtime::ValueKind> kinds;
  for (auto const& option : command.description().options)
    kinds[option.name] = option.kind;
  return kinds;
}

/// The help of each option that has one, with its default, in one line.
std::map<std::string, std::string> helps_of(Command const& command) {
  std::map<std::string, std::string> helps;
  std::istringstream lines(command.help());
  std::string name;
  for (std::string line; std::getline(lines, line);) {
    auto const begin = line.find_first_not_of(' ');
    if (begin == std::string::npos || begin == 0) {
      name.clear();
      continue;
    }
    if (line.compare(begin, 2, "--") == 0) {
      auto const end = line.find_first_of(" ,", begin);
      name = line.substr(begin + 2, end == std::string::npos ? end : end - begin - 2);
    }
    if (!name.empty()) helps[name] += line.substr(begin) + " ";
  }
  return helps;
}

std::string answer_to(Command& command, std::string const& option, std::string const& value) {
  try {
    static_cast<void>(command.parse({"--" + option + "=" + value}));
  } catch (runtime::UserError const& error) {
    std::string text = error.what();
    auto const at = text.find(command.name() + ": ");
    return at == std::string::npos ? text : text.substr(at + command.name().size());
  }
  return "taken";
}

class SameOptions : public testing::TestWithParam<Pair> {};

TEST_P(SameOptions, AllAreThereWithTheirKinds) {
  auto const& pair = GetParam();
  auto const others = kinds_of(*pair.other());

  for (auto const& [name, kind] : kinds_of(*pair.training())) {
    ASSERT_TRUE(others.contains(name)) << name;
    EXPECT_EQ(others.at(name), kind) << name;
  }
}

TEST_P(SameOptions, HelpAndDefaultsAreTheSame) {
  auto const& pair = GetParam();
  auto const of_training = helps_of(*pair.training());
  auto const of_other = helps_of(*pair.other());

  auto num_compared = 0;
  for (auto const& [name, help] : of_other) {
    if (!of_training.contains(name) || pair.own_defaults.contains(name)) continue;
    EXPECT_EQ(help, of_training.at(name));
    ++num_compared;
  }
  constexpr auto least_compared = 15;
  EXPECT_GE(num_compared, least_compared);
}

TEST_P(SameOptions, TheSameValuesAreRefused) {
  auto const& pair = GetParam();
  auto const training = pair.training();
  auto const other = pair.other();
  constexpr std::array values{"?", "-1", "0", "1", "1.5", "1e99", "auto", "none"};

  for (auto const& [name, kind] : kinds_of(*training))
    for (auto const* const value : values) {
      if (pair.own_defaults.contains(name)) continue;
      EXPECT_EQ(answer_to(*other, name, value), answer_to(*training, name, value)) << name << " " << value;
    }
}

TEST_P(SameOptions, AMisspeltOneIsRefusedWithTheSameAdvice) {
  auto const& pair = GetParam();

  auto const training = pair.training();
  auto const other = pair.other();
  for (auto const* const option : {"hiden", "layer", "sede", "check-point"})
    EXPECT_EQ(answer_to(*other, option, "1"), answer_to(*training, option, "1"));
}

TEST_P(SameOptions, TheNetworkIsInTheHelp) {
  auto const& pair = GetParam();
  auto const helps = helps_of(*pair.other());

  for (auto const* const name : {"preset", "layers", "hidden", "heads", "bias"})
    EXPECT_TRUE(helps.contains(name)) << name;
  EXPECT_FALSE(helps.contains("save-weights"));
}

INSTANTIATE_TEST_SUITE_P(Commands, SameOptions, testing::ValuesIn(pairs), [](auto const& parameters) {
  std::string name = parameters.param.name;
  std::erase_if(name, [](char letter) { return letter == ' ' || letter == '-'; });
  return name;
});

} // namespace
} // namespace orthant::cli
