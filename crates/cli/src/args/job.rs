//! The flags that describe a job. Their values are texts here; the check reads them all, so that
//! every mistake is shown at once.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use tidemill_core::Millis;
use tidemill_core::limits::parse_duration;

use super::grant_names::GrantNames;

/// What `run` takes.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,

    /// Time until its layers are unpacked, such as 30s or 10m [default: 1h]
    ///
    /// It is no part of --timeout, which begins when the program starts.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Limits")]
    pub(crate) prepare_timeout: Option<Millis>,

    /// Write the record of the execution into this file, in one step, when it has ended
    ///
    /// The file is written too when the job could not be started; then it says why.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Record")]
    pub(crate) result_file: Option<PathBuf>,
}

/// What `explain` takes.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
}

/// A job, as flags.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    /// The root file system: host, none, dir:PATH, tar:PATH or oci:REF [default: host]
    ///
    /// `host` is this machine's own /usr, /etc and tools, read-only and without its secrets; `none` is
    /// empty; `dir:` and `tar:` are a directory or an archive (plain, gzip, zstd, xz) of a whole system;
    /// `oci:` is an image of a registry, such as oci:debian:12, whose own environment, user, working
    /// directory, entry point and command count where the job says nothing else.
    #[arg(long, value_name = "IMAGE", help_heading = "What the job sees")]
    pub(crate) image: Option<String>,

    /// Which of an OCI image's platforms, such as linux/arm64 [default: this machine's]
    #[arg(long, value_name = "OS/ARCH", help_heading = "What the job sees")]
    pub(crate) platform: Option<String>,

    /// Take an OCI image only at the digest that `tidemill.lock` in the workspace has for it
    ///
    /// Where that file is, jobs use what it has anyway, and add what it has not. `image pull --lock` makes it,
    /// `image pull` renews its entries.
    #[arg(long, help_heading = "What the job sees")]
    pub(crate) locked: bool,

    /// Lay files over the image; may be given several times, later ones over earlier ones
    ///
    /// `dir:SRC[=DEST]` a directory, `file:SRC=DEST` one file, `glob:PATTERN[=DEST]` what a pattern
    /// matches, `tar:SRC[=DEST]` an archive (plain, gzip, zstd, xz), `stubs:PATH` an empty file, or with
    /// a `/` at the end a directory (`{a,b}` for several), `symlinks:TARGET=LINK` a link,
    /// `shared-libs:BINARY[=DEST]` the libraries that a program loads, `command:SCRIPT` what a script
    /// leaves in /layer, where it starts, `oci:REF[=DEST]` the files of a container image. DEST is a path in the
    /// sandbox, `/` if left out.
    ///
    /// Options stand between kind and colon, as in `tar,strip=DIR,canonical:SRC`: `canonical`,
    /// `owner=UID[.GID]`, `mode=normal|OCTAL` and `mtime=SECONDS` say what its files become, `strip=DIR`
    /// takes leading directories off (tar, glob, oci), `exclude=PATTERN` leaves out (glob), `platform=OS/ARCH`
    /// chooses (oci).
    #[arg(
        long = "layer",
        value_name = "SPEC",
        help_heading = "What the job sees"
    )]
    pub(crate) layers: Vec<String>,

    /// The directory that the job works in [default: the one you stand in]
    ///
    /// It has the same path in the sandbox. The job writes a private copy-on-write layer over it.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(help_heading = "What the job sees")]
    pub(crate) workspace: Option<String>,

    /// Give the job no such directory
    #[arg(long, help_heading = "What the job sees")]
    pub(crate) no_workspace: bool,

    /// Let the job write the real directory; --disk does not bound what it writes there
    #[arg(long, help_heading = "What the job sees")]
    pub(crate) write: bool,

    /// Where the program starts, relative to the workspace unless absolute [default: the workspace]
    #[arg(long, value_name = "PATH", help_heading = "What the job sees")]
    pub(crate) workdir: Option<String>,

    /// Set a variable; may be given several times
    #[arg(
        long = "env",
        value_name = "NAME=VALUE",
        help_heading = "What the job sees"
    )]
    pub(crate) env: Vec<String>,

    /// Pass a variable of your environment on; may be given several times
    #[arg(
        long = "pass-env",
        value_name = "NAME",
        help_heading = "What the job sees"
    )]
    pub(crate) pass_env: Vec<String>,

    /// The network: none (a loopback of its own) or host [default: none]
    #[arg(long, value_name = "NET", help_heading = "What the job sees")]
    pub(crate) net: Option<String>,

    /// Give the job something that others do not get; may be given several times
    ///
    /// `userns` user namespaces, `ptrace` (every job may trace its own processes), `fuse` /dev/fuse and
    /// its mounts, `kvm` /dev/kvm, `sys` a read-only /sys, `root` root's rights over the job's files and ids
    /// for --user 0, `device:PATH` a character device, `net:host` as --net host, `bind:SRC:DEST[:rw]` a directory or file as it is on the host, read-only without
    /// `rw`. `tidemill explain` says what each of them opens.
    #[arg(
        long = "grant",
        value_name = "NAME",
        value_parser = GrantNames,
        hide_possible_values = true,
        help_heading = "What the job sees"
    )]
    pub(crate) grants: Vec<String>,

    /// Memory of all its processes together, such as 512MiB [default: 7/8 of this machine's]
    ///
    /// The files that it writes are in memory too and count, unless --disk is more than half of this
    /// machine's memory.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(crate) memory: Option<String>,

    /// CPU time per wall time, such as 1.5 [default: all CPUs]
    ///
    /// Without root it takes a control group of your own; `tidemill doctor` says how to get one.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) cpus: Option<String>,

    /// Processes and threads at one time [default: 4096]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) pids: Option<String>,

    /// Bytes that it may write, such as 1GiB [default: half of this machine's memory]
    ///
    /// They are in memory and count towards --memory as well; more than half of this machine's memory
    /// goes to the disk of the state directory. What is written for real (--write, `bind:…:rw`) is not
    /// bounded.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(crate) disk: Option<String>,

    /// Bytes in /dev/shm, such as 256MiB, no more than --memory [default: half of the memory]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(crate) shm: Option<String>,

    /// Open files of one process [default: 65536]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) open_files: Option<String>,

    /// Time from the program's start to its end, such as 30s, 1h30m or 90 (seconds) [default: no limit]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(crate) timeout: Option<String>,

    /// The signal that asks it to end, such as INT [default: TERM]
    ///
    /// All its processes get it when it is cancelled. A name with or without SIG, or a number; the kill
    /// follows after --grace. A time limit kills at once.
    #[arg(long, value_name = "SIGNAL", help_heading = "Limits")]
    pub(crate) stop_signal: Option<String>,

    /// Time between that signal and the kill [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(crate) grace: Option<String>,

    /// Bytes of output that are kept, half from the beginning and half from the end [default: 64MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub(crate) log_limit: Option<String>,

    /// Run this before PROGRAM and its arguments, instead of an OCI image's own entry point
    ///
    /// An empty text runs PROGRAM itself.
    #[arg(long, value_name = "PROGRAM", help_heading = "How it runs")]
    pub(crate) entrypoint: Option<String>,

    /// Who the program is in the sandbox, by number, or by a name that the image has
    ///
    /// User 0 (or `root`) is root by name and has no capabilities: chown, su and package managers that
    /// change users do not work without --grant root.
    #[arg(long, value_name = "USER[:GROUP]", help_heading = "How it runs")]
    pub(crate) user: Option<String>,

    /// Pass your standard input on; without it, the job's is empty
    #[arg(long, help_heading = "How it runs")]
    pub(crate) stdin: bool,

    /// Give the job a terminal, and pass your keys on to it
    #[arg(long, help_heading = "How it runs")]
    pub(crate) tty: bool,

    /// A name, by which `show`, `logs`, `cancel` and the others find it again
    #[arg(long, value_name = "NAME", help_heading = "Record")]
    pub(crate) name: Option<String>,

    /// A label, for finding it again; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", help_heading = "Record")]
    pub(crate) labels: Vec<String>,

    /// Read the job from a JSON file, or from standard input with `-`; flags go over what it says
    ///
    /// Relative paths in the file start from the directory that it is in. `tidemill schema job` prints
    /// what may stand in it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "How it runs")]
    pub(crate) file: Option<PathBuf>,

    /// The program and its arguments; everything after the program belongs to it
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
}
