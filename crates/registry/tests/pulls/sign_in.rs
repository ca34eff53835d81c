//! Tokens, passwords, and tokens that others are got with.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::fake::{Fake, Reply, Request};
use crate::made::{Made, Puller, REPOSITORY, noise};

/// A registry that gives a token to whoever `may` have one, at `/token` of its own.
fn with_tokens(may: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Fake {
    let made = Made::of(&[noise(7, 1000)]);
    Fake::with_rule(made.served, move |request, _| {
        if request.path.starts_with("/token") {
            return Some(if may(request) {
                Reply::new(200).body(r#"{"token":"good","expires_in":60}"#)
            } else {
                Reply::new(401).body(r#"{"details":"incorrect username or password"}"#)
            });
        }
        (request.header("authorization") != Some("Bearer good")).then(|| challenge(request))
    })
}

/// Sends to `/token` of the host that was asked.
fn challenge(request: &Request) -> Reply {
    let host = request.header("host").unwrap_or_default();
    let value = format!(
        "Bearer realm=\"http://{host}/token\",service=\"a service\",scope=\"repository:{REPOSITORY}:pull\""
    );
    Reply::new(401).header("WWW-Authenticate", value)
}

fn basic(text: &str) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

#[test]
fn a_token_is_got_by_nobody_and_used_for_everything() {
    let fake = with_tokens(|request| request.header("authorization").is_none());
    Puller::new().pull(&fake).unwrap();
    let tokens = fake.requests_for("/token");
    assert_eq!(tokens.len(), 1);
    assert_eq!(
        tokens[0].path,
        "/token?service=a+service&scope=repository%3Asome%2Fimage%3Apull"
    );
    assert_eq!(
        fake.requests_for("blobs").len(),
        2,
        "no request is refused twice"
    );
}

#[test]
fn who_is_signed_in_gets_a_token_by_password() {
    let fake =
        with_tokens(|request| request.header("authorization") == Some(basic("me:p:w").as_str()));
    let config = json!({ "auths": { fake.host(): { "auth": STANDARD.encode("me:p:w") } } });
    Puller::signed_in(&config).pull(&fake).unwrap();
    let error = Puller::new().refused(&fake);
    assert!(
        error.contains("to somebody who is not signed in"),
        "{error}"
    );
    assert!(
        error.contains(&format!("docker login {}", fake.host())),
        "{error}"
    );
    let config = json!({ "auths": { fake.host(): { "username": "me", "password": "hunter2" } } });
    let error = Puller::signed_in(&config).refused(&fake);
    assert!(
        error.contains("to you: incorrect username or password"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn an_identity_token_is_exchanged() {
    let fake = with_tokens(|request| {
        request.method == "POST"
            && request.body.contains("grant_type=refresh_token")
            && request.body.contains("refresh_token=id+%2B+token")
            && request.body.contains("service=a+service")
            && !request.path.contains("id")
    });
    let config = json!({ "auths": { fake.host(): { "identitytoken": "id + token" } } });
    Puller::signed_in(&config).pull(&fake).unwrap();
}

#[test]
fn a_token_that_expires_is_replaced_once() {
    let made = Made::of(&[noise(7, 1000), noise(8, 1000)]);
    let issued = AtomicUsize::new(0);
    let fake = Fake::with_rule(made.served, move |request, _| {
        if request.path.starts_with("/token") {
            let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
            return Some(Reply::new(200).body(format!(r#"{{"access_token":"t{number}"}}"#)));
        }
        // Layers want the second one, as if the first had expired meanwhile.
        let wanted = if request.is_for("blobs") {
            "Bearer t2"
        } else {
            "Bearer t1"
        };
        (request.header("authorization") != Some(wanted)).then(|| challenge(request))
    });
    Puller::new().pull(&fake).unwrap();
    assert_eq!(fake.requests_for("/token").len(), 2);
}

#[test]
fn a_password_is_sent_where_it_is_asked_for() {
    let made = Made::of(&[noise(7, 1000)]);
    let fake = Fake::with_rule(made.served, |request, _| {
        let is_known = request.header("authorization") == Some(basic("me:pw").as_str());
        (!is_known).then(|| Reply::new(401).header("WWW-Authenticate", "Basic realm=\"r\""))
    });
    let config = json!({ "auths": { fake.host(): { "auth": STANDARD.encode("me:pw") } } });
    Puller::signed_in(&config).pull(&fake).unwrap();
    assert!(
        Puller::new()
            .refused(&fake)
            .contains("wants to be signed in to, and you are not")
    );
    let token = json!({ "auths": { fake.host(): { "identitytoken": "x" } } });
    let error = Puller::signed_in(&token).refused(&fake);
    assert!(
        error.contains("a token is known where it wants a password"),
        "{error}"
    );
    let wrong = json!({ "auths": { fake.host(): { "auth": STANDARD.encode("me:no") } } });
    let before = fake.requests().len();
    assert!(
        Puller::signed_in(&wrong)
            .refused(&fake)
            .contains("does not give")
    );
    assert!(
        fake.requests().len() - before <= 3,
        "it is not tried again and again"
    );
}

#[test]
fn what_cannot_be_understood_is_told() {
    for (value, expected) in [
        (None, "does not say how"),
        (Some("Digest realm=\"x\""), "does not say how"),
        (
            Some("Bearer realm=\"nowhere\""),
            "sends to an address that is none",
        ),
        (
            Some("Bearer realm=\"http://192.0.2.1/token\""),
            "is not encrypted",
        ),
    ] {
        let made = Made::of(&[]);
        let fake = Fake::with_rule(made.served, move |_, _| {
            let reply = Reply::new(401);
            Some(match value {
                Some(value) => reply.header("WWW-Authenticate", value),
                None => reply,
            })
        });
        let error = Puller::new().refused(&fake);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_password_goes_nowhere_else_without_tls() {
    let made = Made::of(&[]);
    let fake = Fake::with_rule(made.served, |_, _| {
        let value = "Bearer realm=\"http://192.0.2.1/token\"";
        Some(Reply::new(401).header("WWW-Authenticate", value))
    });
    let config = json!({ "auths": { fake.host(): { "auth": STANDARD.encode("me:pw") } } });
    let mut puller = Puller::signed_in(&config);
    puller.options.plain_http = true;
    let error = puller.refused(&fake);
    assert!(
        error.contains("would send your password elsewhere without TLS"),
        "{error}"
    );
}
