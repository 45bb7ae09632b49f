//! The campaign against a server.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use elasticserve_core::calibrate::{Campaign, Probe, SettingsError};
use elasticserve_core::ledger::Tolerances;
use elasticserve_core::time::Span;
use elasticserve_load::{BaseUrl, Endpoint, LoadConfig, LoadError, Progress, PromptKind, Secret, Stop, Trust};
use elasticserve_report::{Run, read_run};

use super::{Args, Measured, rough};
use crate::cmd::load::fresh_salt;
use crate::cmd::{BadConfig, say_error};

/// How late the generator may be in the 99th percentile before a note says so.
const MAX_SEND_LAG: Span = Span::from_millis(50);

/// How requests are put, so that the server takes them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Form {
    prompt: PromptKind,
    ignore_eos: bool,
}

/// What a server is asked with until it answers: a strict one refuses fields that it does not know.
const FORMS: [Form; 3] = [
    Form { prompt: PromptKind::Ids, ignore_eos: true },
    Form { prompt: PromptKind::Text, ignore_eos: true },
    Form { prompt: PromptKind::Text, ignore_eos: false },
];

impl Form {
    fn words(self) -> &'static str {
        match (self.prompt, self.ignore_eos) {
            (PromptKind::Ids, _) => "token ids",
            (PromptKind::Text, true) => "text",
            (PromptKind::Text, false) => "text without ignore_eos, so answers may end early",
        }
    }
}

/// One campaign in progress.
struct Session<'a> {
    args: &'a Args,
    url: BaseUrl,
    trust: Trust,
    folder: &'a Path,
    stop: &'a Stop,
    /// Runs so far, those that were refused included.
    runs: u32,
    forms: Vec<Form>,
}

/// Offers probe after probe, each into a folder of its own.
pub(super) async fn measure(args: &Args, url: BaseUrl, folder: &Path, stop: &Stop) -> anyhow::Result<Measured> {
    let mut campaign = Campaign::new(args.settings()).map_err(|e| BadConfig(e.to_string()))?;
    let (from, began) = (url.to_string(), Instant::now());
    let mut session = Session { args, url, trust: args.authorities()?, folder, stop, runs: 0, forms: args.forms() };
    let mut measured = Measured::default();
    while let Some(probe) = campaign.next(Span::from_std(began.elapsed()))? {
        let left = probe.expected + campaign.left();
        say_error(&format!("{}: {} (about {}; {} in all)", probe.name, probe.what, rough(probe.expected), rough(left)));
        let Some(run) = session.answered(&probe).await? else {
            measured.interrupted = true;
            return Ok(measured);
        };
        let observed = campaign.observe(measured.take(&run));
        observed.map_err(|e| {
            if let SettingsError::NoAnswer { .. } = e { anyhow::anyhow!("{from}: {e}") } else { e.into() }
        })?;
        if run.manifest.end.is_some_and(|end| end.interrupted) {
            measured.interrupted = true;
            return Ok(measured);
        }
    }
    measured.from = format!("{from}, in {}", rough(Span::from_std(began.elapsed())));
    measured.take_remarks(&campaign);
    if let Some(form) = session.forms.first().filter(|form| **form != args.forms()[0]) {
        measured.notes.push(format!("the server refused other forms of requests; prompts went as {}", form.words()));
    }
    Ok(measured)
}

impl Session<'_> {
    /// Offers a probe; the first one in other forms too, until one is answered. `None` if it was stopped.
    async fn answered(&mut self, probe: &Probe) -> anyhow::Result<Option<Run>> {
        loop {
            let Some(run) = self.offer(probe).await? else { return Ok(None) };
            let refused = |code: u16| matches!(code, 400 | 404 | 405 | 415 | 422 | 501);
            let all_refused = !run.rows.is_empty() && run.rows.iter().all(|row| row.status.is_some_and(refused));
            if self.forms.len() < 2 || !all_refused {
                // From now on it is this one.
                self.forms.truncate(1);
                return Ok(Some(run));
            }
            self.forms.remove(0);
            say_error(&format!("{}: refused; again with prompts as {}", probe.name, self.forms[0].words()));
        }
    }

    async fn offer(&mut self, probe: &Probe) -> anyhow::Result<Option<Run>> {
        self.runs += 1;
        let folder = self.folder.join(format!("{:02}-{}", self.runs, probe.name));
        let progress = Arc::new(Progress::new());
        let made = elasticserve_load::run(&self.config(probe), &probe.plan, &folder, progress, self.stop.clone()).await;
        match made {
            Ok(_) => Ok(Some(read_run(&folder)?)),
            Err(LoadError::StoppedEarly) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn config(&self, probe: &Probe) -> LoadConfig {
        let (args, form) = (self.args, self.forms[0]);
        let model = args.model.as_deref().unwrap_or_default();
        let mut config = LoadConfig::new(&probe.name, self.url.clone(), model);
        config.endpoint = args.endpoint();
        config.trust = self.trust.clone();
        config.api_key = std::env::var("OPENAI_API_KEY").ok().filter(|key| !key.is_empty()).map(Secret::new);
        config.headers.clone_from(&args.header);
        config.extra_body = args.extra_body.clone().unwrap_or_default();
        (config.prompt, config.ignore_eos) = (form.prompt, form.ignore_eos);
        config.tolerances = Tolerances::of_lateness(MAX_SEND_LAG);
        if self.runs == 1 {
            config.warmups = args.num_warmups;
        }
        if probe.salted {
            let salt = fresh_salt();
            // With it the prompts of the run can be made again.
            config.metadata.insert("salt".to_owned(), salt.clone());
            config.salt = Some(salt);
        }
        config
    }
}

impl Args {
    /// The forms that requests may take, the preferred one first.
    fn forms(&self) -> Vec<Form> {
        let takes_ids = self.endpoint() == Endpoint::Completions;
        let allowed = |form: &&Form| match self.prompt {
            Some(prompt) => form.prompt == prompt,
            None => takes_ids || form.prompt == PromptKind::Text,
        };
        FORMS.iter().filter(allowed).copied().collect()
    }
}
