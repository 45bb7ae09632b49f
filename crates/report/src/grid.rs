//! A table as text.

use std::fmt::Write;

/// Before the name of a row.
const INDENT: &str = "  ";

/// A table with aligned columns: a line of the title and the columns' names, then a line for each row, which
/// has a name and a cell for each column. Ends with a newline. Cells that are missing at a row's end stay empty.
#[must_use]
pub fn grid(title: &str, columns: &[String], rows: &[(String, Vec<String>)]) -> String {
    let wide = |s: &str| s.chars().count();
    let names = rows.iter().map(|(name, _)| INDENT.len() + wide(name)).chain([wide(title)]);
    let first = names.max().unwrap_or(0);
    let width =
        |i: usize| rows.iter().filter_map(|(_, cells)| cells.get(i)).chain([&columns[i]]).map(|c| wide(c)).max();
    let widths: Vec<usize> = (0..columns.len()).map(|i| width(i).unwrap_or(0)).collect();
    let mut out = String::new();
    let mut line = |name: &str, cells: &[String]| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{name:first$}");
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(out, "  {cell:>width$}");
        }
        out.push('\n');
    };
    line(title, columns);
    for (name, cells) in rows {
        line(&format!("{INDENT}{name}"), cells);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [("a".to_owned(), vec!["1".to_owned(), "20.5%".to_owned()]), ("bb".to_owned(), vec!["100".to_owned()])];
        let text = grid("T", &["n".to_owned(), "x".to_owned()], &rows);
        assert_eq!(text, "T       n      x\n  a     1  20.5%\n  bb  100\n");
    }
}
