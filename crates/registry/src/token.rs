//! Tokens, which registries want instead of passwords.
//! <https://distribution.github.io/distribution/spec/auth/token/> and, for tokens that others are got with,
//! <https://distribution.github.io/distribution/spec/auth/oauth/>

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;

use crate::client::{Ask, Failed, Session};
use crate::credentials::Login;
use crate::registry_error::RegistryError;
use crate::secret::Secret;

/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// What this program is called there.
const CLIENT_ID: &str = "tidemill";

/// Which token is wanted.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) realm: Url,
    pub(crate) service: Option<String>,
    pub(crate) scope: String,
    /// What it is wanted for, for people.
    pub(crate) what: String,
}

#[derive(Deserialize)]
struct Answer {
    token: Option<Secret>,
    access_token: Option<Secret>,
}

/// Gets a token, as whom one is signed in, else as nobody.
///
/// Cancel safe.
pub(crate) async fn fetch(
    session: &Session,
    order: &Order,
    login: Option<&Login>,
) -> Result<Secret, Failed> {
    let mut headers = HeaderMap::new();
    let mut url = order.realm.clone();
    let (method, body) = match login {
        Some(Login::Identity(token)) => {
            let form = HeaderValue::from_static("application/x-www-form-urlencoded");
            headers.insert(CONTENT_TYPE, form);
            (Method::POST, Some(form_of(order, token)))
        }
        password => {
            {
                let mut query = url.query_pairs_mut();
                if let Some(service) = &order.service {
                    query.append_pair("service", service);
                }
                query.append_pair("scope", &order.scope);
            }
            if let Some(basic) = password.and_then(Login::to_basic)
                && let Ok(mut value) = HeaderValue::from_str(&format!("Basic {}", basic.reveal()))
            {
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
            (Method::GET, None)
        }
    };
    let ask = Ask {
        what: format!("a token for {}", order.what),
        ..Ask::default()
    };
    let response = session.send(method, url, headers, body).await?;
    let mut response = session.judge(response, &ask).await?;
    let wrong = |problem: &str| -> RegistryError { session.wrong(&order.realm, &ask, problem) };
    let body = session
        .body(&mut response, ANSWER_BYTES_MAX)
        .await?
        .ok_or_else(|| wrong("more than 1 MiB"))?;
    // The library's own words may repeat what stands there.
    let answer: Answer = serde_json::from_slice(&body).map_err(|_| wrong("not a token"))?;
    let token = answer.token.or(answer.access_token);
    Ok(token.ok_or_else(|| wrong("no token in it"))?)
}

/// The body that asks for a token by another one.
fn form_of(order: &Order, token: &Secret) -> String {
    let mut url = order.realm.clone();
    url.set_query(None);
    {
        let mut form = url.query_pairs_mut();
        form.append_pair("grant_type", "refresh_token");
        form.append_pair("client_id", CLIENT_ID);
        form.append_pair("scope", &order.scope);
        form.append_pair("refresh_token", token.reveal());
        if let Some(service) = &order.service {
            form.append_pair("service", service);
        }
    }
    url.query().unwrap_or_default().to_owned()
}
