//! How a registry wants to be signed in to: its `WWW-Authenticate`.
//! <https://distribution.github.io/distribution/spec/auth/token/>

use http_auth::parser::ChallengeParser;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A token, from somewhere else.
    Bearer {
        /// Where.
        realm: String,
        /// For which service.
        service: Option<String>,
        /// For what.
        scope: Option<String>,
    },
    /// A name and a password.
    Basic,
}

/// The best of all challenges in these header values: a token goes before a password.
pub(crate) fn best<'a>(values: impl Iterator<Item = &'a str>) -> Option<Challenge> {
    let all = values.flat_map(read);
    all.min_by_key(|challenge| matches!(challenge, Challenge::Basic))
}

/// The challenges of one value, as far as it can be read.
fn read(value: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    for challenge in ChallengeParser::new(value) {
        let Ok(challenge) = challenge else {
            break;
        };
        let parameter = |name: &str| {
            let known = |(key, _): &&(&str, _)| key.eq_ignore_ascii_case(name);
            (challenge.params.iter().find(known)).map(|(_, value)| value.to_unescaped())
        };
        if challenge.scheme.eq_ignore_ascii_case("basic") {
            found.push(Challenge::Basic);
        } else if challenge.scheme.eq_ignore_ascii_case("bearer")
            && let Some(realm) = parameter("realm")
        {
            found.push(Challenge::Bearer {
                realm,
                service: parameter("service"),
                scope: parameter("scope"),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_before_a_password() {
        let bearer =
            r#"Bearer realm="https://a/t?x=\"y\"",service="r,s",scope="repository:a/b:pull""#;
        let found = best(["Basic realm=\"x\"", bearer].into_iter());
        assert_eq!(
            found,
            Some(Challenge::Bearer {
                realm: "https://a/t?x=\"y\"".to_owned(),
                service: Some("r,s".to_owned()),
                scope: Some("repository:a/b:pull".to_owned()),
            })
        );
        assert_eq!(
            best(["basic realm=\"x\""].into_iter()),
            Some(Challenge::Basic)
        );
        let both = "Negotiate, Basic realm=\"x\", bearer realm=\"https://a\"";
        assert!(matches!(
            best([both].into_iter()),
            Some(Challenge::Bearer { .. })
        ));
    }

    #[test]
    fn what_cannot_be_read_asks_for_nothing() {
        for value in [
            "",
            "Bearer",
            "Bearer service=\"x\"",
            "Digest realm=\"x\"",
            "\u{1}=,=\"",
        ] {
            assert_eq!(best([value].into_iter()), None, "{value}");
        }
    }
}
