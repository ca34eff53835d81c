//! What a job can do with a grant, and cannot do without: each grant is tried as the programs that need
//! it use it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rstest::rstest;
use tidemill_tests::{Mode, World, has_program, skip};

/// True if a job of this mode can be given a device here: it is there, and its user may use it.
fn can_grant(world: &World, path: &str) -> bool {
    let Ok(metadata) = fs::metadata(path) else {
        skip(&format!("{path} is missing"));
        return false;
    };
    let is_open = metadata.mode() & 0o006 == 0o006;
    if world.mode() != Mode::Root && !is_open && metadata.uid() != world.account().uid {
        skip(&format!("{} may not use {path}", world.account().name));
        return false;
    }
    true
}

fn needs(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|name| !has_program(name));
    if let Some(name) = missing {
        skip(&format!("{name} is missing"));
    }
    missing.is_none()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn user_namespaces_are_made_with_their_grant_alone(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !needs(&["unshare", "mount"]) {
        return;
    }
    let text = "unshare -Ur sh -c 'id -u' 2>/dev/null || echo refused; \
                unshare -Urmpfin sh -c 'mount -t tmpfs none /mnt && echo $$' 2>/dev/null \
                    || echo refused";
    let plain = world.job(text).run();
    assert_eq!(plain.out(), "refused\nrefused\n", "{plain}");
    assert!(plain.record().warnings().contains(&"refused"), "{plain}");
    let granted = world.job(text).args(["--grant", "userns"]).run();
    assert_eq!(
        (granted.code, granted.out().as_str()),
        (0, "0\n1\n"),
        "{granted}"
    );
}

/// Root by name gives away no file and becomes nobody else; with the grant it does, and nothing more.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn root_rights_are_had_with_their_grant_alone(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !needs(&["setpriv", "mknod", "mount", "chroot"]) {
        return;
    }
    let text = "cd /tmp; touch mine; chown 12:34 mine 2>/dev/null; stat -c %u:%g mine; \
                (umask 077; echo secret >theirs; chown 77:77 theirs 2>/dev/null; cat theirs); \
                setpriv --reuid 4000 --regid 4001 --clear-groups sh -c 'echo $(id -u):$(id -g)' 2>/dev/null; \
                for refused in 'mount -t tmpfs none /mnt' 'chroot / true' 'mknod node c 1 3' \
                    'unshare -U true' 'nice -n -5 sh -c \"[ $(nice) -lt 0 ]\"'; do \
                    eval \"$refused\" 2>/dev/null && echo did \"$refused\"; done; \
                grep -c 'Cap...:.*[1-9a-f]' /proc/self/status; \
                setpriv --reuid 4000 --clear-groups cat theirs 2>/dev/null; echo end";
    let as_root = ["--user", "0", "--no-workspace"];
    let plain = world.job(text).args(as_root).run();
    assert_eq!(plain.out(), "0:0\nsecret\n0\nend\n", "{plain}");
    let granted = world.job(text).args(as_root).args(["--grant", "root"]);
    let granted = granted.run();
    assert_eq!(
        granted.out(),
        "12:34\nsecret\n4000:4001\n3\nend\n",
        "{granted}"
    );
    let record = serde_json::to_string(&granted.record().0).unwrap();
    assert!(record.contains("root's rights over all files"), "{granted}");
    let other = world.job("true").args(["--user", "7", "--grant", "root"]);
    let other = other.run();
    assert_eq!(other.code, 125, "{other}");
    assert!(other.err().contains("add `--user 0`"), "{other}");
}

/// Whoever has a namespace of control groups may mount them: a job must not lift its own limits.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn control_groups_stay_out_of_reach(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !needs(&["unshare", "mount"]) {
        return;
    }
    let text = "for kind in cgroup2 'cgroup -o memory' 'cgroup -o pids' 'cgroup -o cpu'; do \
            unshare -UrmC sh -c \"mount -t $kind none /mnt || exit 0; cd /mnt; \
                for file in memory.max memory.memsw.limit_in_bytes pids.max cgroup.freeze; do \
                    [ -e \\$file ] && echo 1 > \\$file && echo changed \\$file; done; \
                mkdir below && echo made a group; true\" 2>/dev/null; \
        done; true";
    let done = world.job(text).args(["--grant", "userns"]).run();
    assert_eq!((done.code, done.out().as_str()), (0, ""), "{done}");
}

