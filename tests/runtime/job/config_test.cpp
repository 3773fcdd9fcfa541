// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/config.hpp"

#include "runtime/error.hpp"
#include "runtime/suggestion.hpp"
#include "support/scratch_folder.hpp"
#include "support/user_messages.hpp"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

namespace orthant::runtime {
namespace {

using test::message_of;
using testing::HasSubstr;

std::vector<CommandDescription> const commands{
    {"train",
     {{"lr", ValueKind::number},
      {"weight-decay", ValueKind::number},
      {"epochs", ValueKind::integer},
      {"grid", ValueKind::text},
      {"bias", ValueKind::flag},
      {"random-split", ValueKind::list},
      {"seed", ValueKind::integer}}},
    {"partition", {{"input", ValueKind::text}, {"seed", ValueKind::integer}, {"metis", ValueKind::integer}}},
    {"bench collectives", {{"repeat", ValueKind::integer}, {"grid", ValueKind::text}}},
    {"bench spmm", {{"repeat", ValueKind::integer}, {"columns", ValueKind::integer}}},
    {"plan",
     {{"lr", ValueKind::number}, {"seed", ValueKind::integer}, {"ranks", ValueKind::integer}},
     "train"}};

using Variables = std::map<std::string, std::string>;

Settings parse(std::string_view toml, Variables const& variables = {}, std::string_view command = "train") {
  return parse_settings(toml, "run.toml", variables, command, commands);
}

std::map<std::string, std::string> values_of(Settings const& settings) {
  std::map<std::string, std::string> values;
  for (auto const& [name, setting] : settings)
    values[name] = setting.value;
  return values;
}

std::string mistake_in(std::string_view toml, Variables const& variables = {}) {
  return message_of([&] { static_cast<void>(parse(toml, variables)); });
}

TEST(EditDistance, CountsSlips) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("wieght", "weight"), 1u);
  EXPECT_EQ(edit_distance("ab", "ba"), 1u);
  EXPECT_EQ(edit_distance("lr", "lr"), 0u);
}

TEST(ClosestMatch, FindsWhatWasMeantAndNothingElse) {
  std::vector<std::string> const names{"lr",     "epochs", "weight-decay", "weight-decay-first-layer",
                                       "hidden", "grid"};
  EXPECT_EQ(closest_match("lrr", names), "lr");
  EXPECT_EQ(closest_match("rl", names), "lr");
  EXPECT_EQ(closest_match("epoch", names), "epochs");
  EXPECT_EQ(closest_match("WEIGHT_DECAY", names), "weight-decay");
  EXPECT_EQ(closest_match("wieght-deacy", names), "weight-decay");
  EXPECT_EQ(closest_match("weight", names), "weight-decay");
  EXPECT_EQ(closest_match("hid", names), "hidden");
  EXPECT_EQ(closest_match("momentum", names), std::nullopt);
  EXPECT_EQ(closest_match("x", names), std::nullopt);
  EXPECT_EQ(closest_match("", names), std::nullopt);
  EXPECT_EQ(closest_match("lr", std::vector<std::string>{}), std::nullopt);
  EXPECT_EQ(did_you_mean("gird", names, "--"), "; did you mean '--grid'?");
  EXPECT_EQ(did_you_mean("momentum", names), "");
}

TEST(Settings, KeysAreFlatOrInTablesInBothSpellings) {
  auto const settings = parse(R"(
seed = 7
epochs = 10
input = "graph of another command"
[train]
lr = 0.01
weight_decay = 5e-4
epochs = 20
grid = "1x2x2x1"
bias = false
random-split = [0.6, 0.2, 0.2]
[partition]
seed = 8
)");
  EXPECT_EQ(values_of(settings), (std::map<std::string, std::string>{{"seed", "7"},
                                                                     {"lr", "0.01"},
                                                                     {"weight-decay", "0.0005"},
                                                                     {"epochs", "20"},
                                                                     {"grid", "1x2x2x1"},
                                                                     {"bias", "false"},
                                                                     {"random-split", "0.6,0.2,0.2"}}));
  EXPECT_EQ(settings.at("epochs").source, SettingSource::file);
  EXPECT_EQ(settings.at("epochs").origin, "run.toml:8");
}

