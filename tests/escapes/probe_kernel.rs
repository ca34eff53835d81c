//! System calls, mounts, devices, /proc and /sys.

use crate::cases;

/// Runs at a terminal that is the controlling one.
const AT_A_TERMINAL: &str = r#"
line=
for word; do line="$line '$word'"; done
exec script -qefc "$line" /dev/null
"#;

cases! {
    terminal_injection;
    controlling_terminal => |probe| probe.around(super::AT_A_TERMINAL);
    io_uring;
    userfaultfd;
    bpf;
    perf_event;
    keyring;
    kernel_surface;
    refusals_are_errors;
    foreign_abi;
    argument_width;
    new_numbers;
    personality;
    scheduling;
    file_handles;
    other_root;
    mount;
    mount_flags;
    make_device;
    device_nodes;
    proc_read;
    proc_write;
    sys_tree;
    keeper_files;
    trace_keepers;
}
