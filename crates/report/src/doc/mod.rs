//! A document: what was found, said once, and rendered as a page and as its Markdown twin.
//!
//! A [`Doc`] is plain text, tables and pictures in order: the answer first, then sections. It knows nothing of HTML or
//! Markdown. Both renderers escape every text they are given, so a page cannot forget it, and both render the same
//! words: a picture becomes in Markdown its caption, its alternative text and the table of its numbers.
//!
//! ```
//! use elasticserve_report::chart::{Better, Effect, EffectGroup, Effects};
//! use elasticserve_report::doc::{Doc, Section, Table, Tone};
//! use elasticserve_report::Unit;
//!
//! let effect = Effect { name: "all tenants".into(), value: 0.6, low: Some(0.465), high: Some(0.635), n: 5 };
//! let picture = Effects {
//!     title: "What the budget changes".into(),
//!     note: String::new(),
//!     confidence: 0.95,
//!     groups: vec![EffectGroup {
//!         name: "attainment".into(),
//!         unit: Unit::Points,
//!         better: Better::Higher,
//!         effects: vec![effect],
//!     }],
//! };
//! let table = Table::new("Effects", "metric")
//!     .number("median difference, points")
//!     .number("pairs")
//!     .row("attainment", ["+60.0", "5"]);
//! let doc = Doc::new("comparison", "none against 750 ms", "The budget raises attainment by 60.0 points.")
//!     .verdict("better", Tone::Good)
//!     .subject("200 arrivals at 16/s, five seeds")
//!     .badge("simulated: no server was measured")
//!     .section(Section::new("Effects").picture(picture.draw()).table(table));
//! assert!(doc.to_html().contains("<svg"));
//! assert!(doc.to_markdown().contains("| attainment | +60.0 | 5 |"));
//! ```

mod html;
mod markdown;
mod plain;
mod table;

use std::path::{Path, PathBuf};

pub(crate) use plain::plain;
pub use table::{Align, Cell, Column, Row, Table};

use crate::chart::Picture;
use crate::write::{WriteError, write_file};

/// A document.
///
/// Texts are plain: line breaks count as spaces, control characters are replaced, and nothing in them is markup.
#[derive(Clone, Debug, Default)]
pub struct Doc {
    pub(crate) kind: String,
    pub(crate) title: String,
    pub(crate) subject: String,
    pub(crate) badges: Vec<(Tone, String)>,
    pub(crate) verdict: Option<(Tone, String)>,
    pub(crate) answer: Vec<String>,
    pub(crate) points: Vec<(Tone, String)>,
    pub(crate) sections: Vec<Section>,
}

/// How something is to be taken.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    /// Neither good nor bad.
    #[default]
    Neutral,
    /// As it should be.
    Good,
    /// To be known before anything is made of it.
    Warn,
    /// Not as it should be.
    Bad,
}

/// A part of a document under a heading.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Clone, Debug)]
pub enum Block {
    /// Sentences.
    Paragraph(String),
    /// Points, each with how it is to be taken.
    List(Vec<(Tone, String)>),
    /// A table. Tables without rows are left out.
    Table(Table),
    /// Tables that stand beside each other where there is room.
    Tables(Vec<Table>),
    /// A picture. Pictures that follow each other stand beside each other where there is room.
    Picture(Picture),
    /// Figures that matter most, a card each.
    Cards(Vec<Card>),
    /// Words and what they mean.
    Terms(Vec<(String, String)>),
    /// Lines to be copied as they are, such as a command.
    Verbatim(String),
    /// What is folded away under a line until it is asked for; in print and in Markdown it is there.
    Details(String, Vec<Block>),
    /// A heading within a section, with how it is to be taken.
    Heading(Tone, String),
}

/// A figure in large, with what stands under it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// What the card is about, such as a run's name.
    pub name: String,
    /// The figure.
    pub figure: String,
    /// What the figure is.
    pub meaning: String,
    /// Further figures: a name, a value and what is said beside it.
    pub more: Vec<(String, String, String)>,
}

