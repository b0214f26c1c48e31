#include "tests/sim/sim_files.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tests/engine/rocksdb/rocksdb_calls.h"
#include "tests/sim/structure_check.h"

namespace furrow::sim {

namespace {

// Nothing that was submitted waits for as long.
constexpr std::uint64_t kTurnsMax = 200'000;

// Of this process and this simulation: others run beside it.
std::string new_identity() {
  static std::atomic<unsigned> number{0};
  return fmt::format("sim-{}-{}", getpid(), ++number);
}

}  // namespace

// The pool to FileVolume: it has no thread but this one.
class SimFiles::Blocking final : public BlockingPool {
 public:
  Blocking(SimFiles& files, Pool& pool, PageSession& session, SimExecutor& executor,
           const Geometry& geometry)
      : files_(files), pool_(pool), session_(session), executor_(executor), geometry_(geometry) {}

  Pool& pool() override { return pool_; }
  const Geometry& geometry() const override { return geometry_; }
  std::string identity() const override { return files_.identity_; }
  std::uint64_t random() override { return executor_.random(); }
  std::uint64_t wall_s() const override { return executor_.wall_s(); }
  bool has_thread() const override { return false; }
  void call(const std::function<void(Pool&)>& what) override { what(pool_); }
  void submit(PageStore& store, PageOp& op) override {
    turns_ = 0;
    op.internal.self = &op;
    op.internal.store = &store;
    op.internal.scratch[0] = &session_;
    op.internal.task.run = [](Task& task) {
      PageOp::Internal& in = reinterpret_cast<PageOp::Internal&>(task);
      static_cast<PageSession*>(in.scratch[0])->submit(*in.store, *in.self);
    };
    executor_.post(op.internal.task);
  }
  void run(PageStore& store, std::span<PageOp> ops) override {
    std::size_t left = ops.size();
    for (PageOp& op : ops) {
      op.context = &left;
      op.on_result = [](PageOp&) {};
      op.on_released = [](PageOp& done) { --*static_cast<std::size_t*>(done.context); };
      submit(store, op);
    }
    while (left != 0) turn();
  }

 private:
  void turn() override {
    files_.turn_();
    if (++turns_ < kTurnsMax) return;
    // A call that is stuck cannot be unwound.
    fmt::print(stderr, "files: an operation gets no answer {}\n", files_.world_.failure);
    std::abort();
  }

  SimFiles& files_;
  Pool& pool_;
  PageSession& session_;
  SimExecutor& executor_;
  const Geometry geometry_;
  std::uint64_t turns_ = 0;  // since something was submitted
};

SimFiles::SimFiles(World& world, VolumeOptions options, Route route, testing::FilesModel::Plan plan,
                   std::function<void()> turn)
    : world_(world),
      options_(std::move(options)),
      route_(route),
      plan_(plan),
      turn_(std::move(turn)),
      identity_(new_identity()),
      random_(world.random.fork()),
      model_([this] { return random_.next(); }, plan) {}

SimFiles::~SimFiles() {
  if (!staging_.empty()) shm_unlink(staging_.c_str());
}

bool SimFiles::mount(Pool& pool, PageSession& session, SimExecutor& executor,
                     const Geometry& geometry) {
  PageStore* const store = pool.find(options_.name);
  if (store == nullptr) {
    world_.fail("volume lost: " + options_.name);
    return false;
  }
  staging_ = Staging::name(store->info().uuid, identity_);
  id_ = store->info().id;
  const auto blocking = std::make_shared<Blocking>(*this, pool, session, executor, geometry);
  auto mounted = FileVolume::mount(blocking, *store);
  if (mounted.status().code() == Code::corrupt && !records_.empty()) {
    ++mounts_refused_;
    salvage(blocking, *store);
    return false;
  }
  if (!mounted.ok()) {
    const bool unreadable = plan_.unreadable && mounted.status().code() == Code::io_error;
    const bool excused = world_.device->dead() || plan_.faults || unreadable;
    wedged_ = mounted.status().code() == Code::no_space && world_.is_wedged(store->info().id);
    if (!excused) world_.fail("files: mount: " + mounted.status().describe());
    mounts_refused_ += unreadable ? 1 : 0;
    return !world_.device->dead() && unreadable;
  }
  records_.clear();
  refused_.clear();
  model_.mended();
  volume_ = std::move(*mounted);
  model_.attach(*volume_, route_ == Route::direct ? testing::direct_calls(*volume_)
                                                  : testing::rocksdb_calls(volume_));
  return true;
}

// Where a record is damaged that is all that is lost; or there is only a copy of it any more, which
// is damaged, too.
void SimFiles::salvage(const std::shared_ptr<BlockingPool>& pool, PageStore& store) {
  beyond_mending_ = !refused_.empty() && has_damaged_copies(store);
  if (!refused_.empty() && !beyond_mending_)
    return world_.fail("files: mount: corrupt, and it was mended");
  refused_ = records_;
  const auto salvaged = FileVolume::salvage(pool, store);
  if (world_.device->dead()) return;
  if (!salvaged.ok()) return world_.fail("files: salvage: " + salvaged.status().describe());
  model_.verify_salvaged(**salvaged, may_lose_ || plan_.faults);
  if (!world_.device->dead()) note("salvaged");
}

void SimFiles::strike(const StruckPage& page) {
  if (!chunk_of(page.key)) records_.push_back(page);
  model_.strike(page.key, page.bytes);
}

void SimFiles::step() {
  (void)model_.step();
  ++world_.answered;
  note("in a call");
}

void SimFiles::verify() {
  model_.verify(std::exchange(may_lose_, false) || plan_.faults);
  note("after a mount");
}

void SimFiles::remove_all() {
  model_.remove_all();
  note("at the end");
}

void SimFiles::unmount(bool orderly) {
  if (volume_ == nullptr) return;
  if (!orderly) volume_->abandon();
  model_.let_go();
  volume_.reset();
}

void SimFiles::cut(bool all_kept, bool process_only) {
  may_lose_ |= !all_kept;
  if (!process_only && !staging_.empty()) shm_unlink(staging_.c_str());
}

void SimFiles::abandon() { (void)new std::shared_ptr<FileVolume>(std::move(volume_)); }

void SimFiles::note(const char* when) {
  if (!model_.failure().empty() && !world_.failed()) {
    world_.fail(fmt::format("files, {}: {}", when, model_.failure()));
  }
}

}  // namespace furrow::sim
