//! Ways to use memory, each against a small limit.

use crate::cases;
use crate::probe::Probe;

/// The limit, and three times as much as what must be impossible. Without a sandbox it is little
/// enough for any host.
fn bounded(probe: Probe) -> Probe {
    probe
        .flags(&["--memory", "64MiB", "--timeout", "30s"])
        .variable("PROBE_MIB", 192)
        .or_ended_by("memory")
}

/// What belongs to no process is only seen by a control group: without one, the limit is watched by
/// adding up what processes have.
fn bounded_by_group(probe: Probe) -> Probe {
    bounded(probe).needs("cgroup-memory")
}

cases! {
    private_memory => super::bounded;
    nameless_file => super::bounded_by_group;
    shared_segments => super::bounded;
    detached_segments => super::bounded_by_group;
    shared_memory_files => super::bounded;
    shared_memory_names => |probe| super::bounded_by_group(probe).variable("PROBE_FILES", 120_000);
    temporary_files => super::bounded;
    pipes => super::bounded_by_group;
    socket_buffers => super::bounded_by_group;
    messages => super::bounded_by_group;
    timers => |probe| super::bounded(probe).variable("PROBE_MIB", 10);
}
