// The faults of a simulated cluster, and their chances. A chance is between 0 and 1; its comment
// begins with the event to which it applies.
#pragma once

#include <cstdint>

namespace salius::sim {

struct ClusterOptions {
  // ---- size of a lifetime
  int lives = 2;        // sessions, each ended by a crash and a recovery
  int steps = 60;       // of a session; each is one turn of the simulation
  double issue = 0.6;   // per step: one operation
  double bulky = 0.08;  // per lifetime: large records, so that rings wrap
  double hasty = 0.2;   // per lifetime: a tau so small that the deadline of I6 is met
  double huge = 0.012;  // per lifetime: still larger records, more than a small grant holds

  double many_files = 0.1;  // per lifetime: more names, each used only once or twice
  double all_plain = 0.5;   // per lifetime: no client waits for its writes
  double all_sync = 0.25;   // per other lifetime: every client waits each time

  // ---- network, per datagram
  double loss = 0.04, duplicate = 0.04, late = 0.03, corrupt = 0.02;
  // The delay of a datagram: the least, and the most that is added. Later datagrams may overtake.
  uint64_t least_delay_us = 20, jitter_us = 400;
  // ---- sealed lifetimes
  double sealed = 0.5;           // per lifetime
  double plain_too = 0.5;        // per sealed lifetime: replicas open plain frames, too
  double key_changes = 0.7;      // per sealed lifetime: keys change, at an interval in this range
  uint64_t key_least_ms = 5, key_most_ms = 400;
  double lost_key_answer = 0.1;  // per key that a replica is given
  double attack = 0.4;           // per step: the attacker sends something
  // ---- per step and replica
  double partition = 0.004;   // in both directions, or in one
  double restart = 0.002;     // the process, with its memory
  double slow_restart = 0.3;  // per restart or amnesia: it takes up to restart_ms
  uint64_t restart_ms = 1500;
  // A jump of its wall clock. It must have no effect, and has none: the arena and the acceptor use
  // only the monotonic clock that they are given. (replica/server.cc, which is not simulated, reads
  // the wall clock once, for the deadline of gRPC's end.)
  double replica_clock_jump = 0.005;
  double amnesia = 0.003;  // the host: memory lost (within the limit of f)
  // Memories of earlier moments come back under the same incarnation (at most as many as f allows
  // lost).
  double put_back_lives = 0.06;  // per lifetime in which no log is given up
  double remember = 0.02;        // in these, per step: a copy is kept
  double put_back = 0.008;       // in these, per step: the copy is put back
  // Per crash: right before it, memories are lost until f allows no more.
  double last_losses = 0.1;
  double lost_promises = 0.3;    // per amnesia: the disk with its promises is lost too
  double stuck = 0.002;          // takes nothing for a while, then everything
  double slow_replica = 0.002;   // is slow with everything, for a while
  // ---- per control call
  double open_fails = 0.05;
  double small_grant = 0.5;  // per huge lifetime: the replicas' memory fills up
  // ---- logs that replicas keep (I6)
  // Per recovery: it comes only after a number of seconds in this range.
  double late_recovery = 0.03;
  uint64_t late_least_s = 12, late_most_s = 40;
  double abandon = 0.1;                               // per lifetime: replicas have --abandon-after
  uint64_t abandon_least_s = 8, abandon_most_s = 20;  // longer than any replica is cut off
  // ---- the primary
  double slow_disk = 0.03;      // per job
  double disk_error = 0.002;    // per job: a sync fails
  double last_sync = 0.2;       // per sync in which the primary dies: it fails
  double write_back = 0.05;     // per death: after the kernel reported an error to another process
  double write_error = 0.001;   // per job: a write fails, with a part of it done
  double apply_error = 0.0002;  // per record applied: EIO, with a part of it done
  double bulk_slow = 0.4;       // per fsync of bulk data: it is slow, and may be cut off
  double bulk_write_error = 0.05;  // per bulk write: EIO, with a part of it done
  double bulk_sync_error = 0.02;   // per fsync of bulk data
  double tight = 0.12;             // per lifetime: the disk is sometimes full
  double full = 0.03;              // in these, per step: no room for a while
  double full_job = 0.3;           // then, per job: the volume's own files find no room
  double full_name = 0.6;          // then, per record that makes a name
  double full_data = 0.02;         // then, per write: the engine reserved its room before
  double clock_jump = 0.01;        // per step: of the real-time clock
  int64_t clock_jump_s = 3600;     // largest jump, either way
  double drift = 0.2;              // per lifetime: clocks of the replicas run at different speeds
  double primary_drift = 0.2;      // per lifetime: the primary's monotonic clock too
  uint64_t drift_permille = 100;   // largest difference of speed, either way
  double start_dies = 0.03;        // per session: the primary dies while it starts
  double power_cut = 0.7;          // per crash: otherwise only the process dies
  double remount = 0.2;            // per such crash: the file system is unmounted too
  double zombie = 0.15;            // per crash: the primary was only frozen, and continues later
  double zombie_step = 0.3;        // per step of its successor, or of a recovery: it acts
  // ---- the unsynced changes that survive a power cut
  double sector = 0.5;  // in the volume's own files: each sector of 512 bytes, each change of names
  double no_data = 0.3;     // per cut: no data of the other files
  double all_data = 0.3;    // per other cut: all of it; otherwise any share, write by write
  double whole_data = 0.8;  // per surviving write: whole, not in part
  // ---- recovery
  double recovery_crash = 0.35;     // per run
  double recovery_error = 0.05;     // per run: a write or a sync fails
  double recovery_full = 0.04;      // per run: there is no room
  double stream_breaks = 0.05;      // per chunk of a fetch
  double replica_away = 0.3;        // per replica and run
  double cut_after_recovery = 0.2;  // per recovery: the power is cut right after it
  // Per replica, before each run and at each step of it.
  double recovery_restart = 0.01;  // with its memory
  double recovery_amnesia = 0.01;  // without it (within the limit of f)
  // ---- the end: without faults everything must become durable and the mode replicated
  double heal = 0.15;  // per session
  // Per such session: too few replicas come back; the stable log must suffice.
  double heal_alone = 0.25;
  double heal_few = 0.4;  // per other one: as many as are needed come back, or a few more
};

}  // namespace salius::sim
