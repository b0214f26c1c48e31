// Establishes that the making of a pool that was cut off anywhere can be started again, by whoever
// makes what is missing; and that a pool that has, or had, anything in it is never taken for one
// that was not finished, however damaged.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/embedded_pool.h"
#include "tests/engine/rig.h"
#include "zone/blocking.h"
#include "zone/fault_device.h"

namespace furrow::testing {
namespace {

constexpr const char* kUri = "mem:16MiB?zone_size=1MiB";

std::unique_ptr<ZonedDevice> memory() {
  auto device = open_device(kUri, Access::exclusive);
  EXPECT_TRUE(device.ok());
  return std::move(*device);
}

TEST(UnfinishedTest, AFormatThatIsCutOffLeavesABlankDeviceOrAPool) {
  EventLoop loop;
  unsigned blank = 0, whole = 0;
  for (const CrashModel model : {CrashModel::drive, CrashModel::emu}) {
    bool cut = true;
    for (std::uint64_t lbas = 1; cut; ++lbas) {
      SCOPED_TRACE("cut after " + std::to_string(lbas) + " LBAs");
      FaultOptions options;
      options.seed = lbas;
      FaultDevice fault(memory(), options);
      fault.cut_after(lbas, model);
      (void)Pool::format(fault, "test", loop);
      cut = fault.dead();
      ASSERT_TRUE(fault.power_cut(model).ok());
      const auto device = fault.take_inner();
      const auto is_blank = Pool::is_blank(*device);
      ASSERT_TRUE(is_blank.ok()) << is_blank.status().describe();
      EXPECT_NE(*is_blank, Pool::open(*device, loop, {}).ok());
      ++(*is_blank ? blank : whole);
    }
  }
  EXPECT_GT(blank, 2u);
  EXPECT_GT(whole, 1u);
}

TEST(UnfinishedTest, APoolWithDataIsNeverBlank) {
  Rig rig(kUri);
  VolumeOptions options;
  options.name = "pages";
  options.mode = VolumeMode::store;
  options.value_bytes_max = 64 << 10;
  ASSERT_NO_FATAL_FAILURE(rig.make(options));
  const auto is_blank = [&rig] {
    const auto blank = Pool::is_blank(*rig.device);
    EXPECT_TRUE(blank.ok());
    return blank.ok() && *blank;
  };
  EXPECT_FALSE(is_blank()) << "a volume without pages";
  ASSERT_TRUE(rig.put(1, 1, 5000).ok());
  rig.close();
  EXPECT_FALSE(is_blank());
  // All metadata is gone, as worse than any damage could.
  auto queue = rig.device->create_queue(1);
  ASSERT_TRUE(queue.ok());
  for (std::uint32_t zone = 0; zone < 2; ++zone) {
    ASSERT_TRUE(manage_blocking(**queue, Io::Op::reset, ZoneId{zone}).ok());
  }
  EXPECT_FALSE(Pool::open(*rig.device, rig.loop, {}).ok());
  EXPECT_FALSE(is_blank()) << "pages without a pool";
}

// As an ISO image does, or an ext4 file system on LBAs of 512 bytes.
TEST(UnfinishedTest, DataThatBeginsWithZeroesIsNotBlank) {
  using Place = std::pair<std::uint32_t, std::uint32_t>;  // zone, KiB
  for (const auto& [zone, kib] :
       {Place{0, 128}, Place{1, 128}, Place{0, 8}, Place{1, 64}, Place{2, 4}, Place{5, 4}}) {
    const auto device = memory();
    auto queue = device->create_queue(1);
    ASSERT_TRUE(queue.ok());
    const std::uint32_t lba_bytes = device->geometry().lba_bytes;
    const std::uint32_t lbas = (kib << 10) / lba_bytes;
    AlignedBuffer data(std::size_t{lbas} * lba_bytes);
    std::ranges::fill(data.span(), std::byte{0});
    if (lbas != 1) std::ranges::fill(data.span().last(lba_bytes), std::byte{7});
    Io io;
    io.op = Io::Op::write;
    io.zone = ZoneId{zone};
    io.lba = device->geometry().zone_start(io.zone);
    io.set_data(data.data(), lbas, lba_bytes);
    ASSERT_TRUE(run_blocking(**queue, io).ok());
    const auto blank = Pool::is_blank(*device);
    ASSERT_TRUE(blank.ok());
    EXPECT_FALSE(*blank) << kib << " KiB in zone " << zone;
  }
}

// A program that was killed after each of the steps of EmbeddedPool::open().
TEST(UnfinishedTest, AnEmbeddedPoolGoesOnWhereItWasKilled) {
  const auto directory =
      std::filesystem::temp_directory_path() / ("furrow-unfinished-" + std::to_string(getpid()));
  std::filesystem::create_directory(directory);
  const std::string uri = "emu:" + (directory / "pool.img").string();
  EmbeddedPool::CreateOptions make;
  make.size_bytes = 64 << 20;
  make.volume.name = "pages";
  const auto path = directory / "pool.img";
  for (int done = -1; done < 3; ++done) {
    SCOPED_TRACE(done);
    if (done == -1) {  // in the midst of making the device
      std::ofstream(path) << "FurrowZD unfinished" << std::string(8192, '\0');
    }
    if (done >= 1) {
      DeviceShape shape;
      shape.size_bytes = make.size_bytes;
      ASSERT_TRUE(create_device(uri, shape).ok());
    }
    if (done >= 2) {
      EventLoop loop;
      const auto device = open_device(uri, Access::exclusive);
      ASSERT_TRUE(device.ok());
      ASSERT_TRUE(Pool::format(**device, "furrow", loop).ok());
    }
    const auto pool = EmbeddedPool::open(uri, make);
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    auto pages = (*pool)->store("pages");
    ASSERT_TRUE(pages.ok()) << pages.status().describe();
    const std::byte value[] = {std::byte{1}};
    EXPECT_TRUE(pages->put(Key::from("k"), value).ok());
    std::filesystem::remove(directory / "pool.img");
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace furrow::testing
