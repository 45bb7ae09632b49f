//! A document as Markdown: CommonMark with tables.

use std::fmt::Write;

use super::plain::{lines, plain};
use super::{Align, Block, Card, Cell, Doc, Table, Tone};
use crate::chart::Picture;
use crate::fmt;

/// The whole text.
pub(super) fn render(doc: &Doc) -> String {
    let mut out = Text(format!("# {}\n", inline(&doc.title)));
    out.paragraph(&format!("ElasticServe {}", inline(&doc.kind)));
    if !doc.subject.is_empty() {
        out.paragraph(&start(&doc.subject));
    }
    out.list(&doc.badges);
    for (i, sentence) in doc.answer.iter().enumerate() {
        match &doc.verdict {
            Some((_, word)) if i == 0 => out.paragraph(&format!("**{}** {}", inline(word), inline(sentence))),
            _ => out.paragraph(&format!("**{}**", inline(sentence))),
        }
    }
    out.list(&doc.points);
    for section in &doc.sections {
        out.paragraph(&format!("## {}", inline(&section.title)));
        out.blocks(&section.blocks);
    }
    out.0
}

/// Markdown as it grows.
struct Text(String);

impl Text {
    /// Lines that stand apart from what is before.
    fn paragraph(&mut self, text: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "\n{text}");
    }

    fn list(&mut self, points: &[(Tone, String)]) {
        for (i, (tone, text)) in points.iter().enumerate() {
            let sign = if tone.sign().is_empty() { String::new() } else { format!("{} ", inline(tone.sign())) };
            let item = if sign.is_empty() { start(text) } else { sign + &inline(text) };
            let _ = writeln!(self.0, "{}- {item}", if i == 0 { "\n" } else { "" });
        }
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.block(block);
        }
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Paragraph(text) => self.paragraph(&start(text)),
            Block::List(points) => self.list(points),
            Block::Table(table) => self.table(table),
            Block::Tables(tables) => tables.iter().for_each(|t| self.table(t)),
            Block::Picture(picture) => self.picture(picture),
            Block::Cards(cards) => cards.iter().for_each(|c| self.card(c)),
            Block::Terms(terms) => {
                for (i, (term, meaning)) in terms.iter().enumerate() {
                    let lead = if i == 0 { "\n" } else { "" };
                    let _ = writeln!(self.0, "{lead}- **{}**: {}", inline(term), inline(meaning));
                }
            }
            Block::Verbatim(text) => {
                // Indented by four, a line can end no fence.
                let code: Vec<String> = lines(text).iter().map(|line| format!("    {line}")).collect();
                self.paragraph(&code.join("\n"));
            }
            Block::Details(line, blocks) => {
                self.paragraph(&format!("**{}**", inline(line)));
                self.blocks(blocks);
            }
            Block::Heading(tone, text) => {
                let sign = if tone.sign().is_empty() { String::new() } else { format!("{} ", inline(tone.sign())) };
                self.paragraph(&format!("### {sign}{}", inline(text)));
            }
        }
    }

    fn picture(&mut self, picture: &Picture) {
        self.paragraph(&format!("**Picture: {}**", inline(&picture.title)));
        self.paragraph(&start(&picture.alt));
        if !picture.note.is_empty() {
            self.paragraph(&start(&picture.note));
        }
        self.table(&picture.numbers);
    }

    fn card(&mut self, card: &Card) {
        let more = card.more.iter().map(|(name, value, beside)| {
            let beside = if beside.is_empty() { String::new() } else { format!(" {}", inline(beside)) };
            format!("; {} {}{beside}", inline(name), inline(value))
        });
        let more: String = more.collect();
        self.paragraph(&format!(
            "**{}: {}** {}{more}",
            inline(&card.name),
            inline(&card.figure),
            inline(&card.meaning)
        ));
    }

    fn table(&mut self, table: &Table) {
        if table.rows.is_empty() {
            return;
        }
        if !table.title.is_empty() {
            self.paragraph(&format!("**{}**", inline(&table.title)));
        }
        let heads = table.columns.iter().map(|c| inline(&c.head));
        let marks = table.columns.iter().map(|c| if c.align == Align::Words { "---" } else { "---:" }.to_owned());
        let head = line(std::iter::once(inline(&table.corner)).chain(heads));
        self.paragraph(&format!("{head}\n{}", line(std::iter::once("---".to_owned()).chain(marks))));
        let empty = Cell::default();
        for row in &table.rows {
            let cells = (0..table.columns.len()).map(|i| cell(row.cells.get(i).unwrap_or(&empty)));
            let _ = writeln!(self.0, "{}", line(std::iter::once(inline(&row.name)).chain(cells)));
        }
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
}

