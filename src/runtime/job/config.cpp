// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/config.hpp"

#include "runtime/comm/together.hpp"
#include "runtime/error.hpp"
#include "runtime/files/text_file.hpp"
#include "runtime/files/toml.hpp"
#include "runtime/suggestion.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace orthant::runtime {
namespace {

constexpr std::string_view variable_prefix = "ORTHANT_";

std::string kebab_case(std::string_view key) {
  std::string text(key);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

/// True if `command` is `scope` or below it: "bench collectives" is below "bench", and everything is below "".
bool is_within(std::string_view command, std::string_view scope) {
  return scope.empty() || command == scope ||
         (command.starts_with(scope) && command.substr(scope.size()).starts_with(' '));
}

template<class T>
std::optional<T> parsed(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> parsed_flag(std::string_view text) {
  std::string word;
  for (auto const character : text)
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::string_view wish_of(ValueKind kind) {
  constexpr std::array<std::string_view, 8> wishes{"text in quotes",
                                                   "an integer",
                                                   "a number",
                                                   "true or false",
                                                   "a list like [1, 2]",
                                                   "an integer or text in quotes",
                                                   "a number or text in quotes",
                                                   "true, false or text in quotes"};
  return wishes[static_cast<std::size_t>(kind)];
}

std::string_view article_and_type(toml::node const& node) {
  switch (node.type()) {
  case toml::node_type::string:
    return "text";
  case toml::node_type::integer:
    return "an integer";
  case toml::node_type::floating_point:
    return "a number with a fraction";
  case toml::node_type::boolean:
    return "true or false";
  case toml::node_type::array:
    return "a list";
  case toml::node_type::table:
    return "a table";
  default:
    return "a date or time";
  }
}

/// The shortest decimal from which the same double can be read.
std::optional<std::string> scalar_text(toml::node const& node) {
  if (auto const* const text = node.as_string()) return text->get();
  if (auto const* const integer = node.as_integer()) return fmt::format("{}", integer->get());
  if (auto const* const number = node.as_floating_point()) return fmt::format("{}", number->get());
  return std::nullopt;
}

/// The node in the form of a flag's value of this kind; empty if the node has another kind.
std::optional<std::string> text_of(toml::node const& node, ValueKind kind) {
  switch (kind) {
  case ValueKind::text:
    return node.is_string() ? scalar_text(node) : std::nullopt;
  case ValueKind::integer:
    return node.is_integer() ? scalar_text(node) : std::nullopt;
  case ValueKind::integer_or_word:
    return node.is_integer() || node.is_string() ? scalar_text(node) : std::nullopt;
  case ValueKind::number:
    return node.is_number() ? scalar_text(node) : std::nullopt;
  case ValueKind::number_or_word:
    return node.is_number() || node.is_string() ? scalar_text(node) : std::nullopt;
  case ValueKind::flag:
    if (auto const* const flag = node.as_boolean()) return flag->get() ? "true" : "false";
    return std::nullopt;
  case ValueKind::flag_or_word:
    return node.is_boolean() ? text_of(node, ValueKind::flag) : text_of(node, ValueKind::text);
  case ValueKind::list:
    break;
  }
  auto const* const array = node.as_array();
  if (array == nullptr) return scalar_text(node);
  std::string joined;
  for (auto const& element : *array) {
    auto const text = scalar_text(element);
    if (!text) return std::nullopt;
    joined += (joined.empty() ? "" : ",") + *text;
  }
  return joined;
}

/// Reads one file's tables into settings of one command.
class FileReader {
 public:
  FileReader(std::string const& path, std::string_view command, std::span<CommandDescription const> commands)
      : path_(path),
        command_(command),
        commands_(commands) {}

  [[nodiscard]] Settings read(std::string_view text) {
    try {
      read_table(toml::parse(without_byte_order_mark(text, path_), path_), "");
    } catch (toml::parse_error const& error) {
      throw_user("{}: not valid TOML: {}", place(error.source()), error.description());
    }
    return std::move(settings_);
  }

 private:
  [[nodiscard]] std::string place(toml::source_region const& source) const {
    return fmt::format("{}:{}:{}", path_, source.begin.line, source.begin.column);
  }

  void read_table(toml::table const& table, std::string const& scope) {
    std::map<std::string, toml::source_region> seen;
    // Values are read first, because inner tables override them.
    for (auto const& [key, node] : table) {
      if (node.is_table()) continue;
      auto const name = kebab_case(key.str());
      if (auto const [other, is_new] = seen.emplace(name, key.source()); !is_new)
        throw_user("{}: '{}' is given twice, here and in line {}", place(key.source()), name,
                   other->second.begin.line);
      read_value(name, key, node, scope);
    }
    read_tables(table, scope, false);
    read_tables(table, scope, true); // the command's own table takes precedence
  }

  void read_tables(toml::table const& table, std::string const& scope, bool are_own) {
    for (auto const& [key, node] : table)
      if (auto const* const inner = node.as_table()) {
        auto const below = (scope.empty() ? "" : scope + ' ') + kebab_case(key.str());
        if (is_within(command_, below) != are_own) continue;
        auto const is_known = std::any_of(commands_.begin(), commands_.end(), [&](auto const& command) {
          return is_within(command.name, below);
        });
        if (!is_known) refuse_table(key, below);
        read_table(*inner, below);
      }
  }

  void read_value(std::string const& name, toml::key const& key, toml::node const& node,
                  std::string const& scope) {
    OptionDescription const* known =
        nullptr; // option of the running command, else of any command in this scope
    bool is_ours = false;
    bool is_of_scope = false;
    for (auto const& command : commands_) {
      auto const is_running = command.name == command_;
      auto const is_inside = is_within(command.name, scope);
      if (!is_inside && !(is_running && command.also_table == scope)) continue;
      for (auto const& option : command.options) {
        if (option.name != name) continue;
        is_of_scope = is_of_scope || is_inside;
        if (known == nullptr || is_running) known = &option;
        is_ours = is_ours || is_running;
      }
    }
    if (!is_of_scope) refuse_option(key, name, scope);
    auto const text = text_of(node, known->kind);
    if (!text)
      throw_user("{}: '{}' is {}, but {} is wanted", place(node.source()), name, article_and_type(node),
                 wish_of(known->kind));
    if (is_ours)
      settings_[name] = {*text, SettingSource::file, fmt::format("{}:{}", path_, key.source().begin.line)};
  }

  [[noreturn]] void refuse_option(toml::key const& key, std::string const& name,
                                  std::string const& scope) const {
    std::vector<std::string> names;
    for (auto const& command : commands_)
      if (is_within(command.name, scope))
        for (auto const& option : command.options)
          names.push_back(option.name);
    auto hint = did_you_mean(name, names);
    if (hint.empty())
      hint = fmt::format("; 'orthant {}{}--help' lists them", scope, scope.empty() ? "" : " ");
    throw_user("{}: there is no option '{}'{}", place(key.source()), key.str(), hint);
  }

  [[noreturn]] void refuse_table(toml::key const& key, std::string const& scope) const {
    std::vector<std::string> names;
    for (auto const& command : commands_)
      names.push_back(command.name);
    throw_user("{}: there is no command for the table [{}]{}", place(key.source()), key.str(),
               did_you_mean(scope, names));
  }

  std::string const& path_;
  std::string_view command_;
  std::span<CommandDescription const> commands_;
  Settings settings_;
};

void read_variable(std::string const& variable, std::string const& value, OptionDescription const& option,
                   Settings& settings) {
  auto text = value;
  if (option.kind == ValueKind::flag || option.kind == ValueKind::flag_or_word)
    if (auto const flag = parsed_flag(value)) text = *flag ? "true" : "false";
  if (!is_written_as(option.kind, text))
    throw_user("{} is '{}', but {} is wanted", variable, value, wish_of(option.kind));
  settings[option.name] = {text, SettingSource::environment, variable};
}

std::string read_file(std::string const& path) {
  std::error_code error;
  auto const status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status))
    throw_user("cannot read the configuration '{}': it is a folder", path);
  if (std::filesystem::is_fifo(status) ||
      std::filesystem::is_socket(status)) // a pipe or socket may have no writer
    throw_user("cannot read the configuration '{}': it is a pipe; a regular file is wanted", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  constexpr std::size_t most = std::size_t{1} << 20; // a device may return bytes without end
  std::string text(most + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (!file.is_open() || file.bad())
    throw_user("cannot read the configuration '{}': {}", path,
               std::error_code(errno, std::generic_category()).message());
  if (text.size() > most)
    throw_user("cannot read the configuration '{}': it has more than {} bytes; a configuration is smaller",
               path, most);
  return text;
}

std::map<std::string, std::string> orthant_variables() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    auto const text = std::string_view(*entry);
    auto const equals = text.find('=');
    if (text.starts_with(variable_prefix) && equals != std::string_view::npos)
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

/// Warns of a variable whose name is close to an option's: it is probably a typing error. Other variables may belong to other programs.
void warn_of_near_misses(std::map<std::string, std::string> const& variables,
                         std::span<CommandDescription const> commands, Log& log) {
  // ORTHANT_ROOT is the folder of the sources in examples and documentation.
  std::vector<std::string> known{"ORTHANT_CONFIG", "ORTHANT_EMULATE", "ORTHANT_ROOT"};
  for (auto const& command : commands)
    for (auto const& option : command.options)
      known.push_back(variable_of(option.name));
  for (auto const& [variable, value] : variables) {
    if (std::find(known.begin(), known.end(), variable) != known.end()) continue;
    auto const match = closest_match(variable, known);
    if (match && edit_distance(variable, *match) <= 2)
      log.warn("the environment's {} is not used; did you mean '{}'?", variable, *match);
  }
}

nlohmann::ordered_json to_json(std::string const& value, ValueKind kind) {
  if (kind == ValueKind::flag)
    if (auto const flag = parsed_flag(value)) return *flag;
  if (kind == ValueKind::integer || kind == ValueKind::number) {
    if (auto const integer = parsed<std::int64_t>(value)) return *integer;
    if (auto const number = parsed<double>(value); number && std::isfinite(*number)) return *number;
  }
  if (kind == ValueKind::list) {
    auto list = nlohmann::ordered_json::array();
    std::istringstream parts(value);
    for (std::string part; std::getline(parts, part, ',');)
      list.push_back(to_json(part, ValueKind::number));
    return list;
  }
  return value;
}

} // namespace

std::string_view name_of(SettingSource source) {
  constexpr std::array<std::string_view, 4> names{"default", "config", "environment", "flag"};
  return names[static_cast<std::size_t>(source)];
}

bool is_written_as(ValueKind kind, std::string_view text) {
  if (kind == ValueKind::flag) return parsed_flag(text).has_value();
  if (kind != ValueKind::integer && kind != ValueKind::number) return true;
  if (text.starts_with('+')) text.remove_prefix(1);
  auto const* const end = text.data() + text.size();
  auto const is_read = [end](std::from_chars_result const& result) {
    return result.ec != std::errc::invalid_argument && result.ptr == end;
  };
  auto integer = std::int64_t{0};
  auto number = 0.0;
  return kind == ValueKind::integer ? is_read(std::from_chars(text.data(), end, integer))
                                    : is_read(std::from_chars(text.data(), end, number));
}

std::string variable_of(std::string_view option) {
  std::string variable(variable_prefix);
  for (auto const character : option)
    variable +=
        character == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(character)));
  return variable;
}

Settings parse_settings(std::string_view toml, std::string const& path,
                        std::map<std::string, std::string> const& variables, std::string_view command,
                        std::span<CommandDescription const> commands) {
  auto settings = FileReader(path, command, commands).read(toml);
  for (auto const& description : commands) {
    if (description.name != command) continue;
    for (auto const& option : description.options) {
      auto const found = variables.find(variable_of(option.name));
      if (found != variables.end() && !found->second.empty())
        read_variable(found->first, found->second, option, settings);
    }
  }
  return settings;
}

Settings read_settings(Communicator const& comm, std::string const& config_path, std::string_view command,
                       std::span<CommandDescription const> commands) {
  Settings settings;
  std::string text; // the settings as text for the other ranks
  together(comm, [&] {
    if (!comm.is_root()) return;
    auto const variables = orthant_variables();
    auto const configured = variables.find("ORTHANT_CONFIG");
    auto const path = config_path.empty() && configured != variables.end() ? configured->second : config_path;
    auto const file = path.empty() ? std::string() : read_file(path);
    settings = parse_settings(file, path, variables, command, commands);
    warn_of_near_misses(variables, commands, comm.instruments().log);
    auto json = nlohmann::json::array();
    for (auto const& [name, setting] : settings)
      json.push_back({name, setting.value, static_cast<int>(setting.source), setting.origin});
    // CBOR can contain any bytes. JSON requires UTF-8, which environment variables need not be.
    auto const bytes = nlohmann::json::to_cbor(json);
    text.assign(bytes.begin(), bytes.end());
  });
  broadcast_text(comm, text, 0);
  if (comm.is_root()) return settings;
  for (auto const& entry : nlohmann::json::from_cbor(text))
    settings[entry[0].get<std::string>()] = {entry[1].get<std::string>(),
                                             static_cast<SettingSource>(entry[2].get<int>()),
                                             entry[3].get<std::string>()};
  return settings;
}

nlohmann::ordered_json resolved_json(Settings const& settings, CommandDescription const& command) {
  auto configuration = nlohmann::ordered_json::object();
  auto sources = nlohmann::ordered_json::object();
  for (auto const& option : command.options) {
    auto const found = settings.find(option.name);
    if (found == settings.end()) continue;
    configuration[option.name] = to_json(found->second.value, option.kind);
    sources[option.name] = name_of(found->second.source);
  }
  return {{"configuration", configuration}, {"sources", sources}};
}

} // namespace orthant::runtime
