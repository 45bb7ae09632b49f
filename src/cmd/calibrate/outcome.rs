//! What a calibration comes to: files, text, JSON.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use elasticserve_core::calibrate::{Calibration, Parameter, profile_text};
use elasticserve_core::engine::Profile;
use elasticserve_report::write_file;
use serde::Serialize;

use super::{Args, Measured, page, text};
use crate::cmd::{say, say_error};

/// The profile in the folder of a calibration.
const PROFILE_FILE: &str = "profile.toml";
/// Everything else in numbers.
const JSON_FILE: &str = "calibration.json";

/// A calibration with all that is said of it.
#[derive(Serialize)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) model: String,
    /// Where the answers come from, in words.
    pub(super) measured: String,
    pub(super) parameters: Vec<Parameter>,
    /// What to know before the profile is used.
    pub(super) warnings: Vec<String>,
    /// What happened on the way.
    pub(super) notes: Vec<String>,
    /// Probes that did not fit into the budget.
    pub(super) skipped: Vec<String>,
    #[serde(flatten)]
    pub(super) calibration: Calibration,
    #[serde(skip)]
    profile: Profile,
}

impl Outcome {
    pub(super) fn new(args: &Args, measured: Measured, calibration: Calibration) -> Self {
        let assumed = args.assumed();
        let profile = calibration.profile(&args.name, &measured.model, &assumed);
        let mut notes = measured.notes;
        if args.no_salt {
            notes.push("--no-salt: all prompts of the grid were the beginning of one text".to_owned());
        }
        Self {
            name: args.name.clone(),
            model: measured.model,
            measured: measured.from,
            parameters: calibration.parameters(&profile, &assumed),
            warnings: calibration.warnings(),
            notes,
            skipped: measured.skipped,
            calibration,
            profile,
        }
    }

    /// Writes the files and prints what was found.
    pub(super) fn conclude(&self, args: &Args, folder: Option<&Path>) -> anyhow::Result<ExitCode> {
        let json = serde_json::to_string_pretty(self)? + "\n";
        let mut written: Vec<PathBuf> = Vec::new();
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            for (file, content) in [(PROFILE_FILE, self.file()?), (JSON_FILE, json.clone())] {
                write_file(&folder.join(file), &content)?;
                written.push(folder.join(file));
            }
            written.extend(page::page(self).write_into(folder)?);
        }
        if let Some(out) = &args.out {
            write_file(out, &self.file()?).context("--out")?;
            written.push(out.clone());
        }
        if args.json {
            say(json.trim_end());
        } else {
            say(text::text(self).trim_end());
        }
        for file in written {
            say_error(&format!("wrote {}", file.display()));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The permits that are of use, if they are known.
    pub(super) fn permits(&self) -> Option<u32> {
        self.calibration.knee.as_ref().map(|knee| knee.permits)
    }

    /// What was found, in a sentence.
    pub(super) fn answer(&self) -> String {
        let fitted = &self.calibration.fitted;
        let mut answer = format!("A step takes {:.2} ms", fitted.base.value);
        if let (Some(token), Some(roof)) = (fitted.prefill_token, fitted.roof) {
            answer += &format!(", a prompt token beyond the first {:.0} another {:.4} ms", roof.value, token.value);
        }
        if let Some(seats) = self.calibration.seats {
            answer += &format!("; {} sequences run at once", seats.count());
        }
        if let Some(permits) = self.permits() {
            answer += &format!(", and more than {permits} permits are of no use");
        }
        answer + "."
    }

    /// The profile's file; what is read back is what the simulator gets.
    fn file(&self) -> anyhow::Result<String> {
        let mut head = format!("Engine profile, calibrated with elasticserve calibrate from {}.\n", self.measured);
        head += &format!("{} answers; {}\n", self.calibration.answers, self.answer());
        head += "fitted: least squares over medians, ± standard error and 95% interval by resampling; observed: counted or read\n\
                 off; assumed: not known from outside, so put in what you know. Times are in ms.\n";
        for warning in &self.warnings {
            head += &format!("\nwarning: {warning}\n");
        }
        let text = profile_text(&self.profile, &self.parameters, &wrapped(&head));
        Profile::from_toml(&text).context("the profile that was found")?;
        Ok(text)
    }
}

/// The text with its lines broken at spaces before they get wider than a comment should.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 116;
    let mut out = String::new();
    for line in text.lines() {
        let mut width = 0;
        for word in line.split(' ') {
            if width > 0 && width + 1 + word.chars().count() > WIDTH {
                out.push('\n');
                width = 0;
            }
            if width > 0 {
                out.push(' ');
                width += 1;
            }
            out.push_str(word);
            width += word.chars().count();
        }
        out.push('\n');
    }
    out
}
