// A program that is a table of commands: finds the command, checks its arguments and flags, runs
// it, and answers --help for each. For furrowctl and furrow-bench; one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/command_line.h"

namespace furrow::tools {

using Arguments = std::vector<std::string>;  // behind the command's name

struct Command {
  const char* name;       // one word or two: "pool create"
  const char* arguments;  // as in the usage line: "DEVICE-URI NAME"
  unsigned argument_count;
  const char* summary;
  std::span<const char* const> flags;  // beside --json
  int (*run)(const Arguments& arguments);
};

// main() of such a program. `footer` ends the list of commands that --help prints.
int run_commands(int argc, char** argv, std::span<const Command> commands, const char* footer);

// Prints a result on stdout: JSON with --json; else an object as aligned lines, an array of objects
// as a table, any other array one element a line. Returns kExitDone, or kExitFailed when stdout
// cannot take it.
int print(const nlohmann::ordered_json& result);
int print_text(std::string_view text);  // on stdout, likewise
bool json_asked();
// As JSON, which is UTF-8: of other bytes, as names may have them, the replacement character is
// printed. `indent` -1: on one line.
std::string json_text(const nlohmann::ordered_json& value, int indent);

}  // namespace furrow::tools
