// furrowctl: the admin tool.

#include <vector>

#include "tools/ctl_command.h"

int main(int argc, char** argv) {
  namespace tools = furrow::tools;
  std::vector<tools::Command> commands;
  for (const auto part : {tools::pool_commands(), tools::volume_commands(), tools::zone_commands(),
                          tools::kv_commands(), tools::fs_commands()}) {
    commands.insert(commands.end(), part.begin(), part.end());
  }
  return tools::run_commands(argc, argv, commands,
                             "Exit status: 0 done, 1 failed, 2 wrong usage; `pool check`: 0 clean, "
                             "1 damaged, 3 could not check.\nSee furrowctl(8).\n");
}
