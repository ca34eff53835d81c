//! Requests to a registry: redirects, sign-in, and what its answers mean.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, DATE, HeaderMap, HeaderValue, LOCATION, RANGE,
    RETRY_AFTER, WWW_AUTHENTICATE,
};
use reqwest::{Method, Response, StatusCode, Url};
use serde::Deserialize;
use tidemill_oci::Reference;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;

use crate::address::{Address, host_of, is_loopback, without_query};
use crate::challenge::{self, Challenge};
use crate::credentials::{Credentials, Login};
use crate::progress::{Progress, Watch};
use crate::registry_error::{RegistryError, TransportError, chain};
use crate::resolver::Resolver;
use crate::retry::{Next, Patience, Tries, retry_after};
use crate::secret::Secret;
use crate::token;

/// Addresses that a request is sent on to.
pub(crate) const REDIRECTS_MAX: usize = 5;
/// Bytes of an answer that says what went wrong.
const REFUSAL_BYTES_MAX: u64 = 16 << 10;
/// Characters of it that are shown.
const SHOWN_MAX: usize = 300;
const USER_AGENT: &str = concat!("tidemill/", env!("CARGO_PKG_VERSION"));

/// How registries are talked to.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// Without TLS also where the registry is on another machine.
    pub plain_http: bool,
    /// Who one is.
    pub credentials: Credentials,
    /// How long they are waited for.
    pub patience: Patience,
}

/// Talks to registries. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// With TLS, made when it is needed: a machine without the certificates of authorities can still talk
    /// to a registry of its own.
    encrypted: OnceLock<reqwest::Client>,
    /// Without TLS.
    plain: reqwest::Client,
    /// For this machine, which no proxy would find, without TLS.
    direct: reqwest::Client,
    /// Where names lead.
    resolver: Resolver,
    options: ClientOptions,
}

/// Why nothing can be asked at all.
#[derive(Debug, thiserror::Error)]
#[error("failed to prepare connections")]
pub struct ClientError(#[source] reqwest::Error);

/// A try that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) error: RegistryError,
    /// Whether another try makes sense.
    pub(crate) is_passing: bool,
    /// The wait that the registry asks for.
    pub(crate) asked: Option<Duration>,
    /// True if the registry has not been reached at all, so that its name may be wrong.
    pub(crate) is_unreached: bool,
}

impl Failed {
    pub(crate) const fn passing(error: RegistryError) -> Self {
        Self {
            error,
            is_passing: true,
            asked: None,
            is_unreached: false,
        }
    }
}

impl From<RegistryError> for Failed {
    /// One that stays.
    fn from(error: RegistryError) -> Self {
        Self {
            error,
            is_passing: false,
            asked: None,
            is_unreached: false,
        }
    }
}

impl Failed {
    /// Waits for the next try, or answers the error if there is none. `bytes` is what is there by now.
    ///
    /// Cancel safe.
    pub(crate) async fn wait(
        self,
        tries: &mut Tries,
        bytes: u64,
        watch: &Watch,
    ) -> Result<(), RegistryError> {
        if !self.is_passing {
            return Err(self.error);
        }
        match tries.failed(bytes, self.asked, self.is_unreached) {
            Next::GiveUp { tries: made } => Err(RegistryError::GaveUp {
                tries: made,
                asked: self.asked.filter(|asked| tries.is_too_long(*asked)),
                source: Box::new(self.error),
            }),
            Next::Wait(after) => {
                let problem = chain(&self.error);
                tracing::debug!(%problem, ?after, "another try");
                watch.tell(&Progress::Retrying {
                    host: self.error.host().to_owned(),
                    brief: self.error.brief(),
                    problem,
                    after,
                });
                tokio::time::sleep(after).await;
                Ok(())
            }
        }
    }
}

