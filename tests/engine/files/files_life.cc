#include "tests/engine/files/files_life.h"

namespace furrow::testing {

namespace {
constexpr unsigned kSteps = 150;
}

void FilesLife::make_pool() {
  // Zones smaller and larger than files, few and many of them open.
  const std::uint64_t zone_bytes = std::uint64_t{1} << (20 + draw(3));
  const std::uint32_t active[] = {3, 4, 14};
  ASSERT_NO_FATAL_FAILURE(make_device(24 * zone_bytes + (24 << 20), zone_bytes, active[draw(3)]));
  ASSERT_NO_FATAL_FAILURE(mount());
  if (plan_.full) {
    model_.attach(files(), direct_calls(files()));
    model_.fill(3 << 20);
    ASSERT_EQ(model_.failure(), "");
  }
  unmount();
}

bool FilesLife::begin(End end) {
  if (end == End::power_cut) {
    const auto model = draw(2) == 0 ? CrashModel::drive : CrashModel::emu;
    mount_until_cut(1 + draw(draw(3) == 0 ? 60 : 1500), model, random_(), draw(2) * 20);
    return volume() != nullptr;
  }
  if (!plan_.faults) {
    mount();
    return volume() != nullptr;
  }
  FaultOptions faults;
  faults.seed = random_();
  faults.delay_polls_max = draw(2) * 20;
  faults.write_error = draw(2) == 0 ? 0 : 0.003;
  faults.flush_error = draw(2) == 0 ? 0 : 0.01;
  mount_on_faults(faults);
  return volume() != nullptr;
}

void FilesLife::round() {
  const End end = static_cast<End>(draw(3));
  SCOPED_TRACE(end == End::power_cut ? "power cut" : end == End::kill ? "kill" : "unmount");
  const bool begun = begin(end);
  if (::testing::Test::HasFailure()) return;
  if (begun) model_.attach(files(), direct_calls(files()));
  for (unsigned steps = 0; begun && steps < kSteps && model_.step(); ++steps) {
  }
  if (begun && end != End::unmount) volume()->abandon();
  model_.let_go();
  if (begun && end != End::unmount) kill();
  unmount();
  if (end == End::power_cut) forget_staged();
  ASSERT_NO_FATAL_FAILURE(mount());
  model_.attach(files(), direct_calls(files()));
  // A device that fails its last flush loses what a power cut takes.
  model_.verify(end == End::power_cut || plan_.faults);
  if (draw(3) == 0) model_.remove_all();
  unmount();
  EXPECT_EQ(model_.failure(), "");
}

void FilesLife::run(unsigned rounds) {
  ASSERT_NO_FATAL_FAILURE(make_pool());
  for (unsigned i = 0; i < rounds && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("round " + std::to_string(i));
    round();
  }
  if (::testing::Test::HasFailure()) return;
  ASSERT_NO_FATAL_FAILURE(mount());
  model_.attach(files(), direct_calls(files()));
  model_.remove_all();
  EXPECT_EQ(model_.failure(), "");
}

}  // namespace furrow::testing
