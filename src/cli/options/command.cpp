// SPDX-License-Identifier: Apache-2.0
#include "cli/options/command.hpp"

#include "cli/options/collectives_option.hpp"

#include "runtime/suggestion.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

namespace orthant::cli {
namespace {

using runtime::SettingSource;
using runtime::throw_user;
using runtime::ValueKind;

template<class T>
inline constexpr bool is_vector = false;
template<class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template<class T>
inline constexpr bool is_optional = false;
template<class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template<class T>
constexpr ValueKind kind_of() {
  if constexpr (is_vector<T>)
    return ValueKind::list;
  else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::optional<std::int64_t>>)
    return ValueKind::integer;
  else if constexpr (std::is_same_v<T, double> || is_optional<T>)
    return ValueKind::number;
  else
    return ValueKind::text;
}

/// Reads a number; nullopt if the text is not a number or the number does not fit in T.
template<class T>
std::optional<T> number_of(std::string const& text) {
  T number = 0;
  auto const* const begin = text.data() + (text.starts_with('+') ? 1 : 0);
  auto const parsed = std::from_chars(begin, text.data() + text.size(), number);
  if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Group of the ignored options. CLI11 would hide a group without a name, but then leave it out of its messages also.
constexpr auto hidden_group = "Passed over";

/// Help with its usage line ("Usage", which CLI11 leaves out from version 2.5 on) and without the ignored options.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(CLI::App const* app, std::string name) const override {
    auto usage = CLI::Formatter::make_usage(app, std::move(name));
    auto const begin = usage.find_first_not_of('\n');
    if (begin != std::string::npos && usage.compare(begin, 6, "Usage:") != 0) usage.insert(begin, "Usage: ");
    return usage;
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<CLI::Option const*> options) const override {
    if (group == hidden_group) return {};
    return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
  }
};

/// Checks the kind of a value. CLI11 would only print "could not convert"; this message names the expected kind.
std::string check_kind(ValueKind kind, std::string const& text) {
  if (kind == ValueKind::integer && !runtime::is_written_as(kind, text))
    return fmt::format("needs a whole number, not '{}'", text);
  if (kind == ValueKind::number && !runtime::is_written_as(kind, text))
    return fmt::format("needs a number, not '{}'", text);
  return {};
}

template<class T>
Check in_interval(T low, bool is_low_allowed, T high) {
  return [=](std::string const& text) -> std::string {
    auto const number = number_of<T>(text); // rejects NaN
    if (number && (is_low_allowed ? *number >= low : *number > low) && *number <= high) return {};
    return fmt::format("is {}, but must be {} {} and at most {}", text,
                       is_low_allowed ? "at least" : "more than", low, high);
  };
}

/// Name of the option in settings and messages: the first long name.
std::string name_of(CLI::Option const& option) {
  if (!option.get_lnames().empty()) return option.get_lnames().front();
  return option.get_single_name();
}

bool is_positional(CLI::Option const& option) {
  return option.get_lnames().empty() && option.get_snames().empty();
}

/// Replaces line breaks, for messages of CLI11.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

} // namespace

Check whole_number(std::int64_t low, std::int64_t high) {
  return in_interval(low, true, high);
}

Check in_range(double low, double high) {
  return in_interval(low, true, high);
}

Check above(double low, double high) {
  return in_interval(low, false, high);
}

Check one_of(std::vector<std::string> words) {
  return [words = std::move(words)](std::string const& text) -> std::string {
    if (std::ranges::find(words, text) != words.end()) return {};
    return fmt::format("'{}' is none of {}{}", text, fmt::join(words, ", "),
                       runtime::did_you_mean(text, words));
  };
}

struct Command::Entry {
  CLI::Option* option;
  std::string default_value; // empty: no default
  SettingSource source = SettingSource::default_value;
  std::string origin; // origin of a value that was given
};

struct Command::Parser {
  CLI::App app;
  std::vector<Entry> entries;
  std::map<std::string, std::string> words_of_flags; // "--residual": the value that it has without a word

  Parser(std::string description, std::string name) : app(std::move(description), std::move(name)) {}
};

Command::Command(std::string name, std::string description)
    : parser_(std::make_unique<Parser>(std::move(description), "orthant " + name)) {
  description_.name = std::move(name);
  auto& app = parser_->app;
  app.allow_extras();
  app.set_help_flag("-h,--help", "Print this help");
  auto const formatter = std::make_shared<HelpFormatter>();
  formatter->column_width(36);
  app.formatter(formatter);
}

Command::~Command() = default;

