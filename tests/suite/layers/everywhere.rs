//! One layer, however it is written and wherever its files come from.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, UNIX_EPOCH};

use rstest::rstest;
use serde_json::{Value, json};
use tidemill_tests::{Mode, TarEntry, World, write_tar};

use super::trees;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn each_kind_is_the_same_in_a_job_file_and_on_the_command_line(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for path in ["dir/a", "dir/sub/b", "src/x.c", "src/x.o", "src/y.c", "one"] {
        world.write(path, format!("{path}\n"));
    }
    let archive = File::create(world.write("a.tar", "")).unwrap();
    let entries = [
        TarEntry::file("in/t", "in/t\n"),
        TarEntry::file("out", "out\n"),
    ];
    write_tar(archive, &entries);
    let kinds = [
        (
            "dir,mode=0604:dir=/l/dir",
            json!({ "kind": "dir", "source": "dir", "dest": "/l/dir", "mode": "0604" }),
        ),
        (
            "file,mtime=7:one=/l/file",
            json!({ "kind": "file", "source": "one", "dest": "/l/file", "mtime": 7 }),
        ),
        (
            "glob,strip=src,exclude=**/*.o,canonical:src/*=/l/glob",
            json!({
                "kind": "glob", "include": ["src/*"], "exclude": ["**/*.o"], "strip": "src",
                "dest": "/l/glob", "canonical": true
            }),
        ),
        (
            "tar,strip=in,canonical:a.tar=/l/tar",
            json!({
                "kind": "tar", "source": "a.tar", "strip": "in", "dest": "/l/tar", "canonical": true
            }),
        ),
        (
            "stubs,mode=0604:/l/stubs/{a,b/{c,d}}",
            json!({ "kind": "stubs", "paths": ["/l/stubs/{a,b/{c,d}}"], "mode": "0604" }),
        ),
        (
            "symlinks:../one=/l/links/x",
            json!({ "kind": "symlinks", "links": { "/l/links/x": "../one" } }),
        ),
        (
            "shared-libs,canonical:/bin/sh=/l/libs",
            json!({
                "kind": "shared-libs", "binaries": ["/bin/sh"], "dest": "/l/libs", "canonical": true
            }),
        ),
        (
            "command,canonical:mkdir /layer/l; echo made > /layer/l/made",
            json!({
                "kind": "command", "program": "sh",
                "args": ["-c", "mkdir /layer/l; echo made > /layer/l/made"], "canonical": true
            }),
        ),
    ];
    let script = "cd /l; find . -type f -exec stat -c '%n %a %Y %s' {} + | sort; readlink links/x; \
                  cat dir/sub/b glob/y.c tar/t made; ls glob stubs/b";
    let base = ["--no-workspace"];
    let line = kinds.iter().flat_map(|(text, _)| ["--layer", text]);
    let flags: Vec<&str> = base.into_iter().chain(line).collect();
    let done = world.job(script).args(&flags).run();
    assert_eq!(done.code, 0, "{done}");
    let shown = done.out();
    let tail = "../one\ndir/sub/b\nsrc/y.c\nin/t\nmade\nglob:\nx.c\ny.c\n\nstubs/b:\nc\nd\n";
    assert!(shown.ends_with(tail), "{done}");
    assert!(shown.contains("./dir/a 604 "), "{done}");
    assert!(shown.contains("./file 644 7 4\n"), "{done}");
    assert!(shown.contains("./stubs/b/d 604 "), "{done}");
    let texts: Vec<Value> = kinds.iter().map(|(text, _)| json!(text)).collect();
    let objects: Vec<Value> = kinds.iter().map(|(_, object)| object.clone()).collect();
    for layers in [texts, objects] {
        let job = json!({
            "program": "sh", "args": ["-c", script], "no_workspace": true, "layers": layers
        });
        world.write("job.json", job.to_string());
        let done = world.bare_run(["--file", "job.json"]).run();
        assert_eq!((done.code, done.out()), (0, shown.clone()), "{done}");
    }
}

/// Files as one machine has them: what tells it from another says nothing of the content.
struct Machine {
    /// Where the project lies.
    name: &'static str,
    umask: u32,
    age: u32,
    is_reversed: bool,
}

const MACHINES: [Machine; 2] = [
    Machine {
        name: "here",
        umask: 0o022,
        age: 5,
        is_reversed: false,
    },
    Machine {
        name: "somewhere/else",
        umask: 0o077,
        age: 500,
        is_reversed: true,
    },
];

impl Machine {
    fn make(&self, world: &World) {
        let mut files = vec![("bin/run", 0o777), ("data/a", 0o666), ("data/b/c", 0o666)];
        if self.is_reversed {
            files.reverse();
        }
        for (path, mode) in &files {
            let path = world.write(format!("{}/{path}", self.name), format!("of {path}\n"));
            let mode = fs::Permissions::from_mode(mode & !self.umask);
            fs::set_permissions(&path, mode).unwrap();
            let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + u64::from(self.age));
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(time).unwrap();
        }
        for dir in ["bin", "data", "data/b"] {
            let mode = fs::Permissions::from_mode(0o777 & !self.umask);
            fs::set_permissions(world.work().join(self.name).join(dir), mode).unwrap();
        }
        let entries = files.iter().map(|(path, mode)| {
            let owner = (1000 + self.age, 1000);
            TarEntry::file(path, format!("of {path}\n"))
                .mode(mode & !self.umask)
                .owner(owner.0, owner.1)
        });
        let archive = world.write(format!("{}.tar", self.name), "");
        write_tar(File::create(archive).unwrap(), &entries.collect::<Vec<_>>());
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn equal_files_of_two_machines_make_equal_trees(#[case] mode: Mode) {
    let mut digests = Vec::new();
    for machine in &MACHINES {
        let Some(world) = World::new(mode) else {
            return;
        };
        machine.make(&world);
        let Machine { name, umask, .. } = machine;
        let layers = [
            format!("dir,canonical:{name}=/a"),
            format!("glob,canonical,strip={name}:{name}/**=/b"),
            format!("file,canonical:{name}/bin/run=/c/run"),
            format!("tar,canonical:{name}.tar=/d"),
            "shared-libs,canonical:/bin/sh=/e".to_owned(),
            // What a command leaves has the times and modes of its run.
            format!("command,canonical:umask 0{umask:o}; cp -r /a /layer/f"),
            format!("command,canonical:umask 0{umask:o}; cp -r /a/. /layer"),
        ];
        let mut flags = vec!["--no-workspace"];
        flags.extend(layers.iter().flat_map(|layer| ["--layer", layer]));
        flags.push("true");
        let done = world.bare_run(&flags).run();
        assert_eq!(done.code, 0, "{done}");
        digests.push(trees(&world, &flags));
    }
    assert_eq!(digests[0], digests[1]);
    let of = |index: usize| digests[0][index].as_str().unwrap();
    assert!(of(0).starts_with("b3:"), "{digests:?}");
    // A directory, all that a pattern matches, an archive and a command: one tree.
    for other in [1, 3, 6] {
        assert_eq!(of(0), of(other), "{other}");
    }
    for other in [2, 4, 5] {
        assert_ne!(of(0), of(other), "{other}");
    }
}
