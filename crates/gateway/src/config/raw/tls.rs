//! `[tls]`: what the listener shows.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::Files;

/// TLS of the listener as it is written. Files are relative to this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawTls {
    /// The certificate and those between it and its root, in PEM.
    pub cert: Option<PathBuf>,
    /// Its private key, in PEM.
    pub key: Option<PathBuf>,
    /// Whose certificates clients need, in PEM.
    pub client_ca: Option<PathBuf>,
    /// How long a handshake may take, such as `"4s"`.
    pub handshake: Option<String>,
}

impl RawTls {
    /// Looks for its files in a folder, and lists them.
    pub(super) fn beside(&mut self, folder: &Path, files: &mut Files) {
        for file in [&mut self.cert, &mut self.key, &mut self.client_ca].into_iter().flatten() {
            *file = folder.join(&*file);
            files.note(file);
        }
    }
}
