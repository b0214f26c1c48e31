// Establishes what power cuts, kills, failing devices and full volumes leave of files: names of one
// moment, all that was made durable, nothing torn, no page that no file has. How: FilesLife, by
// seeds; FURROW_TEST_SEED says the first one, and FURROW_TEST_SECONDS for how long each test tries
// new ones: hours, if one likes. A seed that fails is printed, and replayed by FURROW_TEST_SEED.
#include "tests/engine/files/files_life.h"

#include <chrono>
#include <iostream>

#include "tests/log/test_seed.h"
#include "tests/rounds.h"

namespace furrow::testing {
namespace {

constexpr auto kLives = static_cast<unsigned>(rounds(3, 1));
constexpr unsigned kRoundsOfALife = 8;

void live(FilesLife::Plan plan) {
  const char* const given = std::getenv("FURROW_TEST_SECONDS");
  const auto seconds = std::chrono::seconds(given != nullptr ? std::atoi(given) : 0);
  const auto until = std::chrono::steady_clock::now() + seconds;
  for (unsigned i = 0; i < kLives || std::chrono::steady_clock::now() < until; ++i) {
    const std::uint64_t seed = test_seed() + i;
    SCOPED_TRACE("FURROW_TEST_SEED=" + std::to_string(seed));
    FilesLife(seed, plan).run(kRoundsOfALife);
    if (::testing::Test::HasFailure()) return;
    if (given != nullptr && i % 20 == 19) std::cout << i + 1 << " lives" << std::endl;
  }
}

TEST(FilesLifeTest, KeepsItsPromises) { live({}); }
TEST(FilesLifeTest, KeepsThemOnADeviceThatFails) { live({.faults = true, .more = true}); }
TEST(FilesLifeTest, KeepsThemOnAFullVolume) { live({.faults = false, .full = true}); }
TEST(FilesLifeTest, IsReadAndGrowsMeanwhile) { live({.more = true}); }

}  // namespace
}  // namespace furrow::testing
