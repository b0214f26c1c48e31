// furrow-bench: load, trace replay and listing, on a local pool and over NVMe/TCP.

#include <vector>

#include "bench/bench_command.h"

int main(int argc, char** argv) {
  namespace bench = furrow::bench;
  std::vector<furrow::tools::Command> commands;
  for (const auto part :
       {bench::load_commands(), bench::replay_commands(), bench::list_commands()}) {
    commands.insert(commands.end(), part.begin(), part.end());
  }
  return furrow::tools::run_commands(
      argc, argv, commands,
      "Exit status: 0 done and every page as it should be, 1 not so, 2 wrong usage.\n"
      "See furrow-bench(1).\n");
}