/// In a user namespace of its own, a job is root over nothing of the host's.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_with_user_namespaces_is_still_walled_in(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !needs(&["unshare", "mount", "umount"]) {
        return;
    }
    world.write("file", "as before\n");
    let text = "unshare -Urm sh -c '\
        mount -o remount,rw /usr && echo remounted /usr; \
        (echo x > /usr/bin/tidemill-was-here) && echo wrote /usr; \
        umount /etc && echo uncovered /etc; \
        umount /proc && echo uncovered /proc; \
        test -s /etc/shadow && echo read shadow; \
        mount -t proc none /mnt && echo mounted a /proc without covers; \
        mknod /tmp/null c 1 3 && cat /tmp/null && echo made a device; \
        mount -t devtmpfs none /mnt && echo saw every device; \
        mount -t sysfs none /mnt && echo mounted /sys; \
        mount -t cgroup2 none /mnt && mkdir /mnt/x && echo made a group; \
        mount -t debugfs none /mnt && echo mounted debugfs; \
        chroot /proc/1/root true && echo entered process 1; \
        echo changed > file; true' 2>/dev/null; cat file";
    let done = world.job(text).args(["--grant", "userns"]).run();
    assert_eq!(done.out(), "changed\n", "{done}");
    let file = fs::read_to_string(world.work().join("file")).unwrap();
    assert_eq!(
        file, "as before\n",
        "the workspace is a private layer all the same"
    );
    assert!(!Path::new("/usr/bin/tidemill-was-here").exists());
}

/// A file system in memory that the job mounts itself counts as the job's memory.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn limits_hold_for_a_job_with_user_namespaces(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !needs(&["unshare", "dd"]) {
        return;
    }
    if !world.doctor().has("cgroup-memory") {
        skip("no control group bounds the memory of this user's jobs");
        return;
    }
    let text = "unshare -Urm sh -c 'mount -t tmpfs -o size=1g none /mnt && \
                dd if=/dev/zero of=/mnt/x bs=1M count=512 2>/dev/null && echo wrote it all'";
    let done = world
        .job(text)
        .args(["--grant", "userns", "--memory", "128MiB"])
        .run();
    assert!(!done.out().contains("wrote it all"), "{done}");
    assert_ne!(done.code, 0, "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn sys_is_there_with_its_grant_alone_and_read_only(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "[ -e /sys/devices ] && echo there; \
                cat /sys/devices/system/cpu/online; \
                for path in /sys/power/state /sys/kernel/mm/transparent_hugepage/enabled \
                            /sys/devices/system/cpu/cpu0/online; do \
                    sh -c \"echo x > $path\" 2>/dev/null && echo wrote $path; done; \
                ls -A /sys/kernel/debug /sys/kernel/tracing /sys/kernel/security /sys/firmware \
                      /sys/fs/cgroup /sys/fs/bpf 2>/dev/null | grep -v '^/\\|^$'; \
                mkdir /sys/fs/cgroup/x 2>/dev/null && echo made a group; true";
    let plain = world.job(text).run();
    assert_eq!((plain.code, plain.out().as_str()), (0, ""), "{plain}");
    let done = world.job(text).args(["--grant", "sys"]).run();
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    assert_eq!(done.out(), format!("there\n{online}"), "{done}");
}

/// With a network of its own, /sys shows the interfaces of that one.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn sys_tells_nothing_of_the_hosts_network(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world
        .job("ls /sys/class/net")
        .args(["--grant", "sys"])
        .run();
    assert!(matches!(done.out().as_str(), "" | "lo\n"), "{done}");
}