TEST(Settings, AByteOrderMarkIsPassedOver) {
  EXPECT_EQ(values_of(parse("\xef\xbb\xbfseed = 7\n")), (std::map<std::string, std::string>{{"seed", "7"}}));
  EXPECT_EQ(parse("\xef\xbb\xbfseed = 7\n").at("seed").origin, "run.toml:1");
  EXPECT_NE(mistake_in("\xff\xfes").find("run.toml is a text in UTF-16, as its byte order mark says"),
            std::string::npos);
}

TEST(Settings, TablesNestLikeCommands) {
  constexpr auto toml =
      "[bench]\nrepeat = 3\n[bench.collectives]\ngrid = '1x2x1x1'\n[bench.spmm]\nrepeat = 5\n";
  EXPECT_EQ(values_of(parse(toml, {}, "bench collectives")),
            (std::map<std::string, std::string>{{"repeat", "3"}, {"grid", "1x2x1x1"}}));
  EXPECT_EQ(values_of(parse(toml, {}, "bench spmm")), (std::map<std::string, std::string>{{"repeat", "5"}}));
  EXPECT_TRUE(parse(toml, {}, "train").empty());
}

TEST(Settings, ATableThatCountsForAnotherCommandYieldsToItsOwn) {
  using Values = std::map<std::string, std::string>;
  // In the order of the alphabet plan comes first.
  EXPECT_EQ(values_of(parse("lr = 1\nseed = 1\n[plan]\nlr = 2\n[train]\nlr = 3\nseed = 3\nepochs = 3\n", {},
                            "plan")),
            (Values{{"lr", "2"}, {"seed", "3"}}));
  EXPECT_EQ(values_of(parse("[plan]\nlr = 2\nranks = 4\n[train]\nepochs = 3\n")), (Values{{"epochs", "3"}}));
  EXPECT_THAT(message_of([] { static_cast<void>(parse("[train]\nranks = 4\n", {}, "plan")); }),
              HasSubstr("there is no option 'ranks'"));
}

TEST(Settings, NumbersReadBackToTheBit) {
  for (double const value : {0.1, 1.0 / 3, 1e-300, 123456789.125, 5e-324}) {
    auto const text = parse(fmt::format("lr = {:.17e}", value)).at("lr").value;
    EXPECT_EQ(std::strtod(text.c_str(), nullptr), value) << text;
  }
  EXPECT_EQ(parse("lr = 1").at("lr").value, "1");
  EXPECT_EQ(parse("seed = 9_223_372_036_854_775_807").at("seed").value, "9223372036854775807");
}

TEST(Settings, EnvironmentBeatsTheFile) {
  auto const settings = parse("lr = 1.0\nepochs = 2\n", {{"ORTHANT_LR", "0.5"},
                                                         {"ORTHANT_WEIGHT_DECAY", "1e-3"},
                                                         {"ORTHANT_EPOCHS", ""},
                                                         {"ORTHANT_BIAS", "Off"},
                                                         {"ORTHANT_UNRELATED", "x"}});
  EXPECT_EQ(values_of(settings),
            (std::map<std::string, std::string>{
                {"lr", "0.5"}, {"weight-decay", "1e-3"}, {"epochs", "2"}, {"bias", "false"}}));
  EXPECT_EQ(settings.at("lr").source, SettingSource::environment);
  EXPECT_EQ(settings.at("lr").origin, "ORTHANT_LR");
  EXPECT_EQ(settings.at("epochs").source, SettingSource::file);
}

TEST(Settings, NothingGivenIsNothingSet) {
  EXPECT_TRUE(parse("").empty());
  EXPECT_TRUE(parse("# only a remark\n[train]\n").empty());
}