impl Client {
    /// Prepares connections; none is made.
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        // Whoever was first in this process has chosen the same one.
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let resolver = Resolver::default();
        let plain = || {
            let nobody = rustls::ClientConfig::builder()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth();
            builder(&options.patience, &resolver).tls_backend_preconfigured(nobody)
        };
        Ok(Self {
            shared: Arc::new(Shared {
                encrypted: OnceLock::new(),
                plain: plain().build().map_err(ClientError)?,
                direct: plain().no_proxy().build().map_err(ClientError)?,
                resolver,
                options,
            }),
        })
    }

    /// Begins to talk about one repository.
    pub(crate) fn session(&self, reference: &Reference) -> Result<Session, RegistryError> {
        let address = Address::of(reference, self.shared.options.plain_http).map_err(|source| {
            RegistryError::Host {
                host: reference.registry().to_owned(),
                source,
            }
        })?;
        self.shared.resolver.allow(address.name());
        Ok(Session {
            client: self.clone(),
            registry: reference.registry().to_owned(),
            address,
            login: OnceCell::new(),
            pass: Mutex::new(Pass::default()),
            was_reached: AtomicBool::new(false),
        })
    }

    pub(crate) fn patience(&self) -> Patience {
        self.shared.options.patience
    }

    fn http(&self, url: &Url) -> Result<&reqwest::Client, RegistryError> {
        if url.scheme() == "http" {
            return Ok(if is_loopback(url) {
                &self.shared.direct
            } else {
                &self.shared.plain
            });
        }
        if let Some(client) = self.shared.encrypted.get() {
            return Ok(client);
        }
        let client = builder(&self.patience(), &self.shared.resolver)
            .build()
            .map_err(|error| RegistryError::Tls {
                host: host_of(url),
                source: TransportError::new(&error),
            })?;
        Ok(self.shared.encrypted.get_or_init(|| client))
    }
}

fn builder(patience: &Patience, resolver: &Resolver) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .dns_resolver(Arc::new(resolver.clone()))
        .user_agent(USER_AGENT)
        .connect_timeout(patience.connect)
        // Redirects are followed here, where it is known who may see what.
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
}

/// One repository, and what it takes to get in.
pub(crate) struct Session {
    client: Client,
    /// As it is written in names, and in docker's configuration.
    registry: String,
    address: Address,
    login: OnceCell<Option<Login>>,
    pass: Mutex<Pass>,
    /// Whether anybody has answered yet.
    was_reached: AtomicBool,
}

/// What is shown at the door.
#[derive(Default)]
struct Pass {
    header: Option<HeaderValue>,
    /// Counts the passes, so that of several who were refused with one only the first gets a new one.
    number: u64,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A request, as far as it differs from others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ask {
    /// Which media types are wanted.
    pub(crate) accept: Option<&'static str>,
    /// The first byte that is wanted, if not all are.
    pub(crate) from: u64,
    /// What is asked for, for people.
    pub(crate) what: String,
}

impl Session {
    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn patience(&self) -> Patience {
        self.client.patience()
    }

    /// Asks once, and signs in if that is wanted. Answers 200, 206 and 416 come back.
    ///
    /// Cancel safe.
    pub(crate) async fn get(&self, url: &Url, ask: &Ask) -> Result<Response, Failed> {
        // The first answer may refuse nobody's pass, and the second one that has expired meanwhile.
        for _ in 0..2 {
            let (pass, number) = {
                let pass = self.pass.lock().await;
                (pass.header.clone(), pass.number)
            };
            let response = self.follow(url, ask, pass.as_ref()).await?;
            let is_refused = response.status() == StatusCode::UNAUTHORIZED
                && self.address.is_registry(response.url());
            if !is_refused {
                return self.judge(response, ask).await;
            }
            self.sign_in(&response, number, ask).await?;
        }
        let pass = self.pass.lock().await.header.clone();
        let response = self.follow(url, ask, pass.as_ref()).await?;
        self.judge(response, ask).await
    }

