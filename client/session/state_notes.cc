#include "client/session/state_notes.h"

#include <utility>

namespace salius {

VolumeState StateNotes::First(VolumeState before, const Place& place, uint32_t acks,
                              FileId file_ids) {
  VolumeState state = std::move(before);
  state.open = true;
  ++state.epoch;
  state.mode = Mode::kLocal;
  state.boot_id = place.boot_id;
  state.mount_id = place.mount_id;
  state.acks = acks;
  state.members.clear();
  state.checkpoint = 0;
  state.file_id_limit += file_ids;
  return state;
}

VolumeState StateNotes::Compose(const Note& note, const NoteMarks& marks) const {
  VolumeState state = first_;
  state.mode = note.mode;
  state.checkpoint = note.checkpoint;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (note.members & (1u << i)) {
      state.members.push_back({replicas_[i], note.incarnation[i], note.base[i]});
    }
  }
  state.last_timestamp_ns = marks.last_timestamp_ns;
  state.file_id_limit = marks.file_id_limit;
  return state;
}

VolumeState StateNotes::Closed(Seq issued, const NoteMarks& marks) const {
  VolumeState state = first_;
  state.open = false;
  state.checkpoint = issued;
  state.last_timestamp_ns = marks.last_timestamp_ns;
  state.file_id_limit = marks.file_id_limit;
  return state;
}

}  // namespace salius
