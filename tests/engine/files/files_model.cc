#include "tests/engine/files/files_model.h"

#include <algorithm>
#include <string_view>

namespace furrow::testing {

namespace {

constexpr const char* kDirectories[] = {"", "/d0", "/d1"};
constexpr const char* kSuffixes[] = {".log", ".sst", "", ".log"};  // of a database, see file_kind()

FileVolume::Existing any_existing(unsigned drawn) {
  return static_cast<FileVolume::Existing>(drawn);
}

}  // namespace

// --- what is drawn ---

std::string FilesModel::random_path() {
  const std::string path = kDirectories[draw(3)] + std::string("/f") + std::to_string(draw(4));
  return plan_.more ? path + kSuffixes[path.back() - '0'] : path;
}

std::string FilesModel::random_text() {
  std::string text(1 + draw(draw(4) == 0 ? plan_.bytes_max : 3000), '\0');
  for (char& c : text) c = static_cast<char>(random_());
  return text;
}

FilesModel::Body* FilesModel::random_open() {
  std::vector<Body*> open;
  for (auto& [inode, body] : bodies_) {
    if (body.file && !body.failed) open.push_back(&body);
  }
  if (open.empty()) return nullptr;
  return draw(2) == 0 ? open.back() : open[draw(static_cast<unsigned>(open.size()))];
}

// --- one step ---

bool FilesModel::step() {
  if (!struck_.empty() && draw(8) == 0) return change_damaged();
  const unsigned which = draw(plan_.more ? 32 : 24);
  if (which < 10) return step_names(which);
  if (which >= 24 && which < 28) return look();
  if (which == 28) return reuse();
  Body* const body = random_open();
  return body == nullptr ? create() : step_bytes(which, *body);
}

bool FilesModel::step_names(unsigned which) {
  const std::string path = random_path(), other = random_path();
  const std::string directory = kDirectories[1 + draw(2)];
  Names next = names_;
  switch (which) {
    case 0:
    case 1: {
      next.erase(path);
      return named(files_->remove(path), next);
    }
    case 2:
    case 3:
      return rename(path, other);
    case 4:
      if (names_.contains(path)) next.emplace(other, names_.at(path));
      return named(files_->link(path, other), next);
    case 5:
      next.emplace(directory, 0);
      return named(files_->make_directory(directory), next);
    case 6:
      next.erase(directory);
      return named(files_->remove_directory(directory), next);
    case 7:
      return sync_names();
    case 8:
      return reopen();
    default:
      return create();
  }
}

bool FilesModel::step_bytes(unsigned which, Body& body) {
  switch (which) {
    case 10:
      return overwrite(body);
    case 11:
      return draw(2) != 0 || cut(body);
    case 12:
      return close(body);
    case 13:  // also while full chunks are on their way
      if (draw(2) == 0 && (!append(body) || body.failed)) return !gone_;
      body.file->set_lifetime(static_cast<Lifetime>(draw(4)));
      return draw(2) == 0 || (append(body) && (body.failed || sync(body)));
    case 14:
    case 15:
    case 16:
      return sync(body);
    case 17:
      body.file.reset();  // closes it, and whoever has the last name away takes it away
      return true;
    case 29:
      return grow(body);
    case 30:
    case 31:
      return write_behind_end(body);
    default:
      return append(body);
  }
}

bool FilesModel::create() {
  const std::string path = random_path();
  const auto existing = any_existing(draw(3));
  const bool there = names_.contains(path);
  const bool truncates = there && existing == FileVolume::Existing::truncate;
  auto made = files_->create(path, existing);
  if (there) {
    if (truncates) {
      Body& body = bodies_[names_.at(path)];
      if (made.ok() && body.failed) body = Body();  // nothing is left of what had failed
      return changed(made.status(), body, std::string());
    }
    return goes_on(made.status(), nullptr);
  }
  Names next = names_;
  if (made.ok() || gone_ || made.status().code() != Code::not_found) next.emplace(path, 0);
  if (made.ok()) next[path] = (*made)->inode();
  if (!named(made.status(), next)) return false;
  if (!made.ok()) return true;
  (*made)->set_lifetime(static_cast<Lifetime>(draw(4)));
  bodies_[(*made)->inode()].file = std::move(*made);
  return true;
}

bool FilesModel::reopen() {
  auto file = files_->open(random_path());
  if (!file.ok()) return goes_on(file.status(), nullptr);
  Body& body = bodies_[(*file)->inode()];
  if (!body.file && !body.failed) body.file = std::move(*file);
  return true;
}

bool FilesModel::append(Body& body) {
  const std::string text = random_text();
  return appended(body.file->append(text), body, text);
}

bool FilesModel::appended(const Status& status, Body& body, const std::string& text) {
  const std::size_t before = body.bytes.size();
  body.bytes += text;  // some of it may get there
  if (status.code() == Code::no_space) {
    const std::size_t size = body.file->size();
    expect(size >= before && size <= body.bytes.size(),
           "an append that was refused left what it does not have");
    body.bytes.resize(size);
  }
  if (body.bytes.size() != before) body.dirty = true;
  const bool on = goes_on(status, &body);
  if (!on) body.unanswered = text.size();
  return on;
}

bool FilesModel::overwrite(Body& body) {
  if (body.bytes.empty()) return true;
  const std::string text = random_text();
  return overwrite_at(body, draw(static_cast<unsigned>(body.bytes.size())), text);
}

bool FilesModel::overwrite_at(Body& body, std::size_t at, const std::string& text) {
  const std::size_t there = std::min(text.size(), body.bytes.size() - at);
  std::string next = body.bytes;
  next.replace(at, there, text, 0, there);
  const Status status = body.file->write_at(at, std::string_view(text).substr(0, there));
  const bool damage = reads_damage(status, body.file->inode(), at, at + there);
  if (next == body.bytes && !damage) return goes_on(status, &body);  // perhaps not durable
  return changed(status, body, next, damage);
}

bool FilesModel::cut(Body& body) {
  return cut_to(body, draw(static_cast<unsigned>(body.bytes.size() + 1)));
}

bool FilesModel::cut_to(Body& body, std::size_t size) {
  const Status status = body.file->truncate(size);
  if (size == body.bytes.size()) return goes_on(status, &body);
  const bool damage = reads_damage(status, body.file->inode(), size, size);
  return changed(status, body, body.bytes.substr(0, size), damage);
}

// What is acknowledged is durable as a whole: nothing of it was left out.
bool FilesModel::changed(const Status& status, Body& body, const std::string& next, bool damage) {
  if (damage) return true;  // before anything was done
  if (status.ok()) {
    body.bytes = next;
    body.synced = next.size();
    body.dirty = false;
  } else if (status.code() != Code::no_space && (plan_.faults || !may_fail(status))) {
    body.instead = next;
  }
  return goes_on(status, &body);
}

bool FilesModel::sync(Body& body) {
  const Status status = body.file->sync();
  if (status.ok()) {
    body.synced = body.bytes.size();
    if (body.dirty) moments_ = {names_};
    body.dirty = false;
  }
  return goes_on(status, &body);
}

bool FilesModel::close(Body& body) {
  const Status status = body.file->close();
  if (status.ok()) body.file.reset();
  return goes_on(status, &body);
}

bool FilesModel::sync_names() {
  const Status status = files_->sync_names();
  if (status.ok()) moments_ = {names_};
  return goes_on(status, nullptr);
}

bool FilesModel::is_refusal(const Status& status) {
  return status.code() == Code::not_found || status.code() == Code::exists ||
         status.code() == Code::invalid_argument;
}

// What takes another file's place is whole, also after a power cut.
bool FilesModel::rename(const std::string& from, const std::string& to) {
  const auto place = names_.find(from), taken = names_.find(to);
  const bool replaces =
      place != names_.end() && taken != names_.end() && place->second != taken->second;
  const auto body = replaces ? bodies_.find(place->second) : bodies_.end();
  const Status status = files_->rename(from, to);
  if (body != bodies_.end()) {
    body->second.dirty = false;
    // (With faults it may have failed already, and not have said so.)
    if (status.ok() && !plan_.faults) body->second.synced = body->second.bytes.size();
  }
  return named(status, renamed(from, to));
}

// The names as renaming leaves them.
FilesModel::Names FilesModel::renamed(const std::string& from, const std::string& to) const {
  Names next = names_;
  if (!names_.contains(from) || from == to || names_.at(from) == 0) return next;
  const bool same_file = names_.contains(to) && names_.at(to) == names_.at(from);
  next[to] = names_.at(from);
  if (!same_file) next.erase(from);
  return next;
}

bool FilesModel::named(const Status& status, Names next) {
  const bool refused = is_refusal(status);
  if (refused) next = names_;
  if (status.code() == Code::no_space) next = names_;
  moments_.push_back(next);
  if (!goes_on(status, nullptr)) {
    unanswered_ = {next};
    return false;
  }
  if (!status.ok() && !refused) {
    next = names_;
    expect(same(names_, names_now()), "what failed was done all the same: " + status.describe());
  }
  if (status.ok()) {
    for (auto& [path, inode] : next) {
      if (inode == 0) inode = files_->stat(path)->inode;
    }
  }
  moments_.push_back(next);
  names_ = next;
  return true;
}

bool FilesModel::goes_on(const Status& status, Body* body) {
  if (status.ok()) return true;
  if (status.code() == Code::aborted) {
    gone_ = true;
    return false;
  }
  if (status.code() == Code::no_space) {
    expect(plan_.full || plan_.faults, status.describe());
    relieve();
    return !gone_;
  }
  const bool reads = may_fail(status);
  expect(plan_.faults || is_refusal(status) || reads, status.describe());
  if (reads && !plan_.faults) return true;  // before anything was done
  if (body != nullptr) {
    body->failed = true;
    body->file.reset();
    verify_failed(*body);
  }
  return !gone_;
}

// Somebody else's file gives some of its room.
void FilesModel::relieve() {
  if (!names_.contains("/filler") || draw(3) != 0) return;
  auto file = files_->open("/filler");
  Body& filler = bodies_[names_.at("/filler")];
  if (!file.ok() || filler.failed || filler.bytes.size() < (1 << 20)) return;
  const std::string next = filler.bytes.substr(0, filler.bytes.size() - (1 << 20));
  const Status status = (*file)->truncate(next.size());
  if (status.code() == Code::no_space) return;
  (void)changed(status, filler, next);
}

// --- what is there ---

void FilesModel::list(const std::string& directory, Names& names) {
  const auto all = files_->list(directory);
  if (!all.ok()) return expect(false, directory + ": " + all.status().describe());
  for (const FileInfo& info : *all) {
    const std::string path = (directory == "/" ? "" : directory) + "/" + info.name;
    names.emplace(path, info.inode);
    if (info.directory) list(path, names);
  }
}

FilesModel::Names FilesModel::names_now() {
  Names names;
  list("/", names);
  return names;
}

bool FilesModel::same(const Names& model, const Names& there) {
  return std::ranges::equal(model, there, [](const auto& one, const auto& other) {
    return one.first == other.first && (one.second == 0 || one.second == other.second);
  });
}

std::string FilesModel::text_of(const Names& names) {
  std::string text;
  for (const auto& [path, inode] : names) text += " " + path + "=" + std::to_string(inode);
  return text;
}

void FilesModel::verify(bool may_lose) {
  const Names there = names_now();
  const bool known =
      may_lose ? std::ranges::any_of(moments_, [&](const Names& each) { return same(each, there); })
               : same(names_, there) || std::ranges::any_of(unanswered_, [&](const Names& each) {
                   return same(each, there);
                 });
  if (!known) {
    std::string text = "names that were not so:" + text_of(there);
    for (const Names& each : moments_) text += "\n  at a moment:" + text_of(each);
    expect(false, text);
  }
  for (const auto& [path, inode] : there) {
    if (files_->stat(path)->directory) continue;
    const Seen seen = see(path, inode);
    const auto body = bodies_.find(inode);
    if (body != bodies_.end()) {
      verify_bytes(may_lose, path, seen, body->second);
    } else {
      expect(seen.bytes.empty(), path + " was never made, and has bytes");
    }
  }
  // What is there now is what the next round begins with.
  std::map<std::uint64_t, Body> bodies;
  for (const auto& [path, inode] : there) {
    if (!files_->stat(path)->directory) adopt(see(path, inode), inode, bodies[inode]);
  }
  bodies_ = std::move(bodies);
  names_ = there;
  moments_ = {names_};
  unanswered_.clear();
}

// What was synced of it is read at once, not only after the next mount; unless the device goes
// before that.
void FilesModel::verify_failed(const Body& failed) {
  for (const auto& [path, inode] : names_) {
    const auto body = bodies_.find(inode);
    if (body == bodies_.end() || &body->second != &failed) continue;
    const Result<std::string> there = files_->contents(path);
    gone_ = there.status().code() == Code::aborted;
    if (gone_ || may_fail(there.status())) return;
    verify_bytes(true, path, {text_of(there), {}}, failed);
    return;
  }
}

void FilesModel::verify_bytes(bool may_lose, const std::string& path, const Seen& seen,
                              const Body& body) {
  const std::string& text = seen.bytes;
  const auto is_one = [&](const std::string& wanted, std::size_t unanswered) {
    const std::size_t least =
        may_lose ? std::min(body.synced, wanted.size()) : wanted.size() - unanswered;
    return begins_so(wanted, seen) && text.size() >= least;
  };
  expect(is_one(body.bytes, body.unanswered) || (body.instead && is_one(*body.instead, 0)),
         path + " has " + std::to_string(text.size()) + " bytes of " +
             std::to_string(body.bytes.size()) + ", " + std::to_string(body.synced) +
             " of them synced: " + text.substr(0, 20));
}

void FilesModel::remove_all() {
  const Names all = names_now();
  for (auto each = all.rbegin(); each != all.rend(); ++each) {  // what is in a directory first
    const bool directory = files_->stat(each->first)->directory;
    const Status status =
        directory ? files_->remove_directory(each->first) : files_->remove(each->first);
    expect(status.ok(), each->first + ": " + status.describe());
  }
  expect(volume_->store().usage().pages == 2, "pages that no file has");
  names_.clear();
  bodies_.clear();
  moments_ = {names_};
}

void FilesModel::fill(std::uint64_t left_bytes) {
  const std::string mib(1 << 20, 'f');
  auto filler = files_->create("/filler", FileVolume::Existing::refuse);
  if (!filler.ok()) return expect(false, filler.status().describe());
  std::string all;
  while (volume_->usage().free_bytes > left_bytes && (*filler)->append(mib).ok()) all += mib;
  expect((*filler)->close().ok(), "the filler is not closed");
  Body& body = bodies_[(*filler)->inode()];
  body.bytes = all;
  body.synced = all.size();
  names_["/filler"] = (*filler)->inode();
  moments_ = {names_};
}

std::string FilesModel::text_of(const Result<std::string>& bytes) {
  return bytes.ok() ? *bytes : "<" + bytes.status().describe() + ">";
}

void FilesModel::expect(bool so, const std::string& text) {
  if (!so && failure_.empty()) failure_ = text;
}

}  // namespace furrow::testing
