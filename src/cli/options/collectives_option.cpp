// SPDX-License-Identifier: Apache-2.0
#include "cli/options/collectives_option.hpp"

#include "pmm/cost/collective_rounds.hpp"
#include "pmm/cost/machine_file.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/error.hpp"
#include "runtime/files/text_file.hpp"
#include "runtime/suggestion.hpp"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <utility>

namespace orthant::cli {
namespace {

using runtime::Algorithm;
using runtime::AlgorithmChoice;
using runtime::Operation;
using runtime::throw_user;

constexpr auto table_key = "orthant_collectives";
constexpr std::array axes{"x", "y", "z", "data", "expert", "context", "group"};
constexpr std::array operations{Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter,
                                Operation::all_to_all};

constexpr std::string_view model_prefix = "auto:";

bool is_for_all_axes(std::string_view word) {
  return word.find('=') == std::string_view::npos || word.starts_with(model_prefix) ||
         word.ends_with(".json");
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < runtime::num_algorithms; ++i)
    names.emplace_back(name_of(static_cast<Algorithm>(i)));
  return names;
}

Algorithm algorithm_of(std::string const& word) {
  if (auto const algorithm = runtime::algorithm_named(word)) return *algorithm;
  auto const names = algorithm_names();
  throw_user("--collectives: '{}' is no algorithm{}; they are {}, auto:MACHINE, or a table of `bench "
             "collectives -o` that ends in .json",
             word, runtime::did_you_mean(word, names), fmt::join(names, ", "));
}

runtime::MeasuredChoice choice_of(nlohmann::json const& entry) {
  runtime::MeasuredChoice choice;
  auto const name = entry.at("operation").get<std::string>();
  auto const* const operation =
      std::ranges::find(operations, name, [](Operation each) { return name_of(each); });
  if (operation == operations.end()) throw_user("'{}' is no collective with a choice", name);
  choice.operation = *operation;
  choice.shape = {entry.at("nodes").get<int>(), entry.at("per_node").get<int>()};
  choice.bytes = entry.at("bytes").get<std::int64_t>();
  constexpr auto most_ranks = 1 << 24;
  auto const [nodes, per_node] = choice.shape;
  if (nodes < 1 || per_node < 1 || nodes > most_ranks || per_node > most_ranks || choice.bytes < 0)
    throw_user("{} on {} x {} ranks of {} bytes is no call", name, nodes, per_node, choice.bytes);
  choice.algorithm = algorithm_of(entry.at("algorithm").get<std::string>());
  return choice;
}

std::vector<runtime::MeasuredChoice> parse_table(std::string_view text, std::string const& path) {
  std::vector<runtime::MeasuredChoice> choices;
  try {
    auto const table = nlohmann::json::parse(text);
    if (table.at(table_key).get<int>() != 1) throw_user("'{}' is of a newer version", path);
    for (auto const& entry : table.at("choices"))
      choices.push_back(choice_of(entry));
  } catch (nlohmann::json::exception const&) {
    throw_user("--collectives: '{}' is no table of `bench collectives -o FILE.json`", path);
  }
  return choices;
}

} // namespace

void add_collectives_option(Command& command, std::vector<std::string>& words) {
  command.option(
      "--collectives", words,
      "Algorithms of collectives in host memory: library (MPI), ring, recursive, two-level, "
      "doubling or nvrar, for an axis as in x=ring; auto:MACHINE (a name or .toml file), the one that "
      "its model predicts to be fastest; or a .json table of `bench collectives -o`");
}

namespace {

constexpr std::array formats{std::pair{std::string_view("fp32"), runtime::Wire::native},
                             std::pair{std::string_view("bf16"), runtime::Wire::bf16},
                             std::pair{std::string_view("fp16"), runtime::Wire::fp16},
                             std::pair{std::string_view("fp8"), runtime::Wire::fp8},
                             std::pair{std::string_view("int8"), runtime::Wire::int8}};

/// Sets `read` to the formats that the words name. Returns an empty text, or what is wrong.
std::string read_message_formats(std::string_view words, MessageFormats& read) {
  std::array<bool, 2> is_given{};
  for (std::size_t begin = 0; begin <= words.size();) {
    auto const end = std::min(words.find(',', begin), words.size());
    auto const word = words.substr(begin, end - begin);
    begin = end + 1;
    auto const sign = word.find('=');
    auto const what = sign == std::string_view::npos ? "activations" : word.substr(0, sign);
    auto const name = sign == std::string_view::npos ? word : word.substr(sign + 1);
    auto const* const format = std::ranges::find(formats, name, [](auto const& each) { return each.first; });
    if (format == formats.end())
      return fmt::format("'{}' is no format of messages; they are fp32, bf16, fp16, fp8 and int8", name);
    if (what != "activations" && what != "gradients")
      return fmt::format("'{}' names no messages; give activations=FORMAT or gradients=FORMAT", what);
    if (what == "gradients" && format->second == runtime::Wire::fp16)
      return "gradients may leave the range of fp16; give gradients=bf16, fp8 or int8";
    if (std::exchange(is_given[what == "gradients" ? 1 : 0], true))
      return fmt::format("the format of {} is given twice; give it once", what);
    (what == "gradients" ? read.gradients : read.activations) = format->second;
  }
  return {};
}

std::string_view name_of_format(runtime::Wire wire) {
  return std::ranges::find(formats, wire, [](auto const& each) { return each.second; })->first;
}

} // namespace

