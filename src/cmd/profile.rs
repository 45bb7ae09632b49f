//! Engine profiles by name or by file.

use std::path::Path;

use elasticserve_core::engine::Profile;

use super::BadConfig;

/// The profile of the deployment that the published measurements are of.
pub(crate) const DEFAULT: &str = "gb10-qwen3-8b-fp8";

/// A built-in profile by its name, or one from a file that ends in `.toml`.
pub(crate) fn load(profile: &str) -> Result<Profile, BadConfig> {
    let text = text(profile)?;
    Profile::from_toml(&text).map_err(|error| wrong(profile, &error))
}

/// The text of its file.
pub(crate) fn text(profile: &str) -> Result<String, BadConfig> {
    if Path::new(profile).extension().is_none_or(|e| e != "toml") {
        return Profile::built_in_text(profile)
            .map(str::to_owned)
            .map_err(|error| BadConfig(format!("--profile: {error}; or name a .toml file")));
    }
    std::fs::read_to_string(profile).map_err(|error| wrong(profile, &error))
}

fn wrong(profile: &str, error: &dyn std::fmt::Display) -> BadConfig {
    BadConfig(format!("--profile {profile}: {error}"))
}
