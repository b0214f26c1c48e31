// Establishes what zbd: and nvme: do when a drive is not as it was left, or as it should be: zones
// that were left open, another program's writes, zones that go read-only or offline, a drive that
// vanishes, a second opener. Each on a real kernel's drive, FURROW_ZBD=/dev/NAME, all of whose data
// is lost; and where the trouble must come from the drive, on a null_blk, FURROW_NULL_BLK=its
// folder in configfs (in tests/vm). Skipped without.
#include <fcntl.h>
#include <libnvme.h>
#include <libzbd/zbd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/zone/device_test_util.h"
#include "zone/drive_facts.h"
#include "zone/zone_state_machine.h"

namespace furrow::test {
namespace {

class DriveTest : public testing::Test {
 protected:
  void open(const std::string& uri) {
    uri_ = uri;
    device_.reset();
    auto opened = open_device(uri, Access::exclusive);
    ASSERT_TRUE(opened.ok()) << opened.status().describe();
    device_ = std::move(*opened);
    client_ = std::make_unique<Client>(*device_);
  }
  void open_empty(const std::string& uri) {
    ASSERT_NO_FATAL_FAILURE(open(uri));
    for (const ZoneInfo& zone : device_->report().value()) {
      // (An empty one too: with multipath Linux 6.12 holds a write that failed in it against it.)
      ASSERT_TRUE(client_->manage(Io::Op::reset, zone.zone.value).ok());
    }
  }
  void close() {
    client_.reset();
    device_.reset();
  }
  ZoneInfo zone(std::uint32_t number) { return device_->report().value()[number]; }
  std::uint64_t zone_bytes() const {
    return device_->geometry().zone_size_lbas * device_->geometry().lba_bytes;
  }