void add_message_formats_option(Command& command, std::string& words) {
  command.option("--comm-dtype", words,
                 "Number format of activations and weights in messages of products: fp32, bf16, fp16, fp8 or "
                 "int8; or activations=FORMAT, gradients=FORMAT (sums over the data axis), or both",
                 [](std::string const& given) {
                   MessageFormats read;
                   return read_message_formats(given, read);
                 });
}

MessageFormats message_formats_of(std::string_view words) {
  MessageFormats read;
  auto const fault = read_message_formats(words, read);
  ORTHANT_REQUIRE(fault.empty(), fault);
  return read;
}

runtime::Wire format_named(std::string_view word) {
  return message_formats_of(word).activations;
}

std::string text_of(MessageFormats const& formats_of) {
  auto text = std::string(name_of_format(formats_of.activations));
  if (formats_of.gradients == runtime::Wire::native) return text;
  return fmt::format("activations={},gradients={}", text, name_of_format(formats_of.gradients));
}

AlgorithmChoice read_collectives(runtime::Communicator const& world, std::vector<std::string> const& words) {
  AlgorithmChoice choice;
  if (std::ranges::count_if(words, [](auto const& word) { return is_for_all_axes(word); }) > 1)
    throw_user("--collectives: give only one of an algorithm for all axes, auto:MACHINE and a .json table");
  for (auto const& word : words) {
    if (word == "auto" || word.starts_with(model_prefix)) {
      auto const machine = word.size() > model_prefix.size() ? word.substr(model_prefix.size()) : "";
      if (machine.empty())
        throw_user("--collectives auto needs a model of the machine: give auto:NAME or auto:FILE.toml, or a "
                   "table of `bench collectives -o`");
      choice.predicted = pmm::predicted_algorithms(pmm::read_machine(world, machine));
      continue;
    }
    if (word.ends_with(".json")) {
      auto const text = runtime::read_table_file(
          world, word, [&](std::string_view read) { std::ignore = parse_table(read, word); });
      choice.measurements = parse_table(text, word);
      continue;
    }
    auto const sign = word.find('=');
    if (sign == std::string::npos) {
      choice.everywhere = algorithm_of(word);
      continue;
    }
    auto const axis = word.substr(0, sign);
    if (std::ranges::find(axes, axis) == axes.end())
      throw_user("--collectives: '{}' is no axis; they are {}", axis, fmt::join(axes, ", "));
    choice.of_axis[axis] = algorithm_of(word.substr(sign + 1));
  }
  return choice;
}

std::vector<int> nodes_of_ranks(runtime::Communicator const& world) {
  std::vector<int> nodes(static_cast<std::size_t>(world.size()));
  if (auto const* const machine = world.instruments().clock.machine()) {
    for (int rank = 0; rank < world.size(); ++rank)
      nodes[static_cast<std::size_t>(rank)] = rank / machine->ranks_per_node;
    return nodes;
  }
  auto const node = world.split_by_node();
  std::array const first{node.job_ranks().front()};
  all_gather(runtime::host, world, first, nodes);
  return nodes;
}

std::string collectives_table(std::vector<runtime::MeasuredChoice> const& choices,
                              std::vector<nlohmann::ordered_json> const& seconds_of) {
  nlohmann::ordered_json table{{table_key, 1}, {"choices", nlohmann::ordered_json::array()}};
  for (std::size_t i = 0; i < choices.size(); ++i) {
    auto const& choice = choices[i];
    table["choices"].push_back({{"operation", name_of(choice.operation)},
                                {"nodes", choice.shape.num_nodes},
                                {"per_node", choice.shape.per_node},
                                {"bytes", choice.bytes},
                                {"algorithm", name_of(choice.algorithm)},
                                {"seconds", seconds_of[i]}});
  }
  return table.dump(1) + "\n";
}

} // namespace orthant::cli
