// What of the metadata ring is damaged.
//
// The newest section is judged, and the one that it says it continues, and the one before that, as
// far back as the ring goes: each would stand in for those after it. A section must be whole from
// its superblock up to the last record that the next one says it continues. The rest of the ring is
// superseded: nothing reads it again.
//
// A section is written at once and flushed; a record was, as a rule, when another follows. So what
// a power cut may have torn is the last record, and a section that no record follows, if nobody
// went on to write behind it in the same life of the process.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "log/metadata_found.h"
#include "zone/zone_state_machine.h"

namespace furrow {

namespace {

using Kind = JournalRecord::Kind;

class RingJudge {
 public:
  RingJudge(const RingFound& found, RingContents& contents) : found_(found), contents_(contents) {}

  void run() {
    judge_sections();
    if (!contents_.lost) judge_checkpoint();
    note_torn_rolls();
  }

 private:
  struct Section {
    std::uint64_t number = 0;
    ZoneId zone;
    std::uint64_t begin_lba = 0, record_0_lba = 0;
    std::uint64_t last = 0;  // record that counts
    bool cut = false;        // the power may have been, behind the last thing written to it
    std::uint64_t head_end_lba() const { return record_0_lba + kJournalCopies + 1; }
    std::uint64_t record_lba(std::uint64_t index) const {
      return index == 0 ? record_0_lba : head_end_lba() + (index - 1) * kJournalCopies;
    }
    std::uint64_t end_lba() const {
      return last == 0 ? head_end_lba() : record_lba(last) + kJournalCopies;
    }
  };
  struct Link {
    std::uint64_t number = 0;
    bool said = false;       // by record 0 of the section behind it, which says ..
    std::uint64_t last = 0;  // .. that this record was the last one that counts
    bool cut = false;        // as in Section
  };
  enum class Lba : std::uint8_t { whole, damaged, unreadable };
  // As far back as anything is worth: there are some in each zone.
  static constexpr unsigned kSectionsMax = 256;
  static constexpr unsigned kLinesMax = 64;  // of a section's damage

  std::optional<Section> section(std::uint64_t number) const;
  std::uint64_t begin_before(const Section& section) const;
  std::optional<std::uint64_t> highest_below(std::uint64_t number) const;
  std::optional<Link> before(std::uint64_t number) const;
  std::optional<Kind> began_with(std::uint64_t number) const;
  Lba look(ZoneId zone, std::uint64_t lba) const;
  bool was_torn(const Section& section, std::uint64_t lba) const;
  std::string name(const Section& section, std::uint64_t lba) const;
  void judge_sections();
  bool is_superseded(const Section& section) const;
  bool has_ended_roll(ZoneId zone) const;
  bool is_whole(const Section& section) const;
  void judge(const Section& section);
  void judge_checkpoint();
  void judge_missing(std::uint64_t number);
  void note_torn_rolls();