TEST(Settings, MistakesNamePlaceAndRemedy) {
  EXPECT_EQ(mistake_in("lr = 1\nepoch = 3\n"),
            "run.toml:2:1: there is no option 'epoch'; did you mean 'epochs'?");
  EXPECT_EQ(mistake_in("[train]\nmetis = 3\n"),
            "run.toml:2:1: there is no option 'metis'; 'orthant train --help' lists them");
  EXPECT_EQ(mistake_in("zzz = 3\n"), "run.toml:1:1: there is no option 'zzz'; 'orthant --help' lists them");
  EXPECT_THAT(mistake_in("[trian]\nlr = 3\n"),
              HasSubstr("there is no command for the table [trian]; did you mean 'train'?"));
  EXPECT_THAT(mistake_in("[train.model]\nlr = 3\n"), HasSubstr("there is no command for the table [model]"));
  EXPECT_EQ(mistake_in("lr = \"fast\"\n"), "run.toml:1:6: 'lr' is text, but a number is wanted");
  EXPECT_EQ(mistake_in("epochs = 1.5\n"),
            "run.toml:1:10: 'epochs' is a number with a fraction, but an integer is wanted");
  EXPECT_EQ(mistake_in("bias = 1\n"), "run.toml:1:8: 'bias' is an integer, but true or false is wanted");
  EXPECT_EQ(mistake_in("grid = 4\n"), "run.toml:1:8: 'grid' is an integer, but text in quotes is wanted");
  EXPECT_EQ(mistake_in("grid = [1, 2]\n"), "run.toml:1:8: 'grid' is a list, but text in quotes is wanted");
  EXPECT_EQ(mistake_in("random-split = [[1], 2]\n"),
            "run.toml:1:16: 'random-split' is a list, but a list like [1, 2] is wanted");
  EXPECT_EQ(mistake_in("lr = 1979-05-27\n"), "run.toml:1:6: 'lr' is a date or time, but a number is wanted");
  EXPECT_EQ(mistake_in("weight-decay = 1\nweight_decay = 2\n"),
            "run.toml:2:1: 'weight-decay' is given twice, here and in line 1");
  // A mistake in another command's table is a mistake, too.
  EXPECT_EQ(mistake_in("[partition]\nmets = 3\n"),
            "run.toml:2:1: there is no option 'mets'; did you mean 'metis'?");
}

TEST(Settings, MalformedTomlNamesThePlaceAndReason) {
  EXPECT_THAT(mistake_in("lr = 1\nepochs = = 3\n"), testing::StartsWith("run.toml:2:10: not valid TOML: "));
  EXPECT_THAT(mistake_in("lr 1\n"), testing::StartsWith("run.toml:1:4: not valid TOML: "));
  EXPECT_THAT(mistake_in("[train\nlr = 1\n"), testing::StartsWith("run.toml:1:7: not valid TOML: "));
  EXPECT_THAT(mistake_in("lr = 1\nlr = 2\n"), HasSubstr("not valid TOML: "));
  EXPECT_THAT(mistake_in("grid = \"\xff\"\n"), HasSubstr("not valid TOML: "));
  for (auto const* const toml : {"lr = 1\nepochs = = 3\n", "lr 1\n", "[train\nlr = 1\n", "lr = 1\nlr = 2\n"})
    EXPECT_EQ(mistake_in(toml).find('\n'), std::string::npos) << "one line";
}

TEST(Settings, VariablesOfTheWrongKindAreRefused) {
  EXPECT_EQ(mistake_in("", {{"ORTHANT_LR", "fast"}}), "ORTHANT_LR is 'fast', but a number is wanted");
  EXPECT_EQ(mistake_in("", {{"ORTHANT_EPOCHS", "1.5"}}), "ORTHANT_EPOCHS is '1.5', but an integer is wanted");
  EXPECT_EQ(mistake_in("", {{"ORTHANT_EPOCHS", "12 "}}), "ORTHANT_EPOCHS is '12 ', but an integer is wanted");
  EXPECT_EQ(mistake_in("", {{"ORTHANT_BIAS", "maybe"}}),
            "ORTHANT_BIAS is 'maybe', but true or false is wanted");
  EXPECT_EQ(parse("", {{"ORTHANT_EPOCHS", "+12"}}).at("epochs").value, "+12");
}

