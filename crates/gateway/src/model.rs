//! Which model a request asks for, and which pool serves it.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::reply::Refusal;

/// The pools by what they serve.
#[derive(Debug)]
pub(crate) struct Models {
    by_name: BTreeMap<String, usize>,
    /// The pool of what names no model.
    unnamed: Option<usize>,
    /// Whether there is one pool that serves whatever is asked for.
    any: bool,
    several: bool,
}

impl Models {
    pub(crate) fn new(config: &Config) -> Self {
        let named = |(place, pool): (usize, &crate::config::Pool)| {
            let models = pool.models.iter().flatten().cloned();
            models.map(|model| (model, place)).collect::<Vec<_>>()
        };
        let several = config.pools.len() > 1;
        Self {
            by_name: config.pools.iter().enumerate().flat_map(named).collect(),
            unnamed: if several { config.default_pool } else { Some(0) },
            any: config.pools.iter().any(|p| p.models.is_none()),
            several,
        }
    }

    /// The pool of a request for a model; none serves another one than it is asked for.
    pub(crate) fn pool(&self, model: Option<&str>) -> Result<usize, Refusal> {
        match model {
            // An engine checks the name itself.
            _ if self.any => Ok(0),
            Some(name) => self.by_name.get(name).copied().ok_or_else(|| Refusal::UnknownModel(shortened(name))),
            None => self.unnamed.ok_or(Refusal::NoModel),
        }
    }

    /// Whether the pool of a request depends on its model.
    pub(crate) const fn matter(&self) -> bool {
        !self.any
    }

    /// Whether there are several pools, so that a list of models has to be put together.
    pub(crate) const fn are_in_several_pools(&self) -> bool {
        self.several
    }
}

/// The longest name that an answer repeats, in characters.
const MAX_SHOWN: usize = 128;

/// A name that a client has made up, no longer than an answer or a log repeats.
pub(crate) fn shortened(name: &str) -> String {
    let mut shown: String = name.chars().take(MAX_SHOWN).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RawConfig;

    fn models(text: &str) -> Models {
        let backends: String = text
            .matches("name =")
            .enumerate()
            .map(|(i, _)| format!("[[backends]]\nurl = 'http://h:{}'\npool = 'p{i}'\n", i + 1))
            .collect();
        let backends = if backends.is_empty() { "[[backends]]\nurl = 'http://h:1'\n".to_owned() } else { backends };
        Models::new(&RawConfig::from_toml(&format!("{text}{backends}")).unwrap().check().unwrap())
    }

    #[test]
    fn a_request_goes_to_the_pool_of_its_model_and_nowhere_else() {
        let two = "[[pools]]\nname = 'p0'\nmodels = ['a', 'b/c']\n[[pools]]\nname = 'p1'\nmodels = ['d']\n";
        let routes = models(two);
        for (model, pool) in [("a", 0), ("b/c", 0), ("d", 1)] {
            assert_eq!(routes.pool(Some(model)).unwrap(), pool);
        }
        for unknown in ["A", "a ", "", "b", "p0", "d\0"] {
            assert!(matches!(routes.pool(Some(unknown)), Err(Refusal::UnknownModel(_))), "{unknown:?}");
        }
        assert!(matches!(routes.pool(None), Err(Refusal::NoModel)));
        assert_eq!(models(&format!("default_pool = 'p1'\n{two}")).pool(None).unwrap(), 1);
    }

    #[test]
    fn one_pool_takes_all_models_unless_it_names_them() {
        assert_eq!((models("").pool(Some("any")).unwrap(), models("").pool(None).unwrap()), (0, 0));
        let named = models("[[pools]]\nname = 'p0'\nmodels = ['a']\n");
        assert_eq!((named.pool(Some("a")).unwrap(), named.pool(None).unwrap()), (0, 0));
        assert!(matches!(named.pool(Some("b")), Err(Refusal::UnknownModel(_))));
    }
}