  const RingFound& found_;
  RingContents& contents_;
  std::optional<Section> newest_;
  std::optional<std::uint64_t> missing_;  // section that the newest one continues
  std::vector<Section> judged_;           // that are not superseded, the newest first
};

// Where a section of the ring is, by what of it is whole. Nothing: nothing is.
std::optional<RingJudge::Section> RingJudge::section(std::uint64_t number) const {
  const RingFound::Journal& records = found_.journal(number);
  Section section;
  section.number = number;
  if (!records.empty()) section.last = records.rbegin()->first;
  const auto checkpoint = found_.checkpoints.find(number);
  if (checkpoint != found_.checkpoints.end()) {
    section.zone = checkpoint->second.zone;
    section.record_0_lba = checkpoint->second.end_lba;
    section.begin_lba = checkpoint->second.lba - std::min<std::uint64_t>(checkpoint->second.lba, 1);
    return section;
  }
  if (records.empty()) return std::nullopt;
  const auto& [index, entry] = *records.begin();
  section.zone = entry.zone;
  const std::uint64_t before = section.head_end_lba() + index * kJournalCopies;
  if (entry.end_lba < before) return std::nullopt;  // made up
  section.record_0_lba = entry.end_lba - before;
  section.begin_lba = begin_before(section);
  return section;
}

// Without a checkpoint: from where the section before it in the zone ends.
std::uint64_t RingJudge::begin_before(const Section& section) const {
  std::uint64_t begin = 0;
  const auto meet = [&](const RingFound::Item& item) {
    if (item.zone == section.zone && item.end_lba <= section.record_0_lba) {
      begin = std::max(begin, item.end_lba);
    }
  };
  for (const auto& [number, found] : found_.checkpoints) meet(found);
  for (const auto& [number, records] : found_.journals) {
    for (const auto& [index, entry] : records) meet(entry);
  }
  return begin;
}

std::optional<std::uint64_t> RingJudge::highest_below(std::uint64_t number) const {
  std::optional<std::uint64_t> highest;
  const auto meet = [&](const auto& all) {
    const auto above = all.lower_bound(number);
    if (above != all.begin()) highest = std::max(highest.value_or(0), std::prev(above)->first);
  };
  meet(found_.checkpoints);
  meet(found_.journals);
  return highest;
}

std::optional<Kind> RingJudge::began_with(std::uint64_t number) const {
  const RingFound::Journal& records = found_.journal(number);
  const auto first = records.find(0);
  return first == records.end() ? std::nullopt : std::optional(first->second.entry.record.kind);
}

RingJudge::Lba RingJudge::look(ZoneId zone, std::uint64_t lba) const {
  const auto end = found_.end_lba.find(zone.value);
  if (end == found_.end_lba.end() || lba >= end->second) return Lba::damaged;
  const std::vector<RingFound::BadLba>& all = found_.bad.at(zone.value);
  const auto bad = std::ranges::lower_bound(all, lba, {}, &RingFound::BadLba::lba);
  if (bad == all.end() || bad->lba != lba) return Lba::whole;
  return bad->unreadable ? Lba::unreadable : Lba::damaged;
}

// May a power cut have left this LBA as it is?
bool RingJudge::was_torn(const Section& section, std::uint64_t lba) const {
  if (!section.cut) return false;
  if (section.last == 0) return true;  // of a roll of which nobody knows that it ended
  const RingFound::Journal& records = found_.journal(section.number);
  return lba >= section.record_lba(section.last) && records.contains(section.last);
}

std::string RingJudge::name(const Section& section, std::uint64_t lba) const {
  if (lba == section.begin_lba || lba + 1 == section.head_end_lba()) return "superblock";
  if (lba < section.record_0_lba) return "checkpoint";
  return "journal";
}

// The section that this one continues. Where nothing says so, the one with the next lower number.
std::optional<RingJudge::Link> RingJudge::before(std::uint64_t number) const {
  const RingFound::Journal& records = found_.journal(number);
  const auto first = records.find(0);
  if (first == records.end()) {
    const std::optional<std::uint64_t> lower = highest_below(number);
    return lower ? std::optional(Link{*lower, false, 0, true}) : std::nullopt;
  }
  const JournalEntry& entry = first->second.entry;
  if (entry.previous_checkpoint == 0) return std::nullopt;  // of a new pool
  // What opens a pool, be it after a power cut, begins with one of these.
  const Kind kind = entry.record.kind;
  const bool cut = kind == Kind::opened || kind == Kind::zone_trimmed;
  return Link{entry.previous_checkpoint, true, entry.previous_index, cut};
}

void RingJudge::judge_sections() {
  std::optional<Link> link = Link{contents_.number, false, 0, true};
  bool behind_newest = false;
  for (unsigned judged = 0; link && judged < kSectionsMax; ++judged) {
    std::optional<Section> its = section(link->number);
    if (!its && behind_newest && link->said) {
      missing_ = link->number;
      judge_missing(link->number);
    }
    if (its) {
      its->cut = link->cut;
      if (link->said) its->last = link->last;
      if (link->number == contents_.number) {
        // Format and repair tell their user that they ended: until they do, it is damage.
        its->cut = its->last != 0 || began_with(its->number) != Kind::formatted;
        newest_ = its;
      }
      judge(*its);
    }
    behind_newest = newest_ && link->number == newest_->number;
    link = before(link->number);  // of a lower number: the decoder saw to it
  }
}

// A newer section begins where this one was: it is of an earlier life of the zone, and shows where
// the newer one was torn. A zone that is not finished may have been reset for another roll: then
// what the section ended with is not there any more, or is left of it where the new one, which is
// as long as one that no record follows, was torn. Where it is whole, or another one behind it in
// the zone is left, the power cut has undone the finish, and no more. Where a roll was torn, and
// the zone could not be reset, it is finished all the same.
bool RingJudge::is_superseded(const Section& section) const {
  const auto replaces = [&](const Section& newer) {
    return newer.zone == section.zone && newer.begin_lba <= section.record_0_lba;
  };
  if (std::ranges::any_of(judged_, replaces)) return true;
  if (!newest_ || section.zone == newest_->zone) return false;
  if (has_ended_roll(section.zone)) return true;
  if (!is_active(found_.zones[section.zone.value].state)) return false;
  const bool ends = found_.journal(section.number).contains(section.last);
  const bool followed = std::ranges::find(judged_, section.zone, &Section::zone) != judged_.end();
  return !ends || (section.last == 0 && !followed && !is_whole(section));
}

// The zone's newest superblock is of a section that nothing else is left of, and that none
// continues.
bool RingJudge::has_ended_roll(ZoneId zone) const {
  const auto superblock = found_.superblocks.find(zone.value);
  return superblock != found_.superblocks.end() && superblock->second.checkpoint != missing_ &&
         !section(superblock->second.checkpoint);
}

bool RingJudge::is_whole(const Section& section) const {
  for (std::uint64_t lba = section.begin_lba; lba < section.end_lba(); ++lba) {
    if (look(section.zone, lba) != Lba::whole) return false;
  }
  return true;
}

void RingJudge::judge(const Section& section) {
  const bool superseded = is_superseded(section);
  if (!superseded) judged_.push_back(section);
  const std::uint64_t end = std::min(section.end_lba(), contents_.superblock.zone_capacity_lbas);
  const bool left = !newest_ || section.number != newest_->number;
  std::uint64_t torn = 0;
  unsigned damaged = 0;
  for (std::uint64_t lba = section.begin_lba; lba < end; ++lba) {
    const Lba state = look(section.zone, lba);
    if (state == Lba::whole) continue;
    const std::string where =
        fmt::format("metadata zone {}: LBA {} ({})", section.zone.value, lba, name(section, lba));
    const bool readable = state == Lba::damaged;
    const bool may_be_torn = readable && was_torn(section, lba);
    if (readable && superseded) continue;
    if (!may_be_torn) {
      if (++damaged > kLinesMax) {
        contents_.damage.push_back(where + " and more behind it is damaged");
        break;
      }
      contents_.damage.push_back(where + (readable ? " is damaged" : " cannot be read"));
    } else if (section.last != 0 && !left) {
      contents_.notes.push_back(where +
                                ", of the last record, which stands twice, is torn or damaged; " +
                                "the next opening writes it anew");
    } else if (section.last == 0) {
      ++torn;
    }
  }
  if (torn != 0) {
    contents_.notes.push_back(
        fmt::format("metadata zone {}: {} LBAs of the section of checkpoint {}, which no record "
                    "follows, are torn or damaged; {}",
                    section.zone.value, torn, section.number,
                    left ? "the ring goes on elsewhere" : "the next opening writes it anew"));
  }
}

void RingJudge::judge_checkpoint() {
  if (found_.checkpoints.contains(contents_.number)) return;
  const bool torn = newest_ && was_torn(*newest_, newest_->begin_lba);
  (torn ? contents_.notes : contents_.damage)
      .push_back(fmt::format("checkpoint {} is {}; its state was rebuilt from an older one",
                             contents_.number, torn ? "torn or damaged" : "damaged"));
}

// The newest section continues one of which nothing is left. That is so while a roll is under way,
// which resets its zone, and not when all zones were written to and finished: but where a write
// failed, and the device has ended its zone, which is rolled into first, too.
void RingJudge::judge_missing(std::uint64_t number) {
  std::vector<ZoneId> full;
  for (std::uint32_t i = 0; i < contents_.superblock.metadata_zones; ++i) {
    if (ZoneId{i} == newest_->zone) continue;
    const ZoneState state = found_.zones[i].state;
    const bool written = state == ZoneState::full || state == ZoneState::read_only;
    const std::optional<std::uint64_t> newest = found_.newest_in(ZoneId{i});
    if (!written || newest.value_or(0) > contents_.number) return;
    const bool readable = std::ranges::none_of(found_.bad.at(i), &RingFound::BadLba::unreadable);
    if (state == ZoneState::full && !newest && readable) full.push_back(ZoneId{i});
  }
  contents_.damage.push_back(fmt::format(
      "nothing is left of checkpoint {}, which would stand in for "
      "{}{}",
      number, contents_.number, full.empty() ? "" : "; the next opening makes up for it"));
  contents_.torn = std::move(full);
}

void RingJudge::note_torn_rolls() {
  if (!newest_) return;
  for (std::uint32_t i = 0; i < contents_.superblock.metadata_zones; ++i) {
    const ZoneInfo& info = found_.zones[i];
    const bool used = info.zone == newest_->zone ||
                      std::ranges::find(judged_, info.zone, &Section::zone) != judged_.end();
    if (!used && !is_active(info.state) && has_ended_roll(info.zone)) {
      contents_.notes.push_back(fmt::format(
          "metadata zone {}: a roll of the ring was torn, and the zone could not be reset; nothing "
          "in it counts until a roll does it again",
          i));
    }
    if (used || !is_active(info.state) || info.written_lbas == 0) continue;
    contents_.torn.push_back(info.zone);
    contents_.notes.push_back(fmt::format(
        "metadata zone {}: a power cut tore a roll of the ring; the next opening does it again",
        i));
  }
}

}  // namespace

const RingFound::Journal& RingFound::journal(std::uint64_t number) const {
  static const Journal kNone;
  const auto found = journals.find(number);
  return found == journals.end() ? kNone : found->second;
}

std::optional<std::uint64_t> RingFound::newest_in(ZoneId zone) const {
  std::optional<std::uint64_t> newest;
  const auto meet = [&](std::uint64_t number) { newest = std::max(newest.value_or(0), number); };
  const auto superblock = superblocks.find(zone.value);
  if (superblock != superblocks.end()) meet(superblock->second.checkpoint);
  for (const auto& [number, found] : checkpoints) {
    if (found.zone == zone) meet(number);
  }
  for (const auto& [number, found] : journals) {
    for (const auto& [index, entry] : found) {
      if (entry.zone == zone) meet(number);
    }
  }
  return newest;
}

void judge_ring(const RingFound& found, RingContents& contents) {
  RingJudge(found, contents).run();
}

}  // namespace furrow
