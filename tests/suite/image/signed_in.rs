//! Registries that want to know who asks.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rstest::rstest;
use serde_json::json;
use tidemill_tests::{Done, Mode, World};

use super::made::Layout;
use super::registry::{AUTH, Registry, has_tools};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn docker_s_sign_in_is_used(#[case] mode: Mode) {
    let Some(world) = World::new(mode).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = Layout::make(&world, b"second") else {
        return;
    };
    let registry = Registry::with_password(&world);
    let host = &registry.host;
    layout.copy_to(
        &format!("docker://{host}/box:1"),
        &["--dest-creds", "me:secret"],
    );
    let name = format!("{host}/box:1");
    let pull = |variables: &[(&str, &str)]| {
        let mut trial = world.command(["image", "pull", &name]);
        for (name, value) in variables {
            trial = trial.variable(name, value);
        }
        trial.run()
    };
    let says = |done: &Done, text: &str| {
        assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
        assert!(done.err().contains(text), "no {text:?}: {done}");
        assert!(!done.err().contains("secret"), "{done}");
    };
    says(&pull(&[]), "wants to be signed in to, and you are not");
    world.write(
        "../home/.docker/config.json",
        json!({ "auths": { host: { "auth": AUTH } } }).to_string(),
    );
    let done = pull(&[]);
    assert_eq!(done.code, 0, "{done}");

    let wrong = json!({ "auths": { host: { "username": "me", "password": "other-secret" } } });
    world.write("wrong/config.json", wrong.to_string());
    let wrong = world.work().join("wrong");
    says(
        &pull(&[("DOCKER_CONFIG", wrong.to_str().unwrap())]),
        "does not give box:1 to you",
    );
    let damaged = world.write("damaged/config.json", "{\"auths\": \"secret\"");
    let damaged = damaged.parent().unwrap().to_str().unwrap();
    says(
        &pull(&[("DOCKER_CONFIG", damaged)]),
        "is not docker's configuration: line 1",
    );

    let helpers = world.make_dir("helpers");
    let script = format!(
        "#!/bin/sh\nread -r server\n[ \"$1 $server\" = 'get {host}' ] || exit 1\n\
         echo '{{\"ServerURL\":\"x\",\"Username\":\"me\",\"Secret\":\"secret\"}}'\n"
    );
    let helper = world.write("helpers/docker-credential-of-tests", script);
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let config = json!({ "credHelpers": { host: "of-tests" } });
    let config = world.write("helped/config.json", config.to_string());
    let config = config.parent().unwrap().to_str().unwrap().to_owned();
    let path = format!("{}:/usr/bin:/bin", helpers.display());
    let helped = [("DOCKER_CONFIG", config.as_str()), ("PATH", path.as_str())];
    let done = pull(&helped);
    assert_eq!(done.code, 0, "{done}");
    fs::write(&helper, "#!/bin/sh\necho 'the store is locked'\nexit 1\n").unwrap();
    says(&pull(&helped), "`docker-credential-of-tests` failed for");
    says(&pull(&helped), "the store is locked");
}
