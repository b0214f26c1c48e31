// Establishes that HeaderReader reads the batch header that describes a page, with one read that
// ends before the page, or the longest there can be where asked to; that it answers damage, an
// earlier life's header and a read that fails as such, but what a summary or a note repeats of a
// damaged header as if that were whole; that it has 32 reads in flight at most, the
// rest wait and all are answered once, in order; and that a zone is not reset under a read. How: on
// an image of a zone, with reads held back.
#include "log/header_reader.h"

#include "tests/log/zone_image.h"

namespace furrow {
namespace {

class HeaderReaderTest : public LogRig {
 protected:
  static constexpr ZoneId kZone{4};
  struct Request : HeaderRead {
    unsigned answers = 0;
    Status status;
    BatchHeader header;
    std::vector<PageRecord> records;
    HeaderReaderTest* test = nullptr;
  };

  void SetUp() override {
    Shape device;
    device.zone_size_lbas = device.zone_capacity_lbas = 128;  // no LBA is left behind a zone's end
    device.faults = true;
    make(device);
    ZoneImage::Shape shape;
    shape.capacity_lbas = 128;
    shape.stamp = {superblock_.pool, kZone, 77};
    shape.hash_key = superblock_.hash_key;
    image_ = std::make_unique<ZoneImage>(shape);
    ZoneAllocator::Zone state;
    state.use = ZoneUse::sealed;
    state.owner = kVolume;
    state.generation = 77;
    pool_->allocator.adopt(kZone, state);
    reader_ = std::make_unique<HeaderReader>(*pool_);
  }
  void TearDown() override { reader_.reset(); }
  std::uint32_t add(std::vector<ZoneImage::Item> items) {
    const std::uint32_t lba = image_->add_batch(std::move(items));
    pool_->tables[kZone.value].batches.push_back(lba);
    return lba;
  }
  Request& start(std::uint64_t lba, bool whole = false) {
    requests_.push_back(std::make_unique<Request>());
    Request& request = *requests_.back();
    request.page_lba = pool_->device_lba(kZone, lba);
    request.whole = whole;
    request.test = this;
    request.on_read = [](HeaderRead& read, const Result<BatchView>& view) {
      auto& its = static_cast<Request&>(read);
      ++its.answers;
      its.test->answered_.push_back(&its);
      its.status = view.status();
      if (!view.ok()) return;
      its.header = view->header();
      for (std::uint32_t i = 0; i < its.header.record_count; ++i) {
        its.records.push_back(view->record(i));
      }
    };
    reader_->read(request);
    EXPECT_EQ(request.answers, 0u) << "never from within";
    return request;
  }
  Request& read(std::uint64_t lba, bool whole = false) {
    Request& request = start(lba, whole);
    EXPECT_TRUE(run());
    EXPECT_EQ(request.answers, 1u);
    return request;
  }

