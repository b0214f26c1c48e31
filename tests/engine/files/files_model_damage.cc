// FilesModel: what of a volume cannot be read, or is damaged.
#include <algorithm>

#include "tests/engine/files/files_model.h"

namespace furrow::testing {

void FilesModel::strike(const Key& key, std::span<const std::byte> bytes) {
  if (const auto chunk = chunk_of(key)) {
    struck_.insert(*chunk);
    return;
  }
  const Result<FileRecord> record = decode_file_record(bytes);
  struck_records_.push_back(slot_of(key) && record.ok() ? *record : FileRecord());
}

// A read: for a while.
bool FilesModel::may_fail(const Status& status) const {
  return plan_.unreadable && status.code() == Code::io_error;
}

// Is it right of a call to say that some of these bytes, which it reads, are damaged?
bool FilesModel::reads_damage(const Status& status, std::uint64_t inode, std::size_t from,
                              std::size_t to) const {
  if (status.code() != Code::corrupt) return false;
  const auto name = std::ranges::find(names_, inode, &Names::value_type::second);
  if (name == names_.end()) {  // nobody can see any more what it has
    return std::ranges::any_of(struck_, [&](const ChunkName& each) { return each.inode == inode; });
  }
  const auto parts = damaged_parts(**volume_->content(name->first), inode, struck_);
  return std::ranges::any_of(
      parts, [&](const auto& part) { return from < part.second && to > part.first; });
}

FilesModel::Seen FilesModel::see(const std::string& path, std::uint64_t inode) {
  const Result<std::string> bytes = files_->contents(path);
  const bool as_a_whole = may_fail(bytes.status()) || has_damage(path, inode);
  return as_a_whole ? see_parts(**volume_->content(path), path, inode) : Seen{text_of(bytes), {}};
}

// Of a part of a damaged page that is read nobody verifies what it is, as that is done as a whole.
bool FilesModel::has_damage(const std::string& path, std::uint64_t inode) const {
  return !struck_.empty() && !damaged_parts(**volume_->content(path), inode, struck_).empty();
}

FilesModel::Seen FilesModel::see_parts(const FileContent& content, const std::string& path,
                                       std::uint64_t inode) {
  const auto damaged = damaged_parts(content, inode, struck_);
  Seen seen;
  seen.bytes.resize(content.size());
  for (std::size_t at = 0, end = 0; at < seen.bytes.size(); at = end) {
    end = content.part_end(at);
    const auto memory = std::as_writable_bytes(std::span(seen.bytes)).subspan(at, end - at);
    const Result<std::size_t> got = content.read(at, memory);
    if (got.ok() && *got == memory.size()) continue;
    const std::pair<std::size_t, std::size_t> part(at, end);
    const bool is_damage = got.status().code() == Code::corrupt;
    const bool excused =
        is_damage ? std::ranges::find(damaged, part) != damaged.end() : may_fail(got.status());
    expect(excused, path + " at " + std::to_string(at) + ": " + got.status().describe());
    seen.holes.push_back(part);
  }
  return seen;
}

// Which of its chunks have been struck.
std::vector<std::pair<std::size_t, std::size_t>> FilesModel::damaged_parts(
    const FileContent& content, std::uint64_t inode, const std::set<ChunkName>& struck) {
  FileRecord record;
  content.describe(record);
  std::vector<std::pair<std::size_t, std::size_t>> parts;
  std::size_t at = 0;
  for (const FileChunk& chunk : record.chunks) {
    if (struck.contains({inode, chunk.version, at})) parts.emplace_back(at, at + chunk.length);
    at += chunk.length;
  }
  return parts;
}

// Where a file has a damaged part: what stays of it is not to be taken for whole.
bool FilesModel::change_damaged() {
  for (const auto& [path, inode] : names_) {
    if (inode == 0 || files_->stat(path)->directory || !has_damage(path, inode)) continue;
    Body& body = bodies_[inode];
    if (!body.file && !body.failed) {
      auto file = files_->open(path);
      if (!file.ok()) return goes_on(file.status(), nullptr);
      body.file = std::move(*file);
    }
    if (body.failed || draw(2) == 0) continue;
    const auto [from, to] = damaged_parts(**volume_->content(path), inode, struck_).front();
    const std::size_t at = from + draw(static_cast<unsigned>(to - from));
    return draw(2) == 0 ? cut_to(body, at) : overwrite_at(body, at, random_text());
  }
  return true;
}

bool FilesModel::begins_so(const std::string& wanted, const Seen& seen) {
  if (wanted.size() < seen.bytes.size()) return false;
  std::size_t at = 0;
  for (const auto& [from, to] : seen.holes) {
    if (wanted.compare(at, from - at, seen.bytes, at, from - at) != 0) return false;
    at = to;
  }
  return wanted.compare(at, seen.bytes.size() - at, seen.bytes, at) == 0;
}

// What is there now is what the next round begins with: durable, and, where it cannot be read, what
// it was. Where that may be either of two things, nothing more is asked of it.
void FilesModel::adopt(const Seen& seen, std::uint64_t inode, Body& next) {
  const std::size_t size = seen.bytes.size();
  next = Body();
  next.bytes = seen.bytes;
  next.synced = size;
  const auto before = bodies_.find(inode);
  if (seen.holes.empty() || before == bodies_.end()) return;
  const std::string& bytes = before->second.bytes;
  const std::optional<std::string>& instead = before->second.instead;
  const bool as_it_was = begins_so(bytes, seen), changed = instead && begins_so(*instead, seen);
  expect(as_it_was || changed, "a file is another one at the second look");
  next.bytes = (changed && !as_it_was ? *instead : bytes).substr(0, size);
  if (!as_it_was || !changed || instead->compare(0, size, next.bytes) == 0) return;
  next.instead = instead->substr(0, size);
  next.failed = true;
}

// The names as damage of a record leaves them: a file's are lost, and what was in a directory is in
// the root, as is a file that has bytes.
FilesModel::Names FilesModel::names_without(const FileRecord& lost, const Names& names) {
  if (lost.inode == 0) return names;
  Names left, within;
  std::string directory;
  for (const auto& [path, inode] : names) {  // what it holds comes behind it
    const std::string name = path.substr(path.rfind('/') + 1);
    const bool claims =
        std::ranges::any_of(lost.links, [&](auto& its) { return its.name == name; });
    const bool its = inode == lost.inode || (inode == 0 && claims);
    if (its && lost.directory) directory = path + "/";
    if (its) continue;
    (!directory.empty() && path.starts_with(directory) ? within : left).emplace(path, inode);
  }
  const auto elsewhere = left;
  for (const auto& each : within) {
    const std::uint64_t inode = each.second;
    const bool named = std::ranges::any_of(elsewhere, [&](auto& e) { return e.second == inode; });
    if (!named) left.emplace(found(inode), inode);
  }
  return left;
}

std::string FilesModel::found(std::uint64_t inode) {
  return "/lost+found." + std::to_string(inode);
}

void FilesModel::list(const FileVolume& volume, const std::string& directory, Names& names) {
  const auto all = volume.list(directory);
  if (!all.ok()) return expect(false, directory + ": " + all.status().describe());
  for (const FileInfo& info : *all) {
    const std::string path = (directory == "/" ? "" : directory) + "/" + info.name;
    names.emplace(path, info.inode);
    if (info.directory) list(volume, path, names);
  }
}

// Of the names one of the moments' are there, less what damage has taken.
void FilesModel::verify_salvaged(const FileVolume& salvaged, bool may_lose) {
  Names there;
  list(salvaged, "/", there);
  for (const FileRecord& lost : struck_records_) there.erase(found(lost.inode));
  std::vector<Names> moments = may_lose ? moments_ : unanswered_;
  moments.push_back(names_);
  const auto is_it = [&](Names each) {
    if (same(each, there)) return true;
    return std::ranges::any_of(struck_records_, [&](const FileRecord& lost) {
      Names left = names_without(lost, each);
      if (left.erase(found(0)) == 0) return same(left, there);
      // What was being made has a number that its maker was not told.
      return std::ranges::any_of(there, [&](const auto& one) {
        if (one.first != found(one.second) || left.contains(one.first)) return false;
        Names others = there;
        others.erase(one.first);
        return same(left, others);
      });
    });
  };
  if (std::ranges::none_of(moments, is_it)) {
    std::string text = "salvaged, and names that were not so:" + text_of(there);
    for (const Names& each : moments) text += "\n  at a moment:" + text_of(each);
    return expect(false, text);
  }
  for (const auto& [path, inode] : there) {
    const auto body = bodies_.find(inode);
    const auto content = salvaged.content(path);
    if (body == bodies_.end() || !content.ok()) continue;
    verify_bytes(may_lose, path, see_parts(**content, path, inode), body->second);
  }
}

}  // namespace furrow::testing
