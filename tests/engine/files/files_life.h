// FilesLife: a FilesModel on one small pool, whose work is ended by a power cut, a kill or an
// unmount, again and again, all drawn from a seed.
#pragma once

#include <random>

#include "tests/engine/files/files_model.h"
#include "tests/engine/files/files_rig.h"

namespace furrow::testing {

class FilesLife : public FilesRig {
 public:
  enum class End : std::uint8_t { power_cut, kill, unmount };
  using Plan = FilesModel::Plan;
  // In memory where the system has some to give: what is durable says the fault device.
  FilesLife(std::uint64_t seed, Plan plan)
      : FilesRig(std::filesystem::exists("/dev/shm") ? std::filesystem::path("/dev/shm")
                                                     : std::filesystem::temp_directory_path()),
        random_(seed),
        plan_(plan),
        model_([this] { return random_(); }, plan) {}

  void run(unsigned rounds);

 private:
  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }
  void make_pool();
  void round();
  bool begin(End end);

  std::mt19937_64 random_;
  const Plan plan_;
  FilesModel model_;
};

}  // namespace furrow::testing