  std::string uri_;
  std::unique_ptr<ZonedDevice> device_;
  std::unique_ptr<Client> client_;
};

class Drive : public DriveTest {
 protected:
  void SetUp() override {
    const char* uri = std::getenv("FURROW_DRIVE");
    if (uri == nullptr) GTEST_SKIP() << "FURROW_DRIVE names no drive";
    ASSERT_NO_FATAL_FAILURE(open_empty(uri));
    const std::string place = uri_.substr(uri_.find(':') + 1);
    nvme_ = uri_.starts_with("nvme:");
    path_ = nvme_ ? "/dev/nvme" + place.substr(place.find("ng") + 2) : place;
  }
  // By another program that has the drive open.
  void write_behind(std::uint32_t zone, std::uint64_t offset_bytes, std::uint32_t bytes) {
    AlignedBuffer data(bytes);
    const std::uint64_t at = zone * zone_bytes() + offset_bytes;
    if (nvme_) {  // (the kernel's block path would not know of what passthrough wrote)
      EXPECT_EQ(pass_through(nvme_write, at, data), 0);
      return;
    }
    const int fd = ::open(path_.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(pwrite(fd, data.data(), bytes, static_cast<off_t>(at)), static_cast<ssize_t>(bytes));
    ::close(fd);
  }
  int pass_through(int (*command)(nvme_io_args*), std::uint64_t at_bytes, AlignedBuffer& data) {
    const std::string path = uri_.substr(uri_.find(':') + 1);
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    const std::uint32_t lba = device_->geometry().lba_bytes;
    nvme_io_args args{};
    args.args_size = sizeof args;
    args.fd = fd;
    args.nsid = 1;
    args.slba = at_bytes / lba;
    args.nlb = static_cast<std::uint16_t>(data.size() / lba - 1);
    args.data = data.data();
    args.data_len = static_cast<std::uint32_t>(data.size());
    const int status = command(&args);
    ::close(fd);
    return status;
  }

  bool nvme_ = false;
  std::string path_;  // the block device
};

TEST_F(Drive, IsOpenOnce) {
  EXPECT_EQ(open_device(uri_, Access::exclusive).status().code(), Code::in_use);
  EXPECT_TRUE(open_device(uri_, Access::inspect).ok());
  // (Of zones that it cannot drive Linux 6.1 has one without a size, with multipath, or, without,
  // one that is hidden.)
  const std::string size = "/sys/block/" + path_.substr(path_.rfind('/') + 1) + "/size";
  if (nvme_ && access(path_.c_str(), F_OK) == 0 && drive::read_number(size, 0) != 0) {
    EXPECT_EQ(open_device("zbd:" + path_, Access::exclusive).status().code(), Code::in_use);
  }
  EXPECT_NE(device_holder(uri_).find(std::to_string(getpid())), std::string::npos);
}

TEST_F(Drive, AMountedOrBusyDriveIsRefused) {
  close();
  const int fd = ::open(path_.c_str(), O_RDWR | O_EXCL | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const Status status = open_device(uri_, Access::exclusive).status();
  EXPECT_EQ(status.code(), Code::in_use) << status.describe();
  EXPECT_NE(std::string(status.hint()).find("mounted"), std::string::npos);
  ::close(fd);
}

// What an earlier process left open holds none of the drive's few slots; what it wrote is there.
TEST_F(Drive, ZonesThatWereLeftOpenAreClosed) {
  ASSERT_TRUE(client_->manage(Io::Op::open, 0).ok());
  ASSERT_TRUE(client_->manage(Io::Op::open, 1).ok());
  ASSERT_TRUE(client_->write(1, 0, 3, 1).ok());
  ASSERT_TRUE(client_->write(2, 0, 3, 2).ok());
  close();
  ASSERT_NO_FATAL_FAILURE(open(uri_));
  EXPECT_EQ(zone(0).state, ZoneState::empty);
  EXPECT_EQ(zone(1).state, ZoneState::closed);
  EXPECT_EQ(zone(2).state, ZoneState::closed);
  EXPECT_EQ(zone(2).written_lbas, 3u);
  client_->expect_data(1, 0, 3, 1);
  EXPECT_TRUE(client_->write(2, 3, 1, 3).ok());
}

TEST_F(Drive, AnotherProgramsWriteSealsTheZoneAndNoMore) {
  const std::uint32_t lba = device_->geometry().lba_bytes;
  ASSERT_TRUE(client_->write(0, 0, 4, 1).ok());
  ASSERT_TRUE(client_->write(1, 0, 4, 2).ok());
  write_behind(0, 4 * lba, 8 * lba);
  const Status status = client_->write(0, 4, 2, 3);
  EXPECT_EQ(status.code(), Code::io_error) << status.describe();
  EXPECT_NE(std::string(status.hint()).find("another program"), std::string::npos);
  EXPECT_EQ(client_->write(0, 4, 1, 3).nvme(), nvme_status::kZoneFull);
  EXPECT_EQ(zone(0).state, ZoneState::full);
  EXPECT_STREQ(zone(0).reason, status.hint());
  client_->expect_data(0, 0, 4, 1);
  EXPECT_TRUE(client_->write(1, 4, 1, 4).ok());
  ASSERT_TRUE(client_->manage(Io::Op::reset, 0).ok());
  EXPECT_TRUE(client_->write(0, 0, 1, 5).ok());
}

TEST_F(Drive, AnotherProgramsResetSealsTheZone) {
  ASSERT_TRUE(client_->write(0, 0, 4, 1).ok());
  zbd_info info{};
  const int fd = zbd_open(path_.c_str(), O_RDWR, &info);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(zbd_reset_zones(fd, 0, static_cast<off_t>(zone_bytes())), 0);
  zbd_close(fd);
  const Status status = client_->write(0, 4, 2, 3);
  EXPECT_NE(std::string(status.hint()).find("another program"), std::string::npos)
      << status.describe();
}

// Many writes behind one that fails: each is answered, once. (Appends of the drive's own do not
// fail; that one of them is not where it should be is found out by the time all have been answered,
// and none that was acknowledged is lost.)
TEST_F(Drive, AFailedWriteTakesThoseBehindItAlong) {
  const std::uint32_t lba = device_->geometry().lba_bytes;
  ASSERT_TRUE(client_->write(0, 0, 4, 1).ok());
  write_behind(0, 4 * lba, lba);
  std::vector<AlignedBuffer> data;
  std::vector<Io> ios(20);
  for (std::size_t i = 0; i < ios.size(); ++i) {
    data.emplace_back(lba);
    fill(data[i].span(), lba, 100 + i);
    ios[i].op = Io::Op::append;
    ios[i].set_data(data[i].data(), 1, lba);
  }
  EXPECT_FALSE(run_blocking(*client_->queue, ios).ok());
  for (const Io& io : ios) EXPECT_EQ(io.status.code(), Code::io_error) << io.status.describe();
  EXPECT_FALSE(client_->queue->busy());
  EXPECT_EQ(zone(0).state, ZoneState::full);
  client_->expect_data(0, 0, 4, 1);
}

// Of many writes in flight in one zone none counts that is not where it was to be, as nvme: sends
// them as appends; and what is written from then on is written in turn.
TEST_F(Drive, AnotherProgramWritesBehindWritesInFlight) {
  const Geometry& geometry = device_->geometry();
  const std::uint32_t lba = geometry.lba_bytes;
  constexpr std::uint32_t kWrites = 8, kEach = 2;
  const auto write_all = [&](std::uint32_t zone, std::uint64_t offset, std::vector<Io>& ios) {
    std::vector<AlignedBuffer> data;
    ios = std::vector<Io>(kWrites);
    for (std::uint32_t i = 0; i < kWrites; ++i) {
      data.emplace_back(std::size_t{kEach} * lba);
      fill(data[i].span(), lba, 200 + i);
      ios[i].op = Io::Op::write;
      ios[i].may_fail_over = true;
      ios[i].zone = ZoneId{zone};
      ios[i].lba = client_->at(zone, offset + std::uint64_t{i} * kEach);
      ios[i].set_data(data[i].data(), kEach, lba);
    }
    return run_blocking(*client_->queue, ios);
  };
  std::vector<Io> ios;
  ASSERT_TRUE(client_->write(0, 0, 4, 1).ok());
  ASSERT_TRUE(write_all(1, 0, ios).ok());
  write_behind(0, 4 * lba, lba);
  EXPECT_FALSE(write_all(0, 4, ios).ok());
  for (const Io& io : ios) EXPECT_EQ(io.status.code(), Code::io_error) << io.status.describe();
  EXPECT_FALSE(client_->queue->busy());
  EXPECT_EQ(zone(0).state, ZoneState::full);
  client_->expect_data(0, 0, 4, 1);
  ASSERT_TRUE(write_all(1, kWrites * kEach, ios).ok());
  for (std::uint32_t i = 0; i < 2 * kWrites; ++i) {
    client_->expect_data(1, std::uint64_t{i} * kEach, kEach, 200 + i % kWrites);
  }
}

// By nvme: appends, and writes that may be appends, are the drive's own: it puts them behind what
// another program has written, where they are none of ours.
TEST_F(Drive, AppendsAreTheDrivesOwn) {
  const Geometry& geometry = device_->geometry();
  EXPECT_EQ(geometry.zone_writes_max > 1, nvme_);
  EXPECT_EQ(geometry.together_lbas_max > 0, nvme_);
  if (!nvme_) return;
  const std::uint32_t lba = geometry.lba_bytes;
  for (const std::uint32_t zone : {0u, 1u}) {
    ASSERT_TRUE(client_->write(zone, 0, 4, 1).ok());
    write_behind(zone, 4 * lba, lba);
    AlignedBuffer data(lba), there(lba);
    fill(data.span(), lba, 2);
    Io io;
    io.op = zone == 0 ? Io::Op::write : Io::Op::append;
    io.may_fail_over = true;
    io.zone = ZoneId{zone};
    io.lba = client_->at(zone, 4);
    io.set_data(data.data(), 1, lba);
    EXPECT_EQ(client_->run(io).code(), Code::io_error);
    EXPECT_EQ(pass_through(nvme_read, zone * zone_bytes() + 5 * lba, there), 0);
    EXPECT_EQ(std::memcmp(there.data(), data.data(), lba), 0) << "zone " << zone;
  }
}

// Writes and appends to one zone, in flight together, keep their order around each write.
TEST_F(Drive, WritesAndAppendsMix) {
  const std::uint32_t lba = device_->geometry().lba_bytes;
  std::vector<AlignedBuffer> data;
  std::vector<Io> ios(40);
  for (std::size_t i = 0; i < ios.size(); ++i) {
    data.emplace_back(lba);
    fill(data[i].span(), lba, i);
    const bool write = i % 5 == 2;
    ios[i].op = write ? Io::Op::write : Io::Op::append;
    ios[i].lba = Lba{i};
    ios[i].set_data(data[i].data(), 1, lba);
  }
  ASSERT_TRUE(run_blocking(*client_->queue, ios).ok());
  for (std::size_t i = 0; i < ios.size(); ++i) {
    const std::uint64_t at = ios[i].op == Io::Op::write ? i : ios[i].appended_at.value;
    client_->expect_data(0, at, 1, i);
    if (i % 5 == 2) continue;
    // Of the appends between two writes each may be anywhere there.
    const std::uint64_t first = i < 2 ? 0 : (i - 2) / 5 * 5 + 3;
    EXPECT_GE(at, first) << i;
    EXPECT_LT(at, i < 2 ? 2 : first + 4) << i;
  }
  EXPECT_EQ(zone(0).written_lbas, ios.size());
}

// More pieces than one request takes.
TEST_F(Drive, TakesAnyNumberOfPieces) {
  const std::uint32_t lba = device_->geometry().lba_bytes;
  const std::uint32_t count =
      std::min<std::uint32_t>(150, static_cast<std::uint32_t>(device_->geometry().append_lbas_max));
  AlignedBuffer scattered(std::size_t{2} * count * lba);
  std::vector<iovec> pieces;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::byte* piece = scattered.data() + std::size_t{2} * i * lba;
    fill({piece, lba}, lba, i);
    pieces.push_back({piece, lba});
  }
  for (const Io::Op op : {Io::Op::write, Io::Op::append, Io::Op::read}) {
    Io io;
    io.op = op;
    io.zone = ZoneId{op == Io::Op::write ? 0u : 1u};
    io.lba = client_->at(io.zone.value, 0);
    io.lba_count = count;
    io.iov = pieces.data();
    io.iov_count = count;
    if (op == Io::Op::read) std::memset(scattered.data(), 0, scattered.size());
    ASSERT_TRUE(client_->run(io).ok()) << io.status.describe();
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint64_t word;
    std::memcpy(&word, pieces[i].iov_base, sizeof word);
    EXPECT_EQ(word, (std::uint64_t{i} << 20) + 1) << i;
  }
}

// Huge pages, parts of pages, parts that cross them.
TEST_F(Drive, TakesAnyPartOfARegisteredBuffer) {
  constexpr std::size_t kHugePage = 2 << 20;
  const std::uint32_t lba = device_->geometry().lba_bytes;
  const std::unique_ptr<void, decltype(&std::free)> memory(
      std::aligned_alloc(kHugePage, 2 * kHugePage), &std::free);
  (void)madvise(memory.get(), 2 * kHugePage, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, 2 * kHugePage);
  const iovec region{memory.get(), 2 * kHugePage};
  const Status registered = client_->queue->register_buffers({&region, 1});
  ASSERT_TRUE(registered.ok()) << registered.describe();
  std::uint64_t written = 0;
  for (const std::size_t at : {std::size_t{0}, std::size_t{lba}, kHugePage - 2 * lba}) {
    for (const std::uint32_t lbas : {1u, 3u, 8u}) {
      std::byte* data = static_cast<std::byte*>(memory.get()) + at;
      fill({data, lbas * lba}, lba, written);
      Io io;
      io.op = Io::Op::append;
      io.set_data(data, lbas, lba, 0);
      ASSERT_TRUE(client_->run(io).ok()) << at << " " << lbas << ": " << io.status.describe();
      std::memset(data, 0, lbas * lba);
      io.op = Io::Op::read;
      io.lba = io.appended_at;
      ASSERT_TRUE(client_->run(io).ok()) << at << " " << lbas << ": " << io.status.describe();
      AlignedBuffer want(lbas * lba);
      fill(want.span(), lba, written);
      EXPECT_EQ(std::memcmp(data, want.data(), want.size()), 0) << at << " " << lbas;
      written += lbas;
    }
  }
}

// Its pages as they were registered, which the kernel need not look up: the address has others now.
TEST_F(Drive, TakesTheRegisteredPages) {
  constexpr std::size_t kBytes = 16 << 10;
  void* const memory =
      mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::uint32_t lba = device_->geometry().lba_bytes;
  auto* const data = static_cast<std::byte*>(memory);
  fill({data, kBytes}, lba, 5);
  const iovec region{memory, kBytes};
  const Status registered = client_->queue->register_buffers({&region, 1});
  ASSERT_TRUE(registered.ok()) << registered.describe();
  ASSERT_EQ(madvise(memory, kBytes, MADV_DONTNEED), 0);
  Io io;
  io.op = Io::Op::append;
  io.set_data(data, kBytes / lba, lba, 0);
  ASSERT_TRUE(client_->run(io).ok()) << io.status.describe();
  client_->expect_data(0, 0, kBytes / lba, 5);
  io.op = Io::Op::read;
  io.lba = Lba{0};
  ASSERT_TRUE(client_->run(io).ok()) << io.status.describe();
  EXPECT_EQ(std::count(data, data + kBytes, std::byte{0}), std::ptrdiff_t{kBytes})
      << "read into the pages that the address has now";
  client_.reset();
  munmap(memory, kBytes);
}

// Reads go on while the device's thread resets: of some tries, one read is faster than all resets.
TEST_F(Drive, ReadsDoNotWaitForManagement) {
  ASSERT_TRUE(client_->write(0, 0, 8, 1).ok());
  bool overtook = false;
  for (int tries = 0; tries < 20 && !overtook; ++tries) {
    std::vector<Io> resets(device_->geometry().zone_count - 1);
    unsigned left = static_cast<unsigned>(resets.size());
    for (std::uint32_t i = 0; i < resets.size(); ++i) {
      resets[i].op = Io::Op::reset;
      resets[i].zone = ZoneId{i + 1};
      resets[i].context = &left;
      resets[i].on_complete = [](Io& io) { --*static_cast<unsigned*>(io.context); };
      client_->queue->submit(resets[i]);
    }
    client_->expect_data(0, 0, 8, 1);
    overtook = left != 0;
    while (left != 0) client_->queue->wait(10'000);
    for (const Io& io : resets) EXPECT_TRUE(io.status.ok()) << io.status.describe();
  }
  EXPECT_TRUE(overtook) << "the reads were behind all resets";
}

// FURROW_TAKE: a command that makes the drive's own zone 1 read-only, as nobody tells this process
// but the drive's list of changed zones.
TEST_F(Drive, SaysThatItTookAZone) {
  const char* take = std::getenv("FURROW_TAKE");
  if (take == nullptr) GTEST_SKIP() << "nothing takes zones from this drive";
  ASSERT_TRUE(client_->write(1, 0, 13, 1).ok());
  // Not at the write pointer: it is answered here, and the drive is not asked.
  const auto says = [&] { return client_->write(1, 100, 1, 2).nvme(); };
  EXPECT_EQ(says(), nvme_status::kZoneInvalidWrite);
  ASSERT_EQ(std::system(take), 0);
  for (int i = 0; i < 3000 && says() != nvme_status::kZoneReadOnly; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(says(), nvme_status::kZoneReadOnly);
  client_->expect_data(1, 0, 13, 1);
  EXPECT_TRUE(client_->write(2, 0, 1, 2).ok());
}

class NullBlk : public DriveTest {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("FURROW_NULL_BLK");
    if (folder == nullptr) GTEST_SKIP() << "FURROW_NULL_BLK names no null_blk";
    folder_ = folder;
    ASSERT_NO_FATAL_FAILURE(open_empty("zbd:/dev/" + folder_.substr(folder_.rfind('/') + 1)));
  }
  // False: this kernel's null_blk cannot do it.
  bool set(const char* attribute, std::uint64_t value) {
    std::ofstream file(folder_ + "/" + attribute);
    file << value << std::flush;
    return file.good();
  }
  std::string folder_;
};

TEST_F(NullBlk, AZoneGoesReadOnly) {
  ASSERT_TRUE(client_->write(0, 0, 4, 1).ok());
  if (!set("zone_readonly", 0)) GTEST_SKIP() << "the kernel is too old";
  const Status status = client_->write(0, 4, 1, 2);
  EXPECT_EQ(status.nvme(), nvme_status::kZoneReadOnly) << status.describe();
  EXPECT_EQ(zone(0).state, ZoneState::read_only);
  EXPECT_EQ(client_->write(0, 4, 1, 2).nvme(), nvme_status::kZoneReadOnly);
  EXPECT_EQ(client_->manage(Io::Op::reset, 0).code(), Code::zone_state);
  client_->expect_data(0, 0, 4, 1);
  EXPECT_TRUE(client_->write(1, 0, 1, 2).ok());
  close();
  ASSERT_NO_FATAL_FAILURE(open(uri_));
  EXPECT_EQ(client_->write(0, 4, 1, 2).nvme(), nvme_status::kZoneReadOnly);
  ASSERT_TRUE(set("zone_readonly", 0)) << "back to writable";
}

TEST_F(NullBlk, AZoneGoesOffline) {
  const std::uint64_t sectors = zone_bytes() / 512;
  ASSERT_TRUE(client_->write(2, 0, 4, 1).ok());
  if (!set("zone_offline", 2 * sectors)) GTEST_SKIP() << "the kernel is too old";
  AlignedBuffer into;
  const Status status = client_->read(client_->at(2, 0), 1, into);
  EXPECT_EQ(status.nvme(), nvme_status::kZoneOffline) << status.describe();
  EXPECT_EQ(zone(2).state, ZoneState::offline);
  EXPECT_EQ(client_->write(2, 4, 1, 2).nvme(), nvme_status::kZoneOffline);
  EXPECT_TRUE(client_->write(1, 0, 1, 2).ok());
  ASSERT_TRUE(set("zone_offline", 2 * sectors)) << "back to writable";
}

// The last test: the drive is gone afterwards. That is seen also while nothing is asked of it.
TEST_F(NullBlk, TheDriveVanishes) {
  ASSERT_TRUE(client_->write(0, 0, 4, 1).ok());
  EXPECT_FALSE(device_->gone());
  ASSERT_TRUE(set("power", 0));
  for (int i = 0; i < 3000 && !device_->gone(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(device_->gone());
  const Status written = client_->write(0, 4, 1, 2);
  EXPECT_EQ(written.code(), Code::io_error);
  EXPECT_EQ(written.sys_errno(), ENODEV) << written.describe();
  AlignedBuffer into;
  EXPECT_EQ(client_->read(client_->at(0, 0), 1, into).sys_errno(), ENODEV);
  EXPECT_FALSE(client_->manage(Io::Op::reset, 1).ok());
  EXPECT_FALSE(device_->report().ok());
}

}  // namespace
}  // namespace furrow::test
