// FilesModel: what is read between changes, and what else a database does with its files.
#include <algorithm>
#include <array>

#include "tests/engine/files/files_model.h"
#include "zone/aligned_buffer.h"

namespace furrow::testing {

// What is there is what the calls so far have left. (Where the device fails a put, nobody is told
// before the next call: until then the file has what came before, and what was synced in any case.)
bool FilesModel::look() {
  const std::string path = random_path();
  const auto name = names_.find(path);
  const bool there = name != names_.end();
  const Body* const body = there ? &bodies_[name->second] : nullptr;
  const std::string bytes = there ? body->bytes : std::string();
  std::vector<AlignedBuffer> memory;
  std::vector<FileRead> reads(1 + draw(4) * draw(4));
  for (FileRead& read : reads) {
    read.offset = draw(static_cast<unsigned>(bytes.size()) + 100);
    const std::size_t wanted = 1 + draw(draw(4) == 0 ? plan_.bytes_max : 5000);
    memory.emplace_back(wanted + 1);
    read.memory = memory.back().span().subspan(draw(2), wanted);  // the device may fill it, or not
  }
  const auto way = static_cast<ReadWay>(draw(4));
  if (there && body->failed && body->instead) return true;  // which of the two it is, is not known
  const std::size_t kept = !there ? 0 : plan_.faults ? body->synced : bytes.size();
  const Status status = files_->read(path, reads, way);
  if (!status.ok()) {
    const bool none = !there && status.code() == Code::not_found;
    const bool damaged =
        there && std::ranges::any_of(reads, [&](const FileRead& read) {
          return reads_damage(status, name->second, read.offset, read.offset + read.memory.size());
        });
    if (damaged) return true;
    expect(none || status.code() == Code::aborted || may_fail(status),
           path + " is read: " + status.describe());
    return goes_on(status, nullptr);
  }
  expect(there, path + " is not there, and is read");
  if (there && has_damage(path, name->second)) return true;
  for (const FileRead& read : reads) {
    const std::size_t from = std::min<std::size_t>(read.offset, bytes.size());
    const std::string wanted = bytes.substr(from, read.memory.size());
    const std::string_view got(reinterpret_cast<const char*>(read.memory.data()), read.bytes);
    const std::size_t least = std::min(std::max(kept, from) - from, wanted.size());
    expect(wanted.starts_with(got) && got.size() >= least,
           path + " reads otherwise at " + std::to_string(read.offset) + ": " +
               std::to_string(got.size()) + " bytes of " + std::to_string(wanted.size()));
  }
  return true;
}

bool FilesModel::grow(Body& body) {
  const std::string zeroes(draw(draw(4) == 0 ? plan_.bytes_max : 3000), '\0');
  return appended(body.file->truncate(body.bytes.size() + zeroes.size()), body, zeroes);
}

bool FilesModel::write_behind_end(Body& body) {
  const std::string gap(draw(3000), '\0');
  const std::string text = random_text();
  const Status status = body.file->write_at(body.bytes.size() + gap.size(), text);
  return appended(status, body, gap + text);
}

// A log gives its name, and what it takes, to a new one. It may end between any two of its steps.
bool FilesModel::reuse() {
  const std::string path = random_path(), old = random_path();
  std::array<Names, 3> steps;
  steps[0] = steps[1] = renamed(old, path);
  steps[1].erase(path);
  steps[2] = steps[1];
  steps[2].emplace(path, 0);
  auto made = files_->reuse(path, old);
  if (is_refusal(made.status())) return goes_on(made.status(), nullptr);
  if (made.ok()) steps[2][path] = (*made)->inode();
  moments_.insert(moments_.end(), steps.begin(), steps.end());
  if (!goes_on(made.status(), nullptr)) {
    unanswered_.assign(steps.begin(), steps.end());
    return false;
  }
  if (made.ok()) {
    names_ = steps[2];
    (*made)->set_lifetime(static_cast<Lifetime>(draw(4)));
    bodies_[(*made)->inode()].file = std::move(*made);
    return true;
  }
  const Names there = names_now();
  expect(same(names_, there) || same(steps[0], there) || same(steps[1], there),
         "a log that was to be used again: " + text_of(there));
  names_ = there;
  moments_.push_back(there);
  return true;
}

}  // namespace furrow::testing
