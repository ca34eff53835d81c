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
    /// Others lead us to this machine or its link.
    #[error("`{0}` is this machine or what only it can reach, and another one sent us there")]
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

    /// What all its addresses begin with.
    pub(crate) const fn base(&self) -> &Url {
        &self.base
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

    /// The registry's host, without its port.
    pub(crate) fn name(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    /// Whether the credentials for the registry may be given to a server of tokens: with TLS, else only where
    /// they would go anyway.
    pub(crate) fn may_know(&self, realm: &Url) -> bool {
        realm.scheme() == "https"
            || realm.host_str() == self.base.host_str()
            || (is_loopback(realm) && is_loopback(&self.base))
    }

    /// Refuses an address that the registry must not send us to. Where a name leads is looked at when it is
    /// resolved.
    pub(crate) fn check(&self, url: &Url) -> Result<(), AddressError> {
        let shown = || without_query(url);
        let is_at_home = is_loopback(url) && is_loopback(&self.base);
        let is_registry = url.host_str() == self.base.host_str();
        if is_inward_host(url) && !is_at_home && !is_registry {
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
    match host(url) {
        Some(Ok(address)) => plain(address).is_loopback(),
        Some(Err(name)) => is_local_name(name),
        None => false,
    }
}

/// True for what leads to this machine or to its link as it is written.
fn is_inward_host(url: &Url) -> bool {
    match host(url) {
        Some(Ok(address)) => is_inward(address),
        Some(Err(name)) => is_local_name(name),
        None => false,
    }
}

/// The host of an address: a number, or else a name without the dot that may end it.
fn host(url: &Url) -> Option<Result<IpAddr, &str>> {
    let host = url.host_str()?;
    let number = host.trim_matches(['[', ']']).parse();
    Some(number.map_err(|_| host.trim_end_matches('.')))
}

/// True for names that mean this machine (RFC 6761, 6.3).
pub(crate) fn is_local_name(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// An IPv4 address that is written as an IPv6 one, as itself.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// True for an address of this machine, of no machine, or of the link, where clouds keep their secrets
/// (RFC 6890).
pub(crate) fn is_inward(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(v4) => {
            let is_of_no_machine = v4.octets()[0] == 0;
            v4.is_loopback() || is_of_no_machine || v4.is_link_local() || v4.is_multicast()
        }
        IpAddr::V6(v6) => {
            // `::` and the addresses that IPv4 ones were once written as.
            let is_old = v6.segments()[..6] == [0; 6];
            v6.is_loopback() || is_old || v6.is_unicast_link_local() || v6.is_multicast()
        }
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
        for inward in [
            "0",
            "0.0.0.0",
            "2130706433",
            "localhost.",
            "x.localhost",
            "[::]",
            "[::1]",
            "[::ffff:0:0]",
            "[::127.0.0.1]",
            "169.254.169.254",
            "[fe80::1]",
        ] {
            for scheme in ["http", "https"] {
                let url = format!("{scheme}://{inward}/x");
                let parsed = Url::parse(&url).unwrap();
                let refused = address("a.b/c", true).check(&parsed);
                assert!(matches!(refused, Err(AddressError::Inward(_))), "{url}");
            }
        }
        assert!(!check("localhost/c", "http://169.254.169.254/x"));
        assert!(!check("localhost/c", "http://0.0.0.0/x"));
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
        let may_know = |url: &str| address.may_know(&Url::parse(url).unwrap());
        assert!(may_know("https://tokens.example/x") && may_know("http://a.b:7/x"));
        assert!(!may_know("http://tokens.example/x"));
        let url = Url::parse("https://me:pw@a.b/x?signature=y#z").unwrap();
        assert_eq!(without_query(&url), "https://a.b/x");
    }
}
