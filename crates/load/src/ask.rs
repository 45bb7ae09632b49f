//! One question to a server beside the load: its metrics, or an order that it offers.

use std::time::Duration;

use http::{Method, StatusCode};

use crate::clock::Clock;
use crate::config::LoadConfig;
use crate::dial::{Dialer, Route};
use crate::probe::Probe;
use crate::request::identity_headers;
use crate::run::resolve;
use crate::tls::Tls;

/// Asks the server of a configuration, with its certificates and its key, and gives the status and the body of
/// the answer. `path` starts with a slash and is below the base URL.
///
/// # Errors
/// Says why there is no answer: no connection, none in time, or one of more than 1 MiB.
pub async fn ask(config: &LoadConfig, method: Method, path: &str) -> Result<(StatusCode, Vec<u8>), String> {
    let tls = Tls::new(&config.url, &config.trust)?;
    let route = Route { addresses: resolve(config).await.map_err(|e| e.to_string())?, tls };
    let dialer = Dialer::new(route, Clock::starting_in(Duration::ZERO));
    let headers = identity_headers(config).map_err(|e| e.to_string())?;
    let probe = Probe { dialer: &dialer, url: &config.url, headers, connect: config.timeouts.connect.to_std() };
    probe.send(method, path).await
}
