// SPDX-License-Identifier: Apache-2.0
#include "pmm/cost/machine_file.hpp"

#include "runtime/error.hpp"
#include "runtime/files/text_file.hpp"
#include "runtime/files/toml.hpp"
#include "runtime/suggestion.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/ranges.h>

namespace orthant::pmm {
namespace {

/// Reads and checks the constants of a machine file. Throws UserError, which names the key, if one is missing or invalid.
class Reader {
 public:
  Reader(toml::table const& table, std::string const& path) : file_(table), path_(path) {}

  [[nodiscard]] Machine machine() {
    Machine machine;
    auto const* const name = file_.get_as<std::string>("name");
    if (name == nullptr || name->get().empty()) refuse("name", "it needs one, in quotes");
    machine.name = name->get();
    machine.ranks_per_node = static_cast<int>(whole(file_.get("ranks_per_node"), "ranks_per_node"));

    auto const& memory = table("memory", {"bytes", "bytes_per_second"});
    if (memory.contains("bytes")) machine.memory.bytes = rate(memory, "memory", "bytes");
    machine.memory.bytes_per_second = rate(memory, "memory", "bytes_per_second");

    auto const& dense = table("dense_products", {"fp32", "of_16_bits", "narrow", "attention",
                                                 "attention_row_seconds", "launch_seconds"});
    machine.dense.fp32 = rate(dense, "dense_products", "fp32");
    machine.dense.of_16_bits = rate(dense, "dense_products", "of_16_bits");

    constexpr auto shares = "[[shortest side, share], ..]";
    if (dense.contains("narrow"))
      machine.dense.narrow = by_width(dense, "dense_products", "narrow", shares, &Reader::share);

    if (dense.contains("attention")) machine.dense.attention = rate(dense, "dense_products", "attention");
    machine.dense.attention_row_seconds = seconds_if_given(dense, "dense_products", "attention_row_seconds");
    machine.dense.launch_seconds = seconds_if_given(dense, "dense_products", "launch_seconds");

    constexpr auto times = "[[width, seconds], ..]";
    auto const& sparse = table("sparse_products", {"per_nonzero", "per_row"});
    machine.sparse.per_nonzero =
        by_width(sparse, "sparse_products", "per_nonzero", times, &Reader::above_zero);
    if (sparse.contains("per_row"))
      machine.sparse.per_row = by_width(sparse, "sparse_products", "per_row", times, &Reader::not_negative);
    machine.launch_seconds = seconds(table("launch", {"seconds"}), "launch", "seconds");
    if (constexpr auto passes = "passes"; is_given(passes)) {
      auto const& each = table(passes, {"random_number_seconds", "exponential_seconds", "row_sum_seconds"});
      machine.passes = {seconds_if_given(each, passes, "random_number_seconds"),
                        seconds_if_given(each, passes, "exponential_seconds"),
                        seconds_if_given(each, passes, "row_sum_seconds")};
    }

    auto const& calls = table("collectives", {"call_seconds", "step_seconds", "inside",
                                              "bytes_per_second_between_nodes", "overlap"});
    machine.collectives.call_seconds = seconds(calls, "collectives", "call_seconds");
    machine.collectives.step_seconds = seconds(calls, "collectives", "step_seconds");
    machine.collectives.inside = inside_speeds(calls);
    machine.collectives.bytes_per_second_between_nodes =
        rate(calls, "collectives", "bytes_per_second_between_nodes");
    if (calls.contains("overlap"))
      machine.collectives.overlap = share_or_none(calls, "collectives", "overlap");
    if (constexpr auto key = "bytes_per_second"; is_given("storage"))
      machine.storage_bytes_per_second = rate(table("storage", {key}), "storage", key);
    if (constexpr auto key = "seconds_per_processor_second"; is_given("emulation"))
      machine.seconds_per_processor_second = seconds(table("emulation", {key}), "emulation", key);
    refuse_unknown(file_, "", known_);
    return machine;
  }

 private:
  [[noreturn]] void refuse(std::string const& key, std::string const& fault) const {
    runtime::throw_user("machine file '{}': {}: {}", path_, key, fault);
  }

  static std::string full_name(std::string_view table, std::string_view key) {
    return table.empty() ? std::string(key) : fmt::format("{} of [{}]", key, table);
  }

  void refuse_unknown(toml::table const& table, std::string_view name,
                      std::vector<std::string> const& known) const {
    for (auto const& [key, node] : table)
      if (std::ranges::find(known, key.str()) == known.end())
        refuse(full_name(name, key.str()),
               fmt::format("there is no such constant{}", runtime::did_you_mean(key.str(), known)));
  }

  /// True if the file has this optional table.
  bool is_given(std::string const& name) {
    known_.push_back(name);
    return file_.contains(name);
  }
  toml::table const& table(std::string const& name, std::vector<std::string> keys) {
    known_.push_back(name);
    auto const* const found = file_.get_as<toml::table>(name);
    if (found == nullptr) refuse(fmt::format("[{}]", name), "this table is missing");
    auto const* const source = found->get_as<std::string>("source");
    if (source == nullptr || source->get().empty())
      refuse(full_name(name, "source"), "say where the constants come from, in quotes");
    keys.emplace_back("source");
    refuse_unknown(*found, name, keys);
    return *found;
  }

