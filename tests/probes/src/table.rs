//! All cases: what each is called, what it tries, and who judges it.

use crate::cases::{
    calls, descriptors, disk, host_files, identity, ipc, kernel_memory, lifecycle, memory, mounts,
    network, output, proc_files,
};
use crate::verdict::Verdict;

/// One thing that a job must not be able to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// The subcommand, and the name of its test.
    pub(crate) name: &'static str,
    /// What it tries, for the table of the README.
    pub(crate) tries: &'static str,
    pub(crate) run: fn() -> Verdict,
}

const fn case(name: &'static str, tries: &'static str, run: fn() -> Verdict) -> Case {
    Case { name, tries, run }
}

/// The heading of a group of cases, and the cases.
pub(crate) const GROUPS: &[(&str, &[Case])] = &[
    ("Identity and privileges", IDENTITY),
    ("System calls", CALLS),
    ("Mounts, devices, /proc and /sys", KERNEL_FILES),
    ("Descriptors and limits", DESCRIPTORS),
    ("Files, secrets and names of the host", HOST),
    ("What processes share", SHARED),
    ("Network", NETWORK),
    ("Life and death", LIFE),
    ("Exhaustion", EXHAUSTION),
    ("Memory of the kernel", KERNEL_MEMORY),
    ("Output", OUTPUT),
];

const IDENTITY: &[Case] = &[
    case(
        "state",
        "no_new_privs, the filter and all five sets of capabilities",
        identity::state,
    ),
    case(
        "host_root",
        "being the owner of what belongs to the host's root",
        identity::host_root,
    ),
    case(
        "set_id_programs",
        "set-id programs and file capabilities that would take effect",
        identity::set_id_programs,
    ),
    case(
        "set_id_files",
        "making set-id files in a real directory, twelve ways",
        identity::set_id_files,
    ),
    case(
        "set_user_files",
        "making set-user-id files in a private layer, eleven ways",
        identity::set_user_files,
    ),
    case(
        "privileged_attributes",
        "file capabilities and trusted attributes",
        identity::privileged_attributes,
    ),
    case(
        "user_namespace",
        "a user namespace by unshare, clone and clone3",
        identity::user_namespace,
    ),
    case(
        "other_namespaces",
        "every other namespace by unshare and clone",
        identity::other_namespaces,
    ),
    case(
        "setns",
        "entering namespaces by /proc and by process descriptor",
        identity::setns,
    ),
    case(
        "unshare_tool",
        "the same with the tool that a job has",
        identity::unshare_tool,
    ),
];

const CALLS: &[Case] = &[
    case(
        "terminal_injection",
        "typing into a terminal, with request numbers of all widths",
        calls::terminal_injection,
    ),
    case(
        "controlling_terminal",
        "a terminal of the caller: descriptors and /dev/tty",
        calls::controlling_terminal,
    ),
    case("io_uring", "io_uring", calls::io_uring),
    case(
        "userfaultfd",
        "userfaultfd, the call and the device",
        calls::userfaultfd,
    ),
    case("bpf", "maps and programs of bpf", calls::bpf),
    case("perf_event", "performance counters", calls::perf_event),
    case(
        "keyring",
        "keyrings of session and user, making and asking for keys",
        calls::keyring,
    ),
    case(
        "kernel_surface",
        "thirty calls that no job needs",
        calls::kernel_surface,
    ),
    case(
        "refusals_are_errors",
        "whether a refused call is an error and not a kill",
        calls::refusals_are_errors,
    ),
    case("foreign_abi", "32-bit and x32 calls", calls::foreign_abi),
    case(
        "argument_width",
        "bits above the 32 that the kernel looks at",
        calls::argument_width,
    ),
    case(
        "new_numbers",
        "numbers from 440 to 600 beyond the reviewed ones",
        calls::new_numbers,
    ),
    case("personality", "execution domains", calls::personality),
    case(
        "scheduling",
        "real time, priority, and the out-of-memory score",
        calls::scheduling,
    ),
    case(
        "file_handles",
        "opening files by handle",
        calls::file_handles,
    ),
    case("other_root", "chroot and pivot_root", calls::other_root),
];

