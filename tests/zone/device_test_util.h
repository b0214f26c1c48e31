// What the tests of zoned devices share: a scratch directory, and one-line operations whose data
// is derived from a number, so that every LBA can be checked.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "zone/aligned_buffer.h"
#include "zone/blocking.h"
#include "zone/device.h"
#include "zone/zone_table.h"

namespace furrow::test {

inline constexpr std::uint64_t kMiB = 1u << 20;

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "furrow-zone-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// What became of a write that a ZoneTable was told the end of.
enum class End { done, wait, failed };
inline End end_write(ZoneTable& table, ZoneId zone, Lba lba, std::uint64_t lba_count) {
  const std::optional<Status> end = table.end_write(zone, lba, lba_count);
  return !end ? End::wait : end->ok() ? End::done : End::failed;
}

// Each LBA is filled with a word of (seed, index of the LBA in the buffer).
inline void fill(std::span<std::byte> data, std::uint32_t lba_bytes, std::uint64_t seed) {
  for (std::size_t at = 0; at < data.size(); at += 8) {
    const std::uint64_t word = (seed << 20) + at / lba_bytes + 1;
    std::memcpy(data.data() + at, &word, 8);
  }
}

class Client {
 public:
  explicit Client(ZonedDevice& device, unsigned depth = 32) : geometry(device.geometry()) {
    auto made = device.create_queue(depth);
    EXPECT_TRUE(made.ok()) << made.status().describe();
    if (made.ok()) queue = std::move(*made);
  }

  Status run(Io& io) { return run_blocking(*queue, io); }
  Status manage(Io::Op op, std::uint32_t zone) {
    Io io;
    io.op = op;
    io.zone = ZoneId{zone};
    return run(io);
  }
  Status flush() {
    Io io;
    io.op = Io::Op::flush;
    return run(io);
  }
  Status write(std::uint32_t zone, std::uint64_t offset, std::uint32_t lbas, std::uint64_t seed) {
    AlignedBuffer data(std::size_t{lbas} * geometry.lba_bytes);
    fill(data.span(), geometry.lba_bytes, seed);
    Io io;
    io.op = Io::Op::write;
    io.zone = ZoneId{zone};
    io.lba = Lba{geometry.zone_start(io.zone).value + offset};
    io.set_data(data.data(), lbas, geometry.lba_bytes);
    return run(io);
  }
  Status append(std::uint32_t zone, std::uint32_t lbas, std::uint64_t seed, Lba* at = nullptr) {
    AlignedBuffer data(std::size_t{lbas} * geometry.lba_bytes);
    fill(data.span(), geometry.lba_bytes, seed);
    Io io;
    io.op = Io::Op::append;
    io.zone = ZoneId{zone};
    io.set_data(data.data(), lbas, geometry.lba_bytes);
    const Status status = run(io);
    if (at != nullptr) *at = io.appended_at;
    return status;
  }
  Status read(Lba lba, std::uint32_t lbas, AlignedBuffer& into) {
    into = AlignedBuffer(std::size_t{lbas} * geometry.lba_bytes);
    std::memset(into.data(), 0xEE, into.size());
    Io io;
    io.op = Io::Op::read;
    io.lba = lba;
    io.set_data(into.data(), lbas, geometry.lba_bytes);
    return run(io);
  }
  Lba at(std::uint32_t zone, std::uint64_t offset) const {
    return Lba{geometry.zone_start(ZoneId{zone}).value + offset};
  }
  // Was [offset, offset + lbas) of the zone written by write() or append() with this seed?
  void expect_data(std::uint32_t zone, std::uint64_t offset, std::uint32_t lbas,
                   std::uint64_t seed) {
    AlignedBuffer got;
    const Status status = read(at(zone, offset), lbas, got);
    ASSERT_TRUE(status.ok()) << status.describe();
    AlignedBuffer want(got.size());
    fill(want.span(), geometry.lba_bytes, seed);
    EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0)
        << "zone " << zone << " offset " << offset << " lbas " << lbas;
  }
  void expect_zeroes(std::uint32_t zone, std::uint64_t offset, std::uint32_t lbas) {
    AlignedBuffer got;
    const Status status = read(at(zone, offset), lbas, got);
    ASSERT_TRUE(status.ok()) << status.describe();
    const AlignedBuffer want(got.size());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size()), 0)
        << "zone " << zone << " offset " << offset << " lbas " << lbas;
  }

  Geometry geometry;
  std::unique_ptr<IoQueue> queue;
};

}  // namespace furrow::test
