//! What a job does not see of /proc: entries that leak, entries that write, and the figures of the
//! host that stand for the job's own limits.

use std::fs;

use tidemill_core::Limits;

/// Entries of /proc that show the kernel's or the host's inside. Reading them gives nothing.
pub(crate) const HIDDEN: &[&str] = &[
    "acpi",
    "asound",
    "buddyinfo",
    "cmdline",
    "config.gz",
    "diskstats",
    "driver",
    "execdomains",
    "interrupts",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "mdstat",
    "modules",
    "mtrr",
    "pagetypeinfo",
    "partitions",
    "sched_debug",
    "schedstat",
    "scsi",
    "slabinfo",
    "softirqs",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
    "zoneinfo",
];

/// Entries of /sys that show what identifies the host, or the inside of its kernel and firmware.
pub(crate) const HIDDEN_OF_SYS: &[&str] = &[
    "class/dmi",
    "devices/virtual/dmi",
    "devices/virtual/powercap",
    "firmware",
    "fs/bpf",
    "fs/pstore",
    "fs/selinux",
    "hypervisor",
    "kernel/debug",
    "kernel/notes",
    "kernel/security",
    "kernel/slab",
    "kernel/tracing",
    "kernel/vmcoreinfo",
];

/// Entries of /proc that change the host when written, for whoever the kernel lets.
pub(crate) const READ_ONLY: &[&str] = &["bus", "fs", "irq", "sys", "sysrq-trigger", "tty"];

/// Entries that are replaced: how many CPUs and how much memory the job has.
pub(crate) fn replacements(limits: &Limits) -> Vec<(&'static str, String)> {
    let mut list = Vec::new();
    let read = |name: &str| fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
    if let Some(cpus) = limits.cpus {
        let visible = cpus.visible() as usize;
        list.push(("cpuinfo", first_cpus(&read("cpuinfo"), visible)));
        list.push(("stat", first_cpu_times(&read("stat"), visible)));
    }
    if let Some(memory) = limits.memory {
        list.push(("meminfo", bounded_memory(&read("meminfo"), memory.0 / 1024)));
    }
    list
}

/// The first blocks of /proc/cpuinfo.
pub(crate) fn first_cpus(text: &str, count: usize) -> String {
    let blocks: Vec<&str> = text
        .split("\n\n")
        .filter(|block| !block.trim().is_empty())
        .collect();
    let mut kept = blocks
        .into_iter()
        .take(count)
        .collect::<Vec<_>>()
        .join("\n\n");
    kept.push_str("\n\n");
    kept
}

/// /proc/stat without the lines of further CPUs.
pub(crate) fn first_cpu_times(text: &str, count: usize) -> String {
    let is_further = |line: &str| {
        line.strip_prefix("cpu")
            .and_then(|rest| rest.split(' ').next())
            .and_then(|number| number.parse::<usize>().ok())
            .is_some_and(|number| number >= count)
    };
    text.lines()
        .filter(|line| !is_further(line))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// /proc/meminfo with a total (in KiB) of the limit, no more free than that, and no swap.
pub(crate) fn bounded_memory(text: &str, limit: u64) -> String {
    let mut result = String::new();
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let value: u64 = rest
            .trim()
            .trim_end_matches(" kB")
            .trim()
            .parse()
            .unwrap_or(0);
        let value = match name {
            "MemTotal" => limit.min(value),
            "SwapTotal" | "SwapFree" | "SwapCached" => 0,
            _ => value.min(limit),
        };
        let unit = if rest.ends_with("kB") { " kB" } else { "" };
        let line = format!("{:<16}{value:>8}{unit}\n", format!("{name}:"));
        result.push_str(&line);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_jobs_cpus_are_listed() {
        let info = "processor\t: 0\nmodel: a\n\nprocessor\t: 1\nmodel: a\n\n";
        assert_eq!(first_cpus(info, 1), "processor\t: 0\nmodel: a\n\n");
        let stat = "cpu  1 2\ncpu0 1 1\ncpu1 0 1\ncpu10 0 1\nintr 5\n";
        assert_eq!(first_cpu_times(stat, 1), "cpu  1 2\ncpu0 1 1\nintr 5\n");
    }

    #[test]
    fn what_is_limited_is_replaced() {
        let cpus = Some(tidemill_core::limits::CpuCount { thousandths: 500 });
        let memory = Some(tidemill_core::ByteSize::mib(1));
        let all: &[&str] = &["cpuinfo", "stat", "meminfo"];
        for (cpus, memory, expected) in [(None, None, &[][..]), (cpus, memory, all)] {
            let limits = Limits {
                cpus,
                memory,
                ..Limits::default()
            };
            let names: Vec<_> = replacements(&limits)
                .into_iter()
                .map(|(name, _)| name)
                .collect();
            assert_eq!(names, expected);
        }
    }

    #[test]
    fn memory_is_bounded_by_the_limit() {
        let text = "MemTotal:       24684092 kB\nMemFree:          900 kB\nSwapTotal:  5 kB\nHugePages_Total:       0\n";
        let bounded = bounded_memory(text, 1000);
        assert_eq!(
            bounded,
            "MemTotal:           1000 kB\nMemFree:             900 kB\nSwapTotal:             0 kB\nHugePages_Total:       0\n"
        );
    }
}
