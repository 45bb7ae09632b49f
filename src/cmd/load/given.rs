//! Which flags stand on the command line, so that only what a user did not say is taken from elsewhere.

use std::collections::BTreeSet;

use clap::ArgMatches;
use clap::parser::ValueSource;

/// The flags that were given, by the names of their fields. A default or the environment gives none.
#[derive(Debug, Default)]
pub(crate) struct Given(BTreeSet<String>);

impl Given {
    /// The flags of a verb.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let ids = matches.ids().map(|id| id.as_str());
        // Groups have no source.
        let given = ids.filter(|id| matches.try_contains_id(id).is_ok());
        let given = given.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        Self(given.map(str::to_owned).collect())
    }

    pub(crate) fn has(&self, flag: &str) -> bool {
        self.0.contains(flag)
    }

    /// Puts a value in the place of a flag that was not given.
    pub(super) fn fill<T>(&self, flag: &str, place: &mut T, value: Option<T>) {
        if let Some(value) = value.filter(|_| !self.has(flag)) {
            *place = value;
        }
    }
}
