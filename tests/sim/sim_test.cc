// Establishes that the engine keeps its promises in simulated worlds: a fixed set of seeds of each
// scenario, with power cuts, kills and closes at any event, leaves no page lost, wrong, old or back
// from the dead, and every operation answered. That a seed is a whole run: the same one twice gives
// the same trace.
//
// A failure prints the furrow-sim command that replays it.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "tests/rounds.h"
#include "tests/sim/simulation.h"

namespace furrow::sim {
namespace {

constexpr std::uint64_t kSteps = 1000;

Simulation::Summary run_seed(const std::string& scenario, std::uint64_t seed,
                             std::uint64_t steps = kSteps) {
  SCOPED_TRACE("furrow-sim --seed=" + std::to_string(seed) + " --steps=" + std::to_string(steps) +
               " --scenario=" + scenario);
  Simulation simulation({seed, steps, scenario});
  EXPECT_TRUE(simulation.run()) << simulation.failure() << "\n" << simulation.describe();
  return simulation.summary();
}

class SimTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SimTest, FixedSeeds) {
  const std::uint64_t seeds = all_rounds() ? rounds(24, 4) : 2;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    ASSERT_NO_FATAL_FAILURE(run_seed(GetParam(), seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, SimTest,
                         ::testing::Values("mixed", "store", "cache", "full", "volumes", "metadata",
                                           "faults", "worn", "offline", "shrunk", "rot", "repair",
                                           "large", "calm", "tight", "flaky", "misplaced",
                                           "resized", "files", "rocksdb", "disk", "wide", "clock",
                                           "thin", "zoned", "shared"),
                         [](const auto& each) { return each.param; });

// Each of these once found a bug of log/.
TEST(SimTest, SeedsThatFailed) {
  for (const std::uint64_t seed : {14, 28, 38, 49, 109, 170, 179, 404, 509, 578, 604, 730}) {
    run_seed("mixed", seed);
  }
  run_seed("faults", 422);
  // A name that a rename had taken from a linked file was that file's again: the power went between
  // the two records, and the new file was removed after it.
  run_seed("files", 538);
  // An append that had failed took the memory of a chunk that was staged for the next mount.
  run_seed("files", 3100000008);
  // A read of what is damaged in a file was told so, and the model took that for another error.
  run_seed("rocksdb", 2596);
  // Files were looked at that had been mounted as the power failed: the error passed for their
  // bytes.
  run_seed("files", 26400000027);
  // A store that cuts in the middle of collection had left without a zone to write to.
  for (const std::uint64_t seed : {176, 207, 261, 285, 286, 287, 304, 334, 351, 357, 408, 484}) {
    run_seed("full", seed);
  }
  // A recovery that was cut off had finished a zone before it noted where the zone's data ends.
  run_seed("full", 310386);
  // Both zones of the metadata ring kept one of the device's active zones after a cut.
  run_seed("metadata", 20145);
  // A roll that had been acknowledged was taken for one that failed.
  run_seed("rot", 3069);
  // The burial of a rotten page was not durable: it was back after a kill, and counted.
  run_seed("rot", 992000134);
  // A get that came to its page second, after one of another key, read it when it had expired and
  // been swept out of the index meanwhile.
  run_seed("repair", 3000000303);
  // Copied, cut off, then the original rotted: it was dropped, and the copy was back after a kill.
  run_seed("rot", 1540000114);
  // A page of a deleted group was copied after the tombstone beside it had been looked at.
  run_seed("calm", 997000254);
  // A flush was refused for want of a zone that the puts before it needed.
  run_seed("metadata", 20442);
  // A page that could not be read took the batch header before it along.
  for (const std::uint64_t seed : {77, 117, 142, 185, 203, 239}) run_seed("worn", seed);
  // What a read gave once, from elsewhere, was taken for what is there: pages were dropped by
  // collection and left out of listings.
  for (const std::uint64_t seed : {2, 10, 38, 45, 189}) run_seed("faults", seed);
  // A whole batch header from elsewhere in the zone passed for the one that was asked for.
  run_seed("faults", 1282);
  // Repairs: over MAR, and what an earlier life of the zone had came back after a cut.
  for (const std::uint64_t seed : {27, 40, 208, 209, 529, 1061, 1397, 1747}) {
    run_seed("repair", seed);
  }
  // One zone that went offline kept collection from any other.
  for (const std::uint64_t seed : {13, 31, 34, 43}) run_seed("offline", seed);
  // Tombstones filled a store: for the sake of a lost zone, or many of one key.
  for (const std::uint64_t seed : {60001175, 40000748, 50001024}) run_seed("offline", seed);
  run_seed("worn", 40000419);
  // A cache had no zone to copy pinned pages to after a kill, and refused deletes from then on.
  run_seed("shrunk", 18);
  // What was missing of a roll that was cut off was called damage once another had followed it.
  run_seed("repair", 400000332);
  // A store had lost the zone that it would have collected into, beside free ones.
  run_seed("worn", 131000089);
  // Of a few zones with pages of nearly half of one, none was sure to gain room: a delete was
  // refused.
  run_seed("calm", 81000695);
  // A store or cache refused deletes beside a zone of copies that had failed before it held any, or
  // for a page that could not be read once.
  for (const std::uint64_t seed :
       {500000251, 500000575, 500000724, 600000079, 600000613, 610001028, 610002687}) {
    run_seed("faults", seed);
  }
  // Neither the zone of a failed write nor the journal could say where its pages ended.
  run_seed("faults", 610002043);
  // Deletes that might go to the zone of copies waited for ever.
  run_seed("faults", 710000308);
  // The last zone of a store failed in the middle of copies, and deletes were refused until the
  // pool was opened again.
  run_seed("faults", 950000128, 16'000);
  // What a torn roll showed of its zone's earlier life was called damage.
  run_seed("repair", 930100017);
  // A store of three zones took no page of nearly half of one after all had been deleted.
  run_seed("flaky", 810003084);
  // What was damaged counted no more: a void summary, a section of the ring that another one in its
  // zone had followed.
  for (const std::uint64_t seed : {1030000509, 1050001494}) run_seed("repair", seed);
  // Tombstones that stayed for the sake of a zone that was seldom written filled a store: it took
  // no page, or refused a delete.
  for (const std::uint64_t seed : {552000620, 1220000433}) run_seed("full", seed);
  run_seed("resized", 40291);
  // A put was refused for the tombstones of a zone that was free when it was answered.
  run_seed("tight", 6300000005);
  // A cache's last zone, of which an opening could read nothing but its header, was taken for one
  // that holds copies alone.
  run_seed("hidden", 6400000062);
  // Zones that had lost capacity were emptied into each other, or filled with headers, for ever.
  for (const std::uint64_t seed : {6000165, 1230000277}) run_seed("shrunk", seed);
  // Collection of a dead device began again and again.
  for (const std::uint64_t seed : {4, 18, 109, 141}) run_seed("cache", seed);
  // Copies were durable before the zone that they were made from.
  run_seed("misplaced", 2440001333);
  run_seed("rot", 2001061);
  // A zone that one opening could not read came back: what had been deleted, or overwritten,
  // meanwhile counted again; so did what had been torn, and what an earlier life of it had left.
  for (const std::uint64_t seed : {62, 9, 40, 66, 135}) run_seed("hidden", seed);
  for (const std::uint64_t seed : {256, 1248, 1488}) run_seed("hidden", seed, 16'000);
  // Of a zone whose header could not be read once, a batch of an earlier life told what it was.
  run_seed("hidden", 7510001696, 16'000);
  // A page that was torn could not be read once, and what it had replaced was collected meanwhile.
  run_seed("hidden", 7610001412, 3000);
  // Pinned pages of caches were back; so was what zones held that had counted no more for once.
  run_seed("hidden", 7300105135, 16'000);
  for (const std::uint64_t seed : {7620000204, 7620000312, 7620000588, 7630000990}) {
    run_seed("hidden", seed, 3000);
  }
  run_seed("hidden", 7670001009);
  // What was opened behind a cache's zone that counted no more made it count again.
  for (const std::uint64_t seed : {7680000267, 8500002489}) run_seed("hidden", seed, 1000);
  // Nothing was left that told of what a cache had evicted behind a zone that was not there.
  run_seed("hidden", 8800017696, 1000);
  // The header of a cache's zone was refused for what it said of a zone that had turned read-only.
  run_seed("disk", 30048, 16'000);
  // A group's deletion was durable before a page in another stream that had taken the place of one
  // of the group.
  run_seed("rot", 2201408, 16'000);
  // A part of a page was read from a zone that was reset meanwhile, as its volume had been deleted.
  run_seed("wide", 92);
  // A roll that was torn over a section of the same length was called damage.
  run_seed("wide", 536);
  // What stood for pages that had expired kept a store's last zone, when the clock was set back: it
  // took nothing any more, and freed nothing.
  run_seed("clock", 10441);
  // A roll of the metadata that a power cut had taken back counted later, under the next one.
  run_seed("clock", 970016, 16'000);
  // The same copies were made into a store's last zone at each opening: it took no delete any more.
  run_seed("disk", 91063);
  // A store had its whole quota, as a zone was back: it took no delete any more.
  run_seed("hidden", 22000000901);
  // What stood behind a page that was torn, and that one opening could not read, counted, and was
  // void at the next one, when what it had replaced had been collected.
  run_seed("unread", 33000001821, 2000);
  // Of two copies of a page neither could be read, one of them was torn, and the other collected.
  run_seed("unread", 43000002848, 13'000);
  // A deletion of a group behind it counted at the next opening, and took a promised page along.
  run_seed("unread", 47000004205, 1000);
  // The model took one of a zone's lives for the one that was left, when it could be either: of two
  // whose resets a power cut had met, and of an empty zone that had been full or not when its reset
  // took it away.
  run_seed("zoned", 63000000167, 1000);
  run_seed("zoned", 63000000208, 16'000);
  // Nor did it know that an append goes where a write before it had failed.
  run_seed("zoned", 63000004339, 1000);
}

TEST(SimTest, SameSeedSameTrace) {
  for (const std::uint64_t seed : {3, 4, 5}) {
    const Simulation::Summary first = run_seed("mixed", seed);
    const Simulation::Summary second = run_seed("mixed", seed);
    EXPECT_GT(first.events, 100u);
    EXPECT_EQ(first.trace, second.trace);
    EXPECT_EQ(first.events, second.events);
    EXPECT_NE(first.trace, run_seed("mixed", seed + 1000).trace);
  }
  for (const char* const scenario : {"files", "rocksdb"}) {
    EXPECT_EQ(run_seed(scenario, 39).trace, run_seed(scenario, 39).trace) << scenario;
  }
}

TEST(SimTest, ReachesWhatItIsFor) {
  Simulation::Summary sum;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Simulation::Summary one = run_seed("mixed", seed);
    sum.stops += one.stops;
    sum.recoveries += one.recoveries;
    sum.answered += one.answered;
    sum.puts_refused += one.puts_refused;
  }
  EXPECT_GT(sum.stops, 50u);
  EXPECT_GT(sum.recoveries, sum.stops) << "no recovery was cut";
  EXPECT_GT(sum.answered, 5000u);
}

// What a scenario is made for happens in it; and in each of them zones are emptied and freed. (So
// Release has 12 seeds of each in every run, and more.)
TEST(SimTest, ReachesItsFaults) {
  using Summary = Simulation::Summary;
  std::map<std::string_view, Summary> sums;
  for (const std::string_view scenario : kScenarios) {
    Summary& sum = sums[scenario];
    // What few seeds bring about, each many times or not at all.
    const auto is_rare_one_there = [&] {
      if (scenario == "tight") return sum.puts_refused > 20;
      return scenario != "misplaced" || sum.faults > 2;
    };
    // Where cuts come fast few copies are made before the next one.
    const auto enough = [&](std::uint64_t seeds) {
      const bool is_there = sum.relocated_bytes > 1000 && is_rare_one_there();
      return seeds >= 12 && (is_there || seeds >= 60);
    };
    for (std::uint64_t seed = 1; !enough(seed - 1); ++seed) {
      const Summary one = run_seed(std::string(scenario), seed);
      sum.faults += one.faults;
      sum.zones_lost += one.zones_lost;
      sum.spoiled += one.spoiled;
      sum.summaries_rotted += one.summaries_rotted;
      sum.repairs += one.repairs;
      sum.puts_refused += one.puts_refused;
      sum.spells += one.spells;
      sum.mounts += one.mounts;
      sum.mounts_refused += one.mounts_refused;
      sum.zones_reset += one.zones_reset;
      sum.relocated_bytes += one.relocated_bytes;
      sum.hosts_zones_reset += one.hosts_zones_reset;
      sum.reservations_kept += one.reservations_kept;
      sum.disks_deleted += one.disks_deleted;
    }
    SCOPED_TRACE(scenario);
    EXPECT_GT(sum.zones_reset, 4u);
    EXPECT_GT(sum.relocated_bytes, 1000u);
  }
  EXPECT_GT(sums["faults"].faults, 20u);
  EXPECT_GT(sums["flaky"].faults, sums["flaky"].spells);
  EXPECT_GT(sums["flaky"].spells, 10u);
  EXPECT_GT(sums["worn"].zones_lost, 3u);
  EXPECT_GT(sums["worn"].spoiled, 0u);
  EXPECT_GT(sums["offline"].zones_lost, 3u);
  EXPECT_GT(sums["shrunk"].zones_lost, 0u);
  EXPECT_GT(sums["rot"].summaries_rotted, 1u);
  EXPECT_GT(sums["repair"].repairs, 2u);
  EXPECT_GT(sums["tight"].puts_refused, 20u);
  EXPECT_GT(sums["misplaced"].faults, 2u);
  EXPECT_GT(sums["files"].mounts, 100u);
  EXPECT_GT(sums["rocksdb"].mounts, 100u);
  EXPECT_GT(sums["files"].mounts_refused, 0u);
  EXPECT_GT(sums["zoned"].hosts_zones_reset, 100u);
  EXPECT_GT(sums["zoned"].zones_lost, 0u);
  EXPECT_GT(sums["shared"].reservations_kept, 100u);
  EXPECT_GT(sums["shared"].disks_deleted, 3u);
  EXPECT_GT(sums["rocksdb"].mounts_refused, 0u);
}

}  // namespace
}  // namespace furrow::sim
