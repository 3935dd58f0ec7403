// What can go wrong in a simulated cluster, and how often.
#pragma once

#include <cstdint>

namespace salius::sim {

struct ClusterOptions {
  // ---- size of a lifetime
  int lives = 2;        // sessions, each ended by a crash and a recovery
  int steps = 60;       // of a session
  double issue = 0.6;   // an operation per step
  double bulky = 0.08;  // of the lifetimes: large records, so that rings go round
  double hasty = 0.2;   // of the lifetimes: so small a tau that the deadline of I6 is met
  double huge = 0.012;  // of the lifetimes: still larger, more than a small grant holds

  double many_files = 0.1;  // of the lifetimes: names enough that each is used once or twice
  double all_plain = 0.5;   // of the lifetimes: no client waits for what it has written
  double all_sync = 0.25;   // of the others: every client waits each time

  // ---- network, per datagram
  double loss = 0.04, duplicate = 0.04, late = 0.03, corrupt = 0.02;
  // How long each takes: at least so long, and up to so much longer. What is sent later overtakes.
  uint64_t least_delay_us = 20, jitter_us = 400;
  // ---- per step and replica
  double partition = 0.004;   // both ways, or one
  double restart = 0.002;     // the process, with its memory
  double slow_restart = 0.3;  // of the restarts and amnesias: it takes up to restart_ms
  uint64_t restart_ms = 1500;
  // Of its wall clock. It must have no effect, and has none: the arena and the acceptor know no
  // clock but the monotonic one that they are given. (replica/server.cc, which is not simulated,
  // reads the wall clock once, for the deadline of gRPC's end.)
  double replica_clock_jump = 0.005;
  double amnesia = 0.003;       // the host: memory gone (within what f allows)
  // Memories of earlier moments come back under the same incarnation (as much as f allows lost).
  double put_back_lives = 0.06;  // of the lifetimes in which no log is given up
  double remember = 0.04;        // in these, per step: a copy is kept
  double put_back = 0.008;       // in these, per step: the copy is put back
  double lost_promises = 0.3;   // of these: the disk with its promises too
  double stuck = 0.002;         // takes nothing for a while, then everything
  double slow_replica = 0.002;  // takes its time over everything, for a while
  // ---- per control call
  double open_fails = 0.05;
  double small_grant = 0.5;  // in the huge lifetimes: their memory fills up
  // ---- what replicas keep (I6)
  double late_recovery = 0.03;  // of the recoveries: nobody comes for as long as these seconds
  uint64_t late_least_s = 12, late_most_s = 40;
  double abandon = 0.1;  // of the lifetimes: replicas have --abandon-after
  uint64_t abandon_least_s = 8, abandon_most_s = 20;  // longer than any replica is cut off
  // ---- the primary
  double slow_disk = 0.03;      // per job
  double disk_error = 0.002;    // per job: a sync fails
  double last_sync = 0.2;       // of the syncs in which the primary dies: it fails
  double write_back = 0.05;     // of the deaths: after the kernel told somebody else of an error
  double write_error = 0.001;   // per job: a write fails, with a part of it done
  double apply_error = 0.0002;  // per record applied: EIO, with a part of it done
  double bulk_slow = 0.4;  // of the fsyncs of bulk data: they take their time, and may be cut off
  double bulk_write_error = 0.05;  // of the bulk writes: EIO, with a part of it done
  double bulk_sync_error = 0.02;   // of the fsyncs of bulk data
  double tight = 0.12;             // of the lifetimes: the disk runs full now and then
  double full = 0.03;              // of these, per step: no room for a while
  double full_job = 0.3;           // then, per job: the volume's own files find none
  double full_name = 0.6;          // then, per record that makes a name
  double full_data = 0.02;         // then, per write: the engine reserved its room before
  double clock_jump = 0.01;        // per step: of the real-time clock
  int64_t clock_jump_s = 3600;     // so far at most, either way
  double drift = 0.2;              // of a lifetime: clocks of the replicas run at different speeds
  double primary_drift = 0.2;      // of a lifetime: the primary's monotonic clock too
  uint64_t drift_permille = 100;   // slower or faster by so much at most
  double start_dies = 0.03;        // of the sessions: while they begin
  double power_cut = 0.7;          // of the crashes: otherwise only the process dies
  double remount = 0.2;            // of these: and the file system is unmounted
  double zombie = 0.15;            // of the crashes: the primary was only frozen, and goes on later
  double zombie_step = 0.3;        // per step of its successor, or of a recovery: it does something
  // ---- what a power cut leaves of what was not synced
  double sector = 0.5;  // of the volume's own files: each sector of 512 bytes, each change of names
  double no_data = 0.3;     // of the cuts: no data of the other files
  double all_data = 0.3;    // of the other cuts: all of it; otherwise any share, write by write
  double whole_data = 0.8;  // of the writes that are left: whole, not in part
  // ---- recovery
  double recovery_crash = 0.35;     // of the runs
  double recovery_error = 0.05;     // of the runs: a write or a sync fails
  double recovery_full = 0.04;      // of the runs: there is no room
  double stream_breaks = 0.05;      // per chunk of a fetch
  double replica_away = 0.3;        // of the replicas, per run
  double cut_after_recovery = 0.2;  // of the recoveries: the power is cut right after it
  // Per replica, before each run and at each step of it.
  double recovery_restart = 0.01;  // with its memory
  double recovery_amnesia = 0.01;  // without (within what f allows)
  // ---- the end: without faults everything must become durable and the mode replicated
  double heal = 0.15;        // of the sessions
  double heal_alone = 0.25;  // of these: too few replicas come back; the stable log must do
  double heal_few = 0.4;     // of the others: as many as are needed come back, or a few more
};

}  // namespace salius::sim
