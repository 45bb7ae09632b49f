//! A table of a document.

use super::Tone;

/// A table: named columns, and rows that each have a name and a cell for each column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Its heading; may be empty.
    pub title: String,
    /// The heading of the column of row names.
    pub corner: String,
    /// The columns after that of the names.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A column. A unit, where there is one, belongs into its heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub head: String,
    /// How its cells stand.
    pub align: Align,
}

/// How cells stand.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// Numbers: to the right, on one line.
    #[default]
    Number,
    /// Words: to the left, broken where needed.
    Words,
}

/// A row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// A cell for each column; cells that are missing at the end stay empty.
    pub cells: Vec<Cell>,
}

/// A cell: a text, the size of the sample behind it, and how it is to be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// How many values the figure is made of, where the cell itself says so.
    pub n: Option<u64>,
    /// How it is to be taken.
    pub tone: Tone,
}

impl Table {
    /// A table with a title and the heading of the column of row names.
    #[must_use]
    pub fn new(title: impl Into<String>, corner: impl Into<String>) -> Self {
        Self { title: title.into(), corner: corner.into(), ..Self::default() }
    }

    /// With a column of numbers.
    #[must_use]
    pub fn number(mut self, head: impl Into<String>) -> Self {
        self.columns.push(Column { head: head.into(), align: Align::Number });
        self
    }

    /// With a column of words.
    #[must_use]
    pub fn words(mut self, head: impl Into<String>) -> Self {
        self.columns.push(Column { head: head.into(), align: Align::Words });
        self
    }

    /// With columns of numbers.
    #[must_use]
    pub fn numbers<T: Into<String>>(self, heads: impl IntoIterator<Item = T>) -> Self {
        heads.into_iter().fold(self, Self::number)
    }

    /// With a row.
    #[must_use]
    pub fn row<C: Into<Cell>>(mut self, name: impl Into<String>, cells: impl IntoIterator<Item = C>) -> Self {
        self.rows.push(Row { name: name.into(), cells: cells.into_iter().map(Into::into).collect() });
        self
    }
}

impl Cell {
    /// With the size of the sample.
    #[must_use]
    pub const fn n(mut self, n: u64) -> Self {
        self.n = Some(n);
        self
    }

    /// With how it is to be taken.
    #[must_use]
    pub const fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}
