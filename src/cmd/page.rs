//! Where a command's document goes.

use std::path::PathBuf;

use anyhow::Context;
use elasticserve_report::doc::Doc;

use super::say_error;

/// The files of a document, for a command that leaves them to the user.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct PageArgs {
    /// Also write the page to this file: self-contained HTML
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Also write the same as Markdown to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
}

impl PageArgs {
    /// Whether a document is wanted at all.
    pub(crate) const fn wanted(&self) -> bool {
        self.html.is_some() || self.markdown.is_some()
    }

    /// Writes the document to the files that were asked for, and says so on stderr.
    pub(crate) fn write(&self, doc: &Doc) -> anyhow::Result<()> {
        let written = doc.write(self.html.as_deref(), self.markdown.as_deref()).context("--html, --markdown")?;
        for file in written {
            say_error(&format!("wrote {}", file.display()));
        }
        Ok(())
    }
}
