//! What a job gets beyond the sandbox of every job, by name: `--grant`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rstest::rstest;
use serde_json::{Value, json};
use tidemill_tests::{Done, Mode, PATIENCE, World, has_program, skip, tree, until};

/// A directory of the host beside the workspace.
fn data(world: &World) -> PathBuf {
    let data = world.make_dir("../data");
    world.write("../data/file", "from the host\n");
    world.write("../data/deep/file", "deep\n");
    let secret = world.write("../data/secret", "for its owner\n");
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    fs::canonicalize(data).unwrap()
}

fn bind(source: &Path, rest: &str) -> String {
    format!("bind:{}:{rest}", source.display())
}

/// The grants of a record or an explanation that fit.
fn grants(list: &Value, fits: impl Fn(&Value) -> bool) -> Vec<&Value> {
    let list = list.as_array().expect("a list of grants");
    list.iter().filter(|grant| fits(grant)).collect()
}

fn grant_at<'a>(list: &'a Value, place: &str) -> &'a Value {
    let found = grants(list, |grant| grant["sandbox"] == place);
    assert_eq!(found.len(), 1, "{place}: {list:#}");
    found[0]
}

fn assert_says(done: &Done, code: i32, texts: &[&str]) {
    assert_eq!(done.code, code, "{done}");
    for text in texts {
        assert!(done.err().contains(text), "{text:?} is not in {done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_bind_is_read_only_and_shows_what_the_host_has(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let data = data(&world);
    let before = tree(&data);
    let text = "cat /mnt/d/file /mnt/d/deep/file /mnt/d/secret /etc/app.conf; \
                for try in 'echo x > /mnt/d/file' 'rm /mnt/d/file' 'mkdir /mnt/d/new' \
                           'chmod 777 /mnt/d/file' 'echo x > /etc/app.conf' 'mv /mnt/d/deep /mnt/d/x'; do \
                    sh -c \"$try\" 2>/dev/null && echo \"could $try\"; done; true";
    let flags = [
        "--grant".to_owned(),
        bind(&data, "/mnt/d"),
        "--grant".to_owned(),
        bind(&data.join("file"), "/etc/app.conf"),
    ];
    let done = world.job(text).args(&flags).run();
    let expected = "from the host\ndeep\nfor its owner\nfrom the host\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
    assert!(tree(&data) == before, "the host's files changed");
    let given = &done.record().0["grants"];
    for (host, place) in [("", "/mnt/d"), ("file", "/etc/app.conf")] {
        let grant = grant_at(given, place);
        let host: PathBuf = data.join(host).components().collect();
        assert_eq!(grant["host"], host.to_str().unwrap());
        assert_eq!(grant["access"], "read_only");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_bind_that_is_written_for_real_changes_the_host(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let data = data(&world);
    let text = "set -e; cd /mnt/d; cat secret; echo more >> file; rm deep/file; mkdir new; \
                echo x > new/file; mv new/file new/moved";
    let done = world
        .job(text)
        .args(["--grant", &bind(&data, "/mnt/d:rw")])
        .run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "for its owner\n"),
        "{done}"
    );
    let read = |path: &str| fs::read_to_string(data.join(path)).unwrap();
    assert_eq!(
        (read("file").as_str(), read("new/moved").as_str()),
        ("from the host\nmore\n", "x\n")
    );
    assert!(!data.join("deep/file").exists());
    for path in ["new", "new/moved", "file"] {
        let metadata = fs::metadata(data.join(path)).unwrap();
        let owner = (metadata.uid(), metadata.gid());
        assert_eq!(owner, (world.account().uid, world.account().gid), "{path}");
    }
    let grant = grant_at(&done.record().0["grants"], "/mnt/d").clone();
    assert_eq!(grant["access"], "write", "{grant}");
    // One file alone, in place.
    let done = world
        .job("echo new > /mnt/file; rm /mnt/file 2>/dev/null && echo removed; true")
        .args(["--grant", &bind(&data.join("file"), "/mnt/file:rw")])
        .run();
    assert_eq!((done.code, done.out().as_str()), (0, ""), "{done}");
    assert_eq!(read("file"), "new\n");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_sees_what_the_host_does_in_a_bind(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let data = data(&world);
    let text = "echo waiting; until [ -e /mnt/d/signal ]; do sleep 0.01; done; cat /mnt/d/signal";
    let job = world
        .job(text)
        .args(["--grant", &bind(&data, "/mnt/d")])
        .start();
    job.await_output("waiting");
    world.write("../data/part", "it came\n");
    fs::rename(data.join("part"), data.join("signal")).unwrap();
    let done = job.wait();
    assert_eq!(done.out(), "waiting\nit came\n", "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn sources_start_from_where_they_are_written(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    data(&world);
    world.write("a:b/file", "a name with a colon\n");
    let done = world
        .job("cat /mnt/d/file /mnt/c/file")
        .args([
            "--grant",
            "bind:../data:/mnt/d",
            "--grant",
            "bind:a:b:/mnt/c",
        ])
        .run();
    let expected = "from the host\na name with a colon\n";
    assert_eq!(done.out(), expected, "{done}");
    let job = json!({
        "program": "cat", "args": ["/mnt/file"], "grants": ["bind:file:/mnt/file:ro"]
    });
    let file = world.write("../data/job.json", job.to_string());
    let done = world.bare_run(["--file", file.to_str().unwrap()]).run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "from the host\n"),
        "{done}"
    );
    // Flags are added to what the file says.
    let done = world
        .bare_run(["--file", file.to_str().unwrap()])
        .args(["--grant", "bind:../data:/mnt/d", "--grant", "usernz"])
        .run();
    assert_says(
        &done,
        2,
        &["--grant usernz: error: `usernz` is not a grant"],
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_bind_lies_over_image_workspace_and_layers(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let data = data(&world);
    world.write("deps/mine", "of the project\n");
    let work = world.work();
    let inside = work.join("deps");
    let home = world.home();
    let done = world
        .job("ls deps; ls ~; cat /etc/hosts; ls /etc | wc -l")
        .args([
            "--layer".to_owned(),
            format!("file:deps/mine={}/mine", inside.display()),
        ])
        .args(["--grant".to_owned(), bind(&data, inside.to_str().unwrap())])
        .args([
            "--grant".to_owned(),
            bind(&data.join("deep"), home.to_str().unwrap()),
        ])
        .args(["--grant".to_owned(), bind(&data.join("file"), "/etc/hosts")])
        .run();
    let out = done.out();
    let lines: Vec<&str> = out.lines().collect();
    // What a layer puts below a bind stays there.
    let expected = ["deep", "file", "mine", "secret", "file", "from the host"];
    assert_eq!(lines[..6], expected, "{done}");
    assert!(lines[6].parse::<u32>().unwrap() > 3, "{done}");
    assert!(inside.join("mine").exists() && !data.join("mine").exists());
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn nothing_is_made_on_the_host_for_a_bind(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let data = data(&world);
    let inside = world.work().join("missing");
    let flags = [
        "--write".to_owned(),
        "--grant".to_owned(),
        bind(&data, inside.to_str().unwrap()),
    ];
    let done = world.job("true").args(&flags).run();
    assert_eq!(done.record().reason(), "bad_spec", "{done}");
    assert_says(
        &done,
        125,
        &["there is no `", "which the job writes for real", "make `"],
    );
    assert!(!inside.exists());
    let before = tree(&data);
    let done = world
        .job("true")
        .args(["--grant", &bind(&data, "/var:rw")])
        .run();
    assert_says(&done, 125, &["there is no `/var/"]);
    assert!(tree(&data) == before, "something was made on the host");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn credentials_and_the_state_stay_hidden_in_a_bind(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("../home/.ssh/id_ed25519", "KEY\n");
    world.write("../home/notes", "notes\n");
    let home = world.home();
    let done = world
        .job("cat /mnt/h/notes; cat /mnt/h/.ssh/id_ed25519 2>/dev/null; true")
        .args(["--grant", &bind(&home, "/mnt/h")])
        .run();
    assert_eq!((done.code, done.out().as_str()), (0, "notes\n"), "{done}");
    let done = world
        .job("cat /mnt/key")
        .args(["--grant", &bind(&home.join(".ssh/id_ed25519"), "/mnt/key")])
        .run();
    assert_eq!(done.out(), "KEY\n", "what is named is shown: {done}");
    for path in [
        world.path().to_owned(),
        world.state(),
        world.state().join("trees"),
    ] {
        let done = world
            .job("ls /mnt/x")
            .args(["--grant", &bind(&path, "/mnt/x")])
            .run();
        assert_says(&done, 125, &["Tidemill's state directory"]);
        assert_eq!(done.out(), "");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_is_a_view_into_the_host_is_never_bound(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (source, said) in [
        ("/", "it is the whole host"),
        ("/proc", "a view into the kernel"),
        ("/proc/1/root/etc", ""),
        ("/sys/kernel", ""),
    ] {
        let source = Path::new(source);
        let done = world
            .job("ls /mnt/x")
            .args(["--grant", &bind(source, "/mnt/x:rw")])
            .run();
        assert!(done.code == 125 || done.code == 2, "{done}");
        assert!(done.err().contains(said) && done.out().is_empty(), "{done}");
    }
    // Through a link of the caller's, too.
    let link = world.work().join("link");
    symlink("/proc", &link).unwrap();
    world.give(&link);
    let done = world
        .job("true")
        .args(["--grant", "bind:link:/mnt/x"])
        .run();
    assert_says(&done, 125, &["a view into the kernel"]);
}

#[test]
fn a_bind_that_holds_a_proc_is_refused() {
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    let data = data(&world);
    world.make_dir("../data/deep/proc");
    let script = format!(
        "mount -t proc proc '{}/deep/proc'; exec \"$@\"",
        data.display()
    );
    let done = world
        .job("ls /mnt/x/deep/proc")
        .args(["--grant", &bind(&data, "/mnt/x")])
        .inside(script)
        .run();
    assert_says(&done, 125, &["deep/proc` in it is a view into the kernel"]);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_socket_of_the_host_can_be_bound(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("python3") {
        skip("python3 is missing");
        return;
    }
    let path = world.work().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    world.give(&path);
    listener.set_nonblocking(true).unwrap();
    let text = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/host.sock')";
    let job = world
        .program(["python3", "-c", text])
        .args(["--no-workspace", "--grant", &bind(&path, "/run/host.sock")])
        .start();
    until("the job connects", PATIENCE, || listener.accept().ok());
    let done = job.wait();
    assert_eq!(done.code, 0, "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn every_mistake_is_told_with_its_place_and_nothing_runs(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let wrong = [
        ("usernz", "did you mean `userns`?"),
        ("everything", "the grants are userns, ptrace, fuse"),
        ("net:none", "write net:host"),
        ("device", "write device:PATH"),
        ("device:net/tun", "write device:/dev/net/tun"),
        ("device:/etc/passwd", "name a device in /dev"),
        (
            "device:/dev/no-such",
            "the device `/dev/no-such` does not exist",
        ),
        ("device:/dev/shm", "the sandbox has a `/dev/shm` of its own"),
        ("bind:.", "write bind:.:/path/in/the/sandbox"),
        ("bind:gone:/x", "relative paths start from"),
        ("bind:.:y", "the destination `y` is not an absolute path"),
        (
            "bind:.:/proc/x",
            "choose a destination outside of /proc, /sys and /dev",
        ),
        ("bind:.:/", "the root of the sandbox cannot be bound"),
        ("bind:.:/x:wr", "`wr` is not a way to bind"),
        ("bind:/dev/null:/z", "write device:/dev/null"),
    ];
    let flags = wrong.iter().flat_map(|(grant, _)| ["--grant", grant]);
    let done = world.job("echo ran").args(flags).run();
    assert_says(&done, 2, &["15 mistakes, so nothing was run"]);
    assert_eq!(done.out(), "");
    for (grant, text) in wrong {
        let place = format!("--grant {grant}: error: ");
        assert_says(&done, 2, &[&place, text]);
    }
    let both = ["--net", "none", "--grant", "net:host"];
    let done = world.job("true").args(both).run();
    assert_says(&done, 2, &["--grant net:host: error:", "[conflict]"]);
    assert!(
        world.list(&[]).is_empty(),
        "nothing of this is an execution"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn the_hosts_network_is_the_same_by_both_names(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let explain = |flags: &[&str]| -> Value {
        let line = [&["explain", "--format", "json"], flags, &["--", "true"]].concat();
        serde_json::from_slice(&world.ask(line)).unwrap()
    };
    let by_grant = explain(&["--grant", "net:host"]);
    assert_eq!(by_grant["spec"], explain(&["--net", "host"])["spec"]);
    assert_eq!(by_grant["spec"]["grants"], Value::Null);
    let host = json!({ "kind": "host_network" });
    let given = grants(&by_grant["grants"], |grant| *grant == host);
    assert_eq!(given.len(), 1, "{by_grant:#}");
    let text = "ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev";
    let own = world.job(text).run();
    let hosts = world.job(text).args(["--grant", "net:host"]).run();
    assert_eq!((own.code, hosts.code), (0, 0), "{hosts}");
    let here = fs::read_to_string("/proc/net/dev").unwrap();
    let count = here.lines().filter(|line| line.contains(':')).count();
    assert_eq!(hosts.out().trim(), count.to_string(), "{hosts}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn explain_says_in_one_sentence_what_each_grant_widens(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let flags = [
        "--grant",
        "sys",
        "--grant",
        "userns",
        "--grant",
        "ptrace",
        "--grant",
        "net:host",
        "--grant",
        "bind:.:/mnt/r",
        "--grant",
        "bind:.:/mnt/w:rw",
        "--grant",
        "sys",
    ];
    let text = world.ask([&["explain"], &flags[..], &["--", "true"]].concat());
    let text = String::from_utf8(text).unwrap();
    let work = world.work();
    let work = work.to_str().unwrap();
    for line in [
        "  userns         the job may make user namespaces and be root in them, which opens parts of \
         the kernel that are seldom reviewed"
            .to_owned(),
        "  ptrace         the job may trace its own processes, as every job may, so this widens nothing"
            .to_owned(),
        "  sys            the job may read /sys, which tells it about the host's hardware and kernel"
            .to_owned(),
        "  network        the host's: the job reaches what this machine reaches".to_owned(),
        format!(
            "  read           {work} at /mnt/r (the job reads the host's files as they are, and sees \
             each change of them)"
        ),
        format!(
            "  write          {work} at /mnt/w (the job writes the host's files, and what it writes \
             stays)"
        ),
    ] {
        let count = text.lines().filter(|known| **known == line).count();
        assert_eq!(count, 1, "{line}\n{text}");
    }
    let json = world.ask(
        [
            &["explain", "--format", "json"],
            &flags[..],
            &["--", "true"],
        ]
        .concat(),
    );
    let json: Value = serde_json::from_slice(&json).unwrap();
    let schema = serde_json::from_slice(&world.ask(["schema", "spec"])).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    assert!(schema.is_valid(&json["spec"]), "{json:#}");
    let kinds: Vec<&str> = json["spec"]["grants"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|grant| grant["kind"].as_str())
        .collect();
    assert_eq!(kinds, ["userns", "ptrace", "sys", "bind", "bind"]);
    assert_eq!(json["root"]["sys"], true);
    assert_eq!(json["root"]["allow"], json!(["user_namespaces", "ptrace"]));
    let plain: Value =
        serde_json::from_slice(&world.ask(["explain", "--format", "json", "--", "true"])).unwrap();
    for (field, part) in [
        ("spec", "grants"),
        ("root", "sys"),
        ("root", "allow"),
        ("root", "devices"),
    ] {
        assert_eq!(plain[field][part], Value::Null, "{field}.{part}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn the_record_has_what_was_granted(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world.job("true").args(["--grant", "ptrace"]).run();
    assert_eq!(done.code, 0, "{done}");
    let record = done.record();
    let named = grants(&record.0["grants"], |grant| grant["kind"] == "named");
    assert_eq!(named.len(), 1, "{record}");
    assert_eq!(named[0]["name"], "ptrace");
    assert!(
        named[0]["widens"]
            .as_str()
            .unwrap()
            .contains("widens nothing")
    );
    let schema = serde_json::from_slice(&world.ask(["schema", "record"])).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    assert!(schema.is_valid(&record.0), "{record}");
    let shown = String::from_utf8(world.ask(["show", record.id()])).unwrap();
    assert!(
        shown.contains("the job may trace its own processes"),
        "{shown}"
    );
    // Without, there is none; and a device that every job has is none either.
    let done = world
        .job("true")
        .args(["--grant", "device:/dev/zero"])
        .run();
    assert_says(
        &done,
        0,
        &["--grant device:/dev/zero: warning: every job has `/dev/zero`"],
    );
    let named = grants(&done.record().0["grants"], |grant| grant["kind"] == "named");
    assert!(named.is_empty(), "{done}");
}

/// The devices that a grant stands for.
const DEVICES: [(&str, &str); 3] = [
    ("kvm", "/dev/kvm"),
    ("fuse", "/dev/fuse"),
    ("device:/dev/net/tun", "/dev/net/tun"),
];

#[test]
fn a_device_that_this_host_lacks_is_an_error_before_anything_runs() {
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    // A /dev with what every job has, and no more.
    let script = "d=$(mktemp -d); mount -t tmpfs none $d; \
        for n in null zero full random urandom tty; do : > $d/$n; mount --bind /dev/$n $d/$n; done; \
        mount --move $d /dev; rmdir $d; exec \"$@\"";
    for (grant, path) in DEVICES {
        let done = world
            .job("echo ran")
            .args(["--grant", grant])
            .inside(script)
            .run();
        let told =
            format!("--grant {grant}: error: the device `{path}` does not exist [host_path]");
        assert_says(&done, 2, &[&told]);
        assert_eq!(done.out(), "");
    }
    let done = world.job("echo ran").inside(script).run();
    assert_eq!(done.out(), "ran\n", "{done}");
}

#[test]
fn a_device_that_its_user_may_not_use_is_an_error_before_anything_runs() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    for (grant, path) in DEVICES {
        let Ok(metadata) = fs::metadata(path) else {
            skip(&format!("{path} is missing"));
            continue;
        };
        if metadata.mode() & 0o006 == 0o006 || metadata.uid() == world.account().uid {
            skip(&format!("every user may use {path}"));
            continue;
        }
        let done = world.job("echo ran").args(["--grant", grant]).run();
        let told = format!("the device `{path}` cannot be read and written by the user");
        assert_says(&done, 2, &[&told]);
        assert_eq!(done.out(), "");
    }
}

#[test]
fn a_device_of_this_host_is_planned_and_told() {
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    for (grant, path) in DEVICES {
        if !Path::new(path).exists() {
            skip(&format!("{path} is missing"));
            continue;
        }
        let line = [
            "explain", "--format", "json", "--grant", grant, "--", "true",
        ];
        let told: Value = serde_json::from_slice(&world.ask(line)).unwrap();
        assert_eq!(told["root"]["devices"], json!([path]), "{told:#}");
        let named = grants(&told["grants"], |given| given["name"] == grant);
        assert_eq!(named.len(), 1, "{told:#}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_bind_whose_name_begins_like_another_covers_nothing(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // The workspace of a trial lies below /tmp.
    let done = world
        .job("pwd; ls -d /t")
        .args(["--grant", "bind:/srv:/t"])
        .run();
    let place = world.work().display().to_string();
    assert_eq!(done.out(), format!("{place}\n/t\n"), "{done}");
}