const USES: [(&str, &str, &str); 3] = [
    (
        "kvm",
        "/dev/kvm",
        // KVM_GET_API_VERSION, KVM_CREATE_VM
        "import fcntl, os; fd = os.open('/dev/kvm', os.O_RDWR); \
         assert fcntl.ioctl(fd, 0xAE00) == 12; \
         assert fcntl.ioctl(fd, 0xAE01, 0) >= 0; print('used')",
    ),
    (
        "fuse",
        "/dev/fuse",
        "import os; os.open('/dev/fuse', os.O_RDWR); print('used')",
    ),
    (
        "device:/dev/net/tun",
        "/dev/net/tun",
        // TUNGETFEATURES needs no privilege.
        "import fcntl, os, struct; fd = os.open('/dev/net/tun', os.O_RDWR); \
         fcntl.ioctl(fd, 0x800454cf, struct.pack('I', 0)); print('used')",
    ),
];

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_device_can_be_used_with_its_grant_alone(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !needs(&["python3"]) {
        return;
    }
    for (grant, path, text) in USES {
        let plain = world.program(["python3", "-c", text]).run();
        assert!(plain.code != 0 && !plain.out().contains("used"), "{plain}");
        if !can_grant(&world, path) {
            continue;
        }
        let done = world
            .program(["python3", "-c", text])
            .args(["--grant", grant])
            .run();
        assert_eq!((done.code, done.out().as_str()), (0, "used\n"), "{done}");
        // One grant is no other.
        let listed = world
            .job("ls /dev /dev/net 2>/dev/null | grep -x 'kvm\\|fuse\\|tun'; true")
            .args(["--grant", grant])
            .run();
        let name = path.rsplit('/').next().unwrap();
        assert_eq!(listed.out(), format!("{name}\n"), "{listed}");
    }
}

/// A device on the host stays as it is: its mode, its owner, its very inode.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_granted_device_is_not_changed_on_the_host(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let (grant, path, _) = USES[2];
    if !can_grant(&world, path) {
        return;
    }
    let look = || {
        let metadata = fs::metadata(path).unwrap();
        (
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.ino(),
        )
    };
    let before = look();
    let text = format!("chmod 777 {path}; rm -f {path}; mv {path} /tmp/x; true");
    let done = world.job(&text).args(["--grant", grant]).run();
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(look(), before);
}

/// fuse: mount(2) of a file system of its own in a user namespace, and one file read through it.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_mounts_what_it_serves_through_fuse(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !needs(&["python3", "unshare"]) || !can_grant(&world, "/dev/fuse") {
        return;
    }
    // The device has to be opened in the user namespace that mounts.
    let text = "import ctypes, os\n\
        os.makedirs('/tmp/f', exist_ok=True)\n\
        fd = os.open('/dev/fuse', os.O_RDWR)\n\
        libc = ctypes.CDLL(None, use_errno=True)\n\
        options = f'fd={fd},rootmode=40000,user_id=0,group_id=0'.encode()\n\
        result = libc.mount(b'served', b'/tmp/f', b'fuse', 6, options)\n\
        assert result == 0, os.strerror(ctypes.get_errno())\n\
        assert any(' /tmp/f fuse ' in line for line in open('/proc/self/mounts'))\n\
        assert len(os.read(fd, 1 << 17)) >= 40\n\
        print('served')\n";
    world.write("serve.py", text);
    let line = "unshare -Urm python3 serve.py 2>&1";
    let done = world.job(line).args(["--grant", "fuse"]).run();
    assert_eq!((done.code, done.out().as_str()), (0, "served\n"), "{done}");
    let userns_alone = world.job(line).args(["--grant", "userns"]).run();
    assert!(!userns_alone.out().contains("served"), "{userns_alone}");
}

/// Every job may trace its own processes, with the grant and without.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_traces_its_own_processes(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !needs(&["strace"]) {
        return;
    }
    for flags in [&[][..], &["--grant", "ptrace"]] {
        let done = world
            .job("strace -f -e trace=execve -o /tmp/log true && grep -c execve /tmp/log")
            .args(flags)
            .run();
        assert_eq!((done.code, done.out().as_str()), (0, "1\n"), "{done}");
    }
}
