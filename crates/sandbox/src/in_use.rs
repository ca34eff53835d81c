//! What the processes of a sandbox use, counted by process 1 where no control group counts it.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of a page, as /proc counts them.
const PAGE: u64 = 4096;

/// What all processes of this namespace use, but for process 1.
#[derive(Debug, Default)]
pub(crate) struct InUse {
    /// Processes and threads.
    pub(crate) tasks: u64,
    /// Bytes of memory: what processes have alone, what they share, and files in memory.
    pub(crate) bytes: u64,
    /// The process with the most of them, and how many.
    pub(crate) largest: Option<(i32, u64)>,
}

/// Looks at every process. `files` is how many bytes of files in memory there are.
///
/// What is shared is looked at in detail only where it could make the difference to the limit: the
/// kernel walks the tables of all pages for that. A mapped file in memory is both a file and shared, so
/// the larger of the two counts. A file in memory without a name (a memfd) counts for each process that
/// has it open, once; data in sockets and pipes is not seen.
pub(crate) fn in_use(files: u64, limit: Option<u64>) -> InUse {
    let mut all = InUse::default();
    let (mut alone, mut shared_at_most) = (0, 0);
    let mut processes = Vec::new();
    let mut seen = HashSet::new();
    for pid in processes_but_the_first() {
        let directory = PathBuf::from(format!("/proc/{pid}"));
        let text = fs::read_to_string(directory.join("statm")).unwrap_or_default();
        let (own, shared) = parse_statm(&text);
        // A directory has one link for its name, one for itself and one from each below it.
        let threads = fs::metadata(directory.join("task")).map_or(2, |task| task.nlink());
        all.tasks += threads.saturating_sub(2);
        let own = own + nameless_files(&directory, &mut seen);
        alone += own;
        shared_at_most += shared;
        processes.push((pid, directory, own, shared));
    }
    let files = files + system_v();
    let in_detail = limit.is_some_and(|limit| alone + files + shared_at_most > limit);
    let mut shared_memory = 0;
    for (pid, directory, own, shared) in processes {
        let mut bytes = own;
        if in_detail && shared > 0 {
            let part = share_of_shared_memory(&directory);
            shared_memory += part;
            bytes += part;
        }
        if all.largest.is_none_or(|(_, most)| bytes > most) {
            all.largest = Some((pid, bytes));
        }
    }
    all.bytes = alone + shared_memory.max(files);
    all
}

/// Bytes of the files in memory without a name that a process has open and none before it had.
fn nameless_files(process: &Path, seen: &mut HashSet<(u64, u64)>) -> u64 {
    const BLOCK: u64 = 512;
    let mut bytes = 0;
    let entries = fs::read_dir(process.join("fd"));
    for entry in entries.into_iter().flatten().flatten() {
        let is_nameless = fs::read_link(entry.path()).is_ok_and(|target| {
            target
                .as_os_str()
                .as_encoded_bytes()
                .starts_with(b"/memfd:")
        });
        if is_nameless
            && let Ok(metadata) = fs::metadata(entry.path())
            && seen.insert((metadata.dev(), metadata.ino()))
        {
            bytes += metadata.blocks() * BLOCK;
        }
    }
    bytes
}

/// Bytes of System V shared memory and messages in this namespace, whoever has them.
fn system_v() -> u64 {
    let read = |name: &str| fs::read_to_string(format!("/proc/sysvipc/{name}")).unwrap_or_default();
    column(&read("shm"), "rss") + column(&read("msg"), "cbytes")
}

/// Adds up a column of a table whose first line names its columns.
fn column(table: &str, name: &str) -> u64 {
    let mut lines = table.lines();
    let index = lines
        .next()
        .and_then(|names| names.split_whitespace().position(|column| column == name));
    let Some(index) = index else { return 0 };
    lines
        .filter_map(|line| line.split_whitespace().nth(index)?.parse::<u64>().ok())
        .sum()
}

fn processes_but_the_first() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != 1)
}

/// Resident bytes that a process has alone, and those that others may have too.
pub(crate) fn parse_statm(text: &str) -> (u64, u64) {
    let mut pages = text
        .split(' ')
        .skip(1)
        .map(|field| field.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    (
        resident.saturating_sub(shared).saturating_mul(PAGE),
        shared.saturating_mul(PAGE),
    )
}

/// A process's part of the shared memory that it has mapped: each page divided by who maps it. The
/// pages of programs and libraries are not among them.
fn share_of_shared_memory(process: &Path) -> u64 {
    let text = fs::read_to_string(process.join("smaps_rollup")).unwrap_or_default();
    parse_share(&text)
}

pub(crate) fn parse_share(text: &str) -> u64 {
    const KIB: u64 = 1024;
    text.lines()
        .find_map(|line| line.strip_prefix("Pss_Shmem:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok())
        .map_or(0, |kib| kib.saturating_mul(KIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statm_tells_what_is_shared() {
        assert_eq!(parse_statm("900 30 10 5 0 40 0\n"), (20 * PAGE, 10 * PAGE));
        assert_eq!(parse_statm(""), (0, 0));
        assert_eq!(parse_statm("9 1 2"), (0, 2 * PAGE));
        let largest = format!("9 0 {}", u64::MAX);
        assert_eq!(parse_statm(&largest), (0, u64::MAX));
    }

    #[test]
    fn a_column_is_found_by_its_name() {
        let table = " key shmid perms   size  cpid rss  swap\n 0 1 600  4096 7 4096 0\n 0 2 600 9 7 100 0\n";
        assert_eq!(column(table, "rss"), 4196);
        assert_eq!(column(table, "cbytes"), 0);
        assert_eq!(column("", "rss"), 0);
    }

    #[test]
    fn only_shared_memory_counts_of_a_rollup() {
        let text = "00400000-7fff00000000 ---p 00000000 00:00 0  [rollup]\n\
                    Rss:  5000 kB\nPss_Anon:  17 kB\nPss_File:  40 kB\nPss_Shmem:     512 kB\n";
        assert_eq!(parse_share(text), 512 * 1024);
        assert_eq!(parse_share("Rss: 1 kB\n"), 0);
        let largest = format!("Pss_Shmem: {} kB\n", u64::MAX);
        assert_eq!(parse_share(&largest), u64::MAX);
    }
}