TEST(ReadSettings, OnlyRank0NeedsFileAndEnvironment) {
  Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  auto const path = folder.file("run.toml");
  if (world.is_root()) {
    test::write_file(path, "[train]\nlr = 0.5\nepochs = 3\n");
    setenv("ORTHANT_EPOCHS", "4", 1);
  } else {
    setenv("ORTHANT_EPOCHS", "5", 1);
  }
  // The other ranks are told a path that is not there.
  auto const settings = read_settings(world, world.is_root() ? path : "/nowhere", "train", commands);
  unsetenv("ORTHANT_EPOCHS");

  EXPECT_EQ(values_of(settings), (std::map<std::string, std::string>{{"lr", "0.5"}, {"epochs", "4"}}));
  EXPECT_EQ(settings.at("lr").source, SettingSource::file);
  EXPECT_EQ(settings.at("lr").origin, path + ":2");
  EXPECT_EQ(settings.at("epochs").source, SettingSource::environment);
}

TEST(ReadSettings, FileMayComeFromTheEnvironment) {
  Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  if (world.is_root()) test::write_file(folder.file("run.toml"), "lr = 0.25\n");
  setenv("ORTHANT_CONFIG", folder.file("run.toml").c_str(), 1);
  auto const settings = read_settings(world, "", "train", commands);
  unsetenv("ORTHANT_CONFIG");
  EXPECT_EQ(values_of(settings), (std::map<std::string, std::string>{{"lr", "0.25"}}));
  EXPECT_TRUE(read_settings(world, "", "train", commands).empty());
}

TEST(ReadSettings, MistakesAreEveryonesUserError) {
  Communicator const world(MPI_COMM_WORLD, "world");
  test::ScratchFolder const folder(MPI_COMM_WORLD);
  if (world.is_root()) {
    test::write_file(folder.file("bad.toml"), "lr = \n");
    test::write_file(folder.file("empty.toml"), "");
    ::mkfifo(folder.file("pipe.toml").c_str(), 0600);
  }
  auto const mistake = [&](std::string const& path) {
    return message_of([&] { static_cast<void>(read_settings(world, path, "train", commands)); });
  };
  EXPECT_EQ(mistake("/nowhere/run.toml"),
            "cannot read the configuration '/nowhere/run.toml': No such file or directory");
  EXPECT_EQ(mistake("/"), "cannot read the configuration '/': it is a folder");
  EXPECT_THAT(mistake("/dev/zero"), HasSubstr("'/dev/zero': it has more than 1048576 bytes"));
  EXPECT_THAT(mistake(folder.file("pipe.toml")), HasSubstr("it is a pipe; a regular file is wanted"));
  EXPECT_THAT(mistake(folder.file("bad.toml")), HasSubstr("bad.toml:1:"));
  EXPECT_EQ(mistake(folder.file("empty.toml")), "no UserError");
}

TEST(ResolvedJson, HoldsTypedValuesAndTheirSources) {
  Settings settings;
  settings["seed"] = {"7", SettingSource::default_value, ""};
  settings["lr"] = {"1e-2", SettingSource::flag, "--lr"};
  settings["bias"] = {"true", SettingSource::environment, "ORTHANT_BIAS"};
  settings["grid"] = {"1x2x2x1", SettingSource::file, "run.toml:1"};
  settings["random-split"] = {"0.6,0.4,x", SettingSource::flag, ""};
  settings["not of train"] = {"1", SettingSource::flag, ""};
  EXPECT_EQ(
      resolved_json(settings, commands.front()).dump(),
      R"({"configuration":{"lr":0.01,"grid":"1x2x2x1","bias":true,"random-split":[0.6,0.4,"x"],"seed":7},)"
      R"("sources":{"lr":"flag","grid":"config","bias":"environment","random-split":"flag","seed":"default"}})");
}

} // namespace
} // namespace orthant::runtime
