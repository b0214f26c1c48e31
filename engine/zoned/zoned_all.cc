// Zone management of all zones (Select All): one operation at a time, some zones of it at a time.
#include <utility>

#include "engine/op_answer.h"
#include "engine/zoned/zoned_volume.h"

namespace furrow {

void ZonedVolume::begin_all(ZonedOp& op) {
  op.internal.next_zone = 0;
  op.internal.running = 0;
  op.internal.next = nullptr;
  const bool turn = first_all_ == nullptr;
  (turn ? first_all_ : last_all_->internal.next) = &op;
  last_all_ = &op;
  if (turn) go_on_all();
}

void ZonedVolume::go_on_all() {
  going_on_all_ = true;
  while (first_all_ != nullptr) {
    ZonedOp& op = *first_all_;
    ZonedOp::Internal& in = op.internal;
    const ZoneAction action = action_of(op);
    if (in.next_zone == 0 && in.running == 0) {
      std::uint32_t selected = 0;
      for (std::uint32_t i = 0; i < geometry_.zone_count; ++i) {
        slots_[i].selected = ZoneStateMachine::selected_by_all(action, view(i).state);
        selected += slots_[i].selected ? 1 : 0;
      }
      const std::uint16_t status = machine_.check_all(action, usage_, selected);
      if (status != nvme_status::kSuccess) {
        op.status = zone_status(status);
        in.next_zone = geometry_.zone_count;
      }
    }
    if (in.next_zone != geometry_.zone_count && op.wanted != nullptr && !op.wanted(op)) {
      if (op.status.ok()) op.status = kUnwanted;
      in.next_zone = geometry_.zone_count;
    }
    while (in.next_zone != geometry_.zone_count && free_step_ != nullptr) {
      const std::uint32_t zone = in.next_zone++;
      if (!slots_[zone].selected) continue;
      ZonedStep& step = *std::exchange(free_step_, free_step_->next);
      step.op = &op;
      step.volume = this;
      step.zone = zone;
      ++in.running;
      enter(step);
    }
    if (in.running != 0) break;
    first_all_ = in.next;
    finish(op);
  }
  going_on_all_ = false;
}

void ZonedVolume::end_of_all(ZonedStep& step) {
  --step.op->internal.running;
  step.next = std::exchange(free_step_, &step);
  if (!going_on_all_) go_on_all();
}

}  // namespace furrow