void Command::add_common_options() {
  begin_group("Common");
  input("--config", common_.config, "TOML file of options; flags and ORTHANT_* variables override it");
  option("--log-level", common_.log_level, "Messages on stderr: debug, info, warning, error or off",
         one_of({"trace", "debug", "info", "warning", "warn", "error", "off"}));
  option("--timeout", common_.timeout_seconds,
         "End the job with a report after this many seconds without progress in a collective; 0: never",
         in_range(0, longest_timeout_seconds));
  output("--metrics", common_.metrics, "Write metrics to this file, one JSON object per line");
  output("--trace", common_.trace, "Write a timeline to this file (Perfetto, chrome://tracing)");
  flag("--force", common_.force, "Replace outputs that exist");
  if (needs_device_ || predicts_collectives_) add_collectives_option(*this, common_.collectives);
}

template<class T>
void Command::add(std::string const& names, T& value, std::string const& description, Check check) {
  constexpr auto kind = kind_of<T>();
  auto& added = *parser_->app.add_option(names, value, description);
  if constexpr (is_vector<T>) {
    if (!is_positional(added)) added.delimiter(',')->allow_extra_args(false);
  } else if constexpr (!is_optional<T>) {
    added.capture_default_str();
  }
  added.group(group_);
  if (kind == ValueKind::integer && !check) check = whole_number(std::numeric_limits<std::int64_t>::min());
  if (kind == ValueKind::number && !check) check = in_range(-largest_number);
  added.check([check = std::move(check)](std::string const& text) {
    auto const problem = check_kind(kind, text);
    return problem.empty() && check ? check(text) : problem;
  });
  description_.options.push_back({name_of(added), kind});
  parser_->entries.push_back({&added, added.get_default_str(), SettingSource::default_value, {}});
}

void Command::option(std::string const& names, std::string& value, std::string const& description,
                     Check check) {
  add(names, value, description, std::move(check));
}
void Command::option(std::string const& names, std::int64_t& value, std::string const& description,
                     Check check) {
  add(names, value, description, std::move(check));
}
void Command::option(std::string const& names, double& value, std::string const& description, Check check) {
  add(names, value, description, std::move(check));
}
void Command::option(std::string const& names, std::optional<double>& value, std::string const& description,
                     Check check) {
  add(names, value, description, std::move(check));
}
void Command::option(std::string const& names, std::optional<std::int64_t>& value,
                     std::string const& description, Check check) {
  add(names, value, description, std::move(check));
}
void Command::option(std::string const& names, std::vector<double>& value, std::string const& description,
                     Check check) {
  add(names, value, description, std::move(check));
}
void Command::option(std::string const& names, std::vector<std::string>& value,
                     std::string const& description, Check check) {
  add(names, value, description, std::move(check));
}

void Command::repeatable(std::string const& names, std::vector<std::string>& values,
                         std::string const& description) {
  add(names, values, description, {});
  parser_->entries.back().option->delimiter('\0');
  description_.options.back().kind = ValueKind::text;
}

void Command::number_or_word(std::string const& names, std::string& value, std::string const& description,
                             std::vector<std::string> words, Check check, ValueKind kind) {
  auto const is_whole = kind == ValueKind::integer_or_word;
  add(names, value, description,
      [=, words = std::move(words), check = std::move(check)](std::string const& text) {
        if (std::ranges::find(words, text) != words.end()) return std::string();
        if (!runtime::is_written_as(is_whole ? ValueKind::integer : ValueKind::number, text))
          return fmt::format("needs a {}number, not '{}', or {}", is_whole ? "whole " : "", text,
                             fmt::join(words, " or "));
        return check(text);
      });
  description_.options.back().kind = kind;
}

void Command::flag_or_word(std::string const& names, std::string& value, std::string const& description,
                           std::vector<std::string> words) {
  auto const off = words[0], on = words[1];
  add(names, value, description, one_of(std::move(words)));
  auto& added = *parser_->entries.back().option;
  added.transform([=](std::string const& text) {
    if (text == "true" || text == "on") return on;
    return text == "false" || text == "off" ? off : text;
  });
  description_.options.back().kind = ValueKind::flag_or_word;
  parser_->words_of_flags.emplace("--" + name_of(added), on);
}

void Command::add_file(std::string const& names, std::string& path, std::string const& description,
                       FileOption::Use use) {
  add(names, path, description, {});
  auto const& option = *parser_->entries.back().option;
  files_.push_back({(is_positional(option) ? "" : "--") + name_of(option), use, &path});
}

void Command::input(std::string const& names, std::string& path, std::string const& description) {
  add_file(names, path, description, FileOption::Use::input);
}
void Command::output(std::string const& names, std::string& path, std::string const& description) {
  add_file(names, path, description, FileOption::Use::output);
}

void Command::output_folder(std::string const& names, std::string& path, std::string const& description) {
  add_file(names, path, description, FileOption::Use::output_folder);
}

void Command::flag(std::string const& names, bool& value, std::string const& description) {
  auto& added = *parser_->app.add_flag(names, value, description);
  added.group(group_);
  description_.options.push_back({name_of(added), ValueKind::flag});
  parser_->entries.push_back({&added, value ? "true" : "false", SettingSource::default_value, {}});
}