const KERNEL_FILES: &[Case] = &[
    case(
        "mount",
        "mounting and unmounting, by old calls and new",
        mounts::mount,
    ),
    case(
        "mount_flags",
        "mounts without nosuid or nodev",
        mounts::mount_flags,
    ),
    case("make_device", "making device nodes", mounts::make_device),
    case(
        "device_nodes",
        "opening every device in /dev",
        mounts::device_nodes,
    ),
    case(
        "proc_read",
        "what /proc tells of kernel and host",
        proc_files::proc_read,
    ),
    case(
        "proc_write",
        "every file of /proc that opens for writing",
        proc_files::proc_write,
    ),
    case(
        "sys_tree",
        "/sys, control groups, debug and firmware trees",
        proc_files::sys_tree,
    ),
    case(
        "keeper_files",
        "program, root, environment, descriptors and memory of process 1 and the parent",
        proc_files::keeper_files,
    ),
    case(
        "trace_keepers",
        "tracing them, and taking their descriptors",
        proc_files::trace_keepers,
    ),
];

const DESCRIPTORS: &[Case] = &[
    case(
        "leaked_descriptors",
        "what the launcher had open",
        descriptors::leaked_descriptors,
    ),
    case(
        "working_directory",
        "a working directory outside of the root",
        descriptors::working_directory,
    ),
    case(
        "parent_walk",
        "`..` from every directory that can be reached",
        descriptors::parent_walk,
    ),
    case(
        "self_interpreter",
        "scripts whose interpreter is the running program",
        descriptors::self_interpreter,
    ),
    case(
        "descriptor_bomb",
        "more descriptors than allowed, and a higher limit",
        descriptors::descriptor_bomb,
    ),
    case(
        "hard_limits",
        "limits that are infinite or can be raised",
        descriptors::hard_limits,
    ),
];

const HOST: &[Case] = &[
    case(
        "host_file",
        "a file and a socket of the host, by nine kinds of access",
        host_files::host_file,
    ),
    case(
        "control_sockets",
        "sockets that rule a host, and variables that lead there",
        host_files::control_sockets,
    ),
    case(
        "host_writes",
        "files and directories in two dozen places",
        host_files::host_writes,
    ),
    case(
        "host_identity",
        "serial numbers, names and ids of the host",
        host_files::host_identity,
    ),
    case(
        "environment_secrets",
        "the launcher's environment",
        host_files::environment_secrets,
    ),
    case(
        "argument_secrets",
        "arguments of the host's processes",
        host_files::argument_secrets,
    ),
    case(
        "resolver",
        "the host's resolver, and accounts of proxies",
        host_files::resolver,
    ),
    case(
        "plant_traps",
        "files that git, cargo, a shell or Tidemill could obey",
        host_files::plant_traps,
    ),
    case(
        "plant_attributes",
        "attributes that overlays obey, forged in a real directory",
        host_files::plant_attributes,
    ),
];

const SHARED: &[Case] = &[
    case(
        "system_v",
        "shared memory, messages and semaphores of the host",
        ipc::system_v,
    ),
    case(
        "neighbour_leaves",
        "leaves something for a neighbour in ten places",
        ipc::neighbour_leaves,
    ),
    case(
        "neighbour_looks",
        "looks for what a neighbour left",
        ipc::neighbour_looks,
    ),
];

const NETWORK: &[Case] = &[
    case(
        "network",
        "loopback and abstract sockets of the host, interfaces and routes",
        network::network,
    ),
    case(
        "socket_families",
        "three dozen families and protocols",
        network::socket_families,
    ),
    case(
        "other_transports",
        "datagrams, multipath and fast open to the host's loopback",
        network::other_transports,
    ),
    case(
        "metadata_services",
        "routes to where clouds hand out credentials",
        network::metadata_services,
    ),
    case(
        "open_port",
        "a port that the host or a neighbour could reach",
        network::open_port,
    ),
];

const LIFE: &[Case] = &[
    case("orphan", "somebody who stays behind", lifecycle::orphan),
    case(
        "held_output",
        "somebody who stays behind with the output open",
        lifecycle::held_output,
    ),
    case(
        "stays",
        "a job that is deaf, when its runner dies",
        lifecycle::stays,
    ),
    case(
        "stubborn",
        "waiting in opens and vforks at the time limit",
        lifecycle::stubborn,
    ),
    case(
        "signals_to_all",
        "signals to its group, to everybody and to process 1",
        lifecycle::signals_to_all,
    ),
    case(
        "signals_out",
        "seeing and signalling a process of the host",
        lifecycle::signals_out,
    ),
    case("core_dump", "core dumps", lifecycle::core_dump),
];

