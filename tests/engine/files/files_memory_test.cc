// Establishes that a call for which there is no memory leaves nothing that others wait for. How:
// each single allocation of a rename, and of a link, outside of the pool fails once, in turn; the
// same call goes on afterwards.
#include <new>
#include <thread>

#include "tests/engine/files/files_rig.h"
#include "tests/failing_allocations.h"

namespace furrow::testing {
namespace {

class Spared {
 public:
  Spared() : before_(std::exchange(allocations_spared, true)) {}
  ~Spared() { allocations_spared = before_; }
  Spared(const Spared&) = delete;
  Spared& operator=(const Spared&) = delete;

 private:
  const bool before_;
};

// What the pool allocates does not fail.
class SparedPool final : public BlockingPool {
 public:
  explicit SparedPool(std::unique_ptr<EmbeddedPool> inner) : inner_(std::move(inner)) {}
  Pool& pool() override { return inner_->pool(); }
  const Geometry& geometry() const override { return inner_->geometry(); }
  std::string identity() const override { return inner_->identity(); }
  std::uint64_t random() override { return inner_->random(); }
  std::uint64_t wall_s() const override { return inner_->wall_s(); }
  void call(const std::function<void(Pool&)>& what) override { inner_->call(what); }
  void submit(PageStore& store, PageOp& op) override {
    const Spared spared;
    inner_->submit(store, op);
  }
  void run(PageStore& store, std::span<PageOp> ops) override {
    const Spared spared;
    inner_->run(store, ops);
  }

 private:
  const std::unique_ptr<EmbeddedPool> inner_;
};

class FilesMemoryTest : public ::testing::Test, public FilesRig {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(mount());
    unmount();
    // Without the device's thread that makes room, whose allocations are not to fail either.
    auto pool = EmbeddedPool::open(uri() + "?reclaim=never");
    ASSERT_TRUE(pool.ok()) << pool.status().describe();
    const auto mine = std::this_thread::get_id();
    for (bool spared = false; !spared;) {
      (*pool)->call([&](Pool&) {
        spared = std::this_thread::get_id() != mine;
        allocations_spared |= spared;
      });
    }
    const auto store = FileVolume::find((*pool)->pool(), "");
    auto mounted = FileVolume::mount(std::make_shared<SparedPool>(std::move(*pool)), **store);
    ASSERT_TRUE(mounted.ok()) << mounted.status().describe();
    volume() = std::move(*mounted);
  }
  // How often `call`, of a number of its own each time, found no memory.
  template <class Call>
  unsigned fail_each(const Call& call) {
    for (unsigned failed = 0;; ++failed) {
      call.prepare(2 * failed);
      call.prepare(2 * failed + 1);
      bool thrown = false;
      allocations_until_failure = failed;
      try {
        (void)call.run(2 * failed);
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      const bool none_failed = allocations_until_failure.exchange(-1) >= 0;
      EXPECT_NE(thrown, none_failed) << failed;
      EXPECT_TRUE(call.run(2 * failed + 1).ok()) << failed;
      if (none_failed) return failed;
    }
  }
  static std::string name(const char* what, unsigned number) {
    return std::string(what) + std::to_string(number);
  }
};

TEST_F(FilesMemoryTest, ADirectoryThatIsMoved) {
  struct Move {
    FileVolume& files;
    void prepare(unsigned i) const { EXPECT_TRUE(files.make_directory(name("/from", i)).ok()); }
    Status run(unsigned i) const { return files.rename(name("/from", i), name("/to", i)); }
  };
  EXPECT_GT(fail_each(Move{files()}), 5u);
}

TEST_F(FilesMemoryTest, AFileThatGetsAnotherName) {
  write("/file", "text");
  struct Link {
    FileVolume& files;
    void prepare(unsigned) const {}
    Status run(unsigned i) const { return files.link("/file", name("/link", i)); }
  };
  EXPECT_GT(fail_each(Link{files()}), 5u);
}

}  // namespace
}  // namespace furrow::testing
