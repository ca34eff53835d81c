//! What bounds a job, in words.

use tidemill_core::JobSpec;

use crate::ui::time;

const HALF_OF_HOST: &str = "1/2 of the host's memory";

/// Its limits, defaults too: `memory 512 MiB, cpus all, …`.
pub(crate) fn limits(spec: &JobSpec) -> String {
    let limits = &spec.limits;
    let half = if limits.memory.is_some() {
        "1/2 of the memory"
    } else {
        HALF_OF_HOST
    };
    let or = |value: Option<String>, default: &str| value.unwrap_or_else(|| default.to_owned());
    format!(
        "memory {}, cpus {}, processes {}, disk {}, /dev/shm {}, time {}, log {}",
        or(
            limits.memory.map(|size| size.to_string()),
            "7/8 of the host's"
        ),
        or(limits.cpus.map(|cpus| cpus.to_string()), "all"),
        limits.pids,
        or(limits.disk.map(|size| size.to_string()), HALF_OF_HOST),
        or(limits.shm.map(|size| size.to_string()), half),
        or(
            limits.timeout.map(|limit| time(limit.as_duration())),
            "without limit"
        ),
        limits.log,
    )
}

/// What a cancel does to it: `SIGTERM, and the kill after 10 s`.
pub(crate) fn on_cancel(spec: &JobSpec) -> String {
    let grace = time(spec.limits.grace.as_duration());
    format!("{}, and the kill after {grace}", spec.stop_signal)
}

#[cfg(test)]
mod tests {
    use tidemill_core::{ByteSize, Millis};

    use super::*;

    #[test]
    fn bounds_are_told_with_their_defaults() {
        let mut spec = JobSpec::new("true", []);
        assert_eq!(
            limits(&spec),
            "memory 7/8 of the host's, cpus all, processes 4096, disk 1/2 of the host's memory, \
             /dev/shm 1/2 of the host's memory, time without limit, log 64 MiB"
        );
        spec.limits.memory = Some(ByteSize::mib(512));
        assert!(limits(&spec).contains("/dev/shm 1/2 of the memory,"));
        spec.limits.shm = Some(ByteSize::mib(64));
        spec.limits.timeout = Some(Millis(30_000));
        let told = limits(&spec);
        for part in ["memory 512 MiB,", "/dev/shm 64 MiB,", "time 30 s,"] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(on_cancel(&spec), "SIGTERM, and the kill after 10 s");
        spec.stop_signal = "INT".parse().expect("the name of a signal");
        assert_eq!(on_cancel(&spec), "SIGINT, and the kill after 10 s");
    }
}
