//! Where a registry is, and where it may send us.

use std::net::IpAddr;

use reqwest::Url;
use tidemill_oci::Reference;

/// What people call `docker.io` answers there.
const DOCKER_HUB: &str = "registry-1.docker.io";

/// The beginning of all addresses of a repository.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    base: Url,
    repository: String,
    plain_http: bool,
}

/// Why an address is not gone to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Nothing that could be gone to.
    #[error("`{0}` is not an address")]
    Malformed(String),
    /// Not encrypted.
    #[error("`{0}` is not encrypted, and is on another machine")]
    Plain(String),
    /// Others lead us to this machine.
    #[error("`{0}` is on this machine, and another one sent us there")]
    Inward(String),
}

impl Address {
    /// The address of an image's repository. On this machine and where it was asked for, without TLS.
    pub(crate) fn of(reference: &Reference, plain_http: bool) -> Result<Self, AddressError> {
        let host = match reference.registry() {
            "docker.io" => DOCKER_HUB,
            host => host,
        };
        let parse = |scheme: &str| {
            let text = format!("{scheme}://{host}/");
            Url::parse(&text).map_err(|_| AddressError::Malformed(text))
        };
        let mut base = parse("https")?;
        if plain_http || is_loopback(&base) {
            base = parse("http")?;
        }
        Ok(Self {
            base,
            repository: reference.repository().to_owned(),
            plain_http,
        })
    }

    /// The repository, as tokens are asked for it.
    pub(crate) fn repository(&self) -> &str {
        &self.repository
    }

    /// The registry's host and port.
    pub(crate) fn host(&self) -> String {
        host_of(&self.base)
    }

    /// `kind` is `manifests` or `blobs`, `name` a tag or a digest: nothing that needs escaping.
    pub(crate) fn of_part(&self, kind: &str, name: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("v2/{}/{kind}/{name}", self.repository));
        url
    }

    /// True for the registry itself, where its credentials may go.
    pub(crate) fn is_registry(&self, url: &Url) -> bool {
        url.origin() == self.base.origin()
    }

    /// Refuses an address that the registry must not send us to.
    pub(crate) fn check(&self, url: &Url) -> Result<(), AddressError> {
        let shown = || without_query(url);
        if is_loopback(url) && !is_loopback(&self.base) {
            return Err(AddressError::Inward(shown()));
        }
        match url.scheme() {
            "https" => Ok(()),
            "http" if self.plain_http || is_loopback(url) => Ok(()),
            "http" => Err(AddressError::Plain(shown())),
            _ => Err(AddressError::Malformed(shown())),
        }
    }
}

/// The host and port of an address, as people write them.
pub(crate) fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// An address for people. Queries of signed addresses are secrets.
pub(crate) fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Neither can fail for an address with a host; one without has no password.
    url.set_password(None).ok();
    url.set_username("").ok();
    url.to_string()
}

/// True for addresses of this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else {
        return false;
    };
    let host = host.trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback(),
        Ok(IpAddr::V6(address)) => {
            let inner = address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback());
            address.is_loopback() || inner
        }
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn address(reference: &str, plain_http: bool) -> Address {
        Address::of(&reference.parse().unwrap(), plain_http).unwrap()
    }

    #[test]
    fn registries_are_found_where_they_are() {
        for (reference, plain_http, expected) in [
            (
                "busybox",
                false,
                "https://registry-1.docker.io/v2/library/busybox/blobs/x",
            ),
            ("a.b/c", false, "https://a.b/v2/c/blobs/x"),
            ("a.b:80/c", true, "http://a.b/v2/c/blobs/x"),
            (
                "localhost:5000/c",
                false,
                "http://localhost:5000/v2/c/blobs/x",
            ),
            (
                "127.1.2.3:5000/c",
                false,
                "http://127.1.2.3:5000/v2/c/blobs/x",
            ),
            ("[::1]:5000/c", false, "http://[::1]:5000/v2/c/blobs/x"),
        ] {
            let url = address(reference, plain_http).of_part("blobs", "x");
            assert_eq!(url.as_str(), expected);
        }
    }

    #[test]
    fn nobody_sends_us_where_we_would_not_go() {
        let check = |reference: &str, url: &str| {
            address(reference, false)
                .check(&Url::parse(url).unwrap())
                .is_ok()
        };
        assert!(check("a.b/c", "https://storage.example/x"));
        assert!(!check("a.b/c", "http://storage.example/x"));
        assert!(!check("a.b/c", "https://localhost/x"));
        assert!(!check("a.b/c", "https://[::ffff:127.0.0.1]/x"));
        assert!(!check("a.b/c", "file:///etc/passwd"));
        assert!(check("localhost/c", "http://127.0.0.1:9/x"));
        assert!(!check("localhost/c", "http://a.b/x"));
        let plain = address("a.b/c", true);
        assert!(
            plain
                .check(&Url::parse("http://storage.example/x").unwrap())
                .is_ok()
        );
    }

    #[test]
    fn credentials_belong_to_the_registry_alone() {
        let address = address("a.b:5000/c", false);
        let is_registry = |url: &str| address.is_registry(&Url::parse(url).unwrap());
        assert!(is_registry("https://a.b:5000/other"));
        for url in ["https://a.b/x", "http://a.b:5000/x", "https://a.b.c:5000/x"] {
            assert!(!is_registry(url), "{url}");
        }
        let url = Url::parse("https://me:pw@a.b/x?signature=y#z").unwrap();
        assert_eq!(without_query(&url), "https://a.b/x");
    }
}
