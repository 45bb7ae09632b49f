//! The campaign against a server.

use std::path::Path;
use std::time::Instant;

use elasticserve_core::calibrate::{Campaign, Probe, SettingsError};
use elasticserve_core::time::Span;
use elasticserve_load::{BaseUrl, Endpoint, PromptKind, Stop};
use elasticserve_report::{Run, read_run};

use super::{Args, Measured, rough};
use crate::cmd::{BadConfig, say_error};
use crate::lab::{Lab, Salt, Stand, Terms, Watch, Way};

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
    lab: Lab,
    folder: &'a Path,
    stop: &'a Stop,
    /// Runs so far, those that were refused included.
    runs: u32,
    forms: Vec<Form>,
}

/// Offers probe after probe, each into a folder of its own.
pub(super) async fn measure(args: &Args, url: BaseUrl, folder: &Path, stop: &Stop) -> anyhow::Result<Measured> {
    let mut campaign = Campaign::new(args.settings()).map_err(|e| BadConfig(e.to_string()))?;
    // Before anything is sent: a certificate that cannot be read is no server's fault.
    args.authorities()?;
    let (from, began) = (url.to_string(), Instant::now());
    let lab = Lab::open(Stand::Servers(vec![url]), folder).await?;
    let mut session = Session { args, lab, folder, stop, runs: 0, forms: args.forms() };
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
        let watch = Watch { stop: self.stop.clone(), ..Watch::default() };
        let terms = self.terms(probe)?;
        if self.lab.run(&probe.plan, &Way::Direct, &terms, &folder, &watch).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(read_run(&folder)?))
    }

    fn terms(&self, probe: &Probe) -> Result<Terms, BadConfig> {
        let args = self.args;
        let mut terms = Terms::new(&probe.name);
        let form = self.forms[0];
        terms.load.model = args.model.clone().unwrap_or_default();
        terms.load.endpoint = args.endpoint();
        terms.load.trust = args.authorities()?;
        terms.load.headers.clone_from(&args.header);
        terms.load.extra_body = args.extra_body.clone().unwrap_or_default();
        (terms.load.prompt, terms.load.ignore_eos) = (form.prompt, form.ignore_eos);
        if self.runs == 1 {
            terms.load.warmups = args.num_warmups;
        }
        terms.salt = if probe.salted { Salt::Fresh } else { Salt::None };
        Ok(terms)
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
