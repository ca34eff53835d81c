//! Pulls from Debian's registry.

use std::process::Command;
use std::thread;

use rstest::rstest;
use tidemill_tests::{Mode, World};

use super::line::Line;
use super::made::{Layout, image, noise, refused, run, state};
use super::registry::{Registry, has_tools};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn one_image_is_the_same_from_registry_layout_and_archive(#[case] mode: Mode) {
    let Some(world) = World::new(mode).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = Layout::make(&world, b"second") else {
        return;
    };
    let registry = Registry::start(&world);
    layout.copy_to(&format!("docker://{}/box:1", registry.host), &[]);
    let path = |name: &str| world.path().join(name).to_str().unwrap().to_owned();
    layout.copy_to(&format!("oci-archive:{}:box:oci", path("oci.tar")), &[]);
    layout.copy_to(
        &format!("docker-archive:{}:box:saved", path("saved.tar")),
        &[],
    );
    let name = format!("{}/box:1", registry.host);
    let pulled = image(&world, &["pull", &name]);
    assert_eq!(pulled["image"]["name"], name);
    assert_eq!(pulled["image"]["layers"], 2);
    image(
        &world,
        &[
            "import",
            layout.path.to_str().unwrap(),
            "--name",
            "box:layout",
        ],
    );
    image(&world, &["import", &path("oci.tar")]);
    image(&world, &["import", &path("saved.tar")]);
    let show = |name: &str| image(&world, &["show", name]);
    let first = show(&name);
    assert_eq!(first["image"]["digest"], layout.digest());
    assert_eq!(first["config"]["command"][0], "/bin/sh");
    assert_eq!(first["config"]["user"], "app");
    assert_eq!(first["config"]["working_dir"], "/srv/app");
    for name in ["box:layout", "box:oci"] {
        let other = show(name);
        assert_eq!(other["image"]["digest"], first["image"]["digest"], "{name}");
        assert_eq!(other["layers"], first["layers"], "{name}");
    }
    // Its layers are without compression, so it is another manifest for the same configuration.
    let saved = show("box:saved");
    assert_eq!(saved["config_digest"], first["config_digest"]);
    assert_eq!(saved["layers"][1]["diff_id"], first["layers"][1]["diff_id"]);
    assert_eq!(saved["layers"][0]["compression"], "none");
    let again = image(&world, &["pull", &name]);
    assert_eq!(again["fetched"], 0);
    let by_digest = format!("{}/box@{}", registry.host, layout.digest());
    drop(registry);
    assert_eq!(
        image(&world, &["pull", &by_digest])["fetched"],
        0,
        "no registry is needed"
    );
}

#[test]
fn other_tools_read_the_store() {
    let Some(world) = World::new(Mode::Root).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = Layout::make(&world, b"second") else {
        return;
    };
    image(
        &world,
        &[
            "import",
            layout.path.to_str().unwrap(),
            "--name",
            "x.y/box:1",
        ],
    );
    let images = world.state().join("images");
    let listed = Command::new("umoci")
        .args(["ls", "--layout"])
        .arg(&images)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "x.y/box:1\n");
    let source = format!("oci:{}:x.y/box:1", images.display());
    let target = format!("dir:{}", world.path().join("copied").display());
    run("skopeo", &["--insecure-policy", "copy", &source, &target]);
}

#[test]
fn images_for_other_machines_are_refused_and_can_be_asked_for() {
    let Some(world) = World::new(Mode::Root).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = Layout::make(&world, b"second") else {
        return;
    };
    let path = layout.path.to_str().unwrap();
    run(
        "umoci",
        &[
            "config",
            "--image",
            &format!("{path}:1"),
            "--architecture",
            "s390x",
        ],
    );
    let registry = Registry::start(&world);
    layout.copy_to(&format!("docker://{}/box:1", registry.host), &[]);
    let name = format!("{}/box:1", registry.host);
    let done = refused_pull(&world, &name, "is an image for linux/s390x");
    assert!(done.contains("--platform linux/s390x"), "{done}");
    let pulled = image(&world, &["pull", &name, "--platform", "s390x"]);
    assert_eq!(pulled["image"]["platform"], "linux/s390x");
    refused(
        &world,
        &["pull", &name, "--platform", "s390x/"],
        2,
        "is not a platform",
    );
    refused_pull(
        &world,
        &format!("{}/box:none", registry.host),
        "has no box:none",
    );
    refused_pull(
        &world,
        &format!("{}/none", registry.host),
        "has no none:latest",
    );
    refused(
        &world,
        &["pull", "Box:1"],
        2,
        "has capital letters, which names never have",
    );
    refused(&world, &["pull", "box:1@sha256:0"], 2, "is not a digest");
}

/// What is said; manifest and configuration may be there, and no name leads to them.
fn refused_pull(world: &World, name: &str, said: &str) -> String {
    let done = world.call(["image", "pull", name]);
    assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
    assert!(done.err().contains(said), "no {said:?}: {done}");
    done.err()
}

#[test]
fn a_registry_without_tls_is_asked_only_where_that_was_allowed() {
    let Some(world) = World::new(Mode::Root).filter(|_| has_tools()) else {
        return;
    };
    let registry = Registry::start(&world);
    let port = registry.host.rsplit(':').next().unwrap();
    // Another name of this machine that is none of a loopback address.
    let name = format!("{}:{port}/box:1", "registry.invalid");
    let done = refused(
        &world,
        &["pull", &name],
        125,
        "failed to connect to registry.invalid",
    );
    assert!(
        done.err()
            .contains("a registry without TLS needs --plain-http"),
        "{done}"
    );
}

#[test]
fn ten_pulls_at_once_fetch_it_once() {
    const PULLS: usize = 10;
    const SIZE: usize = 4_000_000;
    let Some(world) = World::new(Mode::Root).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = Layout::make(&world, &noise(SIZE)) else {
        return;
    };
    let registry = Registry::start(&world);
    layout.copy_to(&format!("docker://{}/box:1", registry.host), &[]);
    let line = Line::to(&registry.host);
    line.allow(u64::MAX);
    let name = format!("{}/box:1", line.host);
    thread::scope(|scope| {
        let pulls: Vec<_> = (0..PULLS)
            .map(|_| scope.spawn(|| image(&world, &["pull", &name])))
            .collect();
        for pull in pulls {
            assert_eq!(pull.join().unwrap()["image"]["digest"], layout.digest());
        }
    });
    let passed = line.passed();
    assert!(passed < 2 * SIZE as u64, "{passed} bytes came");
    assert!(state(&world).iter().all(|name| !name.starts_with("new-")));
}
