// StreamTest: a Stream alone, with an owner that says what the test wants, on a device that writes
// down what it is asked.
#pragma once

#include <memory>
#include <vector>

#include "log/stream.h"
#include "tests/log/log_rig.h"

namespace furrow {

struct StreamTestOwner final : StreamOwner {
  bool may_open_zone(bool relocation) override {
    asked_for_relocation = relocation;
    return relocation ? may_open_for_relocation : may_open;
  }
  bool may_write_user(const Stream&) override { return may_write; }
  void on_zone_opened(ZoneId) override { ++zones_opened; }
  void on_zone_abandoned(ZoneId, const Status&) override { ++zones_abandoned; }
  void on_write(const Stream&, std::uint64_t bytes) override { bytes_written += bytes; }
  bool may_open = true, may_open_for_relocation = true, may_write = true;
  bool asked_for_relocation = false;
  unsigned zones_opened = 0, zones_abandoned = 0;
  std::uint64_t bytes_written = 0;
};

class StreamTest : public LogRig {
 protected:
  // An append with a page of its own.
  struct Page : Append {
    AlignedBuffer memory;
    StreamTest* test = nullptr;
    std::uint64_t number = 0;
    unsigned answers = 0;
  };

  void SetUp() override {
    make({});
    open();
  }
  void TearDown() override {
    device_->let_go(Io::Op::write);
    device_->let_go(Io::Op::flush);
    run();
    if (stream_) stream_->fail_waiting({Code::aborted, Origin::log});
    run();
    stream_.reset();
  }
  void open(std::uint32_t value_bytes_max = 8 << 10) {
    stream_ = std::make_unique<Stream>(*pool_, kVolume, kUserStream, value_bytes_max, owner_);
  }

  Page& page(std::uint64_t number, std::uint32_t bytes) {
    pages_.push_back(std::make_unique<Page>());
    Page& made = *pages_.back();
    made.number = number;
    made.test = this;
    made.record.key = key_number(number);
    made.record.length = bytes;
    const std::vector<std::byte> content = page_bytes(number, 0, bytes);
    made.record.checksum = page_checksum(content, hash(made.record.key));
    made.memory = AlignedBuffer((bytes + kLbaBytes - 1) / kLbaBytes * kLbaBytes);
    std::ranges::fill(made.memory.span(), std::byte{0xee});
    std::ranges::copy(content, made.memory.data());
    made.data = made.memory.data();
    made.capacity = static_cast<std::uint32_t>(made.memory.size());
    made.on_done = [](Append& append) {
      auto& done = static_cast<Page&>(append);
      ++done.answers;
      done.test->answered_.push_back(done.number);
    };
    return made;
  }
  Page& tombstone(std::uint64_t number) {
    Page& made = page(number, 1);
    made.record.kind = RecordKind::tombstone;
    made.record.length = made.record.checksum = 0;
    made.data = nullptr;
    return made;
  }
  Page& put(std::uint64_t number, std::uint32_t bytes) {
    Page& made = page(number, bytes);
    stream_->append(made);
    return made;
  }
  Page& put_now(std::uint64_t number, std::uint32_t bytes) {
    Page& made = put(number, bytes);
    EXPECT_TRUE(run());
    EXPECT_EQ(made.answers, 1u);
    EXPECT_TRUE(made.status.ok()) << made.status.describe();
    return made;
  }
  // Of the device, pool-wide.
  ZoneId zone_of(const Page& page) { return pool_->geometry.zone_of(Lba{page.lba}); }
  // All but the first page, in the order of their numbers.
  void expect_elsewhere(ZoneId zone) {
    for (std::size_t i = 0; i < answered_.size(); ++i) EXPECT_EQ(answered_[i], i);
    EXPECT_EQ(answered_.size(), pages_.size());
    for (std::size_t i = 1; i < pages_.size(); ++i) {
      EXPECT_TRUE(pages_[i]->status.ok());
      EXPECT_NE(zone_of(*pages_[i]), zone);
      expect_on_medium(*pages_[i]);
    }
  }
  // The page's bytes on the medium, with the rest of its last LBA.
  void expect_on_medium(const Page& page) {
    const Lba first{pool_->device_lba(zone_of(page), page.record.lba)};
    const std::vector<std::byte> found =
        read_lbas(*device_, first, pool_->page_lbas(page.record.length));
    const std::vector<std::byte> wanted = page_bytes(page.number, 0, page.record.length);
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), found.begin())) << page.number;
    EXPECT_TRUE(std::all_of(found.begin() + page.record.length, found.end(), [](std::byte b) {
      return b == std::byte{0};
    })) << "padding is zero";
  }
  std::vector<TapDevice::Event> writes() {
    std::vector<TapDevice::Event> all = device_->events();
    std::erase_if(all, [](const auto& e) { return e.op != Io::Op::write || e.answered; });
    return all;
  }
  // Appends until the stream's zone is full. The last append did not fit, and waits for what comes
  // between two zones.
  Page& fill_zone() {
    const ZoneId zone = zone_of(put_now(next_++, 100));
    for (;;) {
      Page& last = put(next_++, 4 * kLbaBytes);
      EXPECT_TRUE(run());
      if (pool_->allocator.zone(zone).use == ZoneUse::sealed) return last;
    }
  }
  // A fresh zone, whose segment has that many pages of an LBA in one batch, and tombstones in
  // others.
  ZoneId begin_segment(std::uint64_t pages, std::uint64_t tombstones, std::uint64_t group = 0,
                       std::uint32_t expires_s = 0) {
    remake({}, 8 << 10);
    for (std::uint64_t i = 0; i < pages; ++i) {
      Page& one = page(i, 100);
      one.record.group = group;
      one.record.expires_s = expires_s;
      stream_->append(one);
    }
    EXPECT_TRUE(run());
    for (std::uint64_t i = 0; i < tombstones; ++i) {
      stream_->append(tombstone(pages + i));
      EXPECT_TRUE(run());
    }
    return zone_of(*pages_[0]);
  }
  void end_segment(ZoneId zone) {
    const auto first = [&] { return survey_zone(zone).segments[0]; };
    while (first().closing == SurveyedSegment::Closing::open) put_now(next_++, 100);
    EXPECT_EQ(first().closing, SurveyedSegment::Closing::intact);
    EXPECT_FALSE(first().contradicts);
  }
  void remake(const Shape& shape, std::uint32_t value_bytes_max) {
    stream_.reset();
    drop_pool();
    make(shape);
    open(value_bytes_max);
    owner_ = StreamTestOwner();
    answered_.clear();
    pages_.clear();
  }
  // Zones that hold all of a large batch and more.
  static Shape large(std::uint64_t lbas) {
    return {.zones = 6,
            .zone_size_lbas = lbas,
            .zone_capacity_lbas = lbas,
            .segment_lbas = lbas,
            .quota = 4,
            .streams = 1,
            .faults = false};
  }

  StreamTestOwner owner_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Page>> pages_;
  std::vector<std::uint64_t> answered_;
  std::uint64_t next_ = 1000;
};

}  // namespace furrow
