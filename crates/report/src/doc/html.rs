//! A document as one page without scripts that needs nothing from anywhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::plain::{lines, plain};
use super::{Align, Block, Card, Cell, Doc, Row, Section, Table, Tone};
use crate::chart::{self, Key, Picture};

const STYLE: &str = include_str!("style.css");
/// Nothing may be loaded or run; only the styles in the page itself apply.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The whole page.
pub(super) fn render(doc: &Doc) -> String {
    let mut page = Page::default();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content=(concat!("elasticserve ", env!("CARGO_PKG_VERSION")));
                title { (plain(&doc.title)) " · ElasticServe " (plain(&doc.kind)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (chart::patterns())
                main {
                    (head(doc))
                    @for section in &doc.sections { (page.section(section)) }
                    footer { "Made by elasticserve " (env!("CARGO_PKG_VERSION")) ". This page holds all it needs." }
                }
            }
        }
    }
    .into_string()
}

/// What was asked, and the answer.
fn head(doc: &Doc) -> Markup {
    let tone = doc.verdict.as_ref().map_or(Tone::Neutral, |v| v.0);
    html! {
        header {
            p.kicker { "ElasticServe " (plain(&doc.kind)) }
            h1 { (plain(&doc.title)) }
            @if !doc.subject.is_empty() { p.subject { (plain(&doc.subject)) } }
            @if !doc.badges.is_empty() {
                ul.badges { @for (tone, text) in &doc.badges { li class=(tone.name()) { (plain(text)) } } }
            }
            div class=(format!("answer a-{}", tone.name())) {
                @for (i, sentence) in doc.answer.iter().enumerate() {
                    p {
                        @if let (0, Some((_, word))) = (i, &doc.verdict) { b.verdict { (plain(word)) } " " }
                        (plain(sentence))
                    }
                }
            }
            (points(&doc.points, "points"))
        }
    }
}

fn points(points: &[(Tone, String)], class: &str) -> Markup {
    html! {
        @if !points.is_empty() {
            ul class=(class) {
                @for (tone, text) in points {
                    li class=(tone.name()) {
                        @if !tone.sign().is_empty() { span.sign aria-label=(tone.name()) { (tone.sign()) } }
                        (plain(text))
                    }
                }
            }
        }
    }
}

/// What has to be counted over a whole page.
#[derive(Default)]
struct Page {
    pictures: usize,
}

impl Page {
    fn section(&mut self, section: &Section) -> Markup {
        html! {
            section {
                h2 { (plain(&section.title)) }
                (self.blocks(&section.blocks))
            }
        }
    }

    fn blocks(&mut self, blocks: &[Block]) -> Markup {
        let is_picture = |b: &Block| matches!(b, Block::Picture(_));
        html! {
            @for group in blocks.chunk_by(|a, b| is_picture(a) && is_picture(b)) {
                @if group.iter().all(is_picture) {
                    div.pictures { @for block in group { (self.block(block)) } }
                } @else {
                    @for block in group { (self.block(block)) }
                }
            }
        }
    }

    fn block(&mut self, block: &Block) -> Markup {
        match block {
            Block::Paragraph(text) => html! { p.text { (plain(text)) } },
            Block::List(items) => points(items, "list"),
            Block::Table(t) => table(t),
            Block::Tables(tables) => {
                let narrow = tables.iter().all(|t| t.columns.len() <= 2);
                html! { div class=(if narrow { "columns" } else { "stack" }) { @for t in tables { (table(t)) } } }
            }
            Block::Picture(picture) => self.figure(picture),
            Block::Cards(cards) => html! { div.cards { @for c in cards { (card(c)) } } },
            Block::Terms(terms) => html! {
                dl.terms { @for (term, meaning) in terms { div { dt { (plain(term)) } dd { (plain(meaning)) } } } }
            },
            Block::Verbatim(text) => html! { pre { (lines(text).join("\n")) } },
            Block::Details(line, blocks) => html! {
                details { summary { (plain(line)) } (self.blocks(blocks)) }
            },
            Block::Heading(tone, text) => html! {
                h3 class=(tone.name()) {
                    @if !tone.sign().is_empty() { span.sign aria-label=(tone.name()) { (tone.sign()) } }
                    (plain(text))
                }
            },
        }
    }

    fn figure(&mut self, picture: &Picture) -> Markup {
        self.pictures += 1;
        let id = format!("picture{}", self.pictures);
        html! {
            figure {
                figcaption { (plain(&picture.title)) }
                @if !picture.legend.is_empty() {
                    ul.legend {
                        @for key in &picture.legend {
                            li {
                                (chart::swatch(key))
                                @match key {
                                    Key::Class(class) => { b { (class.name()) } span.meaning { " " (class.meaning()) } },
                                    Key::Run(_, text) | Key::Mark(_, text) | Key::Line(_, text) => (plain(text)),
                                }
                            }
                        }
                    }
                }
                (picture.svg(&id))
                @if !picture.note.is_empty() { p.note { (plain(&picture.note)) } }
                @if !picture.numbers.rows.is_empty() {
                    details.numbers { summary { "The numbers of this picture" } (table(&picture.numbers)) }
                }
            }
        }
    }
}

fn table(table: &Table) -> Markup {
    let class = |i: usize| match table.columns.get(i).map(|c| c.align) {
        Some(Align::Words) => "w",
        _ => "",
    };
    html! {
        @if !table.rows.is_empty() {
            div.scroll tabindex="0" {
                table {
                    @if !table.title.is_empty() { caption { (plain(&table.title)) } }
                    thead {
                        tr {
                            th scope="col" { (plain(&table.corner)) }
                            @for (i, column) in table.columns.iter().enumerate() {
                                th scope="col" class=(class(i)) { (plain(&column.head)) }
                            }
                        }
                    }
                    tbody { @for row in &table.rows { (table_row(row, table.columns.len(), class)) } }
                }
            }
        }
    }
}

fn table_row(row: &Row, columns: usize, class: impl Fn(usize) -> &'static str) -> Markup {
    let empty = Cell::default();
    html! {
        tr {
            th scope="row" { (plain(&row.name)) }
            @for i in 0..columns {
                @let cell = row.cells.get(i).unwrap_or(&empty);
                td class=(format!("{} t-{}", class(i), cell.tone.name())) {
                    (plain(&cell.text))
                    @if let Some(n) = cell.n { span.n { " n=" (crate::fmt::count(n)) } }
                }
            }
        }
    }
}

fn card(card: &Card) -> Markup {
    html! {
        div.card {
            h3 { (plain(&card.name)) }
            p.big { (plain(&card.figure)) }
            p { (plain(&card.meaning)) }
            @if !card.more.is_empty() {
                dl {
                    @for (name, value, beside) in &card.more {
                        div {
                            dt { (plain(name)) }
                            dd { (plain(value)) @if !beside.is_empty() { span.n { " " (plain(beside)) } } }
                        }
                    }
                }
            }
        }
    }
}
