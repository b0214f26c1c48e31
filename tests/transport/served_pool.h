// ServedPool: a real pool in memory behind a FaultDevice, with a volume of pages and those that a
// test adds, served by a subsystem to hosts without a wire; all on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fake_host.h"
#include "tests/engine/rig.h"
#include "zone/fault_device.h"

namespace furrow::test {

class ServedPool {
 public:
  CommandPtr call(FakeConnection& connection, const nv::Sqe& command, Bytes out = {},
                  std::uint32_t data_bytes = 0, bool in_capsule = false) {
    CommandPtr sent = connection.send(command, std::move(out), data_bytes, in_capsule);
    while (!sent->done) turn();
    turn();  // on_done
    return sent;
  }
  CommandPtr identify(std::uint8_t cns, std::uint32_t nsid, std::uint8_t csi = 0) {
    nv::Sqe out = sqe(nv::admin::kIdentify, nsid);
    out.cdw10 = cns;
    out.cdw11 = std::uint32_t{csi} << 24;
    return call(*admin, out, {}, 4096);
  }
  // A further host with an admin queue and an I/O queue, which is returned.
  FakeConnection& join(std::uint8_t hostid) {
    ConnectOptions options;
    options.hostid = hostid;
    others_.push_back(bring_up(options, nv::kCssAll));
    options.cntlid = cntlid_;
    others_.push_back(connected(options, 1));
    return *others_.back();
  }
  testing::Rig& rig() { return rig_; }
  transport::Subsystem& subsystem() { return *subsystem_; }
  transport::SubsystemReactor& reactor() { return *reactor_; }
  void idle_turn() { turn(); }  // also when nobody waits for anything

  std::unique_ptr<FakeConnection> admin, io;
  FaultDevice* device = nullptr;

 protected:
  // Its first namespace is a store of pages.
  explicit ServedPool(const std::string& device_uri) : rig_("unused") {
    auto inner = open_device(device_uri, Access::exclusive);
    EXPECT_TRUE(inner.ok());
    auto fault = std::make_unique<FaultDevice>(std::move(*inner), FaultOptions());
    device = fault.get();
    rig_.device = std::move(fault);
    VolumeOptions pages;
    pages.name = "pages";
    pages.mode = VolumeMode::store;
    pages.quota_bytes = 8 << 20;
    pages.value_bytes_max = 64 << 10;
    rig_.make(pages);
  }
  ~ServedPool() {
    others_.push_back(std::move(admin));
    others_.push_back(std::move(io));
    for (auto it = others_.rbegin(); it != others_.rend(); ++it) (*it)->disconnect();
    for (auto& connection : others_) {
      while (!connection->finished()) turn();
    }
    while (!reactor_->idle()) turn();
    reactor_.reset();
    subsystem_.reset();
  }

  // Once, with all volumes there: a host with an admin queue and an I/O queue.
  void serve(std::uint32_t css) {
    transport::SubsystemOptions options;
    options.buffer_bytes_max = 0;
    auto made = transport::Subsystem::create(*rig_.pool, rig_.loop, options);
    EXPECT_TRUE(made.ok()) << made.status().describe();
    subsystem_ = std::move(*made);
    auto reactor = subsystem_->create_reactor(rig_.loop);
    EXPECT_TRUE(reactor.ok());
    reactor_ = std::move(*reactor);
    ConnectOptions host;
    admin = bring_up(host, css);
    host.cntlid = cntlid_;
    io = connected(host, 1);
  }

 private:
  void turn() {
    rig_.loop.run_once();
    if (setting_up_) setting_up_->run_once();
    if (admin) admin->run_once();
    if (io) io->run_once();
    for (auto& connection : others_) connection->run_once();
  }
  std::unique_ptr<FakeConnection> connected(ConnectOptions options, std::uint16_t qid) {
    options.subnqn = subsystem_->nqn();
    options.qid = qid;
    setting_up_ = std::make_unique<FakeConnection>(*reactor_, rig_.loop);
    const auto [connect, data] = connect_command(options);
    const auto done = call(*setting_up_, connect, data, 1024, true);
    EXPECT_EQ(done->status(), sc::kSuccess);
    cntlid_ = static_cast<std::uint16_t>(done->cqe.dw0);
    return std::move(setting_up_);
  }
  std::unique_ptr<FakeConnection> bring_up(const ConnectOptions& options, std::uint32_t css) {
    setting_up_ = connected(options, 0);
    nv::Sqe enable = fabrics(nv::fabrics::kPropertySet);
    enable.cdw11 = nv::property::kCc;
    enable.cdw12 = nv::kCcEnable | css << nv::kCcCssShift;
    EXPECT_EQ(call(*setting_up_, enable)->status(), sc::kSuccess);
    return std::move(setting_up_);
  }

  testing::Rig rig_;
  std::unique_ptr<transport::Subsystem> subsystem_;
  std::unique_ptr<transport::SubsystemReactor> reactor_;
  std::unique_ptr<FakeConnection> setting_up_;
  std::vector<std::unique_ptr<FakeConnection>> others_;
  std::uint16_t cntlid_ = 0;
};

}  // namespace furrow::test
