//! Replacing the configuration while the gateway runs: by a signal, by a change of its files, or by an operator.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::config::{Config, ConfigError, Files};
use crate::live::ReloadError;
use crate::proxy::Shared;

/// Between two looks at the files of the configuration.
const LOOK: Duration = Duration::from_secs(1);

/// Where a configuration comes from, so that it can be read again.
pub trait Source: Send + Sync + 'static {
    /// Reads it and checks it.
    ///
    /// # Errors
    /// A [`ConfigError`] that names what is wrong.
    fn read(&self) -> Result<Config, ConfigError>;
}

impl<F> Source for F
where
    F: Fn() -> Result<Config, ConfigError> + Send + Sync + 'static,
{
    fn read(&self) -> Result<Config, ConfigError> {
        self()
    }
}

/// Why a configuration is replaced.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// SIGHUP.
    Signal,
    /// One of its files has changed.
    Files,
    /// An operator asked for it on the admin listener.
    Admin,
}

impl Why {
    /// The name in logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::Files => "files",
            Self::Admin => "admin",
        }
    }
}

/// Reads the configuration again, one reload at a time, and knows how the last one went.
pub(crate) struct Reloader {
    source: Option<Arc<dyn Source>>,
    last: Mutex<Last>,
}

/// How the last reload went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    /// Why it was refused, if it was.
    pub(crate) error: Option<ReloadError>,
    /// What an operator has changed since, which the next one loses.
    pub(crate) changed: Vec<String>,
}

/// Changes that are remembered by name; the oldest go first.
const MAX_CHANGED: usize = 64;

impl Reloader {
    pub(crate) fn new(source: Option<Arc<dyn Source>>) -> Self {
        Self { source, last: Mutex::default() }
    }

    pub(crate) fn can_read(&self) -> bool {
        self.source.is_some()
    }

    pub(crate) fn last(&self) -> Last {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Reads the configuration again and puts it into effect, all of it or nothing.
    pub(crate) fn reload(&self, why: Why) -> Result<(), ReloadError> {
        let mut last = self.reloader.lock();
        let read = match &self.reloader.source {
            Some(source) => source.read().map_err(ReloadError::from),
            None => Err(ReloadError::NoSource),
        };
        let result = read.and_then(|config| self.put_into_effect(config));
        let why = why.name();
        match &result {
            Ok(()) => tracing::info!(why, hash = self.config().hash(), "configuration is reloaded"),
            Err(error) => {
                self.metrics.reloads().refused();
                tracing::error!(why, %error, "configuration is refused; what was in effect still is");
            }
        }
        last.error = result.clone().err();
        if result.is_ok() {
            last.changed.clear();
        }
        result
    }

    /// Changes the configuration in effect until the next reload: `change` gets it as it would be written, and what
    /// it makes of it is checked like a file.
    pub(crate) fn change(
        &self,
        what: impl fmt::Display,
        change: impl FnOnce(&mut crate::config::RawConfig) -> Result<(), ConfigError>,
    ) -> Result<(), ReloadError> {
        let mut last = self.reloader.lock();
        let mut raw = self.config().effective();
        change(&mut raw)?;
        self.put_into_effect(raw.check()?)?;
        tracing::warn!(change = %what, hash = self.config().hash(), "configuration is changed until the next reload");
        if last.changed.len() == MAX_CHANGED {
            last.changed.remove(0);
        }
        last.changed.push(what.to_string());
        Ok(())
    }

    /// Puts a configuration into effect from the next decision on. Called under the reloader's lock.
    fn put_into_effect(&self, config: Config) -> Result<(), ReloadError> {
        let active = self.live.successor(config)?;
        // Who goes by the new configuration must find its tenants everywhere.
        self.metrics.reload(&active);
        self.pools.reload(&active);
        self.live.set(Arc::clone(&active));
        self.pools.rewritten.notify_one();
        self.metrics.reloads().replaced(active.hash());
        Ok(())
    }
}

/// Looks at the files of the configuration for ever, and reloads it once they have changed and then stayed the same
/// for one more look, so that nothing is read while it is being written. What was refused is not tried again until
/// the files change once more.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let mut seen = shared.config().files.clone();
    let mut refused: Option<Files> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        let read = shared.config().files.clone();
        let again = read.clone();
        let Ok(now) = tokio::task::spawn_blocking(move || again.look_again()).await else { continue };
        if now != read && now == seen && refused.as_ref() != Some(&now) {
            let reloading = Arc::clone(&shared);
            // Reading may be slow. How it went is in the log.
            let went = tokio::task::spawn_blocking(move || reloading.reload(Why::Files)).await;
            refused = (!matches!(went, Ok(Ok(())))).then(|| now.clone());
        }
        seen = now;
    }
}