impl Doc {
    /// A document of a kind (`report`, `check`, …) with a title and the answer in one sentence.
    #[must_use]
    pub fn new(kind: &str, title: impl Into<String>, answer: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), title: title.into(), answer: vec![answer.into()], ..Self::default() }
    }

    /// With the verdict in a word, before the answer.
    #[must_use]
    pub fn verdict(mut self, word: &str, tone: Tone) -> Self {
        self.verdict = Some((tone, word.to_owned()));
        self
    }

    /// With a further sentence of the answer, in a paragraph of its own.
    #[must_use]
    pub fn answer(mut self, sentence: impl Into<String>) -> Self {
        self.answer.push(sentence.into());
        self
    }

    /// With what was run against what, in a line under the title.
    #[must_use]
    pub fn subject(mut self, line: impl Into<String>) -> Self {
        self.subject = line.into();
        self
    }

    /// With a remark that belongs to every figure of the document, such as `simulated`.
    #[must_use]
    pub fn badge(mut self, text: impl Into<String>) -> Self {
        self.badges.push((Tone::Neutral, text.into()));
        self
    }

    /// With a remark without which the figures would be misread.
    #[must_use]
    pub fn warning(mut self, text: impl Into<String>) -> Self {
        self.badges.push((Tone::Warn, text.into()));
        self
    }

    /// With a point under the answer: what is needed, or what stands against it.
    #[must_use]
    pub fn point(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.points.push((tone, text.into()));
        self
    }

    /// With a further section. One without blocks is left out.
    #[must_use]
    pub fn section(mut self, section: Section) -> Self {
        if !section.blocks.is_empty() {
            self.sections.push(section);
        }
        self
    }

    /// A self-contained page: no script, nothing from the network, light and dark, for print and small screens.
    #[must_use]
    pub fn to_html(&self) -> String {
        html::render(self)
    }

    /// The same words and numbers as Markdown (CommonMark with tables).
    #[must_use]
    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }

    /// Writes the page and its twin, where they are wanted, each as a whole or not at all. Gives the files' names.
    ///
    /// # Errors
    /// [`WriteError::Io`] with the file's name.
    pub fn write(&self, html: Option<&Path>, markdown: Option<&Path>) -> Result<Vec<PathBuf>, WriteError> {
        let mut written = Vec::new();
        if let Some(file) = html {
            write_file(file, &self.to_html())?;
            written.push(file.to_owned());
        }
        if let Some(file) = markdown {
            write_file(file, &self.to_markdown())?;
            written.push(file.to_owned());
        }
        Ok(written)
    }

    /// Writes `report.html` and `report.md` into a folder. Gives the files' names.
    ///
    /// # Errors
    /// [`WriteError::Io`] with the file's name.
    pub fn write_into(&self, folder: &Path) -> Result<Vec<PathBuf>, WriteError> {
        self.write(Some(&folder.join(crate::HTML_FILE)), Some(&folder.join(crate::MARKDOWN_FILE)))
    }
}

impl Section {
    /// A section under a heading.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: Vec::new() }
    }

    /// With any block.
    #[must_use]
    pub fn block(mut self, block: Block) -> Self {
        if !block.is_empty() {
            self.blocks.push(block);
        }
        self
    }

    /// With sentences.
    #[must_use]
    pub fn paragraph(self, text: impl Into<String>) -> Self {
        self.block(Block::Paragraph(text.into()))
    }

    /// With a list of points.
    #[must_use]
    pub fn list<T: Into<String>>(self, points: impl IntoIterator<Item = T>) -> Self {
        self.block(Block::List(points.into_iter().map(|p| (Tone::Neutral, p.into())).collect()))
    }

    /// With a table; one without rows is left out.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        self.block(Block::Table(table))
    }

    /// With tables beside each other.
    #[must_use]
    pub fn tables(self, tables: impl IntoIterator<Item = Table>) -> Self {
        self.block(Block::Tables(tables.into_iter().filter(|t| !t.rows.is_empty()).collect()))
    }

    /// With a picture.
    #[must_use]
    pub fn picture(self, picture: Picture) -> Self {
        self.block(Block::Picture(picture))
    }

    /// With pictures.
    #[must_use]
    pub fn pictures(self, pictures: impl IntoIterator<Item = Picture>) -> Self {
        pictures.into_iter().fold(self, Self::picture)
    }

    /// With words and what they mean.
    #[must_use]
    pub fn terms<A: Into<String>, B: Into<String>>(self, terms: impl IntoIterator<Item = (A, B)>) -> Self {
        self.block(Block::Terms(terms.into_iter().map(|(a, b)| (a.into(), b.into())).collect()))
    }

    /// With lines to be copied.
    #[must_use]
    pub fn verbatim(self, text: impl Into<String>) -> Self {
        self.block(Block::Verbatim(text.into()))
    }

    /// With blocks that are folded away under a line.
    #[must_use]
    pub fn details(self, line: impl Into<String>, blocks: impl IntoIterator<Item = Block>) -> Self {
        self.block(Block::Details(line.into(), blocks.into_iter().filter(|b| !b.is_empty()).collect()))
    }
}

impl Block {
    /// Whether there is nothing to show.
    fn is_empty(&self) -> bool {
        match self {
            Self::Paragraph(text) | Self::Verbatim(text) | Self::Heading(_, text) => text.is_empty(),
            Self::List(points) => points.is_empty(),
            Self::Table(table) => table.rows.is_empty(),
            Self::Tables(tables) => tables.is_empty(),
            Self::Cards(cards) => cards.is_empty(),
            Self::Terms(terms) => terms.is_empty(),
            Self::Details(_, blocks) => blocks.is_empty(),
            Self::Picture(_) => false,
        }
    }
}

impl Tone {
    /// The tone's name in the style sheet.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Neutral => "neutral",
            Self::Good => "good",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }

    /// A sign that says the tone without colour; empty for none.
    pub(crate) const fn sign(self) -> &'static str {
        match self {
            Self::Neutral => "",
            Self::Good => "✓",
            Self::Warn => "!",
            Self::Bad => "✗",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
