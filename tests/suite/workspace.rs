//! The directory that a job works in: it may write there, and the real one stays as it was.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rstest::rstest;
use tidemill_tests::{Mode, World, has_program, skip, tree};

/// A small project with everything that a program could change.
fn project(world: &World) {
    for (path, content) in [
        ("README", "read me\n"),
        ("src/main.c", "int main(void) { return 0; }\n"),
        ("src/deep/er/file", "deep\n"),
        ("script.sh", "#!/bin/sh\necho script\n"),
        ("secret", "locked\n"),
    ] {
        world.write(path, content);
    }
    let work = world.work();
    let set = |path: &str, mode| {
        fs::set_permissions(work.join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("script.sh", 0o755);
    set("secret", 0o600);
    world.make_dir("empty");
    symlink("README", work.join("link")).unwrap();
    symlink("/no/such", work.join("dangling")).unwrap();
    world.give(&work.join("link"));
    world.give(&work.join("dangling"));
    fs::hard_link(work.join("README"), work.join("second-name")).unwrap();
}

/// Changes all of it.
const REWRITE: &str = "set -e; cat README script.sh secret >/dev/null; ./script.sh; \
    echo more >> README; rm src/main.c; mv src/deep src/moved; mkdir new; echo x > new/file; \
    chmod 000 script.sh; touch -d 2001-01-01 empty; rm link; ln -s elsewhere link; \
    rmdir empty; echo over > secret; ls | sort | tr '\\n' ' '";

const REWRITTEN: &str = "script\nREADME dangling link new script.sh second-name secret src ";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn the_real_directory_is_as_before(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    project(&world);
    let before = tree(&world.work());
    let done = world.job(REWRITE).run();
    assert_eq!((done.code, done.out().as_str()), (0, REWRITTEN), "{done}");
    assert!(tree(&world.work()) == before, "the real directory changed");
    // Each job begins from the real one.
    let next = world.job("cat README; ls src/deep/er").run();
    assert_eq!(
        (next.code, next.out().as_str()),
        (0, "read me\nfile\n"),
        "{next}"
    );
    assert!(tree(&world.work()) == before, "the real directory changed");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn with_write_the_real_directory_changes(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    project(&world);
    let done = world.job(REWRITE).args(["--write"]).run();
    assert_eq!((done.code, done.out().as_str()), (0, REWRITTEN), "{done}");
    let work = world.work();
    let read = |path: &str| fs::read_to_string(work.join(path)).unwrap();
    assert_eq!(
        (read("README"), read("new/file")),
        ("read me\nmore\n".into(), "x\n".into())
    );
    assert_eq!(read("src/moved/er/file"), "deep\n");
    assert!(!work.join("src/main.c").exists() && !work.join("empty").exists());
    assert_eq!(
        fs::read_link(work.join("link")).unwrap(),
        Path::new("elsewhere")
    );
    // What it made belongs to whoever owns the directory, and is not nobody's.
    for path in ["new", "new/file", "README"] {
        let metadata = fs::metadata(work.join(path)).unwrap();
        let owner = (metadata.uid(), metadata.gid());
        assert_eq!(owner, (world.account().uid, world.account().gid), "{path}");
    }
    let grants = done.record().0["grants"].to_string();
    assert!(grants.contains(r#""access":"write""#), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn no_workspace_is_none(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("here", "x");
    let path = world.work();
    let text = format!("ls {} 2>/dev/null; pwd", path.display());
    let done = world.job(&text).args(["--no-workspace"]).run();
    assert_eq!((done.code, done.out().as_str()), (0, "/\n"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn another_directory_can_be_the_workspace(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("sub dir/file", "inner\n");
    let expected = format!("{}\ninner\n", world.work().join("sub dir").display());
    for flag in [
        "sub dir",
        "./sub dir/",
        world.work().join("sub dir").to_str().unwrap(),
    ] {
        let done = world
            .job("pwd; cat file; ls ..")
            .args(["--workspace", flag])
            .run();
        assert!(done.out().starts_with(&expected), "{done}");
        // What lies beside it is not there.
        assert_eq!(
            done.out().trim_end().lines().last(),
            Some("sub dir"),
            "{done}"
        );
    }
    let done = world.job("pwd").args(["--workdir", "sub dir"]).run();
    assert_eq!(done.out(), expected.replace("inner\n", ""), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_workspace_anywhere_is_writable_for_its_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // Files of others in it are there, and stay as they are.
    world.write("mine", "mine\n");
    let foreign = world.write("foreign", "foreign\n");
    if Mode::suite_is_root() {
        std::os::unix::fs::chown(&foreign, Some(4711), Some(4711)).unwrap();
    }
    let before = tree(&world.work());
    let done = world
        .job("cat mine foreign; echo new > made; echo changed > mine; cat mine made")
        .run();
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(done.out(), "mine\nforeign\nchanged\nnew\n", "{done}");
    assert!(tree(&world.work()) == before, "the real directory changed");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn real_work_is_done_in_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !tidemill_tests::has_program("make") || !tidemill_tests::has_program("gcc") {
        tidemill_tests::skip("make or gcc is missing");
        return;
    }
    world.write(
        "main.c",
        "#include <stdio.h>\nint main(void) { puts(\"built\"); return 0; }\n",
    );
    world.write(
        "Makefile",
        "all: main\n\t./main\nmain: main.c\n\tgcc -o main main.c\n",
    );
    let done = world.program(["make", "-s"]).run();
    assert_eq!((done.code, done.out().as_str()), (0, "built\n"), "{done}");
    assert!(!world.work().join("main").exists());
    // With the real directory, the second build finds the first one's work.
    for _ in 0..2 {
        let done = world.program(["make", "-s"]).args(["--write"]).run();
        assert_eq!((done.code, done.out().as_str()), (0, "built\n"), "{done}");
    }
    assert!(world.work().join("main").exists());
}

/// Every way to a file with a set-id bit. Prints those that worked.
const SET_IDS: &str = r#"touch f; d=$(mktemp -d -p .)
for mode in 4755 2755 6711 u+s g+s; do chmod "$mode" f 2>/dev/null && echo "chmod $mode"; done
chmod 2755 "$d" 2>/dev/null && echo "chmod 2755 of a directory"
python3 - <<'EOF'
import os
ways = {
    "open": lambda: os.open("o", os.O_CREAT | os.O_WRONLY, 0o4755),
    "tmpfile": lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o2755),
    "mknod": lambda: os.mknod("m", 0o104755),
    "fchmod": lambda: os.fchmod(os.open("f", os.O_RDONLY), 0o6755),
}
for name, way in ways.items():
    try:
        way()
        print(name)
    except PermissionError:
        pass
os.close(os.open("plain", os.O_CREAT | os.O_WRONLY, 0o755))
EOF
chmod 755 f && test -x plain && echo end"#;

/// What a job leaves in a real directory belongs to the caller, who may be root, and stays there for
/// everybody on the host to execute.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn no_set_id_file_comes_into_a_real_directory(#[case] mode: Mode) {
    if !has_program("python3") {
        skip("there is no python3 here");
        return;
    }
    let Some(world) = World::new(mode) else {
        return;
    };
    for user in ["0", "1000"] {
        let done = world.job(SET_IDS).args(["--write", "--user", user]).run();
        assert_eq!((done.code, done.out().as_str()), (0, "end\n"), "{done}");
    }
    for entry in fs::read_dir(world.work()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().mode();
        assert_eq!(mode & 0o6000, 0, "{} has {mode:o}", entry.path().display());
    }
    // In a private layer they do no harm: shared directories are shared, and who is root by name installs.
    let set_both = "mkdir d; chmod g+s d; touch f; chmod 4755 f; stat -c %a d f";
    for (user, modes) in [("1000", "2755\n755\n"), ("0", "2755\n4755\n")] {
        let private = world.job(set_both).args(["--user", user]).run();
        assert_eq!(private.out(), modes, "{private}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_is_written_for_real_and_not_bounded_is_told(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bounded = ["--write", "--disk", "1MiB"];
    let done = world.job("true").args(bounded).run();
    assert_eq!(done.code, 0, "{done}");
    let said = "--disk: warning: it does not bound what the job writes into the real workspace";
    assert!(done.err().contains(said), "{done}");
    assert_eq!(done.err().lines().count(), 1, "{done}");
    let explained = world.call([&["explain"], &bounded[..], &["--", "true"]].concat());
    assert!(explained.err().contains(said), "{explained}");
    // Where the job writes a copy, the limit bounds it.
    let copied = world.job("true").args(["--disk", "1MiB"]).run();
    assert_eq!(copied.err(), "", "{copied}");

    let system = ["explain", "--write", "--workspace", "/usr", "--", "true"];
    let explained = world.call(system);
    let said = "warning: the job writes the real `/usr`: the host's own programs";
    assert!(explained.err().contains(said), "{explained}");
}