    /// Goes where the registry sends us. Only the registry itself sees the pass.
    async fn follow(
        &self,
        url: &Url,
        ask: &Ask,
        pass: Option<&HeaderValue>,
    ) -> Result<Response, Failed> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if let Some(accept) = ask.accept {
                headers.insert(ACCEPT, HeaderValue::from_static(accept));
            }
            if ask.from > 0
                && let Ok(range) = HeaderValue::from_str(&format!("bytes={}-", ask.from))
            {
                headers.insert(RANGE, range);
            }
            if let Some(pass) = pass.filter(|_| self.address.is_registry(&url)) {
                headers.insert(AUTHORIZATION, pass.clone());
            }
            let response = self.send(Method::GET, url.clone(), headers, None).await?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION);
            let target = location
                .and_then(|location| location.to_str().ok())
                .and_then(|location| url.join(location).ok());
            let Some(target) = target else {
                return Err(self.refusal(response, ask).await);
            };
            self.check(&url, &target)?;
            url = target;
        }
        Err(RegistryError::Redirects {
            host: host_of(&url),
            what: ask.what.clone(),
        }
        .into())
    }

    fn check(&self, from: &Url, to: &Url) -> Result<(), RegistryError> {
        self.address
            .check(to)
            .map_err(|source| RegistryError::Address {
                host: host_of(from),
                source,
            })
    }

    /// Sends one request and waits for the beginning of its answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Option<String>,
    ) -> Result<Response, Failed> {
        let host = host_of(&url);
        let http = self.client.http(&url)?;
        let mut request = http.request(method, url).headers(headers);
        if let Some(body) = body {
            request = request.body(body);
        }
        let patience = self.patience();
        let after = patience.connect + patience.stall;
        match timeout(after, request.send()).await {
            Ok(Ok(response)) => {
                self.was_reached.store(true, Ordering::Relaxed);
                Ok(response)
            }
            Ok(Err(error)) => {
                let step = if error.is_connect() {
                    "connect to"
                } else {
                    "ask"
                };
                let source = TransportError::new(&error);
                Err(Failed {
                    is_unreached: source.is_connect && !self.was_reached.load(Ordering::Relaxed),
                    ..Failed::passing(RegistryError::Transport { step, host, source })
                })
            }
            Err(_) => Err(Failed::passing(RegistryError::Stalled { host, after })),
        }
    }

    /// Waits for the next bytes of an answer.
    pub(crate) async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, Failed> {
        let after = self.patience().stall;
        let next = timeout(after, response.chunk()).await;
        let host = || host_of(response.url());
        match next {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(source)) => Err(Failed::passing(RegistryError::Transport {
                step: "go on reading from",
                host: host(),
                source: TransportError::new(&source),
            })),
            Err(_) => Err(Failed::passing(RegistryError::Stalled {
                host: host(),
                after,
            })),
        }
    }

    /// Says that an answer comes too slowly.
    pub(crate) fn too_slow(&self, response: &Response) -> Failed {
        Failed::passing(RegistryError::Slow {
            host: host_of(response.url()),
            after: self.patience().pace_every,
        })
    }

    /// Reads a whole answer of at most `max` bytes; `None` if it is larger.
    pub(crate) async fn body(
        &self,
        response: &mut Response,
        max: u64,
    ) -> Result<Option<Vec<u8>>, Failed> {
        let after = self.patience().document;
        let host = host_of(response.url());
        let read = async {
            let mut bytes = Vec::new();
            while let Some(chunk) = self.chunk(response).await? {
                bytes.extend_from_slice(&chunk);
                if bytes.len() as u64 > max {
                    return Ok(None);
                }
            }
            Ok(Some(bytes))
        };
        match timeout(after, read).await {
            Ok(result) => result,
            Err(_) => Err(Failed::passing(RegistryError::Slow { host, after })),
        }
    }

    /// What an answer means.
    pub(crate) async fn judge(&self, response: Response, ask: &Ask) -> Result<Response, Failed> {
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                Ok(response)
            }
            _ => Err(self.refusal(response, ask).await),
        }
    }

    async fn refusal(&self, mut response: Response, ask: &Ask) -> Failed {
        let status = response.status();
        let host = host_of(response.url());
        let what = ask.what.clone();
        let header = |name| {
            let value = response.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let asked =
            header(RETRY_AFTER).and_then(|value| retry_after(&value, header(DATE).as_deref()));
        // Whatever can be read of it is good enough.
        let said = match self.body(&mut response, REFUSAL_BYTES_MAX).await {
            Ok(Some(body)) => said(&body),
            _ => String::new(),
        };
        match status {
            StatusCode::NOT_FOUND => RegistryError::NotFound { host, what, said }.into(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => RegistryError::Denied {
                signed_in: self.login.get().is_some_and(Option::is_some),
                host,
                what,
                said,
            }
            .into(),
            _ => Failed {
                error: RegistryError::Status {
                    host,
                    what,
                    status,
                    said,
                },
                is_passing: is_passing(status),
                asked,
                is_unreached: false,
            },
        }
    }

    /// Gets a new pass, unless somebody else has got one since the one with this number.
    async fn sign_in(&self, refused: &Response, number: u64, ask: &Ask) -> Result<(), Failed> {
        let mut pass = self.pass.lock().await;
        if pass.number != number {
            return Ok(());
        }
        let values = refused.headers().get_all(WWW_AUTHENTICATE);
        let challenge = challenge::best(values.iter().filter_map(|value| value.to_str().ok()));
        let host = self.address.host();
        let no_way = |problem: &str| RegistryError::SignIn {
            host: host.clone(),
            problem: problem.to_owned(),
        };
        let login = self.login().await?;
        let text = match challenge {
            None => return Err(no_way("does not say how").into()),
            Some(Challenge::Basic) => {
                let Some(login) = login else {
                    return Err(no_way("you are not").into());
                };
                let Some(basic) = login.to_basic() else {
                    return Err(no_way("a token is known where it wants a password").into());
                };
                Secret::new(format!("Basic {}", basic.reveal()))
            }
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => {
                let realm =
                    Url::parse(&realm).map_err(|_| no_way("sends to an address that is none"))?;
                self.check(refused.url(), &realm)?;
                if login.is_some() && !self.address.may_know(&realm) {
                    return Err(no_way("would send your password elsewhere without TLS").into());
                }
                let order = token::Order {
                    realm,
                    service,
                    scope: scope.unwrap_or_else(|| {
                        format!("repository:{}:pull", self.address.repository())
                    }),
                    what: ask.what.clone(),
                };
                let token = token::fetch(self, &order, login).await?;
                Secret::new(format!("Bearer {}", token.reveal()))
            }
        };
        let mut header =
            HeaderValue::from_str(text.reveal()).map_err(|_| no_way("its token cannot be sent"))?;
        header.set_sensitive(true);
        *pass = Pass {
            header: Some(header),
            number: number + 1,
        };
        Ok(())
    }

    async fn login(&self) -> Result<Option<&Login>, RegistryError> {
        let credentials = &self.client.shared.options.credentials;
        let login = self
            .login
            .get_or_try_init(|| credentials.login(&self.registry))
            .await
            .map_err(|source| RegistryError::Credentials {
                host: self.registry.clone(),
                source,
            })?;
        Ok(login.as_ref())
    }

    /// Says that what came is wrong.
    pub(crate) fn wrong(&self, url: &Url, ask: &Ask, problem: impl Into<String>) -> RegistryError {
        tracing::debug!(url = without_query(url), "an answer is wrong");
        RegistryError::Wrong {
            host: host_of(url),
            what: ask.what.clone(),
            problem: problem.into(),
        }
    }
}

/// True for answers that may be another one the next time.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
}

