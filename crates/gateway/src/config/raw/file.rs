//! Reading configuration files.

use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{RawConfig, RawTenant};
use crate::config::{ConfigError, Files, value};

/// A file of tenants.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantsFile {
    default_tenant: Option<String>,
    tenants: Vec<RawTenant>,
}

impl RawConfig {
    /// Reads a configuration file, and the file of tenants that it names.
    ///
    /// # Errors
    /// [`ConfigError::File`] names the file; then see [`RawConfig::from_toml`].
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let mut files = Files::default();
        let mut raw: Self = read_file(path, &mut files)?;
        raw.files = files;
        let folder = path.parent().unwrap_or(Path::new(""));
        raw.beside(folder);
        raw.read_tenants(folder)?;
        Ok(raw)
    }

    /// Takes the files that it names, but for the tenants', from a folder: that of the file in which it is written.
    pub fn beside(&mut self, folder: &Path) {
        let of_pools = self.pools.iter_mut().flatten().map(|p| &mut p.profile);
        let of_backends = self.backends.iter_mut().flatten().map(|b| &mut b.profile);
        let profiles = of_pools.chain(of_backends).chain([&mut self.predict.profile]);
        for profile in profiles.flatten().filter(|p| is_file(p)) {
            *profile = folder.join(&*profile).to_string_lossy().into_owned();
            self.files.note(Path::new(&*profile));
        }
        self.tls.beside(folder, &mut self.files);
        for backend in self.backends.iter_mut().flatten() {
            for file in [&mut backend.key_file, &mut backend.ca_file].into_iter().flatten() {
                *file = folder.join(&*file);
                self.files.note(file);
            }
        }
    }

    /// Reads the text of a configuration file.
    ///
    /// # Errors
    /// [`ConfigError::Parse`] names the key, the line and, for an unknown key, the nearest known one.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        from_toml(text)
    }

    /// Puts the tenants of `tenants_file` in its place.
    fn read_tenants(&mut self, folder: &Path) -> Result<(), ConfigError> {
        let Some(file) = self.tenants_file.take() else { return Ok(()) };
        if self.tenants.is_some() || self.default_tenant.is_some() {
            return Err(value(
                "tenants_file",
                "tenants and default_tenant are in this file too; keep them in one of the two",
            ));
        }
        let file = folder.join(file);
        let read: TenantsFile = read_file(&file, &mut self.files).map_err(|e| value("tenants_file", &e.to_string()))?;
        self.tenants = Some(read.tenants);
        self.default_tenant = read.default_tenant;
        Ok(())
    }
}

/// Whether a profile is named by its file.
pub(in crate::config) fn is_file(profile: &str) -> bool {
    Path::new(profile).extension().is_some_and(|e| e == "toml")
}

fn read_file<T: DeserializeOwned>(path: &Path, files: &mut Files) -> Result<T, ConfigError> {
    files.note(path);
    let wrong = |problem: String| ConfigError::File { path: path.to_owned(), problem };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    from_toml(&text).map_err(|e| wrong(e.to_string()))
}

fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, ConfigError> {
    elasticserve_core::config::from_toml(text).map_err(ConfigError::Parse)
}