const EXHAUSTION: &[Case] = &[
    case(
        "fork_bomb",
        "more processes than allowed",
        lifecycle::fork_bomb,
    ),
    case(
        "thread_bomb",
        "more threads than allowed",
        lifecycle::thread_bomb,
    ),
    case(
        "session_loop",
        "a chain of processes, each in a session of its own",
        lifecycle::session_loop,
    ),
    case(
        "cpu_share",
        "more CPU time than allowed",
        lifecycle::cpu_share,
    ),
    case(
        "private_memory",
        "memory of its own",
        memory::private_memory,
    ),
    case(
        "nameless_file",
        "a memfd that is written and never mapped",
        memory::nameless_file,
    ),
    case(
        "shared_segments",
        "System V shared memory",
        memory::shared_segments,
    ),
    case(
        "detached_segments",
        "the same that nobody has attached",
        memory::detached_segments,
    ),
    case(
        "shared_memory_files",
        "files in /dev/shm",
        memory::shared_memory_files,
    ),
    case(
        "shared_memory_names",
        "empty files in /dev/shm",
        disk::shared_memory_names,
    ),
    case("temporary_files", "files in /tmp", memory::temporary_files),
    case("pipes", "pipes that nobody reads", memory::pipes),
    case(
        "socket_buffers",
        "sockets that nobody reads",
        memory::socket_buffers,
    ),
    case(
        "messages",
        "System V messages that nobody receives",
        memory::messages,
    ),
    case("timers", "timers, each with a signal", memory::timers),
    case(
        "disk_bomb",
        "one big file in every writable place",
        disk::disk_bomb,
    ),
    case(
        "inode_bomb",
        "many files in every writable place",
        disk::inode_bomb,
    ),
    case(
        "deep_tree",
        "a tree that is deeper than any path",
        disk::deep_tree,
    ),
    case(
        "many_names",
        "200,000 names in one directory",
        disk::many_names,
    ),
    case(
        "undeletable",
        "closed directories, odd names, pipes and loops",
        disk::undeletable,
    ),
    case("sparse_file", "a hole of a TiB", disk::sparse_file),
];

const KERNEL_MEMORY: &[Case] = &[
    case(
        "epoll_trees",
        "epoll instances that watch each other and many files",
        kernel_memory::epoll_trees,
    ),
    case(
        "descriptors_in_flight",
        "descriptors that were sent and that nobody receives",
        kernel_memory::descriptors_in_flight,
    ),
    case(
        "queued_signals",
        "signals that nobody lets in",
        kernel_memory::queued_signals,
    ),
    case(
        "semaphores",
        "sets of System V semaphores",
        kernel_memory::semaphores,
    ),
    case(
        "page_tables",
        "tables for pages that are all the same one",
        kernel_memory::page_tables,
    ),
    case(
        "missing_names",
        "names of missing files, which the kernel remembers",
        kernel_memory::missing_names,
    ),
    case(
        "page_cache",
        "a large file that is read",
        kernel_memory::page_cache,
    ),
    case(
        "watch_instances",
        "all of a user's inotify instances",
        kernel_memory::watch_instances,
    ),
    case(
        "datagram_buffers",
        "UDP sockets that nobody reads",
        kernel_memory::datagram_buffers,
    ),
    case(
        "stream_buffers",
        "TCP connections that nobody reads",
        kernel_memory::stream_buffers,
    ),
    case(
        "huge_pages",
        "huge pages, which no limit counts",
        kernel_memory::huge_pages,
    ),
];

const OUTPUT: &[Case] = &[
    case(
        "output_flood",
        "lines without end, as fast as they are taken",
        output::output_flood,
    ),
    case(
        "output_drops",
        "one byte at a time, to both streams in turn",
        output::output_drops,
    ),
    case(
        "output_noise",
        "bytes that are no text",
        output::output_noise,
    ),
    case(
        "output_after_close",
        "somebody who goes on to write after the close",
        output::output_after_close,
    ),
];

/// The case with this name.
pub(crate) fn find(name: &str) -> Option<&'static Case> {
    let mut all = GROUPS.iter().flat_map(|(_, cases)| *cases);
    all.find(|case| case.name == name)
}

/// The table of the README.
pub(crate) fn markdown() -> String {
    let mut text = String::new();
    for (heading, cases) in GROUPS {
        text.push_str(&["### ", heading, "\n\n| case | tries |\n|---|---|\n"].concat());
        for case in *cases {
            text.push_str(&["| `", case.name, "` | ", case.tries, " |\n"].concat());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_there_once() {
        let names: Vec<_> = GROUPS
            .iter()
            .flat_map(|(_, cases)| *cases)
            .map(|case| case.name)
            .collect();
        let different: BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), different.len());
    }

    #[test]
    fn the_readme_has_this_table() {
        let readme = include_str!("../README.md");
        let table = markdown();
        assert!(
            readme.contains(table.trim_end()),
            "paste this into README.md:\n{table}"
        );
    }
}