/// What a registry says when it says no, as far as it is meant for people.
#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    errors: Vec<RefusalReason>,
    details: Option<String>,
}

#[derive(Deserialize)]
struct RefusalReason {
    code: Option<String>,
    message: Option<String>,
}

fn said(body: &[u8]) -> String {
    let Ok(refusal) = serde_json::from_slice::<Refusal>(body) else {
        return String::new();
    };
    let reason = refusal.errors.into_iter().next();
    let text = match reason {
        Some(RefusalReason { code, message }) => {
            let parts = [code, message].into_iter().flatten().collect::<Vec<_>>();
            parts.join(", ")
        }
        None => refusal.details.unwrap_or_default(),
    };
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    shown.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_registries_say_is_shown_and_cannot_move_the_cursor() {
        let body = br#"{"errors":[{"code":"DENIED","message":"no\u001b[2J","detail":[1]}]}"#;
        assert_eq!(said(body), "DENIED, no\\u{1b}[2J");
        assert_eq!(
            said(br#"{"details":"incorrect username"}"#),
            "incorrect username"
        );
        for body in ["", "<html>", "[]", "{}"] {
            assert_eq!(said(body.as_bytes()), "", "{body}");
        }
    }

    #[test]
    fn what_may_pass_is_told_from_what_stays() {
        for (status, expected) in [(429, true), (408, true), (500, true), (503, true)]
            .into_iter()
            .chain([(400, false), (404, false), (501, false), (401, false)])
        {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(is_passing(status), expected, "{status}");
        }
    }
}
