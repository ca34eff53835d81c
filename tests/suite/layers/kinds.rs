//! What each kind brings.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use rstest::rstest;
use serde_json::json;
use tidemill_tests::{Mode, TarEntry, World, has_program, skip, write_tar};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn every_kind_brings_its_files_and_later_ones_win(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (path, content) in [
        ("dir/a", "dir a\n"),
        ("dir/b", "dir b\n"),
        ("src/main.c", "main\n"),
        ("src/main.o", "object\n"),
        ("src/gen/x.c", "generated\n"),
        ("one", "one\n"),
    ] {
        world.write(path, content);
    }
    let archive = world.write("deps.tar", "");
    let entries = [
        TarEntry::dir("deps-1.0"),
        TarEntry::file("deps-1.0/b", "tar b\n"),
        TarEntry::file("other", "other\n"),
    ];
    write_tar(File::create(archive).unwrap(), &entries);
    let script = "cd /data; cat a b c; ls /data; ls -p /data/stubs; cat src/main.c; ls -R src; \
                  readlink link; wc -c < /data/stubs/x.conf";
    let job = json!({
        "program": "sh", "args": ["-c", script], "no_workspace": true,
        "layers": [
            { "kind": "dir", "source": "dir", "dest": "/data" },
            { "kind": "tar", "source": "deps.tar", "strip": "deps-1.0", "dest": "/data" },
            "file:one=/data/c",
            {
                "kind": "glob", "include": ["src/**", "one"], "exclude": ["**/*.o", "src/gen", "one"],
                "dest": "/data"
            },
            { "kind": "stubs", "paths": ["/data/stubs/{x,y}.conf", "/data/stubs/dir/"] },
            { "kind": "symlinks", "links": { "/data/link": "a" } },
            "stubs:/data/a"
        ]
    });
    world.write("job.json", job.to_string());
    let done = world.bare_run(["--file", "job.json"]).run();
    let expected = "tar b\none\na\nb\nc\nlink\nsrc\nstubs\ndir/\nx.conf\ny.conf\nmain\n\
                    src:\nmain.c\na\n0\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_archive_is_read_however_it_is_compressed(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let plain = world.write("a.tar", "");
    let file = TarEntry::file("sub/file", "content\n");
    write_tar(File::create(&plain).unwrap(), &[file]);
    let mut tried = 0;
    for (program, ending) in [("cp", ""), ("gzip", ".gz"), ("zstd", ".zst"), ("xz", ".xz")] {
        if !has_program(program) {
            skip(&format!("{program} is missing"));
            continue;
        }
        let name = format!("packed.tar{ending}");
        let packed = world.work().join(&name);
        let line = if program == "cp" {
            format!("cp {} {}", plain.display(), packed.display())
        } else {
            format!("{program} -c {} > {}", plain.display(), packed.display())
        };
        let status = Command::new("sh").args(["-c", &line]).status().unwrap();
        assert!(status.success(), "{line}");
        world.give(&packed);
        let layer = format!("tar,strip=sub:{name}=/data");
        let done = world
            .job("cat /data/file")
            .args(["--no-workspace", "--layer", &layer])
            .run();
        assert_eq!((done.code, done.out().as_str()), (0, "content\n"), "{done}");
        tried += 1;
    }
    assert!(tried > 1, "only plain archives were tried");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_is_made_goes_where_the_images_links_lead_and_leaves_directories_alone(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(root) = world.busybox_root() else {
        return;
    };
    for (path, mode) in [("closed", 0o705), ("run", 0o775)] {
        fs::create_dir(root.join(path)).unwrap();
        world.give(&root.join(path));
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink("../run", root.join("var/run")).unwrap();
    world.give(&root.join("var/run"));
    let image = format!("dir:{}", root.display());
    let flags = [
        "--image",
        &image,
        "--no-workspace",
        "--user",
        "0",
        "--layer",
        "stubs:/closed/{a,b}",
        "--layer",
        "stubs:/var/run/lock/x",
        "--layer",
        "symlinks:/data=/var/run/d",
        "--layer",
        "stubs,mode=0600:/closed/b",
    ];
    let script = "stat -c '%n %a' /closed /run /closed/a /closed/b /run/lock/x; readlink /run/d; readlink /var/run; \
                  ls /run";
    let done = world.job(script).args(flags).run();
    let expected = "/closed 705\n/run 775\n/closed/a 644\n/closed/b 600\n/run/lock/x 644\n/data\n../run\n\
                    d\nlock\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_stub_never_takes_the_place_of_a_directory(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world
        .job("true")
        .args(["--no-workspace", "--layer", "stubs:/usr/bin"])
        .run();
    assert_eq!(done.code, 125, "{done}");
    assert!(
        done.err()
            .contains("`/usr/bin` in the sandbox is a directory"),
        "{done}"
    );
    assert!(done.err().contains("write /usr/bin/"), "{done}");
    // A directory that is there already is nothing to complain of.
    let done = world
        .job("test -x /usr/bin/env && echo there")
        .args(["--no-workspace", "--layer", "stubs:/usr/{bin,lib}/"])
        .run();
    assert_eq!((done.code, done.out().as_str()), (0, "there\n"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_the_sandbox_makes_is_there_beside_a_layer(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("var/of-layer", "");
    let script = "ls -d /var/lib/server /run/mine/x; touch /var/tmp/x && echo writable";
    let done = world
        .job(script)
        .args([
            "--no-workspace",
            "--layer",
            "stubs:/{var/lib/server,run/mine}/",
        ])
        .args(["--layer", "stubs:/run/mine/x"])
        .run();
    let expected = "/run/mine/x\n/var/lib/server\nwritable\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
    let locks = |flags: &[&str]| {
        let done = world.job("ls -d /run/*").args(flags).run();
        assert_eq!(done.code, 0, "{done}");
        done.out()
    };
    let before = locks(&["--no-workspace"]);
    let after = locks(&["--no-workspace", "--layer", "stubs:/run/zzz"]);
    assert_eq!(after, format!("{before}/run/zzz\n"));
    let Some(root) = world.busybox_root() else {
        return;
    };
    let busybox = format!("file:{}=/bin/busybox", root.join("bin/busybox").display());
    for layer in [
        "dir:var=/var",
        "stubs:/var/of-layer",
        "symlinks:x=/var/of-layer",
    ] {
        let done = world
            .program(["/bin/busybox", "ls", "/var"])
            .args([
                "--image",
                "none",
                "--no-workspace",
                "--layer",
                &busybox,
                "--layer",
                layer,
            ])
            .run();
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, "of-layer\ntmp\n"),
            "{done}"
        );
    }
    let done = world
        .job("true")
        .args(["--no-workspace", "--layer", "stubs:/etc/passwd/"])
        .run();
    assert_eq!(done.code, 125, "{done}");
    assert!(
        done.err().contains("write /etc/passwd for an empty file"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_user_database_of_the_jobs_own_is_what_it_asked_for(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("passwd", "only:x:4321:4321::/:/bin/sh\n");
    world.write("group", "only:x:4321:\n");
    let done = world
        .job("cat /etc/passwd /etc/group")
        .args(["--layer", "file:passwd=/etc/passwd"])
        .args(["--layer", "file:group=/etc/group"])
        .run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "only:x:4321:4321::/:/bin/sh\nonly:x:4321:\n"),
        "{done}"
    );
}
