//! The processes of this machine, as /proc tells them.

use std::fs;
use std::path::PathBuf;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent's number.
    pub parent: i32,
    /// Its name.
    pub name: String,
    /// Its state: `R`, `S`, `Z` and so on.
    pub state: char,
    /// Its program, where that can be read.
    pub program: Option<PathBuf>,
    /// Program and arguments, separated by NUL.
    pub command: Vec<u8>,
    /// The variables that it was started with, separated by NUL, where they can be read.
    pub environment: Vec<u8>,
}

/// All processes that there are now.
pub fn processes() -> Vec<Process> {
    fs::read_dir("/proc")
        .expect("/proc is mounted")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(read)
        .collect()
}

/// The processes that descend from one.
pub fn children_of(pid: i32) -> Vec<Process> {
    let all = processes();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|process| process.parent == parent) {
            parents.push(child.pid);
            found.push(child.clone());
        }
    }
    found
}

/// The most memory that a process ever had resident, in bytes. `None` if it is gone.
pub fn peak_memory(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().ok()?;
    Some(kib * 1024)
}

fn read(pid: i32) -> Option<Process> {
    // `pid (name) state parent …`, where the name may hold spaces and parentheses.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let mut fields = tail.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let bytes = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    Some(Process {
        pid,
        parent,
        name,
        state,
        program: fs::read_link(format!("/proc/{pid}/exe")).ok(),
        command: bytes("cmdline"),
        environment: bytes("environ"),
    })
}
