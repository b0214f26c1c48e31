// Establishes that a full device, a flush that failed and a drive that does not keep the order of
// writes are said when they are first seen, that room, and a flush, is said when it is back, writes
// that fail whenever there are more of them, and nothing in between.
#include "tools/device_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace furrow::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(DeviceWatch, EachChangeIsSaidOnce) {
  DeviceWatch watch;
  PoolInfo info;
  EXPECT_THAT(watch.look(info), IsEmpty());
  info.device_full = true;
  EXPECT_THAT(watch.look(info), ElementsAre(HasSubstr("takes no more data")));
  EXPECT_THAT(watch.look(info), IsEmpty());
  info.device_full = false;
  EXPECT_THAT(watch.look(info), ElementsAre(HasSubstr("takes data again")));
  EXPECT_THAT(watch.look(info), IsEmpty());
}

TEST(DeviceWatch, FailedWritesAreCounted) {
  DeviceWatch watch;
  PoolInfo info;
  info.failed_writes = 1;
  info.write_failure = Status(Code::io_error, Origin::zone);
  EXPECT_THAT(watch.look(info),
              ElementsAre(HasSubstr("writes failed: 1, the last one by I/O error")));
  EXPECT_THAT(watch.look(info), IsEmpty());
  info.failed_writes = 8;
  EXPECT_THAT(watch.look(info), ElementsAre(HasSubstr("writes failed: 7")));
  EXPECT_THAT(watch.look(info), IsEmpty());
}

TEST(DeviceWatch, AFailedFlushIsSaidOnce) {
  DeviceWatch watch;
  PoolInfo info;
  info.flush_failed = true;
  EXPECT_THAT(watch.look(info), ElementsAre(HasSubstr("a flush failed")));
  EXPECT_THAT(watch.look(info), IsEmpty());
  info.flush_failed = false;
  EXPECT_THAT(watch.look(info), ElementsAre(HasSubstr("flushes again")));
}

TEST(DeviceWatch, ADriveThatIsGoneIsSaidOnce) {
  DeviceWatch watch;
  PoolInfo info;
  info.device_gone = true;
  EXPECT_THAT(watch.look(info), ElementsAre(HasSubstr("the drive is gone")));
  EXPECT_THAT(watch.look(info), IsEmpty());
}

TEST(DeviceWatch, ADriveThatMixesUpWritesIsSaidOnce) {
  DeviceWatch watch;
  PoolInfo info;
  info.misplaced_writes = 1;
  EXPECT_THAT(watch.look(info), ElementsAre(HasSubstr("does not keep the order of the writes")));
  info.misplaced_writes = 2;
  EXPECT_THAT(watch.look(info), IsEmpty());
  info.device_full = true;
  EXPECT_THAT(watch.look(info), ElementsAre(HasSubstr("takes no more data")));
}

}  // namespace
}  // namespace furrow::tools
