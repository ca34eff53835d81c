//! Registries that keep their blobs elsewhere, and those that send us where we do not go.

use serde_json::json;

use crate::fake::{Fake, Reply};
use crate::made::{Made, Puller, noise};

#[test]
fn another_host_gets_the_range_and_not_the_credentials() {
    let made = Made::of(&[noise(7, 100_000)]);
    let layer = made.layers[0].to_string();
    let storage = Fake::at("127.0.0.2", made.served.clone(), move |request, own| {
        (request.path.ends_with(&layer) && request.earlier == 0).then(|| own.clone().cut_at(5000))
    });
    let elsewhere = storage.host();
    let fake = Fake::with_rule(made.served.clone(), move |request, _| {
        if request.header("authorization").is_none() {
            return Some(Reply::new(401).header("WWW-Authenticate", "Basic realm=\"x\""));
        }
        request.is_for("blobs").then(|| {
            let location = format!("http://{elsewhere}{}", request.path);
            Reply::new(307).header("Location", location)
        })
    });
    let auths = json!({ "auths": { fake.host(): { "username": "me", "password": "pw" } } });
    Puller::signed_in(&auths).pull(&fake).unwrap();
    let there = storage.requests();
    assert_eq!(there.len(), 3);
    assert!(
        there
            .iter()
            .all(|request| request.header("authorization").is_none()),
        "{there:?}"
    );
    assert_eq!(there.last().unwrap().from(), Some(5000));
    assert!(
        fake.requests_for("blobs")
            .iter()
            .all(|r| r.header("authorization").is_some())
    );
}

#[test]
fn a_relative_address_is_one_of_the_registry() {
    let made = Made::of(&[noise(7, 1000)]);
    let served = made.served.clone();
    let fake = Fake::with_rule(made.served, move |request, _| {
        if let Some(path) = request.path.strip_prefix("/moved") {
            let (_, bytes) = &served[path];
            return Some(Reply::new(200).body(bytes.clone()));
        }
        (request.is_for("blobs"))
            .then(|| Reply::new(302).header("Location", format!("/moved{}", request.path)))
    });
    Puller::new().pull(&fake).unwrap();
}

#[test]
fn circles_and_other_machines_without_tls_are_refused() {
    for (location, expected) in [
        (None, "sends on more than 5 times"),
        (
            Some("http://192.0.2.1/x?signature=secret"),
            "`http://192.0.2.1/x` is not encrypted",
        ),
        (Some("file:///etc/passwd"), "is not an address"),
        (Some(""), "answered 302"),
    ] {
        let made = Made::of(&[noise(7, 1000)]);
        let fake = Fake::with_rule(made.served, move |request, _| {
            let target = location.map_or_else(|| request.path.clone(), str::to_owned);
            let reply = Reply::new(302);
            Some(match target.as_str() {
                "" => reply,
                target => reply.header("Location", target),
            })
        });
        let error = Puller::new().refused(&fake);
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
