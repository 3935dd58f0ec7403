// The faults of a simulated direct volume, and their chances. A chance is between 0 and 1; its
// comment begins with the event to which it applies.
#pragma once

#include <cstdint>

namespace salius::sim {

struct DirectOptions {
  // ---- size of a lifetime
  int lives = 2;               // sessions, each ended by a crash or a drain
  uint64_t most_ms = 700;      // of a session, before it begins to end
  int most_programs = 4;       // processes at once
  uint64_t pause_us = 8000;    // of a thread between two calls, at most
  double second_thread = 0.3;  // per process
  double hasty = 0.2;          // per lifetime: a tau so small that the deadline of I6 is met
  double small_ring = 0.3;     // per lifetime: the log is often full
  double small_bulk = 0.2;     // per lifetime: the bulk limit is often met
  double few_steps = 0.5;      // per lifetime: threads are suspended more often

  // ---- network, per datagram
  double loss = 0.03, duplicate = 0.03, late = 0.02, corrupt = 0.02;
  uint64_t least_delay_us = 20, jitter_us = 300;
  // ---- per replica and 2 ms
  double partition = 0.004;    // in both directions, or in one
  double restart = 0.001;      // the process, with its memory
  double amnesia = 0.003;      // the host: memory lost (within the limit of f)
  double lost_promises = 0.3;  // per amnesia: the disk with its promises is lost too
  // Memories of earlier moments come back under the same incarnation (within the limit of f).
  double put_back_lives = 0.1;  // per lifetime
  double remember = 0.05;       // in these: a copy is kept
  double put_back = 0.02;       // in these: the copy is put back
  double stuck = 0.002;         // takes nothing for a while, then everything
  double slow_restart = 0.3;    // per restart or amnesia: it takes up to restart_ms
  uint64_t restart_ms = 400;
  // ---- per 2 ms
  double cut_off = 0.006;  // all replicas are cut off: the volume goes local, and heals again
  uint64_t cut_off_ms = 250;
  double clock_jump = 0.005;  // of the real-time clock
  // ---- per crash
  double last_losses = 0.1;  // right before it, memories are lost until f allows no more
  // ---- processes
  double kill = 0.02;  // per call: the process is killed at one of its next steps
  double stop = 0.01;  // per call: it is stopped at one of its next steps, for a while
  uint64_t stop_ms = 300;
  double open_fails = 0.05;  // per control call
  // ---- external synchrony, drawn from a stream of its own
  double external = 0.35;       // per lifetime
  double lazy = 0.5;            // per session of these: records are sent when an output waits
  double output = 0.25;         // per call: the thread makes an output after it
  double dsync = 0.08;          // per call: the thread takes a ticket, and awaits it
  double end_early = 0.003;     // per call: early return ends, for all processes
  double cut_at_output = 0.01;  // per output or dsync: the power is cut right after it
  // ---- disk
  double slow_disk = 0.03;     // per sync or note
  double slow_change = 0.2;    // per sync or note while the mode changes
  double sync_error = 0.0005;  // per sync
  double note_error = 0.0005;  // per note
  // ---- the unsynced changes that survive a power cut
  double journal = 0.7;      // per cut: names and attributes
  double no_data = 0.35;     // per cut: no data
  double all_data = 0.25;    // per other cut: all of it; otherwise any share, block by block
  double write_back = 0.03;  // per 2 ms: blocks are written back
  // ---- the session's end
  double drain = 0.2;              // the programs end, and the coordinator drains
  double coordinator_dies = 0.25;  // otherwise: the coordinator is killed, and the programs go on
  double power_cut = 0.75;         // per other end, and after the coordinator's death
  // ---- recovery
  double recovery_crash = 0.35;                             // per run
  double recovery_error = 0.05;                             // per run: a write or a sync fails
  double stream_breaks = 0.05;                              // per chunk of a fetch
  double replica_away = 0.3;                                // per replica and run
  double recovery_restart = 0.01, recovery_amnesia = 0.01;  // per replica and step of a recovery
  double cut_after_recovery = 0.2;  // per recovery: the power is cut right after it
};

}  // namespace salius::sim