  double number(toml::node const* node, std::string const& name) const {
    if (node == nullptr) refuse(name, "this constant is missing");
    auto const value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value || !std::isfinite(*value)) refuse(name, "it must be a number");
    return *value;
  }
  double above_zero(toml::node const* node, std::string const& name) const {
    auto const value = number(node, name);
    if (value <= 0) refuse(name, fmt::format("{} must be above 0", value));
    return value;
  }
  std::int64_t whole(toml::node const* node, std::string const& name) const {
    constexpr double most = 1 << 20;
    auto const value = above_zero(node, name);
    if (value != std::floor(value) || value > most)
      refuse(name, fmt::format("{} must be a whole number up to {}", value, most));
    return static_cast<std::int64_t>(value);
  }
  double rate(toml::table const& table, std::string_view name, std::string_view key) const {
    return above_zero(table.get(key), full_name(name, key));
  }
  double not_negative(toml::node const* node, std::string const& name) const {
    auto const value = number(node, name);
    if (value < 0) refuse(name, fmt::format("{} must not be below 0", value));
    return value;
  }
  double share(toml::node const* node, std::string const& name) const {
    auto const value = above_zero(node, name);
    if (value > 1) refuse(name, fmt::format("{} must not be above 1", value));
    return value;
  }
  double share_or_none(toml::table const& table, std::string_view name, std::string_view key) const {
    auto const value = not_negative(table.get(key), full_name(name, key));
    if (value > 1) refuse(full_name(name, key), fmt::format("{} must not be above 1", value));
    return value;
  }
  double seconds(toml::table const& table, std::string_view name, std::string_view key) const {
    return not_negative(table.get(key), full_name(name, key));
  }

  double seconds_if_given(toml::table const& table, std::string_view name, std::string_view key) const {
    return table.contains(key) ? seconds(table, name, key) : 0;
  }

  /// Returns the rows of [[a, b, ..], ..], with `length` numbers each.
  std::vector<toml::array const*> rows(toml::table const& table, std::string const& key, std::size_t length,
                                       std::string const& name, std::string_view wish) const {
    std::vector<toml::array const*> found;
    auto const* const array = table.get_as<toml::array>(key);
    for (std::size_t i = 0; array != nullptr && i < array->size(); ++i)
      found.push_back(array->get_as<toml::array>(i));
    auto const is_row = [&](toml::array const* row) { return row != nullptr && row->size() == length; };
    if (found.empty() || !std::ranges::all_of(found, is_row))
      refuse(name, fmt::format("it must be {}", wish));
    return found;
  }

  using Value = double (Reader::*)(toml::node const*, std::string const&) const;

  WidthTable by_width(toml::table const& table, std::string_view table_name, std::string const& key,
                      std::string_view wish, Value value) const {
    auto const name = full_name(table_name, key);
    WidthTable found;
    for (auto const* const row : rows(table, key, 2, name, wish)) {
      auto const width = whole(row->get(0), name);
      if (!found.points.empty() && width <= found.points.back().width)
        refuse(name, fmt::format("width {} after {}: widths increase", width, found.points.back().width));
      found.points.push_back({width, (this->*value)(row->get(1), name)});
    }
    return found;
  }

  std::vector<Machine::GroupSpeed> inside_speeds(toml::table const& table) const {
    auto const name = full_name("collectives", "inside");
    std::vector<Machine::GroupSpeed> speeds;
    for (auto const* const row : rows(table, "inside", 3, name, "[[stride, ranks, bytes per second], ..]"))
      speeds.push_back(
          {{static_cast<int>(whole(row->get(1), name)), static_cast<int>(whole(row->get(0), name))},
           above_zero(row->get(2), name)});
    return speeds;
  }

  toml::table const& file_;
  std::string const& path_;
  std::vector<std::string> known_{"name", "ranks_per_node"};
};

} // namespace

Machine parse_machine(std::string_view text, std::string const& path) {
  try {
    auto const table = toml::parse(text, path);
    return Reader(table, path).machine();
  } catch (toml::parse_error const& error) {
    runtime::throw_user("machine file '{}', line {}: not valid TOML: {}", path, error.source().begin.line,
                        error.description());
  }
}

Machine read_machine(runtime::Communicator const& comm, std::string const& name_or_path) {
  std::vector<std::string_view> names;
  for (auto const& [name, text] : built_in_machines()) {
    if (name == name_or_path) return parse_machine(text, name_or_path);
    names.push_back(name);
  }
  if (name_or_path.find_first_of("./") == std::string::npos)
    runtime::throw_user("there is no machine '{}'; give a .toml file or one of {}{}", name_or_path,
                        fmt::join(names, ", "), runtime::did_you_mean(name_or_path, names));
  auto const text = runtime::read_table_file(
      comm, name_or_path, [&](std::string_view read) { std::ignore = parse_machine(read, name_or_path); });
  return parse_machine(text, name_or_path);
}

} // namespace orthant::pmm