void Command::pass_over_all_but(std::span<std::string_view const> used) {
  for (auto const& entry : parser_->entries) {
    auto const name = name_of(*entry.option);
    auto const is_used = [&](std::string_view one) {
      return one == name || one == entry.option->get_group();
    };
    if (std::ranges::any_of(used, is_used)) continue;
    entry.option->group(hidden_group);
    pass_over(name, [] { return true; });
  }
}

void Command::pass_over(std::string name, std::function<bool()> is_idle) {
  passed_over_.insert_or_assign(std::move(name), std::move(is_idle));
}

std::vector<std::string> Command::drop_passed_over() {
  std::vector<std::string> given;
  for (auto const& entry : parser_->entries) {
    auto const name = name_of(*entry.option);
    auto const found = passed_over_.find(name);
    if (found == passed_over_.end() || !found->second()) continue;
    std::erase_if(files_, [&](FileOption const& file) { return file.name == "--" + name; });
    if (name == "metrics") common_.metrics.clear();
    if (name == "trace") common_.trace.clear();
    if (entry.source != SettingSource::default_value) given.push_back("--" + name);
  }
  return given;
}

std::string Command::summary() const {
  return parser_->app.get_description();
}

std::string Command::help() const {
  auto text = parser_->app.help();
  for (auto at = text.find("\n\n\n"); at != std::string::npos; at = text.find("\n\n\n", at))
    text.erase(at, 1);
  if (!description_.also_table.empty())
    text += fmt::format(
        "\nOther options of `orthant {}` are checked and ignored, so its command lines work here.\n",
        description_.also_table);
  return text;
}

void Command::refuse_unknown(std::vector<std::string> const& extras) const {
  if (extras.empty()) return;
  // Report only the first flag, because the words after it may be its value.
  auto const is_flag = [](std::string const& word) { return word.size() > 1 && word[0] == '-'; };
  auto const found = std::ranges::find_if(extras, is_flag);
  if (found == extras.end())
    throw_user("{}: what is '{}' for? See `orthant {} --help`", name(), extras.front(), name());
  auto const flag = found->substr(0, found->find('='));
  std::vector<std::string> known{"help"};
  for (auto const* option : parser_->app.get_options())
    known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
  auto const start = std::min(flag.find_first_not_of('-'), flag.size()); // "--" has no name
  auto const hint = runtime::did_you_mean(std::string_view(flag).substr(start), known, "--");
  throw_user("{}: there is no option '{}'{}", name(), flag,
             hint.empty() ? fmt::format("; see `orthant {} --help`", name()) : hint);
}

bool Command::parse(std::vector<std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto const has_word = i + 1 < arguments.size() && !arguments[i + 1].starts_with('-');
    auto const flag = parser_->words_of_flags.find(arguments[i]);
    if (flag != parser_->words_of_flags.end() && !has_word) arguments[i] += "=" + flag->second;
  }
  std::ranges::reverse(arguments); // CLI11 expects reverse order
  try {
    parser_->app.parse(arguments);
  } catch (CLI::CallForHelp const&) {
    return false;
  } catch (CLI::ParseError const& error) {
    throw_user("{}: {}", name(), one_line(error.what()));
  }
  refuse_unknown(parser_->app.remaining());
  for (auto& entry : parser_->entries) {
    if (entry.option->count() == 0) continue;
    entry.source = SettingSource::flag;
    entry.origin = (is_positional(*entry.option) ? "" : "--") + name_of(*entry.option);
  }
  return true;
}

void Command::apply(runtime::Settings const& settings) {
  for (std::size_t i = 0; i < parser_->entries.size(); ++i) {
    auto& entry = parser_->entries[i];
    auto const found = settings.find(description_.options[i].name);
    if (found == settings.end() || found->second.source == SettingSource::default_value ||
        entry.source == SettingSource::flag)
      continue;
    try {
      entry.option->add_result(found->second.value);
      entry.option->run_callback();
    } catch (CLI::ParseError const& error) {
      throw_user("{}: {}", found->second.origin, one_line(error.what()));
    }
    entry.source = found->second.source;
    entry.origin = found->second.origin;
  }
}

runtime::Settings Command::resolved() const {
  runtime::Settings settings;
  for (std::size_t i = 0; i < parser_->entries.size(); ++i) {
    auto const& entry = parser_->entries[i];
    auto const is_given = entry.source != SettingSource::default_value;
    auto const value =
        is_given ? fmt::format("{}", fmt::join(entry.option->reduced_results(), ",")) : entry.default_value;
    if (!is_given && value.empty() && description_.options[i].kind != ValueKind::text) continue;
    settings[description_.options[i].name] = {value, entry.source, entry.origin};
  }
  return settings;
}

} // namespace orthant::cli