fn cell(cell: &Cell) -> String {
    let n = cell.n.map_or_else(String::new, |n| format!(" (n={})", fmt::count(n)));
    inline(&cell.text) + &n
}

/// A text as the beginning of a block: nothing at its start makes it a list, a heading, a quotation or a rule.
fn start(text: &str) -> String {
    let text = inline(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    match (text.as_bytes().get(digits), text.as_bytes().get(digits + 1)) {
        (Some(b'#' | b'>' | b'-' | b'+' | b'='), _) if digits == 0 => format!("\\{text}"),
        (Some(b'.' | b')'), None | Some(b' ')) if digits > 0 => format!("{}\\{}", &text[..digits], &text[digits..]),
        _ => text,
    }
}

/// A text within a line, in which nothing is markup: no tag, link, emphasis, code, entity, cell or address.
fn inline(text: &str) -> String {
    let chars: Vec<char> = plain(text).trim().chars().collect();
    let word = |i: Option<usize>| i.and_then(|i| chars.get(i)).is_some_and(|c| c.is_alphanumeric());
    let follows = |i: usize, what: &str| chars[i + 1..].iter().copied().take(what.len()).eq(what.chars());
    let www = |i: usize| i >= 3 && chars[i - 3..i].iter().all(|c| matches!(c, 'w' | 'W'));
    let mut out = String::with_capacity(text.len());
    for (i, c) in chars.iter().enumerate() {
        let escaped = match c {
            '<' => {
                out.push_str("&lt;");
                continue;
            }
            '\\' | '`' | '*' | '[' | ']' | '|' | '~' | '$' | '@' => true,
            // Within a word it is no emphasis.
            '_' => !(word(i.checked_sub(1)) && word(Some(i + 1))),
            '&' => chars.get(i + 1).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '#'),
            // What makes an address of a text by itself.
            ':' => follows(i, "//"),
            '.' => www(i),
            _ => false,
        };
        if escaped {
            out.push('\\');
        }
        out.push(*c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_within_a_text_is_markup() {
        assert_eq!(inline("<script>|`x`|[a](b)*c*"), "&lt;script>\\|\\`x\\`\\|\\[a\\](b)\\*c\\*");
        assert_eq!(inline("a\nb  _c_ ttft_p99<=1000"), "a b  \\_c\\_ ttft_p99&lt;=1000");
        assert_eq!(
            inline("http://evil.example www.evil.example a@b.c"),
            "http\\://evil.example www\\.evil.example a\\@b.c"
        );
        assert_eq!(inline("R&D &lt; &#60;"), "R\\&D \\&lt; \\&#60;");
    }

    #[test]
    fn nothing_at_the_start_of_a_text_makes_a_block_of_it() {
        let told = ["# a", "> a", "- a", "+ a", "=== a", "1. a", "12) a", "3.5 a", "--- a"].map(start);
        assert_eq!(told, ["\\# a", "\\> a", "\\- a", "\\+ a", "\\=== a", "1\\. a", "12\\) a", "3.5 a", "\\--- a"]);
    }

    #[test]
    fn a_cell_cannot_leave_its_table() {
        let table = Table::new("T", "a").number("b").words("c").row("x|y\nz", ["1|2", "q"]).row("short", ["3"]);
        let mut out = Text(String::new());
        out.table(&table);
        assert_eq!(
            out.0,
            "\n**T**\n\n| a | b | c |\n| --- | ---: | --- |\n| x\\|y z | 1\\|2 | q |\n| short | 3 |  |\n"
        );
    }
}
