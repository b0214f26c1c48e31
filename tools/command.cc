#include "tools/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

namespace furrow::tools {

namespace {

constexpr const char* kCommonFlags[] = {"json"};

std::string usage_line(const Command& command) {
  return fmt::format("{} {}{}{}", program_name(), command.name,
                     *command.arguments == '\0' ? "" : " ", command.arguments);
}

bool begins_with(const Command& command, const Arguments& words) {
  const std::vector<std::string> name = split(command.name, ' ');
  return words.size() <= name.size() &&
         std::ranges::equal(words, std::span(name).first(words.size()));
}

// The commands that begin with `words`.
int help_list(std::span<const Command> commands, const Arguments& words, const char* footer) {
  std::string text = fmt::format("usage: {} COMMAND [ARGUMENT...] [flags]\n\n", program_name());
  std::size_t width = 0;
  for (const Command& command : commands) {
    if (begins_with(command, words)) width = std::max(width, usage_line(command).size());
  }
  for (const Command& command : commands) {
    if (!begins_with(command, words)) continue;
    text += fmt::format("  {:<{}}  {}\n", usage_line(command), width, command.summary);
  }
  return print_text(text + "\nEvery command takes --json and --help.\n" + footer);
}

int help_one(const Command& command) {
  return print_text(fmt::format("usage: {} [flags]\n{}\n\n{}{}", usage_line(command),
                                command.summary, flags_help(command.flags),
                                flags_help(kCommonFlags)));
}

bool accepts(const Command& command, std::string_view flag) {
  return std::ranges::any_of(command.flags,
                             [flag](const char* entry) { return flag_name(entry) == flag; });
}

int run_one(const Command& command, const Arguments& arguments) {
  // With --server there is no device to name.
  const bool served = accepts(command, "server") && flag_given("server");
  const std::size_t wanted = command.argument_count - (served ? 1u : 0u);
  if (arguments.size() != wanted) {
    const std::string wrong = arguments.size() < wanted
                                  ? "an argument is missing"
                                  : fmt::format("unexpected argument `{}`", arguments[wanted]);
    return report_usage(fmt::format("{}; usage: {} [flags]", wrong, usage_line(command)));
  }
  // As of a variable that was not set: to no command does it say what to do, or undo.
  if (std::ranges::find(arguments, "") != arguments.end()) {
    return report_usage(
        fmt::format("an argument is empty; usage: {} [flags]", usage_line(command)));
  }
  std::vector<const char*> accepted(command.flags.begin(), command.flags.end());
  accepted.insert(accepted.end(), std::begin(kCommonFlags), std::end(kCommonFlags));
  const std::string refused = flags_not_accepted(accepted);
  if (!refused.empty()) {
    return report_usage(fmt::format("`{}` does not take {}", command.name, refused));
  }
  if (!served && accepts(command, "token_file") && flag_given("token_file")) {
    return report_usage("--token_file: for a --server");
  }
  return command.run(arguments);
}

// The command that the first words name, or null.
const Command* find_command(std::span<const Command> commands, const Arguments& words) {
  const auto found = std::ranges::find_if(commands, [&words](const Command& command) {
    const std::size_t count = split(command.name, ' ').size();
    return words.size() >= count &&
           begins_with(command,
                       {words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count)});
  });
  return found == commands.end() ? nullptr : &*found;
}

// Nothing, half a command or an unknown one.
int refuse(std::span<const Command> commands, const Arguments& words) {
  if (words.empty()) return report_usage("say what to do");
  std::string known;  // commands of the group that the first word names
  for (const Command& command : commands) {
    const std::vector<std::string> name = split(command.name, ' ');
    if (name.size() == 2 && name[0] == words[0]) known += (known.empty() ? "" : ", ") + name[1];
  }
  if (known.empty()) return report_usage(fmt::format("there is no command `{}`", words[0]));
  if (words.size() == 1) {
    return report_usage(fmt::format("`{}` needs one of: {}", words[0], known), words[0]);
  }
  return report_usage(
      fmt::format("there is no command `{0} {1}`; {0} has: {2}", words[0], words[1], known),
      words[0]);
}

}  // namespace

int run_commands(int argc, char** argv, std::span<const Command> commands, const char* footer) {
  (void)std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error, as a full disk is
  // Where it comes first, what is wrong with a flag is answered with its --help.
  const Command* command =
      find_command(commands, {argv + std::min(argc, 1), argv + std::min(argc, 3)});
  if (command != nullptr) set_command(command->name);
  Arguments words = parse_flags(argc, argv);
  if (version_asked()) {
    return print_text(fmt::format("{} {}\n", program_name(), FURROW_VERSION));
  }
  bool help = help_asked();
  if (!words.empty() && words.front() == "help") {
    help = true;
    words.erase(words.begin());
  }
  command = find_command(commands, words);
  if (command == nullptr) {
    const bool any = std::ranges::any_of(
        commands, [&words](const Command& each) { return begins_with(each, words); });
    return help && any ? help_list(commands, words, footer) : refuse(commands, words);
  }
  if (help) return help_one(*command);
  set_command(command->name);
  const auto name_words = static_cast<std::ptrdiff_t>(split(command->name, ' ').size());
  return run_one(*command, {words.begin() + name_words, words.end()});
}

}  // namespace furrow::tools
