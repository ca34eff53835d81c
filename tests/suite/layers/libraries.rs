//! The libraries of programs.

use std::fs;
use std::path::{Path, PathBuf};

use rstest::rstest;
use tidemill_tests::{Mode, World};

/// A program of the host that is loaded with libraries, without links.
fn program(name: &str) -> PathBuf {
    ["/usr/bin", "/bin"]
        .iter()
        .find_map(|dir| fs::canonicalize(Path::new(dir).join(name)).ok())
        .unwrap()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_program_and_its_libraries_are_all_that_is_needed(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let ls = program("ls");
    let file = format!("file:{}=/bin/ls", ls.display());
    let none = ["--image", "none", "--no-workspace"];
    let alone = world
        .program(["/bin/ls", "/bin"])
        .args(none)
        .args(["--layer", &file]);
    let alone = alone.run();
    assert_ne!(
        alone.code, 0,
        "without its libraries it cannot run: {alone}"
    );
    for options in ["", ",canonical"] {
        let libraries = format!("shared-libs{options}:{}", ls.display());
        let done = world
            .program(["/bin/ls", "/bin"])
            .args(none)
            .args(["--layer", &file, "--layer", &libraries])
            .run();
        assert_eq!((done.code, done.out().as_str()), (0, "ls\n"), "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn libraries_go_beside_those_that_an_image_has(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(root) = world.busybox_root() else {
        return;
    };
    // Directories where the host has links, and files of the image in them.
    for dir in ["lib", "lib64", "usr/lib"] {
        let path = root.join(dir);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("of-image"), "").unwrap();
        world.give(&path);
        world.give(&path.join("of-image"));
    }
    let image = format!("dir:{}", root.display());
    let env = program("env");
    let file = format!("file:{}=/opt/env", env.display());
    let libraries = format!("shared-libs:{}", env.display());
    let done = world
        .job("/opt/env -i A=b /opt/env; ls -d /lib/of-image /lib64/of-image /usr/lib/of-image")
        .args([
            "--image",
            &image,
            "--no-workspace",
            "--layer",
            &file,
            "--layer",
            &libraries,
        ])
        .run();
    let expected = "A=b\n/lib/of-image\n/lib64/of-image\n/usr/lib/of-image\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_cannot_be_loaded_is_named(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let refused = |path: &Path| {
        let layer = format!("shared-libs:{}", path.display());
        let done = world
            .job("true")
            .args(["--no-workspace", "--layer", &layer])
            .run();
        assert_eq!(done.code, 125, "{done}");
        assert_eq!(done.record().reason(), "layer", "{done}");
        done.err()
    };
    let script = world.write("script", "#!/usr/bin/python3\nimport os; os.mkdir('ran')\n");
    let said = refused(&script);
    assert!(said.contains("script for `/usr/bin/python3`"), "{said}");
    assert!(said.contains("name its interpreter instead"), "{said}");
    let text = world.write("text", "hello\n");
    assert!(refused(&text).contains("no ELF file"));
    let mut bytes = fs::read(program("ls")).unwrap();
    let at = bytes
        .windows(10)
        .position(|part| part == b"libc.so.6\0")
        .unwrap();
    bytes[at..at + 9].copy_from_slice(b"libq.so.6");
    let broken = world.write("broken", bytes);
    let said = refused(&broken);
    assert!(
        said.contains("`libq.so.6`") && said.contains("broken"),
        "{said}"
    );
    assert!(said.contains("/usr/lib"), "where it was looked for: {said}");
    let whole = fs::read(program("ls")).unwrap();
    let cut = world.write("cut", &whole[..whole.len().min(200)]);
    assert!(refused(&cut).contains("it is damaged"));
    assert!(!world.work().join("ran").exists(), "nothing is run");
}
