// Zones: a pool with one zoned volume, on the calling thread, for tests.
#pragma once

#include "engine/zoned/zoned_session.h"
#include "tests/engine/rig.h"

namespace furrow::testing {

inline VolumeOptions zoned_options(std::uint32_t zones, std::uint32_t open = 0,
                                   std::uint32_t active = 0) {
  VolumeOptions options;
  options.name = "zones";
  options.kind = VolumeKind::zoned;
  options.mode = VolumeMode::store;
  options.zones = zones;
  options.open_zones_max = open;
  options.active_zones_max = active;
  return options;
}

class Zones {
 public:
  using Kind = ZonedOp::Kind;

  explicit Zones(const std::string& uri) : rig(uri) {}
  ~Zones() { session.reset(); }

  void make(const VolumeOptions& options) {
    ASSERT_NO_FATAL_FAILURE(rig.make(options));
    connect();
  }
  void connect() { session = std::make_unique<ZonedSession>(*rig.session, *rig.executor); }
  void reopen() {
    close();
    ASSERT_NO_FATAL_FAILURE(open());
  }
  void close() {
    session.reset();
    rig.close();
  }
  // As after a kill: nothing is brought to an end.
  void drop() {
    session.reset();
    rig.session.reset();
    rig.pool.reset();
  }
  void open() {
    ASSERT_NO_FATAL_FAILURE(rig.open());
    rig.store = rig.pool->find("zones");
    connect();
  }
  Geometry geometry() const { return zoned_geometry(*rig.store); }
  std::uint64_t start(std::uint32_t zone) const { return geometry().zone_size_lbas * zone; }
  ZoneInfo zone(std::uint32_t zone) const { return zoned_zone(*rig.store, zone); }

  void submit(ZonedOp& op) {
    op.context = this;
    op.on_done = [](ZonedOp& done) { --static_cast<Zones*>(done.context)->running_; };
    ++running_;
    session->submit(*rig.store, op);
  }
  void wait() {
    while (running_ != 0) rig.loop.run_once();
  }
  Status run(ZonedOp& op) {
    submit(op);
    wait();
    return op.status;
  }
  Status manage(Kind kind, std::uint64_t lba, bool all = false) {
    ZonedOp op;
    op.kind = kind;
    op.lba = lba;
    op.all = all;
    return run(op);
  }
  std::uint16_t status_of(Kind kind, std::uint64_t lba, bool all = false) {
    return manage(kind, lba, all).nvme();
  }
  // LBAs that belong to (first LBA, version).
  AlignedBuffer data(std::uint64_t lba, std::uint64_t version, std::uint64_t count) const {
    const std::size_t bytes = geometry().lba_bytes;
    AlignedBuffer buffer(count * bytes);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto one = content(lba + i, version, bytes);
      std::memcpy(buffer.data() + i * bytes, one.data(), bytes);
    }
    return buffer;
  }
  Status write(std::uint64_t lba, std::uint64_t count, std::uint64_t version = 1,
               Durability durability = Durability::none) {
    AlignedBuffer buffer = data(lba, version, count);
    ZonedOp op;
    op.kind = Kind::write;
    op.lba = lba;
    op.count = count;
    op.data = buffer.data();
    op.durability = durability;
    return run(op);
  }
  Result<std::uint64_t> append(std::uint64_t zone_lba, std::uint64_t count, std::byte* bytes) {
    ZonedOp op;
    op.kind = Kind::append;
    op.lba = zone_lba;
    op.count = count;
    op.data = bytes;
    const Status status = run(op);
    if (!status.ok()) return status;
    return op.appended_at;
  }
  Status read(std::uint64_t lba, std::uint64_t count, AlignedBuffer& into) {
    into = AlignedBuffer(count * geometry().lba_bytes);
    std::memset(into.data(), 0xee, into.size());
    ZonedOp op;
    op.kind = Kind::read;
    op.lba = lba;
    op.count = count;
    op.data = into.data();
    return run(op);
  }
  bool holds(std::uint64_t lba, std::uint64_t count, std::uint64_t version) {
    AlignedBuffer there;
    const AlignedBuffer expected = data(lba, version, count);
    return read(lba, count, there).ok() && equal(there.span(), expected.span());
  }
  bool is_zero(std::uint64_t lba, std::uint64_t count) {
    AlignedBuffer there;
    return read(lba, count, there).ok() &&
           std::ranges::all_of(there.span(), [](std::byte byte) { return byte == std::byte{0}; });
  }

  Rig rig;
  std::unique_ptr<ZonedSession> session;

 private:
  unsigned running_ = 0;
};

}  // namespace furrow::testing
