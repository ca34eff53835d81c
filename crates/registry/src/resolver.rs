//! Where names lead: not to this machine or its link, unless the user has named it so. A registry that sends us
//! elsewhere could otherwise make us ask services that only this machine can reach.

use std::collections::HashSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::address::{is_inward, is_local_name};

/// Resolves names as the system does, and looks at what comes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resolver {
    /// The registries that the user has named.
    named: Arc<Mutex<HashSet<String>>>,
}

/// Why a name is not gone to.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` leads to {address}, which is this machine or what only it can reach")]
struct Inward {
    name: String,
    address: SocketAddr,
}

impl Resolver {
    /// Allows a name to lead anywhere: the user has written it.
    pub(crate) fn allow(&self, name: &str) {
        // Whoever panicked, a set of names is whole.
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.insert(name.to_owned());
    }

    fn is_allowed(&self, name: &str) -> bool {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        // A proxy may be here under its plain name; addresses with such a name are refused before.
        named.contains(name) || is_local_name(name)
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let is_allowed = self.is_allowed(&name);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0))
                .await
                .map_err(|error| Box::new(error) as Box<dyn Error + Send + Sync>)?
                .collect();
            if !is_allowed && let Some(&address) = found.iter().find(|at| is_inward(at.ip())) {
                return Err(Box::new(Inward { name, address }) as Box<dyn Error + Send + Sync>);
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_inward_is_gone_to_only_if_the_user_wrote_it() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // A number in place of a name needs nobody to resolve it.
        let resolve = |resolver: &Resolver| {
            let name = "169.254.169.254".parse::<Name>().unwrap();
            runtime
                .block_on(resolver.resolve(name))
                .map(|found| found.count())
        };
        let resolver = Resolver::default();
        let error = resolve(&resolver).err().unwrap().to_string();
        assert!(error.contains("leads to 169.254.169.254:0"), "{error}");
        resolver.allow("169.254.169.254");
        assert_eq!(resolve(&resolver).ok(), Some(1));
    }
}
