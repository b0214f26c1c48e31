#include "tests/engine/files/files_life.h"

#include <algorithm>
#include <iostream>

namespace furrow::testing {

namespace {

constexpr unsigned kSteps = 150;
constexpr const char* kDirectories[] = {"", "/d0", "/d1"};

FileVolume::Existing any_existing(unsigned drawn) {
  return static_cast<FileVolume::Existing>(drawn);
}

}  // namespace

// --- what is drawn ---

std::string FilesLife::random_path() {
  return kDirectories[draw(3)] + std::string("/f") + std::to_string(draw(4));
}

std::string FilesLife::random_text() {
  std::string text(1 + draw(draw(4) == 0 ? 150'000 : 3000), '\0');
  for (char& c : text) c = static_cast<char>(random_());
  return text;
}

FilesLife::Body* FilesLife::random_open() {
  std::vector<Body*> open;
  for (auto& [inode, body] : bodies_) {
    if (body.file && !body.failed) open.push_back(&body);
  }
  if (open.empty()) return nullptr;
  return draw(2) == 0 ? open.back() : open[draw(static_cast<unsigned>(open.size()))];
}

// --- one step ---

bool FilesLife::step() {
  const unsigned which = draw(24);
  if (which < 10) return step_names(which);
  Body* const body = random_open();
  return body == nullptr ? create() : step_bytes(which, *body);
}

bool FilesLife::step_names(unsigned which) {
  const std::string path = random_path(), other = random_path();
  const std::string directory = kDirectories[1 + draw(2)];
  Names next = names_;
  switch (which) {
    case 0:
    case 1: {
      next.erase(path);
      return named(files().remove(path), next);
    }
    case 2:
    case 3: {
      if (names_.contains(path) && path != other && names_.at(path) != 0) {
        const bool same_file = names_.contains(other) && names_.at(other) == names_.at(path);
        next[other] = names_.at(path);
        if (!same_file) next.erase(path);
      }
      return named(files().rename(path, other), next);
    }
    case 4:
      if (names_.contains(path)) next.emplace(other, names_.at(path));
      return named(files().link(path, other), next);
    case 5:
      next.emplace(directory, 0);
      return named(files().make_directory(directory), next);
    case 6:
      next.erase(directory);
      return named(files().remove_directory(directory), next);
    case 7:
      return sync_names();
    case 8:
      return reopen();
    default:
      return create();
  }
}

bool FilesLife::step_bytes(unsigned which, Body& body) {
  switch (which) {
    case 10:
      return overwrite(body);
    case 11:
      return draw(2) != 0 || cut(body);
    case 12:
      return close(body);
    case 13:  // also while full chunks are on their way
      if (draw(2) == 0 && (!append(body) || body.failed)) return !gone_;
      body.file->content().set_lifetime(static_cast<Lifetime>(draw(4)));
      return draw(2) == 0 || (append(body) && (body.failed || sync(body)));
    case 14:
    case 15:
    case 16:
      return sync(body);
    case 17:
      body.file.reset();  // closes it, and whoever has the last name away takes it away
      return true;
    default:
      return append(body);
  }
}

bool FilesLife::create() {
  const std::string path = random_path();
  const auto existing = any_existing(draw(3));
  const bool there = names_.contains(path);
  const bool truncates = there && existing == FileVolume::Existing::truncate;
  if (truncates && bodies_.contains(names_.at(path)) && bodies_.at(names_.at(path)).failed) {
    return true;
  }
  auto made = files().create(path, existing);
  if (there) {
    if (truncates) {
      return changed(made.status(), bodies_[names_.at(path)], std::string());
    }
    return goes_on(made.status(), nullptr);
  }
  Names next = names_;
  if (made.ok() || gone_ || made.status().code() != Code::not_found) next.emplace(path, 0);
  if (made.ok()) next[path] = (*made)->inode();
  if (!named(made.status(), next)) return false;
  if (!made.ok()) return true;
  (*made)->content().set_lifetime(static_cast<Lifetime>(draw(4)));
  bodies_[(*made)->inode()].file = std::move(*made);
  return true;
}

bool FilesLife::reopen() {
  auto file = files().open_file(random_path());
  if (!file.ok()) return goes_on(file.status(), nullptr);
  Body& body = bodies_[(*file)->inode()];
  if (!body.file && !body.failed) body.file = std::move(*file);
  return true;
}

bool FilesLife::append(Body& body) {
  const std::string text = random_text();
  const std::string before = body.bytes;
  const Status status = body.file->append(bytes_of(text));
  body.bytes += text;  // some of it may get there
  body.dirty = true;
  if (status.code() == Code::no_space) {
    const std::size_t size = body.file->content().size();
    EXPECT_GE(size, before.size());
    EXPECT_LE(size, body.bytes.size());
    body.bytes.resize(size);
  }
  return goes_on(status, &body);
}

bool FilesLife::overwrite(Body& body) {
  if (body.bytes.empty()) return true;
  const std::string text = random_text();
  const std::size_t at = draw(static_cast<unsigned>(body.bytes.size()));
  const std::size_t there = std::min(text.size(), body.bytes.size() - at);
  std::string next = body.bytes;
  next.replace(at, there, text, 0, there);
  const Status status = body.file->write_at(at, bytes_of(std::string_view(text).substr(0, there)));
  if (next == body.bytes) return goes_on(status, &body);  // as it was: perhaps not durable
  return changed(status, body, next);
}

bool FilesLife::cut(Body& body) {
  const std::size_t size = draw(static_cast<unsigned>(body.bytes.size() + 1));
  const Status status = body.file->truncate(size);
  if (size == body.bytes.size()) return goes_on(status, &body);
  return changed(status, body, body.bytes.substr(0, size));
}

// What is acknowledged is durable as a whole: nothing of it was left out.
bool FilesLife::changed(const Status& status, Body& body, const std::string& next) {
  if (status.ok()) {
    body.bytes = next;
    body.synced = next.size();
    body.dirty = false;
  } else if (status.code() != Code::no_space) {
    body.instead = next;
  }
  return goes_on(status, &body);
}

bool FilesLife::sync(Body& body) {
  const Status status = body.file->sync();
  if (status.ok()) {
    body.synced = body.bytes.size();
    if (body.dirty) moments_ = {names_};
    body.dirty = false;
  }
  return goes_on(status, &body);
}

bool FilesLife::close(Body& body) {
  const Status status = body.file->close();
  if (status.ok()) body.file.reset();
  return goes_on(status, &body);
}

bool FilesLife::sync_names() {
  const Status status = files().sync_names();
  if (status.ok()) moments_ = {names_};
  return goes_on(status, nullptr);
}

bool FilesLife::named(const Status& status, Names next) {
  const bool refused = status.code() == Code::not_found || status.code() == Code::exists ||
                       status.code() == Code::invalid_argument;
  if (refused) next = names_;
  if (status.code() == Code::no_space) next = names_;
  moments_.push_back(next);
  if (!goes_on(status, nullptr)) return false;
  if (!status.ok() && !refused) next = names_now();  // it failed: what it left counts
  if (status.ok()) {
    for (auto& [path, inode] : next) {
      if (inode == 0) inode = files().stat(path)->inode;
    }
  }
  moments_.push_back(next);
  names_ = next;
  return true;
}

bool FilesLife::goes_on(const Status& status, Body* body) {
  if (status.ok()) return true;
  if (status.code() == Code::aborted) {
    gone_ = true;
    return false;
  }
  if (status.code() == Code::no_space) {
    EXPECT_TRUE(plan_.full || plan_.faults) << status.describe();
    relieve();
    return !gone_;
  }
  if (body != nullptr) {
    EXPECT_TRUE(plan_.faults) << status.describe();
    body->failed = true;
    body->file.reset();
  }
  return true;
}

// Somebody else's file gives some of its room.
void FilesLife::relieve() {
  if (!names_.contains("/filler") || draw(3) != 0) return;
  auto file = files().open_file("/filler");
  Body& filler = bodies_[names_.at("/filler")];
  if (!file.ok() || filler.failed || filler.bytes.size() < (1 << 20)) return;
  const std::string next = filler.bytes.substr(0, filler.bytes.size() - (1 << 20));
  const Status status = (*file)->truncate(next.size());
  if (status.code() == Code::no_space) return;
  (void)changed(status, filler, next);
}

// --- what is there ---

void FilesLife::list(const std::string& directory, Names& names) const {
  const auto all = const_cast<FilesLife*>(this)->files().list(directory);
  ASSERT_TRUE(all.ok()) << directory << ": " << all.status().describe();
  for (const FileInfo& info : *all) {
    const std::string path = (directory == "/" ? "" : directory) + "/" + info.name;
    names.emplace(path, info.inode);
    if (info.directory) list(path, names);
  }
}

FilesLife::Names FilesLife::names_now() const {
  Names names;
  list("/", names);
  return names;
}

bool FilesLife::same(const Names& model, const Names& there) {
  return std::ranges::equal(model, there, [](const auto& one, const auto& other) {
    return one.first == other.first && (one.second == 0 || one.second == other.second);
  });
}

void FilesLife::verify(End end) {
  const Names there = names_now();
  std::string text;
  for (const auto& [path, inode] : there) text += " " + path + "=" + std::to_string(inode);
  const bool known =
      may_lose(end)
          ? std::ranges::any_of(moments_, [&](const Names& each) { return same(each, there); })
          : same(names_, there);
  if (!known) {
    for (const Names& each : moments_) {
      std::string was = "at a moment:";
      for (const auto& [path, inode] : each) was += " " + path + "=" + std::to_string(inode);
      std::cout << was << "\n";
    }
  }
  EXPECT_TRUE(known) << "names that were not so:" << text;
  for (const auto& [path, inode] : there) {
    if (files().stat(path)->directory) continue;
    SCOPED_TRACE(path);
    const auto body = bodies_.find(inode);
    if (body != bodies_.end()) {
      verify_bytes(end, path, body->second);
    } else {
      EXPECT_EQ(read(path), "") << "a file that was never made";
    }
  }
  // What is there now is what the next round begins with.
  std::map<std::uint64_t, Body> bodies;
  for (const auto& [path, inode] : there) {
    if (files().stat(path)->directory) continue;
    Body& body = bodies[inode];
    body.bytes = read(path);
    body.synced = body.bytes.size();
  }
  bodies_ = std::move(bodies);
  names_ = there;
  moments_ = {names_};
}

void FilesLife::verify_bytes(End end, const std::string& path, const Body& body) {
  const std::string text = read(path);
  const auto is_one = [&](const std::string& wanted) {
    if (!may_lose(end)) return text == wanted;
    return wanted.starts_with(text) && text.size() >= std::min(body.synced, wanted.size());
  };
  EXPECT_TRUE(is_one(body.bytes) || (body.instead && is_one(*body.instead)))
      << text.size() << " bytes of " << body.bytes.size() << ", " << body.synced
      << " of them synced: " << text.substr(0, 20);
}

void FilesLife::remove_all() {
  const Names all = names_now();
  for (auto each = all.rbegin(); each != all.rend(); ++each) {  // what is in a directory first
    const bool directory = files().stat(each->first)->directory;
    const Status status =
        directory ? files().remove_directory(each->first) : files().remove(each->first);
    EXPECT_TRUE(status.ok()) << each->first << ": " << status.describe();
  }
  EXPECT_EQ(files().store().usage().pages, 2u) << "pages that no file has";
  names_.clear();
  bodies_.clear();
  moments_ = {names_};
}

// --- rounds ---

void FilesLife::make_pool() {
  // Zones smaller and larger than files, few and many of them open.
  const std::uint64_t zone_bytes = std::uint64_t{1} << (20 + draw(3));
  const std::uint32_t active[] = {3, 4, 14};
  ASSERT_NO_FATAL_FAILURE(make_device(24 * zone_bytes + (24 << 20), zone_bytes, active[draw(3)]));
  ASSERT_NO_FATAL_FAILURE(mount());
  if (plan_.full) {
    auto filler = make("/filler");
    const std::string mib(1 << 20, 'f');
    std::string all;
    while (files().usage().free_bytes > (3 << 20) && filler->append(bytes_of(mib)).ok()) all += mib;
    ASSERT_TRUE(filler->close().ok());
    bodies_[filler->inode()].bytes = all;
    names_["/filler"] = filler->inode();
  }
  unmount();
  moments_ = {names_};
  for (auto& [inode, body] : bodies_) body.synced = body.bytes.size();
}

bool FilesLife::begin(End end) {
  gone_ = false;
  if (end == End::power_cut) {
    const auto model = draw(2) == 0 ? CrashModel::drive : CrashModel::emu;
    mount_until_cut(1 + draw(draw(3) == 0 ? 60 : 1500), model, random_(), draw(2) * 20);
    return volume() != nullptr;
  }
  if (!plan_.faults) {
    mount();
    return volume() != nullptr;
  }
  FaultOptions faults;
  faults.seed = random_();
  faults.delay_polls_max = draw(2) * 20;
  faults.write_error = draw(2) == 0 ? 0 : 0.003;
  faults.flush_error = draw(2) == 0 ? 0 : 0.01;
  mount_on_faults(faults);
  return volume() != nullptr;
}

void FilesLife::round() {
  const End end = static_cast<End>(draw(3));
  SCOPED_TRACE(end == End::power_cut ? "power cut" : end == End::kill ? "kill" : "unmount");
  const bool begun = begin(end);
  if (::testing::Test::HasFailure()) return;
  for (unsigned steps = 0; begun && steps < kSteps && step(); ++steps) {
  }
  if (begun && end != End::unmount) volume()->abandon();
  for (auto& [inode, body] : bodies_) body.file.reset();
  if (begun && end != End::unmount) kill();
  unmount();
  if (end == End::power_cut) forget_staged();
  ASSERT_NO_FATAL_FAILURE(mount());
  verify(end);
  if (draw(3) == 0) remove_all();
  unmount();
}

void FilesLife::run(unsigned rounds) {
  ASSERT_NO_FATAL_FAILURE(make_pool());
  for (unsigned i = 0; i < rounds && !::testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("round " + std::to_string(i));
    round();
  }
  if (::testing::Test::HasFailure()) return;
  ASSERT_NO_FATAL_FAILURE(mount());
  remove_all();
}

}  // namespace furrow::testing