  std::unique_ptr<ZoneImage> image_;
  std::unique_ptr<HeaderReader> reader_;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<Request*> answered_;
};

TEST_F(HeaderReaderTest, FindsTheHeaderOfEachPage) {
  std::vector<std::uint32_t> batches;
  for (std::uint64_t n = 1; n < 40; n += 8) {
    batches.push_back(add({image_->page(n, n, 600), image_->page(n + 1, n + 1, 100)}));
  }
  image_->write_to(*device_);
  for (const PageRecord& wanted : image_->records()) {
    const Request& request = read(wanted.lba);
    ASSERT_TRUE(request.status.ok()) << request.status.describe();
    ASSERT_EQ(request.records.size(), 2u);
    EXPECT_EQ(std::ranges::count(request.records, wanted), 1);
  }
  EXPECT_EQ(reader_->reads(), image_->records().size());
  device_->forget_events();
  read(image_->records()[3].lba);  // a page behind another one
  const std::vector<TapDevice::Event> events = device_->events(true);
  ASSERT_EQ(device_->count(Io::Op::read), 1u);
  EXPECT_EQ(events[0].lba, batches[1]);
  EXPECT_LE(events[0].lba + events[0].lbas, image_->records()[3].lba);
}

TEST_F(HeaderReaderTest, ALongHeaderInOneRead) {
  std::vector<ZoneImage::Item> items;
  for (std::uint64_t i = 0; i < 255; ++i) items.push_back(ZoneImage::tombstone(i, i + 1));
  items.push_back(image_->page(1000, 1000, 10));
  items.erase(items.begin());
  const std::uint32_t batch = add(std::move(items));
  image_->write_to(*device_);
  EXPECT_EQ(read(image_->records().back().lba).records.size(), 255u);
  // From an LBA that may lie within the header.
  EXPECT_EQ(read(batch + 1, true).records.size(), 255u);
  EXPECT_EQ(read(batch + 1, false).records.size(), 255u) << "cut off, and then read whole";
  EXPECT_EQ(reader_->reads(), 3u);
}

TEST_F(HeaderReaderTest, TheLongestReadStaysInItsZone) {
  while (image_->written_lbas() + 2 < shape_.zone_capacity_lbas) {
    add({image_->page(image_->written_lbas(), 9, 1)});
  }
  image_->write_to(*device_);
  const PageRecord& last = image_->records().back();
  EXPECT_TRUE(read(last.lba, true).status.ok());
}

TEST_F(HeaderReaderTest, DamageAndAnotherLifeAndAFailingReadAreTold) {
  const std::uint32_t first = add({image_->page(1, 1, 600)});
  add({image_->page(2, 2, 600)});
  image_->damage(first);
  image_->write_to(*device_);
  EXPECT_EQ(read(image_->records()[0].lba).status.code(), Code::corrupt);
  EXPECT_TRUE(read(image_->records()[1].lba).status.ok());
  device_->fail(Io::Op::read, {Code::io_error, Origin::zone});
  EXPECT_TRUE(read(image_->records()[1].lba).status.ok()) << "it can be read the second time";
  device_->forget_events();
  device_->fail(Io::Op::read, {Code::io_error, Origin::zone}, 1000);
  EXPECT_EQ(read(image_->records()[1].lba).status.code(), Code::io_error);
  EXPECT_LE(device_->count(Io::Op::read), 18u) << "not each LBA of the segment";
  device_->fail(Io::Op::read, {}, 0);
  ZoneAllocator::Zone next = pool_->allocator.zone(kZone);
  ++next.generation;
  pool_->allocator.release(kZone);
  pool_->allocator.adopt(kZone, next);
  EXPECT_EQ(read(image_->records()[1].lba).status.code(), Code::corrupt);
}

TEST_F(HeaderReaderTest, ASummaryOrANoteRepeatsADamagedHeader) {
  // In the first segment a summary, in the second a note, and behind that one batch more.
  std::vector<std::uint32_t> batches;
  batches.push_back(add({image_->page(1, 1, 600), ZoneImage::tombstone(2, 2)}));
  batches.push_back(add({image_->page(3, 3, 600), image_->page(4, 4, 1)}));
  image_->close_segment();
  batches.push_back(add({image_->page(5, 5, 600)}));
  batches.push_back(add({image_->page(6, 6, 600), ZoneImage::tombstone(7, 7)}));
  image_->add_note();
  batches.push_back(add({image_->page(8, 8, 600)}));
  const std::vector<PageRecord> written = image_->records();
  for (const std::uint32_t lba : batches) image_->damage(lba);
  image_->write_to(*device_);
  std::size_t next = 0;
  for (std::size_t i = 0; i + 1 < batches.size(); ++i) {
    Request& request = read(written[next].lba);
    ASSERT_TRUE(request.status.ok()) << i << ": " << request.status.describe();
    EXPECT_EQ(request.header.lba, batches[i]);
    std::vector<PageRecord> its;
    for (; next != written.size() && written[next].lba < batches[i + 1]; ++next) {
      its.push_back(written[next]);
    }
    std::ranges::sort(its, {}, &PageRecord::lba);
    std::ranges::sort(request.records, {}, &PageRecord::lba);
    EXPECT_EQ(request.records, its);
  }
  EXPECT_EQ(read(written.back().lba).status.code(), Code::corrupt) << "nothing repeats that one";
}

TEST_F(HeaderReaderTest, OrOneThatCannotBeRead) {
  std::vector<std::uint32_t> batches;
  batches.push_back(add({image_->page(1, 1, 100), ZoneImage::tombstone(2, 2)}));
  batches.push_back(add({image_->page(3, 3, 100)}));
  image_->close_segment();
  batches.push_back(add({image_->page(4, 4, 100)}));
  batches.push_back(add({image_->page(5, 5, 100)}));
  image_->add_note();
  batches.push_back(add({image_->page(6, 6, 100)}));
  const std::vector<PageRecord> written = image_->records();
  image_->write_to(*device_);
  for (const std::uint32_t lba : batches)
    faults_->fail_reads(Lba{pool_->device_lba(kZone, lba)}, 1);
  for (const PageRecord& record : written) {
    if (record.kind != RecordKind::page) continue;
    for (const bool whole : {false, true}) {
      const Request& request = read(record.lba, whole);
      if (record == written.back()) {
        EXPECT_EQ(request.status.code(), Code::io_error) << "nothing repeats that one";
        continue;
      }
      ASSERT_TRUE(request.status.ok()) << record.lba << ": " << request.status.describe();
      EXPECT_EQ(std::ranges::count(request.records, record), 1);
    }
  }
}

TEST_F(HeaderReaderTest, ABoundedNumberIsInFlightAndAllAreAnsweredInOrder) {
  add({image_->page(1, 1, 600)});
  image_->write_to(*device_);
  device_->hold(Io::Op::read);
  for (unsigned i = 0; i < 100; ++i) start(image_->records()[0].lba);
  EXPECT_TRUE(run());
  EXPECT_EQ(device_->held(Io::Op::read), 32u);
  device_->let_one_go(Io::Op::read, 0);
  EXPECT_TRUE(run());
  EXPECT_EQ(device_->held(Io::Op::read), 32u) << "the next one has taken its place";
  device_->let_go(Io::Op::read);
  EXPECT_TRUE(run());
  ASSERT_EQ(answered_.size(), 100u);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(answered_[i], requests_[i].get());
    EXPECT_EQ(requests_[i]->answers, 1u);
    EXPECT_EQ(requests_[i]->records.size(), 1u);
  }
}

TEST_F(HeaderReaderTest, WhileAReadIsAskedForNoGracePeriodEnds) {
  add({image_->page(1, 1, 600)});
  image_->write_to(*device_);
  device_->hold(Io::Op::read);
  for (unsigned i = 0; i < 33; ++i) start(image_->records()[0].lba);  // one waits for a place
  EXPECT_TRUE(run());
  pool_->epoch.begin_grace();
  for (unsigned i = 0; i < 32; ++i) {
    device_->let_one_go(Io::Op::read, 0);
    EXPECT_TRUE(run());
    EXPECT_FALSE(pool_->epoch.grace_over());
  }
  device_->let_go(Io::Op::read);
  EXPECT_TRUE(run());
  EXPECT_TRUE(pool_->epoch.grace_over());
}

}  // namespace
}  // namespace furrow
