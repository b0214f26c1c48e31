// Establishes that what a check found is put in words of its own for each structure, and that the
// plan of a repair has one step for the metadata and one for each zone, and none for what cannot be
// repaired. (What is found and repaired: repair_test.)
#include "engine/check_report.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace furrow {
namespace {

Finding finding(Finding::Structure structure, std::optional<std::uint32_t> zone, bool repairable) {
  Finding made;
  made.structure = structure;
  made.zone = zone;
  made.repairable = repairable;
  return made;
}

TEST(CheckReport, EachStructureHasAName) {
  using enum Finding::Structure;
  std::set<std::string> names;
  for (const Finding::Structure each : {metadata, zone, zone_header, batch_header, summary, page}) {
    names.insert(to_string(each));
  }
  EXPECT_EQ(names.size(), 6u);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(CheckReport, IsCleanWithoutDamage) {
  CheckReport report;
  report.notes.push_back("torn by a power cut");
  EXPECT_TRUE(report.clean());
  EXPECT_TRUE(repair_plan(report).empty());
  report.damage.push_back(finding(Finding::Structure::page, 3, false));
  EXPECT_FALSE(report.clean());
  EXPECT_TRUE(repair_plan(report).empty()) << "nothing can be done about a page";
}

TEST(CheckReport, AStepForTheMetadataAndOneForEachZone) {
  using enum Finding::Structure;
  CheckReport report;
  report.damage = {finding(metadata, {}, true),    finding(metadata, {}, true),
                   finding(summary, 5, true),      finding(page, 5, false),
                   finding(batch_header, 5, true), finding(page, 6, false),
                   finding(zone_header, 7, true),  finding(summary, 5, true)};
  const auto plan = repair_plan(report);
  ASSERT_EQ(plan.size(), 3u);
  EXPECT_NE(plan[0].find("metadata"), std::string::npos);
  EXPECT_NE(plan[1].find("zone 5"), std::string::npos);
  EXPECT_NE(plan[2].find("zone 7"), std::string::npos);
}

}  // namespace
}  // namespace furrow
